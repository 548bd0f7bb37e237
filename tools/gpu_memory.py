#!/usr/bin/env python3
"""Holds the GPU memory of a server against its plan, and after a mixed load against what it was: gpu_memory.py PROGRAM [SECONDS]

The load (default 240 s): 32 clients with prompts of 10 to 3,000 tokens, greedy and drawn, with penalties and
log-probabilities and without, streamed and not, some of which leave early. Exit status 0 when as much of the GPU's memory is free after the load as before, and at most 256 MiB less than
what the plan leaves of what was free when it was made.
"""
import json
import random
import subprocess
import sys
import threading
import time
import urllib.request

from tiny_tasks import start

MIB = 1 << 20


def free_bytes():
    """Of the first GPU."""
    lines = subprocess.run(["nvidia-smi", "--query-gpu=memory.free", "--format=csv,noheader,nounits"],
                           capture_output=True, text=True, check=True).stdout.split()
    return int(lines[0]) * MIB


def client(port, seed, end, counts):
    r = random.Random(seed)
    while time.monotonic() < end:
        body = {
            "input_ids": [r.randrange(20, 4000) for _ in range(int(10 ** r.uniform(1, 3.47)))],
            "stream": r.random() < 0.5,
            "sampling_params": {"temperature": r.choice((0, 0.8)), "top_p": r.choice((1.0, 0.9)),
                                "frequency_penalty": r.choice((0, 0, 0.5)), "repetition_penalty": r.choice((1.0, 1.0, 1.2)),
                                "max_new_tokens": r.randrange(1, 300), "ignore_eos": True},
            "return_logprob": r.random() < 0.2,
        }
        request = urllib.request.Request(f"http://127.0.0.1:{port}/generate", json.dumps(body).encode(), {"Content-Type": "application/json"})
        try:
            with urllib.request.urlopen(request, timeout=120) as answer:
                if body["stream"] and r.random() < 0.3:
                    answer.read(200)   # and away
                    counts["left"] += 1
                else:
                    answer.read()
                    counts["answered"] += 1
        except OSError as error:
            counts["failed"] += 1
            print(error, flush=True)


def main():
    if len(sys.argv) not in (2, 3) or sys.argv[1].startswith("-"):
        sys.exit(__doc__)
    program, seconds = sys.argv[1], float(sys.argv[2]) if len(sys.argv) > 2 else 240
    server, port = start(program, ["--device", "cuda", "--dtype", "bfloat16"])
    try:
        plan = json.load(urllib.request.urlopen(f"http://127.0.0.1:{port}/get_server_info", timeout=10))["memory_plan"]
        ready = free_bytes()
        counts = {"answered": 0, "left": 0, "failed": 0}
        end = time.monotonic() + seconds
        threads = [threading.Thread(target=client, args=(port, seed, end, counts)) for seed in range(32)]
        for thread in threads:
            thread.start()
        during = []
        while time.monotonic() < end:
            time.sleep(seconds / 12)
            during.append(free_bytes() // MIB)
        for thread in threads:
            thread.join()
        after = free_bytes()
    finally:
        server.terminate()
        server.wait(60)
    left = plan["available_bytes"] - plan["activation_bytes"] - plan["buffer_bytes"] - plan["kv_bytes"]
    print(f"requests: {counts}")
    print(f"free: {left / MIB:.0f} MiB by the plan, {ready / MIB:.0f} MiB at ready, {after / MIB:.0f} MiB after {seconds:.0f} s")
    print(f"meanwhile: {during} MiB")
    if counts["failed"] or after != ready or ready < left - 256 * MIB:
        sys.exit("the memory is not what was planned, or requests failed")


if __name__ == "__main__":
    main()
