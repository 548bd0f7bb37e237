#!/usr/bin/env python3
"""Times `sluice serve --device cuda` from its start to the first token of a request over HTTP.

    python3 bench/gpu_startup.py PROGRAM [--config bench/configs/qwen3-8b]
                                 [--tokenizer models/sluice-tiny] [--runs 3]

Writes a checkpoint of the configuration's shape with random weights (16 GB for Qwen3-8B) to
--folder, and reads it once into the page cache. Then it starts the server --runs times with
--trace. It prints the time until /ready succeeds, the time until the token is there, and the times
of the start's phases. The shapes are those of the Llama and Qwen decoders without experts. Needs
only the standard library.
"""
import argparse
import http.client
import json
import multiprocessing
import os
import pathlib
import shutil
import signal
import socket
import statistics
import struct
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
PATTERN_BYTES = 8 << 20
SHARD_BYTES = 1 << 31
PHASES = ("resolve", "read", "load", "plan memory", "warm up", "record graphs")


def tensors(config):
    """(name, shape) of every tensor, in the order of layers."""
    hidden, inner, heads = config["hidden_size"], config["intermediate_size"], config["num_attention_heads"]
    kv, dim = config["num_key_value_heads"], config.get("head_dim") or hidden // heads
    yield "model.embed_tokens.weight", [config["vocab_size"], hidden]
    for layer in range(config["num_hidden_layers"]):
        at = f"model.layers.{layer}."
        for name, shape in (("q_proj", [heads * dim, hidden]), ("k_proj", [kv * dim, hidden]), ("v_proj", [kv * dim, hidden]),
                            ("o_proj", [hidden, heads * dim])):
            yield f"{at}self_attn.{name}.weight", shape
        if config["model_type"] == "qwen3":
            yield at + "self_attn.q_norm.weight", [dim]
            yield at + "self_attn.k_norm.weight", [dim]
        for name, shape in (("gate_proj", [inner, hidden]), ("up_proj", [inner, hidden]), ("down_proj", [hidden, inner])):
            yield f"{at}mlp.{name}.weight", shape
        yield at + "input_layernorm.weight", [hidden]
        yield at + "post_attention_layernorm.weight", [hidden]
    yield "model.norm.weight", [hidden]
    if not config["tie_word_embeddings"]:
        yield "lm_head.weight", [config["vocab_size"], hidden]


def size_of(shape):
    bytes_ = 2
    for extent in shape:
        bytes_ *= extent
    return bytes_


def random_bf16(count):
    """Bytes of `count` bfloat16 numbers of either sign, from 0.0078 to 0.031 in size."""
    out = bytearray(2 * count)
    out[0::2] = os.urandom(count)
    out[1::2] = os.urandom(count).translate(bytes(0x3C if i % 2 else 0xBC for i in range(256)))
    return bytes(out)


def write_shard(job):
    path, shard = job
    header, offset = {}, 0
    for name, shape in shard:
        header[name] = {"dtype": "BF16", "shape": shape, "data_offsets": [offset, offset + size_of(shape)]}
        offset += size_of(shape)
    text = json.dumps(header).encode()
    pattern = random_bf16(PATTERN_BYTES // 2)
    with open(path, "wb", buffering=0) as out:
        out.write(struct.pack("<Q", len(text)) + text)
        for left in range(offset, 0, -PATTERN_BYTES):
            out.write(pattern[:min(left, PATTERN_BYTES)])


def read_file(path):
    with open(path, "rb", buffering=0) as file:
        while file.read(8 << 20):
            pass


def write_checkpoint(config_path, folder):
    folder.mkdir(parents=True)
    shutil.copy(config_path, folder / "config.json")
    shards, bytes_ = [[]], 0
    for name, shape in tensors(json.loads(config_path.read_text())):
        if bytes_ + size_of(shape) > SHARD_BYTES and shards[-1]:
            shards.append([])
            bytes_ = 0
        shards[-1].append((name, shape))
        bytes_ += size_of(shape)
    names = [f"model-{i + 1:05}-of-{len(shards):05}.safetensors" for i in range(len(shards))]
    index = {name: file for file, shard in zip(names, shards) for name, _ in shard}
    total = sum(size_of(shape) for shard in shards for _, shape in shard)
    (folder / "model.safetensors.index.json").write_text(json.dumps({"metadata": {"total_size": total}, "weight_map": index}))
    jobs = [(str(folder / name), shard) for name, shard in zip(names, shards)]
    with multiprocessing.Pool(min(8, len(jobs))) as pool:
        pool.map(write_shard, jobs)
        pool.map(read_file, [path for path, _ in jobs])
    return total


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def call(port, method, path, body=None):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    try:
        connection.request(method, path, json.dumps(body) if body else None, {"Content-Type": "application/json"})
        reply = connection.getresponse()
        return reply.status, reply.read()
    finally:
        connection.close()


def wait_until_ready(server, port, log):
    """Returns when /ready succeeds; exits with the end of the log when the process has ended."""
    while True:
        if server.poll() is not None:
            sys.exit(f"the server ended with {server.returncode}: {pathlib.Path(log).read_text()[-2000:]}")
        try:
            if call(port, "GET", "/ready")[0] == 200:
                return
        except OSError:
            pass
        time.sleep(0.002)


def start(program, folder, tokenizer, trace, flags):
    """Seconds from exec to ready and to the first token, and {phase: seconds}."""
    port = free_port()
    log = open(str(trace) + ".log", "w")
    begin = time.monotonic()
    server = subprocess.Popen([program, "serve", "--model", str(folder), "--tokenizer", tokenizer, "--device", "cuda", "--dtype",
                               "bfloat16", "--port", str(port), "--trace", str(trace), *flags], stdout=log, stderr=log)
    try:
        wait_until_ready(server, port, log.name)
        ready = time.monotonic() - begin
        status, body = call(port, "POST", "/generate", {"input_ids": list(range(256, 272)), "sampling_params":
                                                        {"temperature": 0, "max_new_tokens": 1, "ignore_eos": True}})
        token = time.monotonic() - begin
        if status != 200:
            sys.exit(f"/generate answered {status}: {body[:500]}")
    finally:
        server.send_signal(signal.SIGTERM)
        server.wait(60)
        log.close()
    text = pathlib.Path(trace).read_text().rstrip().rstrip(",")
    events = json.loads(text if text.endswith("]") else text + "]")
    spans = {event["name"]: event["dur"] / 1e6 for event in events if event.get("ph") == "X" and event["name"] in PHASES}
    return ready, token, spans


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("program")
    parser.add_argument("--config", default=str(ROOT / "bench/configs/qwen3-8b"))
    parser.add_argument("--tokenizer", default=str(ROOT / "models/sluice-tiny"))
    parser.add_argument("--folder", default="/tmp/sluice-startup", help="of the checkpoint; one that is there is used")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--keep", action="store_true", help="do not delete the checkpoint")
    args, flags = parser.parse_known_args()
    folder = pathlib.Path(args.folder)
    if not folder.exists():
        begin = time.monotonic()
        total = write_checkpoint(pathlib.Path(args.config) / "config.json", folder)
        print(f"wrote and read {total / 1e9:.1f} GB in {time.monotonic() - begin:.1f} s", flush=True)
    runs = []
    for run in range(args.runs):
        ready, token, phases = start(args.program, folder, args.tokenizer, folder.parent / f"{folder.name}-{run}.json", flags)
        runs.append(token)
        rest = ready - sum(phases.values())
        print(f"ready {ready:.3f} s, first token {token:.3f} s: " +
              ", ".join(f"{name} {phases[name]:.3f}" for name in PHASES if name in phases) + f", other {rest:.3f}", flush=True)
    print(f"start to first token: median {statistics.median(runs):.3f} s, least {min(runs):.3f}")
    if not args.keep:
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
