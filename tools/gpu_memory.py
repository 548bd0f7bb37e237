#!/usr/bin/env python3
"""Holds the GPU memory of a server against its plan, and after a mixed load against what it was: gpu_memory.py PROGRAM [SECONDS] [-- FLAGS]

FLAGS go to the server; with several ranks, as with `--tp-size 2`, the memory of each visible GPU is held against the plan of
one rank.

The load (default 240 s): 32 clients with prompts of 10 to 3,000 tokens, greedy and drawn, with penalties and
log-probabilities and without, streamed and not, some of which leave early. Exit status 0 when as much of each GPU's memory is free after the load
as before, and at most 256 MiB less than what the plan leaves of what was free when it was made.
"""
import json
import os
import random
import subprocess
import sys
import threading
import time
import urllib.request

from tiny_tasks import start

MIB = 1 << 20


def free_bytes():
    """Of each visible GPU."""
    which = ["-i", os.environ["CUDA_VISIBLE_DEVICES"]] if os.environ.get("CUDA_VISIBLE_DEVICES") else []
    lines = subprocess.run(["nvidia-smi", "--query-gpu=memory.free", "--format=csv,noheader,nounits", *which],
                           capture_output=True, text=True, check=True).stdout.split()
    return [int(line) * MIB for line in lines]


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
    words = sys.argv[1:]
    flags = words[words.index("--") + 1:] if "--" in words else []
    words = words[:words.index("--")] if "--" in words else words
    if len(words) not in (1, 2) or words[0].startswith("-"):
        sys.exit(__doc__)
    program, seconds = words[0], float(words[1]) if len(words) > 1 else 240
    server, port = start(program, ["--device", "cuda", "--dtype", "bfloat16", *flags])
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
            during.append([free // MIB for free in free_bytes()])
        for thread in threads:
            thread.join()
        after = free_bytes()
    finally:
        server.terminate()
        server.wait(60)
    left = plan["available_bytes"] - plan["activation_bytes"] - plan["buffer_bytes"] - plan["kv_bytes"]
    print(f"requests: {counts}")
    in_mib = [f"{[free // MIB for free in each]} MiB" for each in (ready, after)]
    print(f"free: {left / MIB:.0f} MiB by the plan, {in_mib[0]} at ready, {in_mib[1]} after {seconds:.0f} s")
    print(f"meanwhile: {during} MiB")
    if counts["failed"] or after != ready or min(ready) < left - 256 * MIB:
        sys.exit("the memory is not what was planned, or requests failed")


if __name__ == "__main__":
    main()
