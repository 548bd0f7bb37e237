#!/usr/bin/env python3
"""Serves the bundled model on the GPU and asks it over HTTP: gpu_serving.py PROGRAM [answers] [bits] [dense] [trees] [rounds] [-- FLAGS]

Greedy answers must be the same alone, again, and among others, and equal to those of the CPU in float32; so must tokens that
are drawn, with filters, penalties and biases. In bfloat16 with --deterministic, tokens and log-probabilities must have the same bits in batches of 1, 2, 7 and
32, with small chunks, from the cache, and without graphs and overlap; and so must those of a model without experts, with random
weights in the shape of bench/configs/qwen3-0.6b. Trees of drafts must not change them, with keys of every kind, with and without
graphs; and in float32 with the fast kernels the bundled model's records come with trees, too. Nor must chains, of which the
next round is launched while one is in flight. Names of checks choose among them.
FLAGS, as `--tp-size 2`, go to the servers on GPUs.
"""
import concurrent.futures
import contextlib
import json
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request

TINY = ["--model", "models/sluice-tiny"]
DENSE = ["--model", "bench/configs/qwen3-0.6b", "--load-format", "dummy", "--tokenizer-path", "models/sluice-tiny"]
PROMPTS = [f"{a} plus {b} is" for a, b in ((1, 2), (10, 20), (7, 5), (3, 3), (40, 2), (6, 9))]

NEXTN = ["--speculative-algorithm", "NEXTN"]
TREES = ["--speculative-num-steps", "3", "--speculative-eagle-topk", "4",
         "--speculative-num-draft-tokens", "16", "--speculative-adaptive=false"]

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


def golden(name):
    return ["--model", f"tests/golden/models/{name}", "--tokenizer-path", "models/sluice-tiny"]


def grown(program, model, *flags):
    """Tokens and log-probabilities of prompts alone and of ten at once, some of them drawn; and drafts and right ones."""
    asked = [{"input_ids": [20 + (37 * i + 101 * p) % 250 for i in range(5 + 17 * p)], "return_logprob": True,
              "sampling_params": {"temperature": 0.7 * (p % 3 == 2), "sampling_seed": p, "max_new_tokens": 60,
                                  "ignore_eos": True}} for p in range(10)]
    with serving(program, "cuda", "--deterministic", "--max-total-tokens", "32768", *flags, model=model) as port:
        found = [post(port, "/generate", body)["meta_info"] for body in asked[:3]]
        with concurrent.futures.ThreadPoolExecutor(len(asked)) as pool:
            found += list(pool.map(lambda body: post(port, "/generate", body)["meta_info"], asked))
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=20) as reply:
            ahead = [line.split()[-1] for line in reply.read().decode().splitlines() if line.startswith("sluice:rounds_ahead_total")]
    counts = [sum(meta.get(name, 0) for meta in found)
              for name in ("spec_verify_ct", "spec_draft_token_num", "spec_accept_token_num")]
    counts.append(int(float(ahead[0])) if ahead else 0)
    return [meta["output_token_logprobs"] for meta in found], counts


def check_records(program):
    """Records whose best tokens are clear, all at once."""
    with open("tests/golden/sluice-tiny.json", encoding="utf-8") as file:
        records = [record for record in json.load(file) if record["min_margin"] > 1e-2 and len(record["output_ids"]) > 4]

    def ask(port, record):
        return post(port, "/generate", {"input_ids": record["prompt_ids"], "sampling_params": {
            "temperature": 0, "max_new_tokens": len(record["output_ids"]), "ignore_eos": True}})

    with serving(program, "cuda", "--dtype", "float32", *NEXTN, *TREES) as port, concurrent.futures.ThreadPoolExecutor(24) as pool:
        replies = list(pool.map(lambda record: ask(port, record), records))
    wrong = [i for i, (reply, record) in enumerate(zip(replies, records)) if reply["output_ids"] != record["output_ids"]]
    if wrong or not records:
        sys.exit(f"trees: of {len(records)} records these are others: {wrong}")
    print(f"trees: {len(records)} records with the fast kernels", flush=True)


def check_tree(program, model, types, method):
    plain, _ = grown(program, model, *types)
    for more in ([], ["--disable-cuda-graph"], ["--speculative-adaptive=true"]):
        rows, (verified, drafted, right, _) = grown(program, model, *types, *method, *TREES, *more)
        name = f"trees, {model[1]} {' '.join(types + method[1:2] + more)}"
        if rows != plain:
            sys.exit(f"{name}: other tokens or bits in answers {[i for i, row in enumerate(rows) if row != plain[i]]}")
        if not more and drafted == 0:
            sys.exit(f"{name}: nothing was drafted")
        print(f"{name}: equal; {verified} verifications, {drafted} drafts, {right} right", flush=True)


def check_trees(program):
    bf16 = ["--dtype", "bfloat16"]
    for types in (bf16, ["--dtype", "float32"], [*bf16, "--kv-cache-dtype", "fp8_e4m3"]):
        check_tree(program, TINY, types, NEXTN)
    check_records(program)
    # A model drafts for itself: most drafts of a random one are right. The same directory is refused.
    for name in ("mistral-swa", "deepseek-v2-lite", "deepseek-v32"):
        with tempfile.TemporaryDirectory() as folder:
            copy = shutil.copytree(f"tests/golden/models/{name}", f"{folder}/{name}")
            method = ["--speculative-algorithm", "STANDALONE", "--speculative-draft-model-path", copy]
            check_tree(program, golden(name), bf16, method)
    for name in ("deepseek-v3", "glm-moe-dsa", "mimo"):
        check_tree(program, golden(name), bf16, NEXTN)


def check_chains(program, model, types, method):
    plain, _ = grown(program, model, *types)
    for drafts in ("1", "3", "7"):
        for more in ([], ["--max-running-requests", "1"], ["--disable-overlap-schedule"]):
            flags = [*types, *method, "--speculative-num-steps", drafts, "--speculative-adaptive=false", *more]
            rows, (verified, drafted, right, ahead) = grown(program, model, *flags)
            name = f"rounds, {model[1]} {' '.join(flags)}"
            if rows != plain:
                sys.exit(f"{name}: other tokens or bits in answers {[i for i, row in enumerate(rows) if row != plain[i]]}")
            if drafted == 0 or (ahead > 0) == ("--disable-overlap-schedule" in more):
                sys.exit(f"{name}: {drafted} drafts, {ahead} steps ahead of a round")
            print(f"{name}: equal; {verified} verifications, {drafted} drafts, {right} right, {ahead} rounds ahead", flush=True)


def check_rounds(program):
    bf16 = ["--dtype", "bfloat16"]
    for types in (bf16, ["--dtype", "float32"], [*bf16, "--kv-cache-dtype", "fp8_e4m3"]):
        check_chains(program, TINY, types, NEXTN)
    for name in ("deepseek-v3", "glm-moe-dsa", "mimo"):
        check_chains(program, golden(name), bf16, NEXTN)


CHECKS = {"answers": check_answers,
          "bits": lambda program: check_bits(program, TINY),
          "dense": lambda program: check_bits(program, DENSE),
          "trees": check_trees,
          "rounds": check_rounds}


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
