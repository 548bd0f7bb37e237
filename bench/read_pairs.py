#!/usr/bin/env python3
"""Compares the read bandwidth of `sluice bench roofline` with that of bench/stream_read.cpp:
bench/read_pairs.py [ROUNDS]

The bandwidth of a shared machine changes within seconds. So each round runs both programs in
alternating order, and the median of the rounds' ratios counts. Ends with 1 if the median is more
than 5 % away from 1.
"""

import json
import os
import pathlib
import statistics
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[1]


# As many threads as the cores that this process may use. Under taskset the system's count of
# processors is larger.
THREADS = str(len(os.sched_getaffinity(0)))


def roofline():
    command = [ROOT / "build/sluice", "bench", "roofline", "--json", "--threads", THREADS]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return json.loads(done.stdout)["read_bytes_per_s"] / 1e9


def stream_read():
    done = subprocess.run([ROOT / "build/release/bin/stream_read", "2048", THREADS], capture_output=True, text=True, check=True)
    return float(done.stdout.split()[0])


def main():
    if len(sys.argv) > 2 or sys.argv[1:2] and not sys.argv[1].isdigit():
        sys.exit(__doc__)
    ratios = []
    for i in range(int(sys.argv[1]) if len(sys.argv) > 1 else 6):
        if i % 2 == 0:
            ours, plain = roofline(), stream_read()
        else:
            plain, ours = stream_read(), roofline()
        ratios.append(ours / plain)
        print(f"roofline {ours:.1f}, stream_read {plain:.1f} GB/s: {ratios[-1]:.3f}", flush=True)
    middle = statistics.median(ratios)
    print(f"median of {len(ratios)}: {middle:.3f}")
    return 0 if abs(middle - 1) <= 0.05 else 1


if __name__ == "__main__":
    sys.exit(main())
