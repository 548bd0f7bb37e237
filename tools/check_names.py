#!/usr/bin/env python3
"""Checks that texts name what exists: paths in comments and docs, links, symbols in docs, and the size of pages.

A comment of src/, tests/, tools/, bench/ or examples/ may name a file by its path below the repository or below src/,
or by its name alone. docs/*.md and the pages at the root are held to more: links resolve, `symbols` in backticks
occur in the code, lines have at most 120 columns and pages at most 300 lines. Decision records (docs/decisions/) keep
the names of their day. In a clone of the repository, the files at its root are those of a list. Prints each violation
and exits with 1 if there is one.
"""
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
CODE = {".h", ".cpp", ".cu", ".cuh"}
HASH = {".py", ".sh", ".txt", ".cmake", ""}
ENDINGS = r"(?:h|cpp|cu|cuh|py|md|sh|cmake|jsonl|svg)"
# A file name, with folders before it or not.
FILE = re.compile(rf"(?<![\w/.<>*{{}}-])((?:[\w.-]+/)*[\w-]+\.{ENDINGS})(?![\w/-])")
# Names of other projects' files, and names that stand for many.
FOREIGN = {
    "gguf.md", "llama.cpp", "llama-vocab.cpp", "ggml.h", "ggml-common.h", "dlpack.h", "asm/prctl.h",  # C and C++
    "constants.py", "convert_hf_to_gguf.py", "convert_hf_to_gguf_update.py", "tensor_mapping.py",  # llama.cpp
    "Lib/pickletools.py", "_utils.py", "serialization.py",  # Python and torch
    "file_download.py", "_tree_cache.py", "hf_api.py",  # huggingface_hub
    "quantization/quant_config.py", "quant_args.py",  # compressed-tensors
    "jinja2/filters.py", "jinja2/parser.py", "load.py", "tokens/tokenizers/tekken.py", "masking_utils.py",
    "tokenization_kimi.py", "tokenization.py",
    "x_test.cpp", "x.h", "x.cpp", "wing/file.cpp", "tests/fuzz/fuzz_NAME.cpp",  # stand for many
}
FOREIGN_PREFIX = ("transformers/", "modeling_", "configuration_", "integrations/", "utils/", "compressors/", "fuzz_NAME")
# Pages about how names are made, and words that are other programs.
NAMING_PAGES = ("docs/style.md", "CONTRIBUTING.md", "docs/glossary.md")
FOREIGN_WORDS = {"perf", "Suite"}
TEST_PREFIXES = ("serving.", "golden.", "house.", "docs.", "fuzz.", "text.", "FOLDER.")
MAX_COLUMNS, MAX_LINES = 120, 300
PAGES_AT_ROOT = ("README.md", "CONTRIBUTING.md")
FILES_AT_ROOT = {*PAGES_AT_ROOT, "LICENSE", "NOTICE", "Makefile", "CMakeLists.txt", "CMakePresets.json", ".clang-format",
                 ".gitignore"}
SYMBOL = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(?:(?:::|\.)[A-Za-z_][A-Za-z0-9_]*)*(?:\(\))?")


def tracked():
    try:
        listed = subprocess.run(["git", "ls-files", "-co", "--exclude-standard"], cwd=ROOT, capture_output=True, text=True,
                                check=True).stdout.splitlines()
    except (OSError, subprocess.CalledProcessError):  # an archive without git
        listed = [p.relative_to(ROOT).as_posix() for p in ROOT.rglob("*")
                  if p.is_file() and p.relative_to(ROOT).parts[0] not in ("build", "dist", "dist-cuda")]
    return [name for name in listed if (ROOT / name).is_file()]


def comments(path, text):
    """(line, text) of each comment."""
    if path.suffix in CODE:
        for number, line in enumerate(text.splitlines(), 1):
            at = line.find("//")
            while at > 0 and line[at - 1] == ":":  # https://
                at = line.find("//", at + 2)
            if at >= 0:
                yield number, line[at + 2:]
        return
    for number, line in enumerate(text.splitlines(), 1):
        match = re.match(r"\s*#(?!!)(.*)", line)
        if match:
            yield number, match.group(1)


class Names:
    def __init__(self, files):
        self.files = set(files)
        self.folders = {folder.as_posix() for name in files for folder in pathlib.PurePosixPath(name).parents}
        self.bare = {name.rsplit("/", 1)[-1] for name in files}

    def has(self, name, near):
        if name in FOREIGN or name.startswith(FOREIGN_PREFIX):
            return True
        if "/" not in name:
            return name in self.bare
        candidates = [name, f"src/{name}", f"docs/{name}", f"tests/{name}", f"{near}/{name}"]
        return any(c in self.files for c in candidates)


def check_comments(names, problems):
    for name in sorted(names.files):
        path = ROOT / name
        top = name.split("/", 1)[0]
        if top not in ("src", "tests", "tools", "bench", "examples", "cmake") and name not in ("CMakeLists.txt", "Makefile"):
            continue
        if name.startswith(("tests/golden/models", "tests/golden/tokenizers", "tests/golden/chat", "tests/data")):
            continue
        if path.suffix not in CODE | HASH:
            continue
        try:
            text = path.read_text()
        except UnicodeDecodeError:
            continue
        near = name.rsplit("/", 1)[0] if "/" in name else ""
        for number, comment in comments(path, text):
            for found in FILE.findall(comment):
                if not names.has(found, near):
                    problems.append(f"{name}:{number}: there is no {found}")


def words_of_code(names):
    words = set()
    for name in names.files:
        path = ROOT / name
        if (name.startswith(("docs/", "tests/golden/")) and not name.endswith(".jsonl")) or path.suffix not in CODE | HASH | {".in", ".json", ".jsonl", ".jinja"}:
            continue
        try:
            words.update(re.findall(r"[A-Za-z_][A-Za-z0-9_]*", path.read_text()))
        except UnicodeDecodeError:
            continue
    return words


def check_page(name, names, words, problems):
    path = ROOT / name
    lines = path.read_text().splitlines()
    record = name.startswith("docs/decisions/")
    if len(lines) > MAX_LINES:
        problems.append(f"{name}: {len(lines)} lines, {MAX_LINES} allowed")
    fenced = False
    for number, line in enumerate(lines, 1):
        where = f"{name}:{number}"
        if len(line) > MAX_COLUMNS:
            problems.append(f"{where}: {len(line)} columns, {MAX_COLUMNS} allowed")
        if line.startswith("```"):
            if not fenced and line.strip() == "```":
                problems.append(f"{where}: a fenced block without a language")
            fenced = not fenced
            continue
        if fenced:
            continue
        for target in re.findall(r'(?:\]\(|src=")([^)#"\s]+)', line):
            if not target.startswith(("http:", "https:", "mailto:")) and not (path.parent / target).exists():
                problems.append(f"{where}: the link {target} leads nowhere")
        if record:
            continue
        for quoted in re.findall(r"`([^`]+)`", line):
            if FILE.fullmatch(quoted):
                if not names.has(quoted, name.rsplit("/", 1)[0] if "/" in name else ""):
                    problems.append(f"{where}: there is no {quoted}")
            elif re.fullmatch(r"[\w.-]+(?:/[\w.-]+)*/", quoted):
                folder = quoted.rstrip("/")
                if not any(c in names.folders for c in (folder, f"src/{folder}")) and folder.split("/")[0] not in (
                        "build", "dist", "X"):
                    problems.append(f"{where}: there is no folder {quoted}")
            elif SYMBOL.fullmatch(quoted) and name not in NAMING_PAGES and not quoted.startswith(TEST_PREFIXES):
                for word in re.findall(r"[A-Za-z_]\w+", quoted):
                    if word not in words and word not in FOREIGN_WORDS:
                        problems.append(f"{where}: no code has {word} (of {quoted})")
                        break


def main():
    names = Names(tracked())
    problems = []
    check_comments(names, problems)
    words = words_of_code(names)
    for name in sorted(names.files):
        if name.endswith(".md") and (name.startswith("docs/") or name in PAGES_AT_ROOT):
            check_page(name, names, words, problems)
    if (ROOT / ".git").exists():
        problems += [f"{name}: is not among FILES_AT_ROOT, so git should ignore it" for name in sorted(names.files)
                     if "/" not in name and name not in FILES_AT_ROOT]
    for problem in problems:
        print(problem)
    print(f"{len(problems)} problems")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
