#!/usr/bin/env python3
"""Compares Sluice with its peers on one GGUF file and equal threads: tokens a second of prompt and
output.

    python3 -m venv /tmp/peers
    /tmp/peers/bin/pip install --only-binary :all: xllamacpp gguf
    /tmp/peers/bin/python bench/make_gguf.py bench/configs/qwen3-0.6b Q8_0 /tmp/qwen3-0.6b.Q8_0.gguf
    /tmp/peers/bin/python bench/cpu_peers.py --model FILE.gguf [--llama-bench ik=PATH/llama-bench]
                                             [--rounds 5]
    tools/fetch_smollm2           # the model without --model

A round is one run of each program: a prompt of --input-len tokens and --output-len tokens of
output, one sequence, without reuse of an earlier prompt. All programs keep the file's blocks
quantised and a cache of 16-bit keys.

Sluice's figures are those of `sluice bench latency --json`. xllamacpp (llama.cpp from a wheel,
skipped if it is not installed) reports the `timings` of its server. llama-bench of llama.cpp or
ik_llama.cpp reports its tests -p and -gp.

The results are medians, and the median of each round's ratio, since a machine's bandwidth may
change within minutes. `sluice bench roofline` measures the bandwidth before and after each round.
Check the printed features: the wheels of xllamacpp are built for AVX2. To build the others for the
machine:

    git clone https://github.com/ikawrakow/ik_llama.cpp && cd ik_llama.cpp
    cmake -B build -DGGML_NATIVE=ON -DLLAMA_CURL=OFF
    cmake --build build --target llama-bench
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


def run(command):
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True)
    if done.returncode != 0:
        raise RuntimeError(f"{shlex.join(map(str, command))} ended with {done.returncode}: {done.stderr[-2000:]}")
    return done.stdout


class Sluice:
    name = "Sluice"

    def run(self, args, model):
        """Tokens a second of prompt and output."""
        out = run([args.sluice, "bench", "latency", "--model", model, "--dtype", "bfloat16", "--batch-size", 1, "--input-len", args.input_len,
                   "--output-len", args.output_len, "--threads", args.threads, "--json", "--roofline-mib", 0, *shlex.split(args.flags)])
        case = json.loads(out.strip().splitlines()[-1])
        return case["prefill_throughput"], case["median_decode_throughput"]


class LlamaBench:
    def __init__(self, name, path):
        self.name, self.path = name, path

    def run(self, args, model):
        out = run([self.path, "-m", model, "-t", args.threads, "-p", args.input_len, "-n", 0, "-gp", f"{args.input_len},{args.output_len}",
                   "-r", 1, "-o", "json"])
        tests = json.loads(out[out.index("["):])
        if len(tests) != 2:
            raise RuntimeError(f"{self.path} ran {len(tests)} tests instead of two")
        prompt, output = sorted(tests, key=lambda test: test["n_gen"])
        return prompt["avg_ts"], output["avg_ts"]


class Xllamacpp:
    name = "xllamacpp"

    def __init__(self):
        import xllamacpp

        self.library, self.seed, self.server, self.model = xllamacpp, 0, None, None
        print(f"xllamacpp {metadata.version('xllamacpp')}: {xllamacpp.get_system_info()}")

    def start(self, args, model):
        params = self.library.CommonParams()
        params.model.path = str(model)
        params.n_ctx = args.input_len + args.output_len + 64
        params.n_batch = params.n_ubatch = 512
        params.n_parallel = 1
        params.cache_ram_mib = 0
        params.verbosity = -1
        params.cpuparams.n_threads = params.cpuparams_batch.n_threads = args.threads
        self.server, self.model = self.library.Server(params), model

    def run(self, args, model):
        if self.model != model:
            self.start(args, model)
        self.seed += 1
        ids = [1000 + (37 * i + 101 * self.seed) % 20000 for i in range(args.input_len)]
        reply = self.server.handle_completions(
            {"prompt": ids, "n_predict": args.output_len, "temperature": 0, "ignore_eos": True, "cache_prompt": False})
        reply = json.loads(reply) if isinstance(reply, (str, bytes)) else reply
        timings = reply["timings"]
        if timings["prompt_n"] != args.input_len or timings["predicted_n"] != args.output_len:
            raise RuntimeError(f"llama.cpp processed {timings['prompt_n']} and made {timings['predicted_n']} tokens")
        return timings["prompt_per_second"], timings["predicted_per_second"]


def read_bandwidth(args):
    """GB/s"""
    return json.loads(run([args.sluice, "bench", "roofline", "--threads", args.threads, "--roofline-mib", 1024, "--json"]))["read_bytes_per_s"] / 1e9


def compare(args, model, programs):
    for program in programs:
        program.run(args, model)  # warm up
    rounds = []
    for i in range(args.rounds):
        before = read_bandwidth(args)
        rounds.append([program.run(args, model) for program in programs])
        said = ", ".join(f"{program.name} {prompt:.0f} / {output:.1f}" for program, (prompt, output) in zip(programs, rounds[-1]))
        print(f"round {i + 1}: {said} tokens/s; {before:.1f}, {read_bandwidth(args):.1f} GB/s", flush=True)
    print(f"\n{model.name}, {args.threads} threads, {args.input_len} in, {args.output_len} out\n")
    print("| tokens/s | " + " | ".join([programs[0].name] + [f"{program.name} | ratio" for program in programs[1:]]) + " |")
    print("|---" * (2 * len(programs)) + "|")
    for name, i in (("prompt", 0), ("output", 1)):
        cells = [f"{statistics.median(r[0][i] for r in rounds):.1f}"]
        for j in range(1, len(programs)):
            cells += [f"{statistics.median(r[j][i] for r in rounds):.1f}", f"{statistics.median(r[0][i] / r[j][i] for r in rounds):.2f}"]
        print(f"| {name} | " + " | ".join(cells) + " |", flush=True)
    print()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=pathlib.Path, action="append", help="a GGUF file; may be given several times")
    parser.add_argument("--sluice", type=pathlib.Path, default=ROOT / "build/sluice")
    parser.add_argument("--llama-bench", action="append", default=[], metavar="NAME=PATH", help="a program to compare with; may be given several times")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--input-len", type=int, default=512)
    parser.add_argument("--output-len", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--flags", default="", help="more flags of sluice bench latency")
    args = parser.parse_args()

    programs = [Sluice()] + [LlamaBench(*given.split("=", 1)) for given in args.llama_bench]
    try:
        programs.append(Xllamacpp())
    except ImportError:
        print("xllamacpp is not installed and left out")
    if len(programs) == 1:
        parser.error("nothing to compare with: install xllamacpp or give --llama-bench")
    for model in args.model or [ROOT / "models/smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"]:
        compare(args, model, programs)
    return 0


if __name__ == "__main__":
    sys.exit(main())
