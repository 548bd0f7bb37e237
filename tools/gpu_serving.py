#!/usr/bin/env python3
"""Serves the bundled model on the GPU and asks it over HTTP: gpu_serving.py PROGRAM

Greedy answers must be the same alone, again, and among others, and equal to those of the CPU in float32.
"""
import concurrent.futures
import json
import socket
import subprocess
import sys
import time
import urllib.request

PROMPTS = [f"{a} plus {b} is" for a, b in ((1, 2), (10, 20), (7, 5), (3, 3), (40, 2), (6, 9))]


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def post(port, path, body):
    request = urllib.request.Request(f"http://127.0.0.1:{port}{path}", json.dumps(body).encode(),
                                     {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=120) as answer:
        return json.load(answer)


def complete(port, prompt):
    answer = post(port, "/v1/completions", {"model": "sluice-tiny", "prompt": prompt, "max_tokens": 24, "temperature": 0})
    return answer["choices"][0]["text"]


def answers(program, device):
    """Each prompt's text alone, again, and all at once."""
    port = free_port()
    server = subprocess.Popen([program, "serve", "--model", "models/sluice-tiny", "--served-model-name", "sluice-tiny",
                               "--device", device, "--dtype", "float32", "--deterministic", "--port", str(port)])
    try:
        begin = time.monotonic()
        while True:
            try:
                urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=2).read()
                break
            except OSError:
                if server.poll() is not None or time.monotonic() - begin > 120:
                    sys.exit(f"the server on {device} did not start (status {server.poll()})")
                time.sleep(0.05)
        print(f"{device}: ready after {time.monotonic() - begin:.2f} s")
        alone = [complete(port, prompt) for prompt in PROMPTS]
        again = [complete(port, prompt) for prompt in PROMPTS]
        with concurrent.futures.ThreadPoolExecutor(24) as pool:
            together = list(pool.map(lambda prompt: complete(port, prompt), PROMPTS * 4))
    finally:
        server.terminate()
        status = server.wait(60)
    if status != 0:
        sys.exit(f"the server on {device} ended with status {status}")
    if again != alone or together != alone * 4:
        sys.exit(f"{device}: answers differ between runs:\n{alone}\n{again}\n{together}")
    return alone


def main():
    program = sys.argv[1]
    gpu, cpu = answers(program, "cuda"), answers(program, "cpu")
    for prompt, mine, other in zip(PROMPTS, gpu, cpu):
        print(f"{prompt!r}: {mine!r}" + ("" if mine == other else f"  the CPU says {other!r}"))
    sys.exit(0 if gpu == cpu else "answers of GPU and CPU differ")


if __name__ == "__main__":
    main()
