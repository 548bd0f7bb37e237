#!/usr/bin/env python3
"""Times how fast a bfloat16 checkpoint in the page cache becomes weights. It alternates with `dd
bs=16M of=/dev/null` on the file, and with fresh_read.cpp, which only reads the file into fresh
memory on as many threads.

    python3 bench/load_speed.py [--build build/release] [--model DIR] [--rounds 9] [--threads 2]

Needs only the standard library. Without --model it writes one file of bench/configs/qwen3-0.6b's
tensors (1.19 GB) to a temporary directory. Before each measurement it touches and releases a
quarter more memory than the file has. Otherwise a virtual machine must fetch idle pages from its
host, which can take ten times as long as the load."""
import argparse
import json
import mmap
import pathlib
import re
import shutil
import statistics
import struct
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
CONFIG = ROOT / "bench" / "configs" / "qwen3-0.6b" / "config.json"


def shapes(config):
    """Names and shapes of the tensors of a dense Qwen3 with a tied head."""
    hidden, inner, head = config["hidden_size"], config["intermediate_size"], config["head_dim"]
    q, kv = config["num_attention_heads"] * head, config["num_key_value_heads"] * head
    yield "model.embed_tokens.weight", (config["vocab_size"], hidden)
    yield "model.norm.weight", (hidden,)
    for i in range(config["num_hidden_layers"]):
        for name, shape in (("input_layernorm", (hidden,)), ("post_attention_layernorm", (hidden,)),
                            ("self_attn.q_proj", (q, hidden)), ("self_attn.k_proj", (kv, hidden)),
                            ("self_attn.v_proj", (kv, hidden)), ("self_attn.o_proj", (hidden, q)),
                            ("self_attn.q_norm", (head,)), ("self_attn.k_norm", (head,)),
                            ("mlp.gate_proj", (inner, hidden)), ("mlp.up_proj", (inner, hidden)),
                            ("mlp.down_proj", (hidden, inner))):
            yield f"model.layers.{i}.{name}.weight", shape


def write_model(directory):
    config = json.loads(CONFIG.read_text())
    header, at = {}, 0
    for name, shape in shapes(config):
        size = 2
        for n in shape:
            size *= n
        header[name] = {"dtype": "BF16", "shape": list(shape), "data_offsets": [at, at + size]}
        at += size
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    # Values of about 0.01, both signs, in pieces of 10 MiB, as huggingface_hub writes a downloaded
    # file. The size of the pieces determines the page size in the page cache.
    block = struct.pack("<16H", *(0x3C00 + 37 * i + (i % 2 << 15) for i in range(16))) * (10 << 15)
    begin = struct.pack("<Q", len(text)) + text
    with open(directory / "model.safetensors", "wb", buffering=0) as out:
        out.write(begin + block[len(begin):])
        at -= len(block) - len(begin)
        while at > 0:
            at -= out.write(block[:at])
    shutil.copy(CONFIG, directory)


def seconds_of_dd(path):
    begin = time.monotonic()
    subprocess.run(["dd", "bs=16M", f"if={path}", "of=/dev/null"], check=True, stderr=subprocess.DEVNULL)
    return time.monotonic() - begin


def touch_memory(size):
    with mmap.mmap(-1, size) as memory:
        memory.madvise(mmap.MADV_HUGEPAGE)
        for at in range(0, size, 2 << 20):
            memory[at] = 1


def seconds_of_fresh_read(args, path):
    return float(subprocess.run([args.build / "bin" / "fresh_read", path, str(args.threads)], check=True, capture_output=True, text=True).stdout)


def seconds_of_load(args, model):
    done = subprocess.run([args.build / "bin" / "sluice", "bench", "latency", "--model", str(model), "--dtype", "bfloat16",
                           "--threads", str(args.threads), "--input-len", "1", "--output-len", "1", "--roofline-mib", "0",
                           "--log-level", "info"], capture_output=True, text=True)
    found = re.search(r"\bload: ([0-9.]+) ms", done.stdout + done.stderr)
    if done.returncode != 0 or not found:
        sys.exit(f"the program printed no time of loading:\n{done.stdout[-500:]}{done.stderr[-1000:]}")
    return float(found[1]) / 1000


def measure(args, model):
    file = model / "model.safetensors"
    dd, fresh, load = [], [], []
    seconds_of_dd(file)  # fills the page cache
    for _ in range(args.rounds):
        dd.append(seconds_of_dd(file))
        touch_memory(file.stat().st_size * 5 // 4)
        fresh.append(seconds_of_fresh_read(args, file))
        touch_memory(file.stat().st_size * 5 // 4)
        load.append(seconds_of_load(args, model))
    print(f"{file.name}: {file.stat().st_size / 1e9:.2f} GB, {args.rounds} rounds, {args.threads} threads")
    for name, times in (("dd bs=16M", dd), ("fresh_read", fresh), ("load", load)):
        print(f"{name:10} median {statistics.median(times) * 1e3:5.0f} ms, {min(times) * 1e3:.0f} to {max(times) * 1e3:.0f}")
    for name, times in (("dd", dd), ("fresh_read", fresh)):
        pairs = statistics.median(a / b for a, b in zip(times, load))
        print(f"speed of loading / speed of {name}: {pairs:.0%} (median of pairs), {min(times) / min(load):.0%} (least of each)")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build" / "release")
    parser.add_argument("--model", type=pathlib.Path)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--threads", type=int, default=2)
    args = parser.parse_args()
    if args.model:
        return measure(args, args.model)
    with tempfile.TemporaryDirectory() as directory:
        write_model(pathlib.Path(directory))
        measure(args, pathlib.Path(directory))


main()
