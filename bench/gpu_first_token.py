#!/usr/bin/env python3
"""Times the first token of prompts on an idle GPU server, over HTTP, and splits the time into
parts.

    python3 bench/gpu_first_token.py PROGRAM CONFIG [--tokens 128] [--requests 40]
                                     [--tokenizer models/sluice-tiny] [FLAG...]

Serves CONFIG with dummy weights. One client sends one request at a time, with token ids that no
earlier request had, and takes the time to the first event of the stream. The parts come from the
server's own --trace. Needs only the standard library.
"""
import argparse
import http.client
import json
import pathlib
import random
import signal
import statistics
import subprocess
import sys
import time

from gpu_startup import ROOT, free_port, wait_until_ready

WARM = 5


def first_token(connection, ids):
    body = json.dumps({"input_ids": ids, "stream": True,
                       "sampling_params": {"temperature": 0, "max_new_tokens": 2, "ignore_eos": True}})
    begin = time.perf_counter()
    connection.request("POST", "/generate", body, {"Content-Type": "application/json"})
    reply = connection.getresponse()
    line = reply.readline()
    seconds = time.perf_counter() - begin
    if reply.status != 200 or not line.startswith(b"data: {") or b'"error"' in line:
        sys.exit(f"/generate answered {reply.status}: {line[:500]}")
    while reply.readline():
        pass
    return seconds


def parts_of(trace, last):
    """Medians in ms of the spans of the last requests' prefill steps, and of their requests."""
    text = pathlib.Path(trace).read_text().rstrip().rstrip(",")
    events = [e for e in json.loads(text if text.endswith("]") else text + "]") if e.get("ph") == "X"]
    steps = [e for e in events if e["name"].startswith("step ") and e.get("args", {}).get("mode") == "prefill"]
    out = {}
    device = [e for e in steps if e["tid"] != steps[0]["tid"]] if steps else []
    host = [e for e in steps if e["tid"] == steps[0]["tid"]] if steps else []
    for label, found in (("engine step", host), ("device step", device)):
        out[label] = [e["dur"] for e in found[-last:]]
    begins = {(e["tid"], e["ts"]): e for e in host[-last:]}
    for name in ("schedule", "build batch", "launch", "sample"):
        out[name] = [e["dur"] for e in events if e["name"] == name and e["tid"] == steps[0]["tid"] and
                     any(b["ts"] <= e["ts"] and e["ts"] + e["dur"] <= b["ts"] + b["dur"] + 1 for b in begins.values())]
    for name in ("read", "queue", "prefill", "detokenize"):
        found = [e["dur"] for e in events if e["name"] == name and e["dur"] < 1e6]
        out[name] = found[-last:]
    return {name: statistics.median(values) / 1e3 for name, values in out.items() if values}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("program")
    parser.add_argument("config")
    parser.add_argument("--tokens", type=int, default=128)
    parser.add_argument("--requests", type=int, default=40)
    parser.add_argument("--tokenizer", default=str(ROOT / "models/sluice-tiny"))
    parser.add_argument("--trace", default="/tmp/sluice-first-token.json")
    args, flags = parser.parse_known_args()
    port = free_port()
    log = open(args.trace + ".log", "w")
    server = subprocess.Popen([args.program, "serve", "--model", args.config, "--load-format", "dummy", "--tokenizer", args.tokenizer,
                               "--device", "cuda", "--dtype", "bfloat16", "--port", str(port), "--trace", args.trace, *flags],
                              stdout=log, stderr=log)
    try:
        wait_until_ready(server, port, log.name)
        numbers = random.Random(1)
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        times = []
        for _ in range(WARM + args.requests):
            times.append(first_token(connection, [numbers.randrange(256, 4000) for _ in range(args.tokens)]))
            time.sleep(0.02)   # idle again
    finally:
        server.send_signal(signal.SIGTERM)
        server.wait(60)
        log.close()
    times = sorted(times[WARM:])
    print(f"{pathlib.Path(args.config).name}, {args.tokens} tokens, {len(times)} requests: first token median "
          f"{statistics.median(times) * 1e3:.2f} ms, least {times[0] * 1e3:.2f}, 90 % {times[int(len(times) * 0.9)] * 1e3:.2f}")
    print("  parts (ms): " + ", ".join(f"{name} {value:.3f}" for name, value in parts_of(args.trace, args.requests).items()))


if __name__ == "__main__":
    main()
