#!/usr/bin/env python3
"""Seeded variants of tokenizer files, against tokenizers and transformers.

    build/venv-transformers/bin/python tests/differential/tokenizer_files.py [--count 250] [--seed 1]
        [--sluice build/release/bin/sluice] [--keep FOLDER] [--only NUMBER]

Each variant is a tokenizer.json of tests/golden/tokenizers with changed parts, and files beside it.
PreTrainedTokenizerFast of transformers encodes and decodes random texts; `sluice verify` compares the
ids with and without special tokens, decoded texts, the text of every prefix, and our stream.

A variant ends as `equal`, `both refuse`, `differs`, or `refused`: transformers reads it and we name
what we do not read. Exit status 1: some variant differs, ends in a crash, or is refused without a reason that
EXPECTED has.
"""
import argparse
import collections
import copy
import json
import pathlib
import random
import re
import shutil
import subprocess
import sys
import tempfile
import warnings

ROOT = pathlib.Path(__file__).resolve().parents[2]
FIXTURES = sorted(p.parent for p in (ROOT / "tests/golden/tokenizers").glob("*/tokenizer.json"))

# What is refused on purpose, and why that is right.
EXPECTED = {
    r"added_tokens_decoder\[": "a row without a number; transformers fails too, with a trace",
    r"must be 0": "BPE dropout is for training: encoding would be random",
    r"is not supported; supported are": "a part that docs/tokenizers.md lists as not read",
    r"appears twice|have the same id|in model.vocab": "two tokens with one id: the ids of the file are wrong",
}

PIECES = ["Hello", " world", "  ", "\n", "\t", "12", "345", ".", "!", "'s", "é", "e\u0301", "你好", "世界", "😀", "👩‍👩‍👧",
          "<x>", "<more>", "<|im_end|>", "<s>", "</s>", "[PAD]", "<one>", "<TWO>", "▁", "Ġ", "\u00a0", "ﬁ", "İ",
          "ABC", "abc", "Привет", "नमस्ते", "\u200b", "=" * 9, "don't", "I'LL", "\r\n", "_", "a", "Z", "٣", "\ufeff"]
CONTENTS = ["<x>", "<more>", "<|im_end|>", "<s>", "</s>", "[PAD]", "<one>", "<TWO>", "abc", "Hello", " world", "é", "你好",
            "1", "<two words>", "=", "ﬁ"]
NAMED = ["bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token"]


def token(rng, content, special=None):
    flag = lambda odds: rng.random() < odds
    special = flag(0.5) if special is None else special
    return {"content": content, "single_word": flag(0.15), "lstrip": flag(0.15), "rstrip": flag(0.15),
            "normalized": flag(0.5), "special": special}


def next_id(document):
    vocab = document["model"]["vocab"]
    ids = list(vocab.values()) if isinstance(vocab, dict) else [len(vocab) - 1]
    return max(ids + [t["id"] for t in document["added_tokens"]]) + 1


def has_token(document, content):
    vocab = document["model"]["vocab"]
    return content in vocab if isinstance(vocab, dict) else any(v[0] == content for v in vocab)


NORMALIZERS = [
    None, {"type": "NFC"}, {"type": "NFKC"}, {"type": "NFD"}, {"type": "Lowercase"}, {"type": "StripAccents"},
    {"type": "Strip", "strip_left": True, "strip_right": False}, {"type": "Prepend", "prepend": "▁"},
    {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}, {"type": "Replace", "pattern": {"Regex": " +"}, "content": " "},
    {"type": "Sequence", "normalizers": [{"type": "NFD"}, {"type": "StripAccents"}, {"type": "Lowercase"}]},
    {"type": "BertNormalizer", "clean_text": True, "handle_chinese_chars": True, "strip_accents": None, "lowercase": True}]
SPLITS = [r"\p{N}{1,3}", r"\s+(?!\S)|\s+", r"[^\r\n\p{L}\p{N}]?\p{L}+", r"(?i:'s|'t)|\w+|[^\w\s]+", r"\d", r"[一-龥]+", r"(?=[A-Z])",
          r"\b", r"^.", r"[^\S\n]+", r"\X", r"(?<=a)b|\bfoo\b", r"[\p{L}&&[^a-z]]+"]
BEHAVIOURS = ["Isolated", "Removed", "MergedWithPrevious", "MergedWithNext", "Contiguous"]


def pre_tokenizer(rng):
    pick = rng.randrange(9)
    if pick < 4:
        pattern = {"Regex": rng.choice(SPLITS)} if pick else {"String": rng.choice([" ", "a", "12", "▁"])}
        return {"type": "Split", "pattern": pattern, "behavior": rng.choice(BEHAVIOURS), "invert": rng.random() < 0.3}
    return [{"type": "Digits", "individual_digits": rng.random() < 0.5}, {"type": "Whitespace"}, {"type": "WhitespaceSplit"},
            {"type": "Punctuation", "behavior": rng.choice(BEHAVIOURS)}, {"type": "CharDelimiterSplit", "delimiter": "_"}][pick - 4]


def change_steps(rng, document):
    """New steps in front of those of the file, which keep the vocabulary reachable."""
    if rng.random() < 0.4:
        old, new = document["normalizer"], copy.deepcopy(rng.choice(NORMALIZERS))
        document["normalizer"] = {"type": "Sequence", "normalizers": [new, old]} if new and old else new or old
    if rng.random() < 0.5:
        old, new = document["pre_tokenizer"], pre_tokenizer(rng)
        document["pre_tokenizer"] = {"type": "Sequence", "pretokenizers": [new, old]} if old else new
    if rng.random() < 0.15 and document["model"]["type"] == "BPE":
        document["model"]["ignore_merges"] = not document["model"].get("ignore_merges", False)
    if rng.random() < 0.1:
        document["truncation"] = {"direction": "Right", "max_length": 3, "strategy": "LongestFirst", "stride": 0}
    if rng.random() < 0.1:
        document["padding"] = {"strategy": {"Fixed": 20}, "direction": "Right", "pad_to_multiple_of": None, "pad_id": 0,
                               "pad_type_id": 0, "pad_token": "[PAD]"}


def change_added(rng, document):
    for content in rng.sample(CONTENTS, rng.randrange(4)):
        if any(t["content"] == content for t in document["added_tokens"]):
            continue
        vocab = document["model"]["vocab"]
        known = has_token(document, content)
        number = (vocab[content] if isinstance(vocab, dict) else [v[0] for v in vocab].index(content)) if known else next_id(document)
        document["added_tokens"].append({"id": number} | token(rng, content))
    document["added_tokens"].sort(key=lambda t: t["id"])


def change_post_processor(rng, document):
    added = document["added_tokens"]
    if not added or rng.random() < 0.7:
        return
    first, last = rng.choice(added), rng.choice(added)
    special = {t["content"]: {"id": t["content"], "ids": [t["id"]], "tokens": [t["content"]]} for t in (first, last)}
    side = lambda t: [{"SpecialToken": {"id": t["content"], "type_id": 0}}]
    single = side(first) + [{"Sequence": {"id": "A", "type_id": 0}}] + (side(last) if rng.random() < 0.5 else [])
    document["post_processor"] = {"type": "TemplateProcessing", "single": single, "pair": single, "special_tokens": special}


def side_files(rng, document):
    """The files beside the tokenizer.json: name -> value."""
    files = {}
    config = {"tokenizer_class": "PreTrainedTokenizerFast"} if rng.random() < 0.8 else {}
    row = lambda content: token(rng, content) | ({"__type": "AddedToken"} if rng.random() < 0.5 else {})
    for name in rng.sample(NAMED, rng.randrange(4)):
        content = rng.choice(CONTENTS)
        config[name] = content if rng.random() < 0.6 else token(rng, content) | {"__type": "AddedToken"}
    if rng.random() < 0.45:
        at = next_id(document)
        decoder = {}
        for old in rng.sample(document["added_tokens"], min(len(document["added_tokens"]), rng.randrange(4))):
            kept = {k: v for k, v in old.items() if k != "id"}
            decoder[str(old["id"])] = kept if rng.random() < 0.5 else token(rng, old["content"])
        for content in rng.sample(CONTENTS, rng.randrange(5)):
            if any(t["content"] == content for t in document["added_tokens"]):
                continue
            decoder[str(at)] = token(rng, content)
            at += 1 if rng.random() < 0.9 else 3
        config["added_tokens_decoder"] = decoder
    if rng.random() < 0.35:
        key = rng.choice(["additional_special_tokens", "extra_special_tokens"])
        config[key] = [c if rng.random() < 0.7 else token(rng, c, True) | {"__type": "AddedToken"} for c in rng.sample(CONTENTS, rng.randrange(4))]
    if rng.random() < 0.1:
        config["split_special_tokens"] = rng.random() < 0.7
    if rng.random() < 0.15:
        config["image_token"] = rng.choice(CONTENTS)
    if config:
        files["tokenizer_config.json"] = config
    if rng.random() < 0.3:
        at = next_id(document)
        names = [c for c in rng.sample(CONTENTS, rng.randrange(4)) if not any(t["content"] == c for t in document["added_tokens"])]
        files["added_tokens.json"] = {c: at + i for i, c in enumerate(names)}
    if rng.random() < 0.3:
        special = {}
        for name in rng.sample(NAMED, rng.randrange(3)):
            content = rng.choice(CONTENTS)
            flags = {k: v for k, v in token(rng, content).items() if k != "special"}
            special[name] = content if rng.random() < 0.5 else flags
        files["special_tokens_map.json"] = special
    return files


def write_variant(folder, rng):
    source = rng.choice(FIXTURES)
    document = json.loads((source / "tokenizer.json").read_text())
    change_added(rng, document)
    if rng.random() < 0.5:
        change_steps(rng, document)
    change_post_processor(rng, document)
    (folder / "tokenizer.json").write_text(json.dumps(document))
    for name, value in side_files(rng, document).items():
        (folder / name).write_text(json.dumps(value))
    return source.name


def texts(rng):
    out = ["", " ", "<s>ab", "".join(CONTENTS)]
    for _ in range(14):
        out.append("".join(rng.choice(PIECES) for _ in range(rng.randrange(1, 9))))
    return out


def reference(folder, rng):
    from transformers import PreTrainedTokenizerFast

    fast = PreTrainedTokenizerFast.from_pretrained(str(folder))
    backend = fast.backend_tokenizer
    backend.no_truncation()
    backend.no_padding()
    cases = []
    for text in texts(rng):
        ids = backend.encode(text, add_special_tokens=False).ids
        full = backend.encode(text, add_special_tokens=True).ids
        prefixes, before = [], ""
        for k in range(len(ids)):
            now = backend.decode(ids[: k + 1], skip_special_tokens=False)
            same = next((i for i, (a, b) in enumerate(zip(before, now)) if a != b), min(len(before), len(now)))
            prefixes.append([same, now[same:]])
            before = now
        cases.append({"text": text, "ids": ids, "ids_with_special": full,
                      "decoded": backend.decode(ids, skip_special_tokens=False),
                      "decoded_skip_special": backend.decode(full, skip_special_tokens=True),
                      "prefix_decodes": prefixes, "stream": []})
    return {"kind": "tokenizer.json", "cases": cases}


def run(number, args):
    rng = random.Random(args.seed * 1_000_003 + number)
    folder = pathlib.Path(tempfile.mkdtemp(prefix=f"tokenizer-{number}-"))
    try:
        source = write_variant(folder, rng)
        try:
            oracle, why = reference(folder, rng), ""
        except BaseException as error:  # tokenizers raises its panics as BaseException
            if isinstance(error, KeyboardInterrupt):
                raise
            oracle, why = None, f"{type(error).__name__}: {error}"
        (folder / "oracle.json").write_text(json.dumps(oracle or {"kind": "tokenizer.json", "cases": []}))
        command = [args.sluice, "verify", "--tokenizer", str(folder), "--oracle", str(folder / "oracle.json")]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120)
        said = (done.stdout + done.stderr).strip()
        if done.returncode not in (0, 1, 2):
            state = "crash"
        elif oracle is None:
            state = "both refuse" if done.returncode == 2 else "only we read"
        elif done.returncode == 2:
            state = "refused"
            why = next((reason for pattern, reason in EXPECTED.items() if re.search(pattern, said)), "")
        else:
            state = "equal" if done.returncode == 0 else "differs"
        bad = state in ("crash", "differs") or (state == "refused" and not why)
        if bad and args.keep:
            shutil.copytree(folder, pathlib.Path(args.keep) / str(number), dirs_exist_ok=True)
        return state, source, why, said, bad
    finally:
        shutil.rmtree(folder)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=250)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--sluice", default=str(ROOT / "build/release/bin/sluice"))
    parser.add_argument("--keep", help="keep the folders of failures here")
    parser.add_argument("--only", type=int)
    args = parser.parse_args()
    warnings.simplefilter("ignore")
    import transformers

    transformers.logging.set_verbosity_error()
    states, failures = collections.Counter(), 0
    for number in [args.only] if args.only is not None else range(args.count):
        state, source, why, said, bad = run(number, args)
        states[state] += 1
        failures += bad
        if bad or args.only is not None or (why and state != "both refuse"):
            print(f"{number} {source}: {state}{': ' + why if why else ''}")
        if bad or args.only is not None:
            print("    " + "\n    ".join(said.splitlines()[:4]))
    print(f"transformers {transformers.__version__}: " + ", ".join(f"{n} {state}" for state, n in sorted(states.items())))
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
