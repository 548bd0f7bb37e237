#!/usr/bin/env python3
"""Perplexity of one model in several modes over the same windows of text, with the standard error of each change.

    tools/perplexity.py MODEL FILE... --mode "bf16=--dtype bfloat16 --quantization none" --mode "int8=--quantization int8"

The files are read one behind the other. The first mode is what the others are compared with. Tokens of a window are scored
with those before them in the window. The program is that of the environment variable SLUICE, else build/sluice.
"""

import argparse
import math
import pathlib
import shlex
import statistics
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "tests" / "serving"))

from sluice_server import Server  # noqa: E402


def logprobs(server, ids):
    reply = server.post("/generate", {"input_ids": ids, "sampling_params": {"temperature": 0, "max_new_tokens": 1},
                                      "return_logprob": True, "logprob_start_len": 0}, timeout=600)
    assert reply.status == 200, reply.body
    return [row[0] for row in reply.json()["meta_info"]["input_token_logprobs"] if row[0] is not None]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=pathlib.Path)
    parser.add_argument("files", type=pathlib.Path, nargs="+")
    parser.add_argument("--mode", action="append", required=True, help="NAME=FLAGS of serve")
    parser.add_argument("--window", type=int, default=1500, help="tokens")
    parser.add_argument("--windows", type=int, default=24, help="windows, spread over the text")
    args = parser.parse_args()
    text = "".join(path.read_text() for path in args.files)
    base = None
    for name, flags in (mode.split("=", 1) for mode in args.mode):
        with Server(args.model, "--served-model-name", "m", *shlex.split(flags)) as server:
            ids = server.post("/tokenize", {"prompt": text}).json()["tokens"]
            step = max(1, (len(ids) - args.window) // args.windows)
            rows = [value for i in range(args.windows) for value in logprobs(server, ids[i * step:i * step + args.window])]
        base = base or rows
        changes = [was - now for now, was in zip(rows, base, strict=True)]
        mean, error = statistics.mean(changes), statistics.stdev(changes) / math.sqrt(len(changes))
        print(f"{name:12} {len(rows)} tokens, perplexity {math.exp(-statistics.mean(rows)):.4f}, "
              f"{math.exp(mean) - 1:+.3%} +- {error:.3%}", flush=True)


if __name__ == "__main__":
    main()
