#!/usr/bin/env python3
"""What a server does when its GPU fails for good: gpu_fault.py PROGRAM LIBRARY [--model FOLDER --tokenizer FOLDER]

LIBRARY is libcuda_fault.so of a build with tests (tests/oracle/cuda_fault.cpp). Streams and plain requests are under way when
it lets a kernel write to an address that nobody has. Each must end with an error, not with a silent close, /ready must say
503, and the process must end with status 4, all within 10 seconds.
"""
import argparse
import concurrent.futures
import http.client
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time

from gpu_serving import free_port

BOUND_SECONDS = 10


def get(port, path):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
    try:
        connection.request("GET", path)
        return connection.getresponse().status
    except OSError:
        return 0
    finally:
        connection.close()


def ask(port, stream):
    """Status and last event of a stream, or status and body of a plain request."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    body = {"input_ids": list(range(256, 300)), "stream": stream,
            "sampling_params": {"temperature": 0, "max_new_tokens": 30000, "ignore_eos": True}}
    connection.request("POST", "/generate", json.dumps(body), {"Content-Type": "application/json"})
    reply = connection.getresponse()
    if not stream:
        return reply.status, reply.read().decode(), time.monotonic()
    last, num_events = "", 0
    while line := reply.readline():
        if line.startswith(b"data: "):
            last, num_events = line[6:].decode(), num_events + 1
    return reply.status, last if num_events > 1 else "no token came before the end", time.monotonic()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("program")
    parser.add_argument("library")
    parser.add_argument("--model", default="bench/configs/qwen3-0.6b")
    parser.add_argument("--tokenizer", default="models/sluice-tiny")
    args = parser.parse_args()
    port = free_port()
    with tempfile.TemporaryDirectory() as folder:
        trigger = pathlib.Path(folder) / "now"
        server = subprocess.Popen([args.program, "serve", "--model", args.model, "--load-format", "dummy", "--tokenizer", args.tokenizer,
                                   "--device", "cuda", "--dtype", "bfloat16", "--port", str(port)],
                                  env={**os.environ, "CUDA_INJECTION64_PATH": str(pathlib.Path(args.library).resolve()),
                                       "CUDA_FAULT_FILE": str(trigger)})
        begin = time.monotonic()
        while get(port, "/ready") != 200:
            if server.poll() is not None or time.monotonic() - begin > 120:
                sys.exit(f"the server did not start (status {server.poll()})")
            time.sleep(0.05)
        with concurrent.futures.ThreadPoolExecutor(6) as pool:
            answers = [pool.submit(ask, port, stream) for stream in (True, True, True, False, False, False)]
            time.sleep(1)
            trigger.touch()
            fault = time.monotonic()
            not_ready = None
            while server.poll() is None and time.monotonic() - fault < 3 * BOUND_SECONDS:
                if not_ready is None and get(port, "/ready") == 503:
                    not_ready = time.monotonic() - fault
                time.sleep(0.01)
            ended = time.monotonic() - fault
            if server.poll() is None:
                server.kill()
            status = server.wait()
            bad = []
            for answer, stream in zip(answers, (True, True, True, False, False, False)):
                try:
                    code, text, at = answer.result()
                except (OSError, http.client.HTTPException) as error:
                    bad.append(f"a {'stream' if stream else 'request'} was cut: {error!r}")
                    continue
                print(f"{'stream' if stream else 'request'}: status {code}, {at - fault:.2f} s after the fault: {text.strip()[:160]}")
                if "error" not in text or (not stream and code < 500) or at - fault > BOUND_SECONDS:
                    bad.append(f"an answer ended with {code}: {text[:160]}")
    print(f"/ready said 503 after {not_ready if not_ready is None else round(not_ready, 2)} s; "
          f"the process ended with status {status} after {ended:.2f} s")
    if not_ready is None:
        bad.append("/ready never said 503")
    if status != 4 or ended > BOUND_SECONDS:
        bad.append(f"exit status {status} after {ended:.1f} s")
    for line in bad:
        print("FAILED:", line)
    sys.exit(1 if bad else 0)


if __name__ == "__main__":
    main()
