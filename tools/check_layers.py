#!/usr/bin/env python3
"""Checks the shape of the code: include direction, cycles and file length (docs/architecture.md).

A file under src/FOLDER may include its own folder's headers and those of the folders in ALLOWED[FOLDER], and what
those may include. Prints each violation and exits with 1 if there is one.
"""
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
MAX_LINES = 500
MAX_COLUMNS = 100
MAX_FILES = 45  # of a folder
# Files that are only rows of a table may be longer and wider.
TABLES = {
    "src/text/unicode_categories.cpp",
    "src/text/jinja/html_entities.h",
    "src/text/jinja/values/unicode_tables.h",
    "src/text/tokenizer/split_patterns.h",
    "src/checkpoint/gguf/gguf_pre_tokenizers.cpp",
}
CODE_OF_OURS = {".h", ".cpp", ".cu", ".cuh"}
CODE = {".h", ".cpp", ".cu", ".cuh", ".py", ".js", ".css", ".html", ".sh"}

ALLOWED = {  # direct dependencies; the table of docs/architecture.md
    "base": [],
    "storage": ["base"],
    "tensor": ["base"],
    "batch": ["base"],
    "experts": ["base"],
    "kernels/types": ["tensor"],
    # Each device: a header that declares every body, and wings. Instruction sets and tiles are below the operations;
    # `tables` compiles all of them once for each instruction set.
    "kernels/cpu": ["kernels/types"],
    "kernels/cpu/isa": ["kernels/cpu"],
    "kernels/cpu/common": ["kernels/cpu/isa"],
    "kernels/cpu/gemm": ["kernels/cpu/common"],
    "kernels/cpu/fragments": ["kernels/cpu/common"],
    "kernels/cpu/moe": ["kernels/cpu/gemm", "kernels/cpu/fragments"],
    "kernels/cpu/attention": ["kernels/cpu/gemm"],
    "kernels/cpu/elementwise": ["kernels/cpu/attention"],
    "kernels/cpu/recurrent": ["kernels/cpu/elementwise"],
    "kernels/cpu/sampling": ["kernels/cpu/common"],
    "kernels/cpu/roofline": ["kernels/cpu/isa"],
    "kernels/cpu/tables": ["kernels/cpu/elementwise"],
    "kernels/cuda": ["kernels/types"],
    "kernels/cuda/common": ["kernels/cuda"],
    "kernels/cuda/gemm": ["kernels/cuda/common"],
    "kernels/cuda/fp8": ["kernels/cuda/gemm"],
    "kernels/cuda/pages": ["kernels/cuda/common"],
    "kernels/cuda/attention": ["kernels/cuda/pages"],
    "kernels/cuda/moe": ["kernels/cuda/gemm"],
    "kernels/cuda/elementwise": ["kernels/cuda/attention"],
    "kernels/cuda/recurrent": ["kernels/cuda/common"],
    "kernels/cuda/sampling": ["kernels/cuda/common"],
    "kernels/cuda/ranks": ["kernels/cuda/common"],
    "ops": [
        "kernels/cpu/moe", "kernels/cpu/recurrent", "kernels/cpu/sampling", "kernels/cpu/roofline",
        "kernels/cuda/elementwise", "kernels/cuda/moe", "kernels/cuda/recurrent", "kernels/cuda/sampling",
    ],
    "distributed": ["tensor"],
    "distributed/peer": ["distributed", "kernels/cuda/ranks"],
    "distributed/hosts": ["distributed"],
    "config": ["kernels/types"],
    "config/modules": ["config"],
    "cost": ["config"],
    "checkpoint/tensors": ["tensor"],
    "checkpoint/pytorch": ["checkpoint/tensors"],
    "checkpoint/gguf": ["checkpoint/tensors"],
    "checkpoint/files": ["checkpoint/pytorch", "checkpoint/gguf"],
    "checkpoint/quantized": ["checkpoint/files", "config"],
    "checkpoint": ["checkpoint/quantized", "config/modules"],
    "hub": ["checkpoint"],
    "telemetry": ["hub"],
    "text": ["base"],
    "text/tokenizer": ["text"],
    "text/tokenizer/files": ["text/tokenizer"],
    "text/jinja/values": ["text"],
    "text/jinja": ["text/jinja/values"],
    "text/chat": ["text/jinja", "text/parsers", "text/tokenizer"],
    "text/parsers": ["text/tokenizer"],
    "text/grammar": ["text/tokenizer"],
    "text/grammar/captures": ["text/grammar"],
    "text/grammar/schema": ["text/grammar"],
    "text/grammar/sources": ["text/grammar/captures", "text/grammar/schema", "text/parsers"],
    "cache": ["batch"],
    "scheduler": ["cache", "batch"],
    "speculative": ["batch"],
    "attention": ["ops", "batch"],
    "layers/weights": ["ops", "checkpoint", "experts"],
    "layers": ["attention", "distributed", "layers/weights"],
    "models/encoders": ["layers"],
    "models": ["models/encoders"],
    "plugins/transformers": ["models"],
    "sampling": ["ops", "batch"],
    "runtime/steps": ["models", "sampling"],
    "runtime/drafts": ["runtime/steps", "speculative"],
    "runtime": ["runtime/drafts", "distributed/hosts"],
    "engine": ["runtime", "scheduler", "speculative", "hub", "distributed/peer"],
    "engine/encoders": ["engine"],
    "engine/hosts": ["engine"],
    "server/http": ["base"],
    "server/access": ["server/http"],
    "server/core": ["server/access", "engine/encoders", "storage", "telemetry", "text/tokenizer/files", "text/chat", "text/parsers", "text/grammar/sources"],
    "server/api": ["server/core"],
    "server/anthropic": ["server/api"],
    "server/ollama": ["server/api"],
    "server/embeddings": ["server/ollama"],
    "server/responses": ["server/api"],
    "server/page": ["server/core"],
    "server": ["server/anthropic", "server/embeddings", "server/responses", "server/page"],
    "cli": ["server", "engine/hosts"],
    "cli/models": ["cli", "cost"],
    "cli/chat": ["cli/models"],
    "cli/doctor": ["cli"],
    "cli/bench": ["cli/chat", "cli/doctor"],
    "cli/verify": ["cli/chat"],
}
# Folders of tests and of what only tests include. They belong to the folder that they lie in.
TESTING = {"testing", "tests"}
# The scheduler is held to less than its row's closure: it knows no device (docs/architecture.md).
FORBIDDEN = {"scheduler": {"tensor"}, "layers": {"hub"}}
BANNED = [  # pattern, folders it may appear in, reason
    (re.compile(r"std::regex\b|<regex>"), (), "std::regex backtracks (R14)"),
    (re.compile(r"\balloca\s*\("), (), "alloca (R10)"),
    (re.compile(r"^\s*#\s*if(?:def|ndef)?\b"), ("base", "kernels"), "#if outside base/ and kernels/"),
]
INCLUDE = re.compile(r'^\s*#\s*include\s+"([^"]+)"')


def closure(folder, seen=None):
    seen = set() if seen is None else seen
    for dep in ALLOWED[folder]:
        if dep not in seen:
            seen.add(dep)
            closure(dep, seen)
    return seen


def folder_of(path):
    """'kernels/cpu/gemm/x.h' -> 'kernels/cpu/gemm'; None outside the known folders."""
    folder = path.rsplit("/", 1)[0] if "/" in path else ""
    if folder.rsplit("/", 1)[-1] in TESTING:
        folder = folder.rsplit("/", 1)[0]
    return folder if folder in ALLOWED else None


def is_test(path):
    return path.endswith("_test.cpp") or bool(TESTING & set(path.split("/")[:-1]))


def main():
    problems = []
    for folder in ALLOWED:
        if folder in closure(folder):
            problems.append(f"{folder}: the table of allowed includes has a cycle")
    src = ROOT / "src"
    edges = {}
    for path in sorted(src.rglob("*")):
        if path.suffix not in {".h", ".cpp", ".cu", ".cuh"}:
            continue
        relative = path.relative_to(src).as_posix()
        own = folder_of(relative)
        if own is None:
            problems.append(f"src/{relative}: its folder is not in the table of tools/check_layers.py")
            continue
        allowed = closure(own) - FORBIDDEN.get(own, set())
        for number, line in enumerate(path.read_text(errors="replace").splitlines(), 1):
            where = f"src/{relative}:{number}"
            for pattern, exempt, reason in BANNED:
                if pattern.search(line) and own.split("/")[0] not in exempt and not line.lstrip().startswith("//"):
                    problems.append(f"{where}: {reason}")
            match = INCLUDE.match(line)
            if not match:
                continue
            target = folder_of(match.group(1))
            if target is None:
                if not (src / match.group(1)).exists():
                    problems.append(f'{where}: "{match.group(1)}" is not a path below src/')
                continue
            if target != own and target not in allowed:
                problems.append(f"{where}: {own}/ may not include {target}/")
            if "/testing/" in match.group(1) and not is_test(relative):
                problems.append(f"{where}: only tests may include {match.group(1)}")
            if not path.name.endswith("_test.cpp"):
                edges.setdefault(relative, set()).add(match.group(1))

    # Cycles between headers.
    state = {}

    def visit(node, trail):
        state[node] = 1
        for dep in sorted(edges.get(node, ())):
            if state.get(dep) == 1:
                problems.append("include cycle: " + " -> ".join(trail + [node, dep]))
            elif dep not in state:
                visit(dep, trail + [node])
        state[node] = 2

    for node in sorted(edges):
        if node not in state:
            visit(node, [])

    for top in ("src", "tests", "tools", "plugins", "web", "bench", "examples"):
        for path in sorted((ROOT / top).rglob("*")):
            if path.suffix in CODE and path.is_file():
                name = path.relative_to(ROOT).as_posix()
                if name in TABLES:
                    continue
                lines = path.read_text(errors="replace").splitlines()
                if len(lines) > MAX_LINES:
                    problems.append(f"{name}: {len(lines)} lines, {MAX_LINES} allowed")
                if path.suffix in CODE_OF_OURS:
                    problems += [f"{name}:{number}: {len(line)} columns, {MAX_COLUMNS} allowed"
                                 for number, line in enumerate(lines, 1) if len(line) > MAX_COLUMNS]
    for folder in sorted({path.parent for path in src.rglob("*") if path.is_file()}):
        count = sum(path.is_file() for path in folder.iterdir())
        if count > MAX_FILES:
            problems.append(f"{folder.relative_to(ROOT)}: {count} files, {MAX_FILES} allowed")

    for problem in problems:
        print(problem)
    print(f"{len(problems)} problems")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
