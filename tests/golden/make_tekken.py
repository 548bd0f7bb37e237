"""Writes tokenizers/tekken: a small tekken.json and the results of mistral-common on texts with it.

    python3 -m venv V; V/bin/pip install mistral-common==1.13.1
    V/bin/python tests/golden/make_tekken.py [--published FOLDER]

The vocabulary is that of tokenizers/tiktoken-o200k after 24 special tokens, of which the file lists
22. The texts are those of its oracle. --published writes to FOLDER a published file of the package
(131,072 tokens), with its oracle, for `sluice verify --tokenizer FOLDER --oracle
FOLDER/oracle.json`.
"""

import argparse
import base64
import importlib.metadata
import json
import pathlib
import shutil

import mistral_common
from mistral_common.tokens.tokenizers.base import SpecialTokenPolicy
from mistral_common.tokens.tokenizers.tekken import Tekkenizer

HERE = pathlib.Path(__file__).parent / "tokenizers"
TEXTS = [case["text"] for case in json.loads((HERE / "tiktoken-o200k" / "oracle.json").read_text())["cases"]]
PUBLISHED = pathlib.Path(mistral_common.__file__).parent / "data" / "tekken_240911.json"


def steps(texts):
    """Successive texts as [code points kept of the previous text, text appended]."""
    out, last = [], ""
    for text in texts:
        kept = 0
        while kept < min(len(last), len(text)) and last[kept] == text[kept]:
            kept += 1
        out.append([kept, text[kept:]])
        last = text
    return out


def write_oracle(folder):
    tokenizer = Tekkenizer.from_file(folder / "tekken.json")
    decode = lambda ids: tokenizer.decode(ids, special_token_policy=SpecialTokenPolicy.KEEP)
    cases = []
    for text in TEXTS:
        ids = tokenizer.encode(text, bos=False, eos=False)
        bytes_of = b"".join(tokenizer.id_to_byte_piece(i, SpecialTokenPolicy.KEEP) for i in ids)
        cases.append({
            "text": text, "ids": ids, "ids_with_bos": tokenizer.encode(text, bos=True, eos=False), "decoded": decode(ids),
            "decoded_bytes_b64": base64.b64encode(bytes_of).decode(),
            "prefix_decodes": steps([decode(ids[: k + 1]) for k in range(len(ids))]),
        })
    specials = {str(i): tokenizer.id_to_piece(i) for i in range(tokenizer.num_special_tokens)}
    head = {"format": 1, "name": folder.name, "kind": "tekken", "vocab_size": tokenizer.n_words,
            "versions": {"mistral_common": importlib.metadata.version("mistral_common")}, "special_tokens": specials}
    rows = ",\n".join(json.dumps(case, separators=(",", ":")) for case in cases)
    (folder / "oracle.json").write_text(json.dumps(head)[:-1] + ',\n"cases": [\n' + rows + "\n]}\n")
    print(f"{folder.name}: {len(cases)} texts, {sum(len(c['ids']) for c in cases)} ids")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--published", type=pathlib.Path)
    options = parser.parse_args()
    if options.published:
        options.published.mkdir(parents=True, exist_ok=True)
        shutil.copy(PUBLISHED, options.published / "tekken.json")
        return write_oracle(options.published)

    folder = HERE / "tekken"
    folder.mkdir(exist_ok=True)
    lines = (HERE / "tiktoken-o200k" / "tokenizer.tiktoken").read_text().split("\n")
    tokens = [base64.b64decode(line.split()[0]) for line in lines if line]
    # the format's order
    tokens = [bytes([i]) for i in range(256)] + [token for token in tokens if len(token) > 1]
    names = ["<unk>", "<s>", "</s>", "[INST]", "[/INST]", *(f"[EXTRA_{i}]" for i in range(17))]
    file = {
        "config": {"pattern": json.loads(PUBLISHED.read_text())["config"]["pattern"], "num_vocab_tokens": len(tokens),
                   "default_vocab_size": len(tokens) + 24, "default_num_special_tokens": 24, "version": "v13"},
        "special_tokens": [{"rank": i, "token_str": name, "is_control": True} for i, name in enumerate(names)],
        "vocab": [{"rank": i, "token_bytes": base64.b64encode(token).decode(), "token_str": None} for i, token in enumerate(tokens)],
    }
    (folder / "tekken.json").write_text(json.dumps(file, separators=(",", ":")) + "\n")
    write_oracle(folder)


if __name__ == "__main__":
    main()
