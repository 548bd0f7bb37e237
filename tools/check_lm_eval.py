#!/usr/bin/env python3
"""Compares `sluice serve` with transformers through lm-eval, sample by sample: check_lm_eval.py [options]

Runs the tasks of tests/lm_eval on one checkpoint in float32, once with lm-eval's `hf` model and once with its
`local-completions` model against a server that this script starts (prompts as token ids, several in a request and
several requests at once, log-probabilities by `echo`). Every log-probability must agree within 1e-3 a token, and so must
every "is greedy"; every generated text and every score must be equal. Exit status 1 where one is not.

    make build && tools/lm_eval_venv     # once; about 3 GB
    build/venv-lm-eval/bin/python tools/check_lm_eval.py

--steps hf,sluice,compare and --tasks A,B choose parts; each keeps its samples under --work (default build/lm-eval).
"""

import argparse
import contextlib
import json
import os
import pathlib
import shutil
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parents[1]
TASKS = {"sluice_choices": True, "sluice_answers": True, "sluice_texts": False}   # name -> with the chat template
MAX_PER_TOKEN = 1e-3


def lm_eval(task, model, model_args, folder, *options):
    shutil.rmtree(folder, ignore_errors=True)
    words = [sys.executable, "-m", "lm_eval", "run", "--model", model, "--model_args", ",".join(f"{k}={v}" for k, v in model_args.items()),
             "--include_path", "tests/lm_eval", "--tasks", task, "--output_path", folder, "--log_samples", *options]
    if TASKS[task]:
        words.append("--apply_chat_template")
    # Threads of torch that wait for each other take many times as long where the machine does something else too.
    environment = {"OMP_NUM_THREADS": "1", **os.environ, "HF_HOME": str(folder.parent / "cache"), "HF_HUB_OFFLINE": "1", "no_proxy": "127.0.0.1"}
    begin = time.monotonic()
    subprocess.run(list(map(str, words)), cwd=ROOT, env=environment, check=True)
    print(f"{model}: {task} in {time.monotonic() - begin:.0f} s", flush=True)


@contextlib.contextmanager
def server(program, model, log_path):
    with contextlib.closing(socket.socket()) as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    with open(log_path, "wb") as log:
        process = subprocess.Popen([program, "serve", "--model", str(model), "--dtype", "float32", "--served-model-name", "checked",
                                    "--max-total-tokens", "65536", "--port", str(port)], stdout=log, stderr=subprocess.STDOUT)
    try:
        url = f"http://127.0.0.1:{port}"
        end = time.monotonic() + 120
        while True:
            if process.poll() is not None or time.monotonic() > end:
                sys.exit(f"error: the server did not begin to serve: see {log_path}")
            with contextlib.suppress(OSError, urllib.error.URLError):
                if urllib.request.urlopen(url + "/ready", timeout=5).status == 200:
                    break
            time.sleep(0.1)
        yield url
    finally:
        process.terminate()
        process.wait(60)


def samples(folder, task):
    (path,) = folder.rglob(f"samples_{task}_*.jsonl")
    return {s["doc_id"]: s for s in map(json.loads, path.read_text().splitlines())}


def scores(folder, task):
    (path,) = folder.rglob("results_*.json")
    results = json.loads(path.read_text())["results"][task]
    return {name: value for name, value in results.items() if isinstance(value, float) and "stderr" not in name}


class Comparison:
    """What was found in the samples of one task."""

    def __init__(self, tokenizer):
        self.tokenizer = tokenizer
        self.num_requests = self.num_tokens = 0
        self.worst = 0.0
        self.faults = []

    def num(self, text):
        return len(self.tokenizer.encode(text, add_special_tokens=False).ids)

    def request(self, where, arguments, expected, seen):
        self.num_requests += 1
        continuation = arguments.get("arg_1")
        if not isinstance(expected, list):                      # a text, or the log-probability of a whole text
            if isinstance(continuation, dict):
                self.num_tokens += self.num(seen)
                if expected != seen:
                    self.faults.append(f"{where}: {expected!r} and {seen!r}")
                return
            expected, seen, tokens = [expected], [seen], self.num(arguments["arg_0"])
        else:
            tokens = self.num(arguments["arg_0"] + continuation) - self.num(arguments["arg_0"])
        difference = abs(float(expected[0]) - float(seen[0])) / tokens
        self.num_tokens += tokens
        self.worst = max(self.worst, difference)
        if not difference <= MAX_PER_TOKEN:
            self.faults.append(f"{where}: log-probability {expected[0]} and {seen[0]} for {tokens} tokens")
        if expected[1:] != seen[1:]:
            self.faults.append(f"{where}: greedy {expected[1:]} and {seen[1:]}")


def compare(task, tokenizer, hf_folder, our_folder):
    hf, ours = samples(hf_folder, task), samples(our_folder, task)
    comparison = Comparison(tokenizer)
    if hf.keys() != ours.keys():
        comparison.faults.append(f"{task}: {len(hf)} and {len(ours)} documents")
    for doc in sorted(hf.keys() & ours.keys()):
        one, other = hf[doc], ours[doc]
        if one["arguments"] != other["arguments"]:
            comparison.faults.append(f"{task} {doc}: the requests differ")
        for i, (expected, seen) in enumerate(zip(one["resps"], other["resps"], strict=True)):
            comparison.request(f"{task} {doc}.{i}", one["arguments"][f"gen_args_{i}"], expected[0], seen[0])
    hf_scores, our_scores = scores(hf_folder, task), scores(our_folder, task)
    for name in sorted(hf_scores | our_scores):
        a, b = hf_scores.get(name), our_scores.get(name)
        close = a is not None and b is not None and abs(a - b) <= (1e-3 * abs(a) if "perplexity" in name else 0)
        if not close:
            comparison.faults.append(f"{task}: {name} is {a} and {b}")
    found = ", ".join(f"{name} {value:.6g}" for name, value in our_scores.items())
    print(f"{task}: {len(ours)} documents, {comparison.num_requests} requests, {comparison.num_tokens} tokens, "
          f"largest difference {comparison.worst:.2g} a token; {found}; {len(comparison.faults)} faults")
    for fault in comparison.faults[:20]:
        print("  " + fault)
    return not comparison.faults and bool(ours)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="models/sluice-tiny", help="a folder that both can read")
    parser.add_argument("--sluice", default=os.environ.get("SLUICE", str(ROOT / "build" / "sluice")))
    parser.add_argument("--work", default="build/lm-eval", type=pathlib.Path)
    parser.add_argument("--steps", default="hf,sluice,compare")
    parser.add_argument("--tasks", default=",".join(TASKS))
    options = parser.parse_args()
    work = (ROOT / options.work).resolve()
    work.mkdir(parents=True, exist_ok=True)
    tasks, steps = options.tasks.split(","), options.steps.split(",")

    if "hf" in steps:
        for task in tasks:
            lm_eval(task, "hf", {"pretrained": options.model, "dtype": "float32", "max_length": 8192}, work / f"hf-{task}",
                    "--device", "cpu", "--batch_size", 1)
    if "sluice" in steps:
        with server(options.sluice, ROOT / options.model, work / "server.log") as url:
            for task in tasks:
                lm_eval(task, "local-completions",
                        {"model": "checked", "base_url": url + "/v1/completions", "tokenizer": options.model,
                         "tokenizer_backend": "huggingface", "num_concurrent": 3, "max_length": 8192, "max_retries": 1},
                        work / f"sluice-{task}", "--batch_size", 4)
    if "compare" in steps:
        from tokenizers import Tokenizer

        tokenizer = Tokenizer.from_file(str(ROOT / options.model / "tokenizer.json"))
        agree = [compare(task, tokenizer, work / f"hf-{task}", work / f"sluice-{task}") for task in tasks]
        sys.exit(0 if all(agree) else 1)


if __name__ == "__main__":
    main()
