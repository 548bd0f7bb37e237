#!/usr/bin/env python3
"""Writes a GGUF file with random weights in the shape of a configuration, for programs that read
only GGUF.

    python3 -m venv /tmp/peers && /tmp/peers/bin/pip install gguf
    /tmp/peers/bin/python bench/make_gguf.py bench/configs/qwen3-0.6b Q8_0 /tmp/qwen3-0.6b.Q8_0.gguf

Types: BF16, Q8_0, Q4_0, Q2_K to Q6_K. Every matrix has the type, also the tied embedding; norms are
float32. Q4_K_M is a mixture as llama.cpp makes it: the embedding, and values and the last matrix of
half of the MLPs, are Q6_K. The vocabulary is bytes and made-up names, so it serves only prompts of
token ids. Dense Qwen3 only. The gguf package does not quantise to super-blocks, so their bits are
random, with scales that give weights of about the usual size.
"""

import argparse
import json
import pathlib

import gguf
import numpy as np

TYPES = {name: gguf.GGMLQuantizationType[name] for name in ("BF16", "Q8_0", "Q4_0", "Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K")}
FILE_TYPES = {"BF16": "MOSTLY_BF16", "Q8_0": "MOSTLY_Q8_0", "Q4_0": "MOSTLY_Q4_0", "Q2_K": "MOSTLY_Q2_K", "Q3_K": "MOSTLY_Q3_K_M",
              "Q4_K": "MOSTLY_Q4_K_S", "Q5_K": "MOSTLY_Q5_K_S", "Q6_K": "MOSTLY_Q6_K", "Q4_K_M": "MOSTLY_Q4_K_M"}
# Of super-blocks: bytes, the offsets of their float16 numbers, and about how large the weights are without them.
SUPER_BLOCKS = {"Q2_K": (84, (80, 82), 12), "Q3_K": (110, (108,), 40), "Q4_K": (144, (0, 2), 250), "Q5_K": (176, (0, 2), 500),
                "Q6_K": (210, (208,), 1200)}


def type_of(name, file_type, layers):
    if file_type != "Q4_K_M":
        return file_type
    _, _, layer = name.partition("blk.")
    layer = int(layer.partition(".")[0]) if layer else -1
    more_bits = layer < layers // 8 or layer >= 7 * layers // 8 or (layer - layers // 8) % 3 == 2
    is_one = name == "token_embd" or (name.endswith(("attn_v", "ffn_down")) and more_bits)
    return "Q6_K" if is_one else "Q4_K"


def numbers(name, shape, sigma, random):
    if name not in SUPER_BLOCKS:
        values = random.standard_normal(shape, np.float32) * np.float32(sigma)
        return gguf.quants.quantize(values, TYPES[name])
    size, halves, scale = SUPER_BLOCKS[name]
    blocks = random.integers(0, 256, (shape[0] * shape[1] // 256, size), dtype=np.uint8)
    for at in halves:
        d = (random.standard_normal(len(blocks)) * sigma / scale).astype(np.float16)
        blocks[:, at:at + 2] = d.view(np.uint8).reshape(-1, 2)
    return blocks.reshape(shape[0], -1)


def matrices(config):
    """Name and shape of each matrix."""
    hidden, inner, d = config["hidden_size"], config["intermediate_size"], config["head_dim"]
    heads, kv_heads = config["num_attention_heads"], config["num_key_value_heads"]
    yield "token_embd", (config["vocab_size"], hidden)
    for i in range(config["num_hidden_layers"]):
        yield f"blk.{i}.attn_q", (heads * d, hidden)
        yield f"blk.{i}.attn_k", (kv_heads * d, hidden)
        yield f"blk.{i}.attn_v", (kv_heads * d, hidden)
        yield f"blk.{i}.attn_output", (hidden, heads * d)
        yield f"blk.{i}.ffn_gate", (inner, hidden)
        yield f"blk.{i}.ffn_up", (inner, hidden)
        yield f"blk.{i}.ffn_down", (hidden, inner)


def norms(config):
    for i in range(config["num_hidden_layers"]):
        for name in ("attn_norm", "ffn_norm"):
            yield f"blk.{i}.{name}", config["hidden_size"]
        for name in ("attn_q_norm", "attn_k_norm"):
            yield f"blk.{i}.{name}", config["head_dim"]
    yield "output_norm", config["hidden_size"]


def add_vocabulary(writer, size):
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    letters = [chr(b) for b in printable] + [chr(256 + i) for i in range(256 - len(printable))]
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("qwen2")
    writer.add_token_list(letters + [f"<unused{i}>" for i in range(len(letters), size)])
    writer.add_token_types([gguf.TokenType.NORMAL] * len(letters) + [gguf.TokenType.UNUSED] * (size - len(letters)))
    writer.add_token_merges([f"{letters[0]} {letters[1]}"])
    writer.add_eos_token_id(size - 1)
    writer.add_add_bos_token(False)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("config", type=pathlib.Path, help="folder of a config.json")
    parser.add_argument("type", choices=FILE_TYPES)
    parser.add_argument("out", type=pathlib.Path)
    args = parser.parse_args()
    config = json.loads((args.config / "config.json").read_text())
    if config["model_type"] != "qwen3" or not config["tie_word_embeddings"]:
        parser.error(f"{args.config} is no dense Qwen3 with a tied embedding")

    writer = gguf.GGUFWriter(args.out, "qwen3")
    writer.add_file_type(gguf.LlamaFileType[FILE_TYPES[args.type]])
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_head_count(config["num_attention_heads"])
    writer.add_head_count_kv(config["num_key_value_heads"])
    writer.add_key_length(config["head_dim"])
    writer.add_value_length(config["head_dim"])
    writer.add_rope_freq_base(config["rope_theta"])
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    writer.add_vocab_size(config["vocab_size"])
    add_vocabulary(writer, config["vocab_size"])
    random = np.random.default_rng(1)
    for name, size in norms(config):
        writer.add_tensor(f"{name}.weight", np.ones(size, np.float32))
    for name, shape in matrices(config):
        kind = type_of(name, args.type, config["num_hidden_layers"])
        writer.add_tensor(f"{name}.weight", numbers(kind, shape, config["initializer_range"], random), raw_dtype=TYPES[kind])
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


if __name__ == "__main__":
    main()
