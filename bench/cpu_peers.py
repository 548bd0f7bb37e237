#!/usr/bin/env python3
"""Sluice and llama.cpp on the same GGUF file, the same threads, in turn: tokens a second of prompt and of output.

    tools/fetch_smollm2
    python3 -m venv /tmp/peers && /tmp/peers/bin/pip install --only-binary :all: xllamacpp
    /tmp/peers/bin/python bench/cpu_peers.py [--model FILE.gguf] [--rounds 5] [--flags "--kv-cache-dtype int8"]

A round is one run of each program with a prompt of --input-len tokens and --output-len tokens of output, one sequence, no
reuse of an earlier prompt. Both keep the file's blocks quantised and a cache of 16-bit keys. Sluice's figures are those of
`sluice bench latency --json`, llama.cpp's the `timings` of its server. Medians, and the median of the ratio of each round,
since the machine's bandwidth changes within minutes. Look at the line of features that is printed: the wheels of xllamacpp
are built for AVX2, and a llama.cpp built on a machine with AVX-512 is faster there.
"""

import argparse
import importlib.metadata as metadata
import json
import pathlib
import shlex
import statistics
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[1]


class Peer:
    def __init__(self, args):
        import xllamacpp

        params = xllamacpp.CommonParams()
        params.model.path = str(args.model)
        params.n_ctx = args.input_len + args.output_len + 64
        params.n_batch = params.n_ubatch = 512
        params.n_parallel = 1
        params.cache_ram_mib = 0
        params.verbosity = -1
        params.cpuparams.n_threads = params.cpuparams_batch.n_threads = args.threads
        self.server = xllamacpp.Server(params)
        self.name = f"xllamacpp {metadata.version('xllamacpp')}: {xllamacpp.get_system_info()}"
        self.seed = 0

    def run(self, args):
        """Tokens a second of prompt and output."""
        self.seed += 1
        ids = [1000 + (37 * i + 101 * self.seed) % 20000 for i in range(args.input_len)]
        reply = self.server.handle_completions(
            {"prompt": ids, "n_predict": args.output_len, "temperature": 0, "ignore_eos": True, "cache_prompt": False})
        reply = json.loads(reply) if isinstance(reply, (str, bytes)) else reply
        timings = reply["timings"]
        if timings["prompt_n"] != args.input_len or timings["predicted_n"] != args.output_len:
            raise RuntimeError(f"llama.cpp processed {timings['prompt_n']} and made {timings['predicted_n']} tokens")
        return timings["prompt_per_second"], timings["predicted_per_second"]


def sluice(args):
    command = [str(args.sluice), "bench", "latency", "--model", str(args.model), "--dtype", "bfloat16", "--batch-size", "1",
               "--input-len", str(args.input_len), "--output-len", str(args.output_len), "--threads", str(args.threads), "--json", "--roofline-mib", "0",
               *shlex.split(args.flags)]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        raise RuntimeError(f"{shlex.join(command)} ended with {done.returncode}: {done.stderr[-2000:]}")
    case = json.loads(done.stdout.strip().splitlines()[-1])
    return case["prefill_throughput"], case["median_decode_throughput"]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=pathlib.Path, default=ROOT / "models/smollm2/SmolLM2-135M-Instruct.Q4_1.gguf")
    parser.add_argument("--sluice", type=pathlib.Path, default=ROOT / "build/sluice")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--input-len", type=int, default=512)
    parser.add_argument("--output-len", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--flags", default="", help="more flags of sluice bench latency")
    args = parser.parse_args()

    peer = Peer(args)
    peer.run(args)   # warm up
    rounds = []
    for i in range(args.rounds):
        own, other = sluice(args), peer.run(args)
        rounds.append((own, other))
        print(f"round {i + 1}: sluice {own[0]:.0f} / {own[1]:.1f}, llama.cpp {other[0]:.0f} / {other[1]:.1f} tokens/s", flush=True)
    print(f"\n{args.model.name}, {args.threads} threads, {args.input_len} in, {args.output_len} out; {peer.name}\n")
    print("| tokens/s | Sluice | llama.cpp | ratio |\n|---|---|---|---|")
    for name, i in (("prompt", 0), ("output", 1)):
        own = statistics.median(r[0][i] for r in rounds)
        other = statistics.median(r[1][i] for r in rounds)
        ratio = statistics.median(r[0][i] / r[1][i] for r in rounds)
        print(f"| {name} | {own:.1f} | {other:.1f} | {ratio:.2f} |")
    return 0


if __name__ == "__main__":
    sys.exit(main())
