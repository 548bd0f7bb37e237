#!/usr/bin/env python3
"""Writes a GGUF file with random weights in the shape of a configuration, for programs that read
only GGUF.

    python3 -m venv /tmp/peers && /tmp/peers/bin/pip install gguf
    /tmp/peers/bin/python bench/make_gguf.py bench/configs/qwen3-0.6b Q8_0 /tmp/qwen3-0.6b.Q8_0.gguf

Types: BF16, Q8_0, Q4_0. Every matrix has the type, also the tied embedding; norms are float32. The
vocabulary is bytes and made-up names, so it serves only prompts of token ids. Dense Qwen3 only.
"""

import argparse
import json
import pathlib

import gguf
import numpy as np

TYPES = {"BF16": gguf.GGMLQuantizationType.BF16, "Q8_0": gguf.GGMLQuantizationType.Q8_0, "Q4_0": gguf.GGMLQuantizationType.Q4_0}
FILE_TYPES = {"BF16": gguf.LlamaFileType.MOSTLY_BF16, "Q8_0": gguf.LlamaFileType.MOSTLY_Q8_0, "Q4_0": gguf.LlamaFileType.MOSTLY_Q4_0}


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
    parser.add_argument("type", choices=TYPES)
    parser.add_argument("out", type=pathlib.Path)
    args = parser.parse_args()
    config = json.loads((args.config / "config.json").read_text())
    if config["model_type"] != "qwen3" or not config["tie_word_embeddings"]:
        parser.error(f"{args.config} is no dense Qwen3 with a tied embedding")

    writer = gguf.GGUFWriter(args.out, "qwen3")
    writer.add_file_type(FILE_TYPES[args.type])
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
        values = random.standard_normal(shape, np.float32) * np.float32(config["initializer_range"])
        writer.add_tensor(f"{name}.weight", gguf.quants.quantize(values, TYPES[args.type]), raw_dtype=TYPES[args.type])
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


if __name__ == "__main__":
    main()
