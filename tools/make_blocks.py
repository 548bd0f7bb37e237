#!/usr/bin/env python3
"""Writes a GGUF file of Llama with random super-blocks, for measurements: make_blocks.py CONFIG OUT [TYPE]

CONFIG is a folder with the config.json of a LlamaForCausalLM. TYPE is Q2_K to Q6_K, or Q4_K_M (the default): Q4_K, with
values and `down` of some layers and the head in Q6_K, as llama.cpp's mix of this name has them. Blocks are one MiB of random
bytes again and again, with a d that keeps numbers small. The file has no tokenizer.
"""
import json
import os
import pathlib
import struct
import sys

# Number in a file, bytes of a block, the places of d (and d_min), and about what its integers reach.
TYPES = {"Q2_K": (10, 84, (80, 82), 45), "Q3_K": (11, 110, (108,), 128), "Q4_K": (12, 144, (0, 2), 945),
         "Q5_K": (13, 176, (0, 2), 1953), "Q6_K": (14, 210, (208,), 4096)}
BLOCKS, VALUES = 6000, 256
F32 = 0
MINIMA = 7   # times larger than d: minima have fewer bits than products of codes and scales


def random_blocks(kind):
    _, size, halves, largest = TYPES[kind]
    data = bytearray(os.urandom(size * BLOCKS))
    for block in range(BLOCKS):
        for i, place in enumerate(halves):
            d = (1 + os.urandom(1)[0] / 256) / largest / 16 * (MINIMA if i > 0 else 1)
            struct.pack_into("<e", data, block * size + place, d)
    return bytes(data)


def tensors_of(config, mix):
    """(name, rows, columns, type); a type of None is float32."""
    usual = "Q4_K" if mix == "Q4_K_M" else mix
    hidden, width, layers = config["hidden_size"], config["intermediate_size"], config["num_hidden_layers"]
    heads, kv_heads = config["num_attention_heads"], config["num_key_value_heads"]
    head_dim = config.get("head_dim") or hidden // heads
    vocabulary = config["vocab_size"]
    yield "token_embd.weight", vocabulary, hidden, usual
    yield "output.weight", vocabulary, hidden, "Q6_K" if mix == "Q4_K_M" else usual
    yield "output_norm.weight", 1, hidden, None
    for i in range(layers):
        is_fine = i < layers // 8 or i >= layers - layers // 8 or i % 3 == 2
        fine = "Q6_K" if mix == "Q4_K_M" and is_fine else usual
        for name, rows, columns, kind in (
                ("attn_q", heads * head_dim, hidden, usual), ("attn_k", kv_heads * head_dim, hidden, usual),
                ("attn_v", kv_heads * head_dim, hidden, fine), ("attn_output", hidden, heads * head_dim, usual),
                ("ffn_gate", width, hidden, usual), ("ffn_up", width, hidden, usual), ("ffn_down", hidden, width, fine),
                ("attn_norm", 1, hidden, None), ("ffn_norm", 1, hidden, None)):
            yield f"blk.{i}.{name}.weight", rows, columns, kind


def text(value):
    return struct.pack("<Q", len(value)) + value.encode()


def keys_of(config):
    def integer(value):
        return 4, struct.pack("<I", value)

    def number(value):
        return 6, struct.pack("<f", value)

    yield "general.architecture", (8, text("llama"))
    for key, field in (("block_count", "num_hidden_layers"), ("context_length", "max_position_embeddings"),
                       ("embedding_length", "hidden_size"), ("feed_forward_length", "intermediate_size"),
                       ("attention.head_count", "num_attention_heads"), ("attention.head_count_kv", "num_key_value_heads"),
                       ("vocab_size", "vocab_size")):
        yield f"llama.{key}", integer(config[field])
    yield "llama.attention.layer_norm_rms_epsilon", number(config["rms_norm_eps"])
    yield "llama.rope.freq_base", number(config.get("rope_theta", 10000.0))


def main():
    if len(sys.argv) not in (3, 4) or (sys.argv[3:] and sys.argv[3] not in (*TYPES, "Q4_K_M")):
        sys.exit(__doc__)
    config = json.loads((pathlib.Path(sys.argv[1]) / "config.json").read_text())
    mix = sys.argv[3] if len(sys.argv) > 3 else "Q4_K_M"
    tensors, keys = list(tensors_of(config, mix)), list(keys_of(config))
    blocks = {kind: random_blocks(kind) for kind in {kind for *_, kind in tensors} - {None}}
    head = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(keys))
    for name, (kind, value) in keys:
        head += text(name) + struct.pack("<I", kind) + value
    at, sizes = 0, []
    for name, rows, columns, kind in tensors:
        if kind and columns % VALUES != 0:
            sys.exit(f"{name} has {columns} columns, and a block has {VALUES}")
        shape = [columns] if kind is None else [columns, rows]
        head += text(name) + struct.pack("<I", len(shape)) + b"".join(struct.pack("<Q", n) for n in shape)
        head += struct.pack("<IQ", TYPES[kind][0] if kind else F32, at)
        sizes.append(rows * columns // VALUES * TYPES[kind][1] if kind else 4 * columns)
        at += -(-sizes[-1] // 32) * 32
    with open(sys.argv[2], "wb") as file:
        file.write(head + bytes(-len(head) % 32))
        for (_, _, columns, kind), size in zip(tensors, sizes):
            data, left = blocks[kind] if kind else struct.pack("<f", 1) * columns, size
            while left > 0:
                left -= file.write(data[:left])
            file.write(bytes(-size % 32))


if __name__ == "__main__":
    main()
