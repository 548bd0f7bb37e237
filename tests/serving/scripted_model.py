"""A checkpoint that answers the message "K" with script K, byte for byte, so that a server can be made to say anything.

    write(folder, scripts, special=["<think>", "</think>"], template="...")

The next token follows from the position alone: a GPT-2 without layers that do anything, whose position embeddings point
at the token to come. Script K begins at position K * SPAN, so its prompt has K * SPAN tokens: `x`, the variable
`suffix`, and the last message if it is an assistant's. `chat(k, ...)` makes the request. Special tokens are one token,
everything else is one token a byte. A script that does not end with END goes on for ever.
"""

import array
import json
import pathlib
import re
import struct

SPAN = 512
END = "<|end|>"


def _byte_letters():
    """The letter of each byte in a byte-level vocabulary."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = iter(range(256, 512))
    return [chr(b) if b in printable else chr(next(others)) for b in range(256)]


def tokens(text, special):
    """`text` as a list of special tokens and single bytes."""
    out = []
    for part in re.split("(" + "|".join(map(re.escape, [*special, END])) + ")", text):
        out += [part] if part in special or part == END else [bytes([b]) for b in part.encode()]
    return out


def _save(path, tensors):
    header, at = {}, 0
    for name, (shape, data) in tensors.items():
        header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [at, at + len(data)]}
        at += len(data)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for _, data in tensors.values():
            file.write(data)


def write(folder, scripts, special=(), template=""):
    folder = pathlib.Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    letters = _byte_letters()
    ids = {END: 0}
    for token in special:
        ids.setdefault(token, len(ids))
    ids.update({bytes([b]): len(ids) + b for b in range(256)})
    width = -(-len(ids) // 8) * 8
    length = SPAN * (len(scripts) + 2)

    def zeros(*shape):
        size = 4
        for dimension in shape:
            size *= dimension
        return list(shape), bytes(size)

    def filled(value, count):
        return [count], array.array("f", [value] * count).tobytes()

    embedding = array.array("f", bytes(4 * width * width))
    for i in range(width):
        embedding[i * width + i] = 1.0
    positions = array.array("f", bytes(4 * length * width))
    following = {}
    for number, script in enumerate(scripts, 1):
        said = tokens(script, special)
        assert len(said) < SPAN, f"script {number} has {len(said)} tokens"
        following.update({number * SPAN - 1 + i: ids[token] for i, token in enumerate(said)})
    for position in range(length):
        positions[position * width + following.get(position, ids[b"."])] = 8.0
    layer = "transformer.h.0."
    _save(
        folder / "model.safetensors",
        {
            "transformer.wte.weight": ([width, width], embedding.tobytes()),
            "transformer.wpe.weight": ([length, width], positions.tobytes()),
            "transformer.ln_f.weight": filled(1.0, width),
            "transformer.ln_f.bias": zeros(width),
            layer + "ln_1.weight": filled(1.0, width),
            layer + "ln_1.bias": zeros(width),
            layer + "ln_2.weight": filled(1.0, width),
            layer + "ln_2.bias": zeros(width),
            layer + "attn.c_attn.weight": zeros(width, 3 * width),
            layer + "attn.c_attn.bias": zeros(3 * width),
            layer + "attn.c_proj.weight": zeros(width, width),
            layer + "attn.c_proj.bias": zeros(width),
            layer + "mlp.c_fc.weight": zeros(width, 32),
            layer + "mlp.c_fc.bias": zeros(32),
            layer + "mlp.c_proj.weight": zeros(32, width),
            layer + "mlp.c_proj.bias": zeros(width),
        },
    )

    def dump(name, value):
        (folder / name).write_text(json.dumps(value), encoding="utf-8")

    dump(
        "config.json",
        {
            "architectures": ["GPT2LMHeadModel"], "model_type": "gpt2", "n_embd": width, "n_head": 8, "n_inner": 32,
            "n_layer": 1, "n_positions": length, "n_ctx": length, "vocab_size": width, "layer_norm_epsilon": 1e-5,
            "activation_function": "gelu_new", "tie_word_embeddings": True, "eos_token_id": 0, "bos_token_id": 0,
            "torch_dtype": "float32",
        },
    )
    dump("generation_config.json", {"eos_token_id": 0, "do_sample": False})
    vocabulary = {token if isinstance(token, str) else letters[token[0]]: i for token, i in ids.items()}
    vocabulary.update({f"<unused{i}>": i for i in range(len(ids), width)})
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
    dump(
        "tokenizer.json",
        {
            "version": "1.0", "truncation": None, "padding": None, "normalizer": None, "pre_tokenizer": level,
            "post_processor": None, "decoder": level,
            "added_tokens": [{"id": ids[t], "content": t, **flags} for t in [END, *special]],
            "model": {
                "type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": "",
                "end_of_word_suffix": "", "fuse_unk": False, "byte_fallback": False, "vocab": vocabulary, "merges": [],
            },
        },
    )
    dump(
        "tokenizer_config.json",
        {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "eos_token": END,
            "chat_template": "{#- " + template + " -#}{{- 'x' * ((messages[0].content | int) * " + str(SPAN)
            + " - (skip | default(0))) -}}{{- suffix | default('') -}}"
            "{%- if messages[-1].role == 'assistant' -%}{{- messages[-1].content -}}{%- endif -%}",
        },
    )
    return folder


def chat(number, special, suffix="", prefill=None, **more):
    """The body of a request that script `number` answers."""
    messages = [{"role": "user", "content": str(number)}]
    body = {"model": "scripted", "messages": messages, "temperature": 0, "max_tokens": 500}
    if prefill is not None:
        messages.append({"role": "assistant", "content": prefill})
        body.update(continue_final_message=True, add_generation_prompt=False)
    skip = len(tokens(suffix + (prefill or ""), special))
    return {**body, "chat_template_kwargs": {"suffix": suffix, "skip": skip}, **more}
