#!/usr/bin/env python3
"""Checks that each option of the program is decided in few places (docs/architecture.md).

An option is a row of src/engine/options_*.cpp. Counts the files under src/, tests left out, that name it: in a comment or
as a word of its own in a string (--context-length, "context-length"), or as a field of Options (options.context_length).
A message that advises an option ("try a smaller --context-length") decides nothing and is not counted. Prints each option
that more than 4 files name, and exits with 1 if there is one. With --list prints the count of every option.
"""
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
MAX_FILES = 4
# Words that say something else as often as they name an option.
ORDINARY = {"config", "deterministic", "device", "dtype", "host", "numa", "pooling", "port", "quantization", "revision", "runner",
            "threads", "trace"}
# Options that a verb reads for itself, or whose value a lower folder is given under the option's name.
MORE_FILES = {
    "chat-template": 11,    # flags of `verify` and `run` too, and the name of what it is
    "load-format": 7,       # a flag of `pull` too
    # encoders have a plan of their own
    "download-dir": 5,      # a flag of three verbs, and each node has its own
    "context-length": 9,    # and bench and verify make room for a whole sequence, and plan --gpus for many
    "max-running-requests": 5,  # the command of plan --gpus
    "max-queued-requests": 5,
    "max-queued-tokens": 5,
    "tp-size": 5,
    "max-total-tokens": 5,  # bench and verify size the cache for the batches that they make
}

# Lists of names that decide nothing.
LISTS = {"cli/common_options.h"}

CODE = {".h", ".cpp", ".cu", ".cuh"}
TESTING = {"testing", "tests"}
ROW = re.compile(r'\.name = "([a-z0-9-]+)"|\b(?:ignored|refused|stands_for)\(\s*"([a-z0-9-]+)"')
STRING = re.compile(r'"(?:[^"\\\n]|\\.)*"')
FIELD = re.compile(r"(?:\b(?:options|o|p\.options|defaults|arguments\.options)\.|\bOptions::)([a-z0-9_]+)\b(?!\()")
# Folders that know Options; elsewhere `options` is a struct of another folder.
KNOW_OPTIONS = ("engine/", "server/", "cli/")


def option_names():
    names = []
    for path in sorted((ROOT / "src/engine").glob("options_*.cpp")):
        if not path.name.endswith("_test.cpp"):
            names += [first or second for first, second in ROW.findall(path.read_text())]
    return names


def without_messages(text):
    """Leaves of each string only what is one word: "context-length", not "give --context-length N"."""
    return STRING.sub(lambda m: m.group() if re.fullmatch(r'"(?:--)?[a-z0-9-]+"', m.group()) else '""', text)


def words_of(relative, text):
    text = without_messages(text)
    dashed = {word.removeprefix("--") for word in re.findall(r"(?<![\w-])(?:--)?[a-z0-9]+(?:-[a-z0-9]+)*(?![\w-])", text)}
    fields = set()
    if relative.startswith(KNOW_OPTIONS):
        fields = {field.replace("_", "-") for field in FIELD.findall(text)}
    return dashed, fields


def main():
    names = option_names()
    if len(names) < 100:
        print(f"only {len(names)} options were found: are the rows written otherwise?")
        return 1
    src = ROOT / "src"
    files = {}
    for path in sorted(src.rglob("*")):
        relative = path.relative_to(src)
        if relative.as_posix() in LISTS:
            continue
        if path.suffix not in CODE or path.name.endswith("_test.cpp") or TESTING & set(relative.parts[:-1]):
            continue
        files[relative.as_posix()] = words_of(relative.as_posix(), path.read_text(errors="replace"))
    problems = 0
    for name in names:
        # A word without a dash counts where it is written as an option.
        users = [f for f, (dashed, fields) in files.items() if name in fields or ("-" in name and name in dashed)]
        if "--list" in sys.argv[1:]:
            print(f"{len(users):3} {name}")
        if name not in ORDINARY and len(users) > MORE_FILES.get(name, MAX_FILES):
            print(f"--{name} is named in {len(users)} files, {MORE_FILES.get(name, MAX_FILES)} allowed: {', '.join(users)}")
            problems += 1
    print(f"{len(names)} options, {problems} problems")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
