#!/usr/bin/env python3
"""The gap between decode steps on the device: step_gaps.py TIMELINE.csv [LAST_KERNEL [STEPS]]

TIMELINE.csv has a line for each kernel and copy: begin and end in ns, and its name, as bench/gpu/timeline.cpp writes them. A
step ends with the kernel whose name has LAST_KERNEL in it (default store_tokens, a recorded step's last). Prints, over the last
STEPS steps (default 10), the time from there to the first kernel of the next step, to the first that lasts at least 5 us, and
what lies between.
"""
import statistics
import sys


def main():
    if len(sys.argv) not in (2, 3, 4) or sys.argv[1].startswith("-"):
        sys.exit(__doc__)
    last_name = sys.argv[2] if len(sys.argv) > 2 else "store_tokens"
    count = int(sys.argv[3]) if len(sys.argv) > 3 else 10
    rows = []
    for line in open(sys.argv[1]):
        begin, end, name = line.rstrip("\n").split(",", 2)
        rows.append((int(begin), int(end), name))
    rows.sort()
    first, work, between = [], [], []
    for at in [i for i, row in enumerate(rows) if last_name in row[2]][-count - 1:-1]:
        follows = rows[at + 1:at + 12]
        kernels = [row for row in follows if not row[2].startswith("mem")]
        long = [row for row in kernels if row[1] - row[0] >= 5000]
        if not kernels or not long:
            continue
        first.append((kernels[0][0] - rows[at][1]) / 1e3)
        work.append((long[0][0] - rows[at][1]) / 1e3)
        between = [(row[2].split("_cu_")[-1][8:40], (row[0] - rows[at][1]) / 1e3, (row[1] - rows[at][1]) / 1e3)
                   for row in follows if row[0] <= long[0][0]]
    if not first:
        sys.exit(f"no step of {sys.argv[1]} ends with {last_name}")
    print(f"{len(first)} steps: to the next step's first kernel median {statistics.median(first):.1f} us (least {min(first):.1f}), "
          f"to its first long one {statistics.median(work):.1f} us (least {min(work):.1f})")
    for name, begin, end in between:
        print(f"  {begin:8.2f} {end:8.2f} {name}")


if __name__ == "__main__":
    main()
