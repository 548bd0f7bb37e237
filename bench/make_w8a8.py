#!/usr/bin/env python3
"""Writes a checkpoint with random INT8 weights (W8A8 of compressed-tensors), for measurements: make_w8a8.py CONFIG OUT

CONFIG is a folder with the config.json of a Qwen3ForCausalLM, OUT a new one. Matrices of layers have a scale for each row.
"""
import json
import os
import pathlib
import struct
import sys

SIZES = {"I8": 1, "F32": 4, "BF16": 2}
GROUP = {"targets": ["Linear"],
         "weights": {"num_bits": 8, "type": "int", "symmetric": True, "strategy": "channel", "dynamic": False},
         "input_activations": {"num_bits": 8, "type": "int", "symmetric": True, "strategy": "token", "dynamic": True}}


def tensors_of(config):
    """(name, type, shape)."""
    hidden, width, head = config["hidden_size"], config["intermediate_size"], config["head_dim"]
    queries, keys = config["num_attention_heads"] * head, config["num_key_value_heads"] * head
    yield "model.embed_tokens.weight", "BF16", [config["vocab_size"], hidden]
    yield "model.norm.weight", "BF16", [hidden]
    if not config.get("tie_word_embeddings"):
        yield "lm_head.weight", "BF16", [config["vocab_size"], hidden]
    for i in range(config["num_hidden_layers"]):
        layer = f"model.layers.{i}."
        for name, rows, columns in (("self_attn.q_proj", queries, hidden), ("self_attn.k_proj", keys, hidden),
                                    ("self_attn.v_proj", keys, hidden), ("self_attn.o_proj", hidden, queries),
                                    ("mlp.gate_proj", width, hidden), ("mlp.up_proj", width, hidden),
                                    ("mlp.down_proj", hidden, width)):
            yield f"{layer}{name}.weight", "I8", [rows, columns]
            yield f"{layer}{name}.weight_scale", "F32", [rows, 1]
        for name, n in (("input_layernorm", hidden), ("post_attention_layernorm", hidden),
                        ("self_attn.q_norm", head), ("self_attn.k_norm", head)):
            yield f"{layer}{name}.weight", "BF16", [n]


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    config = json.loads((pathlib.Path(sys.argv[1]) / "config.json").read_text())
    config["quantization_config"] = {"quant_method": "compressed-tensors", "format": "int-quantized", "ignore": ["lm_head"],
                                     "config_groups": {"group_0": GROUP}}
    out = pathlib.Path(sys.argv[2])
    out.mkdir(parents=True, exist_ok=True)
    (out / "config.json").write_text(json.dumps(config, indent=1))
    codes = os.urandom(1 << 20)
    # bfloat16 between 1/64 and 1/32 in size, with either sign.
    numbers = b"".join(bytes((low, 0x3C | sign & 0x80)) for low, sign in zip(codes[::2], codes[1::2]))
    patterns = {"I8": codes, "F32": struct.pack("<f", 0.02 / 73), "BF16": numbers}
    header, at, tensors = {}, 0, list(tensors_of(config))
    for name, kind, shape in tensors:
        size = SIZES[kind] * shape[0] * (shape[1] if len(shape) > 1 else 1)
        header[name] = {"dtype": kind, "shape": shape, "data_offsets": [at, at + size]}
        at += size
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(out / "model.safetensors", "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for name, kind, shape in tensors:
            begin, end = header[name]["data_offsets"]
            pattern = struct.pack("<H", 0x3F80) if len(shape) == 1 else patterns[kind]
            file.write((pattern * -(-(end - begin) // len(pattern)))[:end - begin])


if __name__ == "__main__":
    main()
