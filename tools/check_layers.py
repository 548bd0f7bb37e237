#!/usr/bin/env python3
"""Checks the shape of the code: include direction, cycles and file length (docs/design.md, section 2).

A file under src/FOLDER may include its own folder's headers and those of the folders in ALLOWED[FOLDER], and what
those may include. Prints each violation and exits with 1 if there is one.
"""
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
MAX_LINES = 500
CODE = {".h", ".cpp", ".cu", ".cuh", ".py", ".js", ".css", ".html", ".sh"}

ALLOWED = {  # direct dependencies; the table of docs/design.md
    "base": [],
    "tensor": ["base"],
    "batch": ["base"],
    "kernels/cpu": ["tensor"],
    "kernels/cuda": ["kernels/cpu", "tensor"],  # of kernels/cpu the plain values that ops share
    "ops": ["kernels/cpu", "kernels/cuda", "tensor"],
    "distributed": ["tensor"],
    "hub": ["tensor"],
    "text": ["base"],
    "grammar": ["text", "base"],
    "cache": ["base"],
    "scheduler": ["cache", "grammar", "batch"],
    "attention": ["ops", "batch"],
    "layers": ["attention", "ops", "distributed", "hub"],
    "models": ["layers"],
    "plugins/transformers": ["models"],
    "sampling": ["ops", "batch"],
    "runtime": ["models", "sampling", "batch"],
    "speculative": ["runtime"],
    "engine": ["speculative", "runtime", "scheduler"],
    "server": ["engine", "text", "grammar"],
    "cli": ["server"],
}
# The scheduler is held to less than its row's closure: it knows no text (docs/design.md, Scheduler).
FORBIDDEN = {"scheduler": {"text", "tensor"}}
BANNED = [  # pattern, folders it may appear in, reason
    (re.compile(r"std::regex\b|<regex>"), (), "std::regex backtracks (R14)"),
    (re.compile(r"\balloca\s*\("), (), "alloca (R10)"),
    (re.compile(r"^\s*#\s*if(?:def|ndef)?\b"), ("base", "kernels/cpu", "kernels/cuda"), "#if outside base/ and kernels/"),
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
    """'src/kernels/cpu/x.h' -> 'kernels/cpu'; None outside the known folders."""
    parts = path.split("/")
    for depth in (2, 1):
        name = "/".join(parts[:depth])
        if name in ALLOWED and len(parts) > depth:
            return name
    return None


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
                if pattern.search(line) and own not in exempt and not line.lstrip().startswith("//"):
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
                lines = path.read_text(errors="replace").count("\n")
                if lines > MAX_LINES and "generated" not in path.name:
                    problems.append(f"{path.relative_to(ROOT)}: {lines} lines, {MAX_LINES} allowed")

    for problem in problems:
        print(problem)
    print(f"{len(problems)} problems")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
