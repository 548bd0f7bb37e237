#!/usr/bin/env python3
"""What a step on the device is made of: step_kernels.py TIMELINE.csv [STEPS [LAST_KERNEL [SKIPPED]]]

TIMELINE.csv is what bench/gpu/timeline.cpp writes. A step ends with the kernel whose name has LAST_KERNEL in it (default
store_tokens). Prints, for the last STEPS steps (default 8; 0: for all that followed the last pause of 1 ms instead, a prefill that
was measured last, say), each kernel's launches and time a step, and the time in which none ran. Kernels overlap where one
starts before the other has ended: such time counts for the one that started first. SKIPPED steps at the end are left out:
those of a large batch whose requests end one after the other, say.
"""
import collections
import re
import sys


def short(name):
    """The name of a mangled kernel, with what tells its instances apart."""
    found = re.search(r"\d+([a-z][a-z0-9_]*(?:kernel|rows|tiles|stream|merge|ring|keys|scores|fill|out|sum|norm)[a-z0-9_]*)(I.{0,24})?", name)
    return (found[1] + (found[2] or "")) if found else name[:60]


def main():
    if len(sys.argv) not in (2, 3, 4, 5) or sys.argv[1].startswith("-"):
        sys.exit(__doc__)
    count = int(sys.argv[2]) if len(sys.argv) > 2 else 8
    last_name = sys.argv[3] if len(sys.argv) > 3 else "store_tokens"
    skipped = int(sys.argv[4]) if len(sys.argv) > 4 else 0
    rows = []
    for line in open(sys.argv[1]):
        begin, end, name = line.rstrip("\n").split(",", 2)
        rows.append((int(begin), int(end), name))
    rows.sort()
    if count > 0:
        ends = [i for i, row in enumerate(rows) if last_name in row[2]]
        ends = ends[:len(ends) - skipped][-count - 1:]
        if len(ends) < 2:
            sys.exit(f"no two steps of {sys.argv[1]} end with {last_name}")
        rows, steps = rows[ends[0] + 1:ends[-1] + 1], len(ends) - 1
    else:
        pauses = [i for i in range(1, len(rows)) if rows[i][0] - rows[i - 1][1] > 1_000_000]
        rows, steps = rows[pauses[-1] if pauses else 0:], 1
    times, launches, at, idle = collections.Counter(), collections.Counter(), rows[0][0], 0
    for begin, end, name in rows:
        idle += max(0, begin - at)
        times[short(name)] += max(0, end - max(begin, at))
        launches[short(name)] += 1
        at = max(at, end)
    total = at - rows[0][0]
    print(f"{steps} steps of {total / steps / 1e3:.1f} us; nothing ran for {idle / steps / 1e3:.1f} us of one")
    for name, time in times.most_common(14):
        print(f"  {time / total:6.1%} {time / steps / 1e3:9.1f} us {launches[name] / steps:6.1f} launches  {name}")


if __name__ == "__main__":
    main()
