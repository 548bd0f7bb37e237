#!/usr/bin/env python3
"""Serves the bundled model on the GPU and asks it over HTTP: gpu_serving.py PROGRAM [answers] [bits] [dense] [-- FLAGS]

Greedy answers must be the same alone, again, and among others, and equal to those of the CPU in float32; so must tokens that
are drawn, with filters, penalties and biases. In bfloat16 with --deterministic, tokens and log-probabilities must have the same bits in batches of 1, 2, 7 and
32, with small chunks, from the cache, and without graphs and overlap; and so must those of a model without experts, with random
weights in the shape of bench/configs/qwen3-0.6b. Names of checks choose among them.
FLAGS, as `--tp-size 2`, go to the servers on GPUs.
"""
import concurrent.futures
import contextlib
import json
import socket
import subprocess
import sys
import time
import urllib.request

TINY = ["--model", "models/sluice-tiny"]
DENSE = ["--model", "bench/configs/qwen3-0.6b", "--load-format", "dummy", "--tokenizer-path", "models/sluice-tiny"]
PROMPTS = [f"{a} plus {b} is" for a, b in ((1, 2), (10, 20), (7, 5), (3, 3), (40, 2), (6, 9))]

MORE = []   # flags of servers on GPUs


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def post(port, path, body):
    request = urllib.request.Request(f"http://127.0.0.1:{port}{path}", json.dumps(body).encode(),
                                     {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=120) as answer:
        return json.load(answer)


def complete(port, prompt, **fields):
    answer = post(port, "/v1/completions", {"model": "sluice-tiny", "prompt": prompt, "max_tokens": 24, "temperature": 0, **fields})
    return answer["choices"][0]["text"]


@contextlib.contextmanager
def serving(program, device, *flags, model=TINY):
    """The port of a server."""
    port = free_port()
    server = subprocess.Popen([program, "serve", *model, "--served-model-name", "sluice-tiny",
                               "--device", device, "--port", str(port), "--log-level", "warning", *flags,
                               *(MORE if device == "cuda" else [])])
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
        print(f"{device} {' '.join(flags)}: ready after {time.monotonic() - begin:.2f} s", flush=True)
        yield port
    finally:
        server.terminate()
        status = server.wait(60)
    if status != 0:
        sys.exit(f"the server on {device} ended with status {status}")


def answers(program, device):
    """Each prompt's text alone, again, and all at once; then texts that are drawn."""
    with serving(program, device, "--dtype", "float32", "--deterministic") as port:
        alone = [complete(port, prompt) for prompt in PROMPTS]
        again = [complete(port, prompt) for prompt in PROMPTS]
        with concurrent.futures.ThreadPoolExecutor(24) as pool:
            together = list(pool.map(lambda prompt: complete(port, prompt), PROMPTS * 4))
        drawn = [complete(port, prompt, temperature=1.5, seed=seed, **filters) for seed, prompt in enumerate(PROMPTS)
                 for filters in ({}, {"top_k": 20}, {"top_p": 0.8}, {"min_p": 0.05, "top_p": 0.9, "top_k": 50},
                                 {"frequency_penalty": 0.8, "presence_penalty": 0.4}, {"repetition_penalty": 1.3, "logprobs": 3},
                                 {"logit_bias": {"40": 5, "41": -100}, "min_tokens": 8})]
    if again != alone or together != alone * 4:
        sys.exit(f"{device}: answers differ between runs:\n{alone}\n{again}\n{together}")
    return alone + drawn


def bits(program, model, *flags):
    """Tokens and log-probabilities of 32 prompts in batches of 1, 2, 7 and 32, each batch again from the cache."""
    prompts = [[20 + (37 * i + 101 * p) % 4000 for i in range(5 + 29 * p)] for p in range(32)]

    def ask(port, ids):
        answer = post(port, "/generate", {"input_ids": ids, "return_logprob": True,
                                          "sampling_params": {"temperature": 0, "max_new_tokens": 16, "ignore_eos": True}})
        return answer["meta_info"]["output_token_logprobs"]

    with serving(program, "cuda", "--dtype", "bfloat16", "--deterministic", *flags, model=model) as port:
        runs = []
        for size in (1, 2, 7, 32):
            post(port, "/flush_cache", {})
            with concurrent.futures.ThreadPoolExecutor(size) as pool:
                runs += [list(pool.map(lambda ids: ask(port, ids), prompts)) for _ in range(2)]
    if any(run != runs[0] for run in runs):
        sys.exit(f"--deterministic {flags}: bits depend on the batch or the cache")
    return runs[0]


def check_answers(program):
    gpu, cpu = answers(program, "cuda"), answers(program, "cpu")
    for prompt, mine, other in zip(PROMPTS, gpu, cpu):   # the greedy ones
        print(f"{prompt!r}: {mine!r}" + ("" if mine == other else f"  the CPU says {other!r}"))
    if gpu != cpu:
        sys.exit("answers of GPU and CPU differ")


def check_bits(program, model):
    rows = bits(program, model)
    for flags in (["--chunked-prefill-size", "64"], ["--disable-cuda-graph", "--disable-overlap-schedule"]):
        if bits(program, model, *flags) != rows:
            sys.exit(f"--deterministic: bits depend on {flags}")
    print(f"deterministic, {model[1]}: the same bits in every batch, chunk and mode", flush=True)


CHECKS = {"answers": check_answers,
          "bits": lambda program: check_bits(program, TINY),
          "dense": lambda program: check_bits(program, DENSE)}


def main():
    words = sys.argv[1:]
    if "--" in words:
        at = words.index("--")
        MORE.extend(words[at + 1:])
        words = words[:at]
    names = words[1:] or list(CHECKS)
    if not words or words[0].startswith("-") or not set(names) <= set(CHECKS):
        sys.exit(__doc__)
    for name in names:
        CHECKS[name](words[0])


if __name__ == "__main__":
    main()
