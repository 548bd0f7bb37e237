#!/usr/bin/env python3
"""Writes a GGUF file with random blocks, for measurements: make_blocks.py CONFIG OUT [TYPE]

CONFIG is a folder with the config.json of a LlamaForCausalLM, Qwen3ForCausalLM, Qwen3MoeForCausalLM or
GptOssForCausalLM. TYPE is that of all matrices in blocks:

    Q8_0, Q4_0, Q4_1, Q5_0, Q5_1, IQ4_NL, Q2_K to Q6_K, IQ4_XS
    Q4_K_M   Q4_K, with the head, and values and `down` of some layers, in Q6_K, as llama.cpp's mix of this name has
             them (the default)
    MXFP4    for gpt-oss, experts alone: other matrices are Q8_0, as in the published files

Experts are stacks of three dimensions. Routers, norms and biases are float32. Blocks are one MiB of random bytes again
and again, with scales that keep numbers small. The file has no tokenizer: `sluice bench latency` needs none.
"""
import json
import math
import os
import pathlib
import random
import struct
import sys


class Type:
    """Number in a file, bytes and values of a block, about what its integers reach, and factors of the float16 numbers
    at some places: each number is a factor times 1 / largest / 16, up to twice that."""

    def __init__(self, number, size, values, largest, halves):
        self.number, self.size, self.values, self.largest, self.halves = number, size, values, largest, halves


MINIMA = 7   # times larger than d: minima of super-blocks have fewer bits than products of codes and scales
TYPES = {
    "Q8_0": Type(8, 34, 32, 128, {0: 1}),
    "Q4_0": Type(2, 18, 32, 8, {0: 1}),
    "Q4_1": Type(3, 20, 32, 8, {0: 1, 2: -7.5}),
    "Q5_0": Type(6, 22, 32, 16, {0: 1}),
    "Q5_1": Type(7, 24, 32, 16, {0: 1, 2: -15.5}),
    "IQ4_NL": Type(20, 18, 32, 127, {0: 1}),
    "MXFP4": Type(39, 17, 32, None, {}),
    "Q2_K": Type(10, 84, 256, 45, {80: 1, 82: MINIMA}),
    "Q3_K": Type(11, 110, 256, 128, {108: 1}),
    "Q4_K": Type(12, 144, 256, 945, {0: 1, 2: MINIMA}),
    "Q5_K": Type(13, 176, 256, 1953, {0: 1, 2: MINIMA}),
    "Q6_K": Type(14, 210, 256, 4096, {208: 1}),
    "IQ4_XS": Type(23, 136, 256, 4096, {0: 1}),
    "F32": Type(0, 4, 1, None, {}),
}
POOL_BYTES = 1 << 20
MXFP4_EXPONENTS = (120, 121)   # e2m1 reaches 6, and the factor is 2^(exponent - 127)
FAMILIES = {"LlamaForCausalLM": "llama", "Qwen3ForCausalLM": "qwen3", "Qwen3MoeForCausalLM": "qwen3moe",
            "GptOssForCausalLM": "gpt-oss"}


def random_blocks(name):
    kind = TYPES[name]
    count = POOL_BYTES // kind.size
    if name == "F32":
        return struct.pack(f"<{count}f", *(random.gauss(0, 0.05) for _ in range(count)))
    data = bytearray(os.urandom(kind.size * count))
    for block in range(count):
        if name == "MXFP4":
            data[block * kind.size] = random.choice(MXFP4_EXPONENTS)
        for place, factor in kind.halves.items():
            number = factor * (1 + random.random()) / kind.largest / 16
            struct.pack_into("<e", data, block * kind.size + place, number)
    return bytes(data)


def head_dim_of(config):
    return config.get("head_dim") or config["hidden_size"] // config["num_attention_heads"]


def tensors_of(config, family, mix):
    """(name, shape, type); the last axis has the columns. A type of None is float32 ones, and of F32 random numbers."""
    usual = {"Q4_K_M": "Q4_K", "MXFP4": "Q8_0" if family == "gpt-oss" else "MXFP4"}.get(mix, mix)
    hidden, layers, vocabulary = config["hidden_size"], config["num_hidden_layers"], config["vocab_size"]
    head_dim = head_dim_of(config)
    q, kv = config["num_attention_heads"] * head_dim, config["num_key_value_heads"] * head_dim
    is_oss = family == "gpt-oss"
    yield "token_embd.weight", (vocabulary, hidden), usual
    if not config.get("tie_word_embeddings", False):
        yield "output.weight", (vocabulary, hidden), "Q6_K" if mix == "Q4_K_M" else usual
    yield "output_norm.weight", (hidden,), None
    for i in range(layers):
        def named(name, *shape, kind=usual, ending="weight"):
            return f"blk.{i}.{name}.{ending}", shape, kind

        is_fine = i < layers // 8 or i >= layers - layers // 8 or i % 3 == 2
        fine = "Q6_K" if mix == "Q4_K_M" and is_fine else usual
        yield named("attn_norm", hidden, kind=None)
        yield named("post_attention_norm" if is_oss else "ffn_norm", hidden, kind=None)
        for name, rows, columns, kind in (("attn_q", q, hidden, usual), ("attn_k", kv, hidden, usual),
                                          ("attn_v", kv, hidden, fine), ("attn_output", hidden, q, usual)):
            yield named(name, rows, columns, kind=kind)
            if is_oss:
                yield named(name, rows, kind="F32", ending="bias")
        if family in ("qwen3", "qwen3moe"):
            yield named("attn_q_norm", head_dim, kind=None)
            yield named("attn_k_norm", head_dim, kind=None)
        if is_oss:
            yield named("attn_sinks", config["num_attention_heads"], kind="F32")
        if family in ("llama", "qwen3"):
            width = config["intermediate_size"]
            yield named("ffn_gate", width, hidden)
            yield named("ffn_up", width, hidden)
            yield named("ffn_down", hidden, width, kind=fine)
            continue
        experts, width = experts_of(config)
        of_experts = "MXFP4" if is_oss and mix == "MXFP4" else None
        yield named("ffn_gate_inp", experts, hidden, kind="F32")
        if is_oss:
            yield named("ffn_gate_inp", experts, kind="F32", ending="bias")
        for name, rows, columns, kind in (("ffn_gate_exps", width, hidden, usual),
                                          ("ffn_up_exps", width, hidden, usual),
                                          ("ffn_down_exps", hidden, width, fine)):
            yield named(name, experts, rows, columns, kind=of_experts or kind)
            if is_oss:
                yield named(name, experts, rows, kind="F32", ending="bias")


def experts_of(config):
    """How many, and their width."""
    if "num_local_experts" in config:
        return config["num_local_experts"], config["intermediate_size"]
    return config["num_experts"], config["moe_intermediate_size"]


def text(value):
    return struct.pack("<Q", len(value)) + value.encode()


def keys_of(config, family):
    def integer(value):
        return 4, struct.pack("<I", value)

    def number(value):
        return 6, struct.pack("<f", value)

    yield "general.architecture", (8, text(family))
    for key, field in (("block_count", "num_hidden_layers"), ("context_length", "max_position_embeddings"),
                       ("embedding_length", "hidden_size"), ("feed_forward_length", "intermediate_size"),
                       ("attention.head_count", "num_attention_heads"),
                       ("attention.head_count_kv", "num_key_value_heads"), ("vocab_size", "vocab_size")):
        yield f"{family}.{key}", integer(config[field])
    for key in ("attention.key_length", "attention.value_length"):
        yield f"{family}.{key}", integer(head_dim_of(config))
    yield f"{family}.attention.layer_norm_rms_epsilon", number(config["rms_norm_eps"])
    yield f"{family}.rope.freq_base", number(config.get("rope_theta", 10000.0))
    if family in ("qwen3moe", "gpt-oss"):
        experts, width = experts_of(config)
        yield f"{family}.expert_count", integer(experts)
        yield f"{family}.expert_used_count", integer(config["num_experts_per_tok"])
        yield f"{family}.expert_feed_forward_length", integer(width)
    if family == "gpt-oss":
        yield f"{family}.attention.sliding_window", integer(config["sliding_window"])
        scaling = config.get("rope_scaling")
        if scaling:
            yield f"{family}.rope.scaling.type", (8, text("yarn"))
            yield f"{family}.rope.scaling.factor", number(scaling["factor"])
            yield (f"{family}.rope.scaling.original_context_length",
                   integer(scaling["original_max_position_embeddings"]))


def main():
    if len(sys.argv) not in (3, 4) or (sys.argv[3:] and sys.argv[3] not in {*TYPES, "Q4_K_M"} - {"F32"}):
        sys.exit(__doc__)
    config = json.loads((pathlib.Path(sys.argv[1]) / "config.json").read_text())
    architecture = config["architectures"][0]
    if architecture not in FAMILIES:
        sys.exit(f"{architecture} is none of {', '.join(FAMILIES)}")
    family = FAMILIES[architecture]
    mix = sys.argv[3] if len(sys.argv) > 3 else "Q4_K_M"
    tensors, keys = list(tensors_of(config, family, mix)), list(keys_of(config, family))
    blocks = {kind: random_blocks(kind) for kind in {kind for *_, kind in tensors} - {None}}
    head = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(keys))
    for name, (kind, value) in keys:
        head += text(name) + struct.pack("<I", kind) + value
    at, sizes = 0, []
    for name, shape, kind in tensors:
        stored = TYPES[kind or "F32"]
        if shape[-1] % stored.values != 0:
            sys.exit(f"{name} has {shape[-1]} columns, and a block of {kind} has {stored.values}")
        head += text(name) + struct.pack("<I", len(shape)) + b"".join(struct.pack("<Q", n) for n in reversed(shape))
        head += struct.pack("<IQ", stored.number, at)
        sizes.append(math.prod(shape) // stored.values * stored.size)
        at += -(-sizes[-1] // 32) * 32
    with open(sys.argv[2], "wb") as file:
        file.write(head + bytes(-len(head) % 32))
        for (_, _, kind), size in zip(tensors, sizes):
            data, left = blocks[kind] if kind else struct.pack("<f", 1) * (size // 4), size
            while left > 0:
                left -= file.write(data[:left])
            file.write(bytes(-size % 32))


if __name__ == "__main__":
    main()
