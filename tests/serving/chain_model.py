"""Tiny checkpoints that say a fixed chain of tokens, as a directory or as a GGUF file.

Attention and MLP are zero, the embedding is the unit matrix, and the head sends each token of the
chain to the next one. So the model's answer to the token CHAIN[0] is CHAIN[1], CHAIN[2] and so on;
the last token repeats. `scale` is the head's factor: 1 makes the next token certain, 0.1 makes it
likely only for a greedy sampler."""

import array
import json
import struct

WIDTH = 320


def byte_letters():
    """The letters of byte-level BPE, by byte."""
    letters, spare = {}, 256
    for byte in range(256):
        if 33 <= byte <= 126 or 161 <= byte <= 172 or 174 <= byte <= 255:
            letters[byte] = chr(byte)
        else:
            letters[byte] = chr(spare)
            spare += 1
    return letters


def tokens_of(chain):
    """The whole vocabulary: 256 bytes, the pieces of the chain, and fillers."""
    tokens = list(byte_letters().values())
    tokens += [piece for piece in dict.fromkeys(chain) if piece not in tokens]
    return tokens + [f"<unused{i}>" for i in range(len(tokens), WIDTH)]


def matrices(chain, scale):
    tokens = tokens_of(chain)
    ids = [tokens.index(piece) for piece in chain]
    unit, head = array.array("f", bytes(4 * WIDTH * WIDTH)), array.array("f", bytes(4 * WIDTH * WIDTH))
    for i in range(WIDTH):
        unit[i * WIDTH + i] = 1
    for here, there in zip(ids, ids[1:] + ids[-1:]):
        if here != there or here == ids[-1]:
            head[there * WIDTH + here] = scale
    return unit.tobytes(), head.tobytes()


ZERO = bytes(4 * WIDTH * WIDTH)
ONES = array.array("f", [1] * WIDTH).tobytes()
HF = {"model.embed_tokens.weight": None, "lm_head.weight": None, "model.norm.weight": ONES}
HF |= {f"model.layers.0.{name}.weight": ONES for name in ("input_layernorm", "post_attention_layernorm")}
HF |= {f"model.layers.0.self_attn.{name}_proj.weight": ZERO for name in "qkvo"}
HF |= {f"model.layers.0.mlp.{name}_proj.weight": ZERO for name in ("gate", "up", "down")}
GGUF = {"token_embd.weight": None, "output.weight": None, "output_norm.weight": ONES}
GGUF |= {f"blk.0.{name}.weight": ONES for name in ("attn_norm", "ffn_norm")}
GGUF |= {f"blk.0.{name}.weight": ZERO for name in
         ("attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up", "ffn_down")}


def write_directory(folder, chain, special=(), scale=1, config=None, tokenizer=None, extra_tensors=(), **files):
    """`files`: name of a JSON file without its ending -> its value. `tokenizer`: members that replace
    those of tokenizer.json. `extra_tensors`: (name, dtype, shape, bytes)."""
    folder.mkdir(parents=True, exist_ok=True)
    unit, head = matrices(chain, scale)
    tensors = []
    for name, data in HF.items():
        data = data or (unit if "embed" in name else head)
        tensors.append((name, "F32", [WIDTH] if data is ONES else [WIDTH, WIDTH], data))
    tensors += extra_tensors
    header, at = {}, 0
    for name, dtype, shape, data in tensors:
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [at, at + len(data)]}
        at += len(data)
    text = json.dumps(header).encode()
    (folder / "model.safetensors").write_bytes(struct.pack("<Q", len(text)) + text + b"".join(t[3] for t in tensors))
    base = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "vocab_size": WIDTH, "hidden_size": WIDTH,
            "intermediate_size": WIDTH, "num_hidden_layers": 1, "num_attention_heads": 4, "num_key_value_heads": 4,
            "max_position_embeddings": 512, "rms_norm_eps": 1e-6, "dtype": "float32"}
    (folder / "config.json").write_text(json.dumps(base | (config or {})))
    tokens = tokens_of(chain)
    flags = {"special": True, "normalized": False, "single_word": False, "lstrip": False, "rstrip": False}
    added = [{"id": tokens.index(t), "content": t} | flags for t in special]
    step = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    document = {"added_tokens": added, "normalizer": None, "post_processor": None,
                "pre_tokenizer": step, "decoder": step,
                "model": {"type": "BPE", "vocab": {t: i for i, t in enumerate(tokens)}, "merges": []}}
    (folder / "tokenizer.json").write_text(json.dumps(document | (tokenizer or {})))
    for name, value in files.items():
        (folder / f"{name}.json").write_text(json.dumps(value))
    return folder


def write_text(text):
    raw = text.encode()
    return struct.pack("<Q", len(raw)) + raw


def gguf_value(value):
    """The type and the bytes of a metadata value. (type, bytes) passes as it is."""
    if isinstance(value, tuple):
        return struct.pack("<I", value[0]) + value[1]
    if isinstance(value, bool):
        return struct.pack("<IB", 7, value)
    if isinstance(value, int):
        return struct.pack("<II", 4, value) if value >= 0 else struct.pack("<Ii", 5, value)
    if isinstance(value, float):
        return struct.pack("<If", 6, value)
    if isinstance(value, str):
        return struct.pack("<I", 8) + write_text(value)
    if all(isinstance(v, str) for v in value):
        return struct.pack("<IIQ", 9, 8, len(value)) + b"".join(map(write_text, value))
    return struct.pack("<IIQ", 9, 5, len(value)) + b"".join(struct.pack("<i", v) for v in value)


def write_gguf(path, chain, special=(), scale=1, metadata=None, drop=()):
    """`metadata`: keys that are added or replaced; `drop`: keys that are left out."""
    tokens = tokens_of(chain)
    unit, head = matrices(chain, scale)
    keys = {"general.architecture": "llama", "llama.embedding_length": WIDTH, "llama.block_count": 1,
            "llama.context_length": 512, "llama.feed_forward_length": WIDTH, "llama.attention.head_count": 4,
            "llama.attention.layer_norm_rms_epsilon": 1e-6, "tokenizer.ggml.model": "gpt2",
            "tokenizer.ggml.pre": "gpt-2", "tokenizer.ggml.tokens": tokens, "tokenizer.ggml.merges": [],
            "tokenizer.ggml.token_type": [3 if t in special else 1 for t in tokens]} | (metadata or {})
    keys = {key: value for key, value in keys.items() if key not in drop}
    out = b"GGUF" + struct.pack("<IQQ", 3, len(GGUF), len(keys))
    for key, value in keys.items():
        out += write_text(key) + (struct.pack("<IIQ", 9, 8, 0) if value == [] else gguf_value(value))
    data = b""
    for name, values in GGUF.items():
        values = values or (unit if "embd" in name else head)
        shape = [WIDTH] if values is ONES else [WIDTH, WIDTH]
        out += write_text(name) + struct.pack("<I", len(shape)) + b"".join(struct.pack("<Q", n) for n in shape)
        out += struct.pack("<IQ", 0, len(data))
        data += values
    path.write_bytes(out + bytes(-len(out) % 32) + data)
    return path
