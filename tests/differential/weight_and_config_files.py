#!/usr/bin/env python3
"""Seeded variants of safetensors headers, configurations and GGUF metadata.

    build/venv-transformers/bin/python tests/differential/weight_and_config_files.py
        [--safetensors 60] [--configs 100] [--ggufs 80] [--seed 1] [--sluice build/release/bin/sluice]

- safetensors: the library `safetensors` accepts or refuses each file. We must generate the same tokens as
  from the plain file, or refuse the file by its name. EXPECTED lists what only we accept, and why.
- configs: generation_config.json, config.json and tokenizer_config.json with random ends and settings. The
  ends are those of transformers' GenerationConfig, its configuration's both levels, and its tokenizer.
- GGUF: keys and tokens with random ends and sampling keys. The expected set follows the description of
  llama.cpp's vocabulary loader at `gguf_ends`, which is written apart from ours.

No variant may crash or hang. Exit status 1: some variant differs, or is refused without a name.
"""
import argparse
import collections
import json
import pathlib
import random
import struct
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/serving"))
from chain_model import WIDTH, tokens_of, write_directory, write_gguf  # noqa: E402

CHAIN = ["K", "Hello", "<|im_end|>", "leak", "<|endoftext|>", "more", "</s>", "<|eot_id|>", "<|end|>"]
TOKENS = tokens_of(CHAIN)
SPECIAL = ("<|im_end|>", "<|endoftext|>", "</s>")
EXPECTED = {"an unknown dtype": "a newer format may have it; the tensor is not used, so it stops nothing"}


def run(args, *command):
    done = subprocess.run([args.sluice, *map(str, command)], capture_output=True, text=True, timeout=60)
    return done.returncode, done.stdout, done.stderr


# ------------------------------------------------------------------------------------------- safetensors
def header_of(path):
    data = path.read_bytes()
    size = struct.unpack("<Q", data[:8])[0]
    return json.loads(data[8:8 + size]), data[8 + size:]


def write_header(path, header, data, pad=0, size=None):
    text = (header if isinstance(header, str) else json.dumps(header)).encode() + b" " * pad
    path.write_bytes(struct.pack("<Q", len(text) if size is None else size) + text + data)


def change_safetensors(rng, path):
    """Changes the file; returns what was done."""
    header, data = header_of(path)
    names = [n for n in header if n != "__metadata__"]
    name, end = rng.choice(names), len(data)
    widths = {"C64": 64, "F4": 4, "F6_E2M3": 6, "F6_E3M2": 6, "F8_E8M0": 8, "U16": 16, "U32": 32, "U64": 64, "F64": 64,
              "I8": 8, "BOOL": 8, "F8_E4M3": 8, "F8_E5M2": 8, "BF16": 16, "I16": 16}
    pick = rng.randrange(16)
    pad, size, done = 0, None, ""
    if pick < 5:
        dtype, count = rng.choice(sorted(widths)), rng.choice([0, 4, 8])
        header["extra"] = {"dtype": dtype, "shape": [count], "data_offsets": [end, end + count * widths[dtype] // 8]}
        data += bytes(count * widths[dtype] // 8)
        done = f"an unused tensor of {dtype}"
    elif pick == 5:
        header["extra"] = {"dtype": rng.choice(["F31", "Q4", "", "f32"]), "shape": [1], "data_offsets": [end, end + 4]}
        data, done = data + bytes(4), "an unknown dtype"
    elif pick == 6:
        header[name]["dtype"], done = rng.choice(["C64", "U64"]), "a wrong width"
    elif pick == 7:
        header["__metadata__"], done = {"format": "pt", "x": "y"}, "metadata"
    elif pick == 8:
        pad, done = rng.choice([1, 7, 64]), "spaces after the header"
    elif pick == 9:
        data, done = data + bytes(rng.choice([1, 8])), "bytes after the data"
    elif pick == 10:
        data, done = data[:-rng.choice([1, 4, 100])], "a cut file"
    elif pick == 11:
        header["extra"], done = {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}, "an overlap"
    elif pick == 12:
        header["extra"] = {"dtype": "F32", "shape": [1], "data_offsets": [end + 4, end + 8]}
        data, done = data + bytes(8), "a gap"
    elif pick == 13:
        header["extra"] = {"dtype": "F32", "shape": rng.choice([[], [1, 1, 1, 1]]), "data_offsets": [end, end + 4]}
        data, done = data + bytes(4), "an unused scalar"
    elif pick == 14:
        size, done = rng.choice([0, 3, 1 << 40, (1 << 64) - 1]), "a wrong length of the header"
    else:
        header[name][rng.choice(["dtype", "shape", "data_offsets"])] = rng.choice([None, -1, "x", [-1], [1, 2, 3]])
        done = "a member of a wrong type"
    write_header(path, header, data, pad, size)
    return done


def safetensors_variant(rng, folder, args, plain):
    from safetensors import SafetensorError, safe_open

    write_directory(folder, CHAIN, SPECIAL)
    done = change_safetensors(rng, folder / "model.safetensors")
    try:
        with safe_open(folder / "model.safetensors", "np") as file:
            accepted = file.keys() is not None
    except (SafetensorError, Exception):
        accepted = False
    code, out, err = generate(folder, args)
    if code < 0 or code > 3:
        return f"{done}: ended with {code}: {err[-200:]}"
    if accepted and (code != 0 or out != plain):
        return f"{done}: accepted by the library, ours ended with {code}: {(err or out)[-300:]}"
    if not accepted and code == 0 and done not in EXPECTED:
        return f"{done}: refused by the library, accepted by us"
    if code != 0 and "model.safetensors" not in err:
        return f"{done}: refused without the file's name: {err[-300:]}"
    return ""


def generate(folder, args):
    return run(args, "generate", "--model", folder, "--input-ids", TOKENS.index("K"), "--max-new-tokens", 3, "--ignore-eos",
               "--dtype", "float32", "--temperature", 0)


# ---------------------------------------------------------------------------------------- configurations
def random_ids(rng):
    one = lambda: rng.choice([0, 5, 256, 257, 258, 259, 319, 320, 4294967295, -1, -7, "2", 2.5, None, True, [3], {}])
    return rng.choice([one, one, lambda: [one() for _ in range(rng.randrange(4))]])()


def usable(value):
    values = value if isinstance(value, list) else [value]
    return {v for v in values if type(v) is int and 0 <= v < WIDTH}


def config_variant(rng, folder, args):
    from transformers import GenerationConfig, PreTrainedTokenizerFast

    config, files, wanted = {}, {}, set()
    if rng.random() < 0.6:
        config["eos_token_id"] = random_ids(rng)
        wanted |= usable(config["eos_token_id"])
    generation = {}
    if rng.random() < 0.6:
        generation["eos_token_id"] = random_ids(rng)
        wanted |= usable(generation["eos_token_id"])
    settings = {"temperature": [0.5, 0.0, 2], "top_p": [0.5, 1, 1.0], "top_k": [0, 5, -1], "repetition_penalty": [1.5],
                "max_new_tokens": [7], "num_beams": [3], "min_p": [0.1], "no_such_key": [{}]}
    for key in rng.sample(sorted(settings), rng.randrange(4)):
        generation[key] = rng.choice(settings[key])
    bad = rng.random() < 0.15
    if bad:
        generation[rng.choice(["temperature", "top_p", "top_k", "do_sample"])] = rng.choice(["x", [1], {}])
    if generation:
        files["generation_config"] = generation
    tokenizer = {}
    if rng.random() < 0.6:
        text = rng.choice(CHAIN[1:])
        tokenizer["eos_token"] = rng.choice([text, {"content": text, "__type": "AddedToken"}])
        if rng.random() < 0.3:
            tokenizer["added_tokens_decoder"] = {}
    if tokenizer:
        files["tokenizer_config"] = tokenizer
    if rng.random() < 0.3:
        files["special_tokens_map"] = {"eos_token": rng.choice(CHAIN[1:])}
    write_directory(folder, CHAIN, SPECIAL, config=config, **files)
    fast = PreTrainedTokenizerFast.from_pretrained(str(folder))
    if fast.eos_token is not None:
        wanted.add(fast.eos_token_id)
    code, out, err = run(args, "show", "--model", folder, "--json")
    seen = json.loads(out)
    said = f"{config} {files}"
    if code not in (0, 2):
        return f"{said}: ended with {code}: {err[-200:]}"
    if bad:
        named = any(key in seen["sampling"].get("error", "") for key in generation)
        return "" if named else f"{said}: a wrong type is not refused by name: {seen['sampling']}"
    got = {int(key.split()[0]) for key in seen["end_tokens"]}
    if fast.eos_token is None:
        got -= {i for i in got if "own eos" in str(seen["end_tokens"])}
    if got != wanted:
        return f"{said}: ends {sorted(got)}, not {sorted(wanted)}"
    try:
        reference = GenerationConfig.from_pretrained(str(folder)) if generation else None
    except Exception:
        reference = None
    for key in ("temperature", "top_p", "top_k", "repetition_penalty", "min_p", "max_new_tokens"):
        if reference is not None and key in generation and seen["sampling"].get(key) != getattr(reference, key):
            return f"{said}: {key} is {seen['sampling'].get(key)}, not {getattr(reference, key)}"
    unknown = [key for key in generation if key in ("num_beams", "no_such_key")]
    if sorted(seen["ignored_keys"].get("generation_config.json", [])) != sorted(unknown):
        return f"{said}: ignored keys {seen['ignored_keys']}"
    return ""


# --------------------------------------------------------------------------------------------------- GGUF
ENDS = """<|eot_id|> <|im_end|> <|end|> <|return|> <|call|> <|flush|> <|calls|> <end_of_turn> <|endoftext|> </s> <|eom_id|>
<EOT> _<EOT> [EOT] [EOS] <|end_of_text|> <end_of_utterance> <eos> <turn|> <|tool_response> <｜end▁of▁sentence｜> [e~[""".split()
FILL = {"fim_pad": ["<|fim_pad|>", "<fim-pad>", "<fim_pad>", "<PAD>", "[PAD]"], "fim_sep": ["<|file_sep|>"],
        "fim_rep": ["<|fim_repo|>", "<|repo_name|>", "<fim-repo>", "<REPO>", "<reponame>"]}


def gguf_ends(tokens, keys):
    """The end-of-generation tokens of llama.cpp: the keys of eos, eot and eom; a token of each fill-in-the-middle
    kind; every token with a known text. In two families one text is no end."""
    ends = set()
    value = lambda name: keys.get(f"tokenizer.ggml.{name}_token_id")
    good = lambda v: type(v) is int and 0 <= v < len(tokens)
    ends |= {value(name) for name in ("eos", "eot", "eom") if good(value(name))}
    for name, texts in FILL.items():
        found = [i for i, t in enumerate(tokens) if t in texts]
        ends |= {value(name)} if good(value(name)) else set(found[:1])
    texts = [t for t in ENDS if t in tokens]
    calls = "<|call|>" in texts or "<|calls|>" in texts
    if calls and ("<|return|>" in texts or "<|flush|>" in texts) and "<|end|>" in texts:
        texts.remove("<|end|>")
    if "<|tool_response>" in texts and "</s>" in texts:
        texts.remove("</s>")
    return ends | {tokens.index(t) for t in texts}


def gguf_variant(rng, folder, args):
    chain = ["K", "Hello"] + rng.sample(ENDS + sum(FILL.values(), []) + ["<|im_start|>", "<s>"], rng.randrange(7))
    tokens = tokens_of(chain)
    keys = {}
    for name in ("eos", "eot", "eom", "fim_pad", "bos", "padding", "unknown"):
        if rng.random() < 0.35:
            keys[f"tokenizer.ggml.{name}_token_id"] = rng.choice([0, 5, 257, 258, 319, 320, 4294967295, -1, "2", 2.5, [2]])
    sampling = {"temp": ("temperature", lambda v: max(v, 0)), "top_k": ("top_k", lambda v: v if v > 0 else -1),
                "top_p": ("top_p", float), "min_p": ("min_p", float), "penalty_repeat": ("repetition_penalty", float)}
    wanted = {}
    for name in rng.sample(sorted(sampling), rng.randrange(4)):
        value = rng.choice([0, 5, -1] if name == "top_k" else [0.0, 0.5, 1.0] if name != "penalty_repeat" else [0.5, 1.25])
        keys[f"general.sampling.{name}"] = value
        wanted[sampling[name][0]] = sampling[name][1](value)
    ignored = {}
    for name in rng.sample(["general.sampling.xtc_probability", "general.sampling.sequence", "llama.no_such", "x.y"], rng.randrange(3)):
        ignored[name] = "text" if name.endswith("sequence") else 0.5
    path = write_gguf(folder / "m.gguf", chain, ("<s>",), metadata=keys | ignored)
    code, out, err = run(args, "show", "--model", path, "--json")
    said = f"{chain[2:]} {keys}"
    if code != 0:
        return f"{said}: ended with {code}: {(err or out)[-300:]}"
    seen = json.loads(out)
    ends = gguf_ends(tokens, keys)
    got = {int(key.split()[0]) for key in seen["end_tokens"]}
    if got != ends:
        return f"{said}: ends {sorted(got)}, not {sorted(ends)}"
    for key, value in wanted.items():
        if abs(seen["sampling"].get(key, 99) - value) > 1e-6:
            return f"{said}: {key} is {seen['sampling'].get(key)}, not {value}"
    missing = set(ignored) - set(seen["ignored_keys"].get("m.gguf", []))
    if missing:
        return f"{said}: {missing} are not listed as ignored"
    if run(args, "generate", "--model", path, "--input-ids", 0, "--max-new-tokens", 1, "--dtype", "float32")[0] != 0:
        return f"{said}: show passes, load refuses"
    return ""


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--safetensors", type=int, default=60)
    parser.add_argument("--configs", type=int, default=100)
    parser.add_argument("--ggufs", type=int, default=80)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--sluice", default=str(ROOT / "build/release/bin/sluice"))
    args = parser.parse_args()
    counts, failures = collections.Counter(), 0
    with tempfile.TemporaryDirectory() as base:
        base = pathlib.Path(base)
        plain = generate(write_directory(base / "plain", CHAIN, SPECIAL), args)[1]
        kinds = (("safetensors", args.safetensors, lambda r, f: safetensors_variant(r, f, args, plain)),
                 ("configs", args.configs, lambda r, f: config_variant(r, f, args)),
                 ("ggufs", args.ggufs, lambda r, f: gguf_variant(r, f, args)))
        for kind, count, variant in kinds:
            for number in range(count):
                folder = base / f"{kind}-{number}"
                folder.mkdir()
                said = variant(random.Random(f"{args.seed} {kind} {number}"), folder)
                counts[kind, "differs" if said else "equal"] += 1
                failures += bool(said)
                if said:
                    print(f"{kind} {number}: {said}")
                for file in folder.iterdir():
                    file.unlink()
    print(", ".join(f"{kind}: {n} {state}" for (kind, state), n in sorted(counts.items())))
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
