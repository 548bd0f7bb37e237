#!/usr/bin/env python3
"""What each CUDA file costs the compiler: compile_costs.py BUILD [PATTERN]

Compiles every file of BUILD/compile_commands.json whose name ends in .cu (and matches PATTERN) once more, without the compiler
cache and one at a time, and prints a Markdown table of processor seconds and peak memory. The objects are thrown away.
"""
import json
import os
import pathlib
import re
import resource
import shlex
import subprocess
import sys
import tempfile


def cost(command, folder):
    """(processor seconds, peak MiB of one process, exit status) of a shell command."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    # A process of its own, so that the peak is that of this compile and not of the largest so far.
    reader, writer = os.pipe()
    if (child := os.fork()) == 0:
        status = subprocess.run(command, cwd=folder, env={**os.environ, "CCACHE_DISABLE": "1"}).returncode
        os.write(writer, str(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss).encode())
        os._exit(status if status >= 0 else 1)
    os.close(writer)
    _, status = os.waitpid(child, 0)
    peak = os.read(reader, 64)
    os.close(reader)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    seconds = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return seconds, int(peak or 0) / 1024, os.waitstatus_to_exitcode(status)


def main():
    if len(sys.argv) not in (2, 3):
        sys.exit(__doc__)
    commands = pathlib.Path(sys.argv[1]) / "compile_commands.json"
    if not commands.is_file():
        sys.exit(f"error: there is no {commands}; configure the preset cuda first (cmake --preset cuda)")
    pattern = re.compile(sys.argv[2] if len(sys.argv) == 3 else "")
    rows = []
    with tempfile.TemporaryDirectory() as scratch:
        for entry in json.loads(commands.read_text()):
            name = entry["file"]
            if not name.endswith(".cu") or not pattern.search(name):
                continue
            words = shlex.split(entry["command"])
            words[words.index("-o") + 1] = f"{scratch}/object.o"
            seconds, peak, status = cost(words, entry["directory"])
            if status != 0:
                sys.exit(f"error: {name} does not compile (exit status {status})")
            rows.append((seconds, peak, pathlib.Path(name).name))
            print(f"{seconds:7.1f} s {peak:6.0f} MiB  {rows[-1][2]}", file=sys.stderr, flush=True)
    if not rows:
        sys.exit(f"error: no .cu file of {commands} matches '{pattern.pattern}'")
    print("| file | processor seconds | peak MiB |\n|---|---|---|")
    for seconds, peak, name in sorted(rows, reverse=True):
        print(f"| {name} | {seconds:.0f} | {peak:.0f} |")
    print(f"| all {len(rows)} | {sum(row[0] for row in rows):.0f} | {max(row[1] for row in rows):.0f} at most |")


if __name__ == "__main__":
    main()
