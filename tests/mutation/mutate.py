#!/usr/bin/env python3
"""Shows that the checks can fail: mutate.py [PROGRAM].

Each row makes a copy of a golden checkpoint with one mistake that an engine could make, and runs
both checks on it: `sluice verify` and tests/serving/test_golden.py. Both must say FAIL; on the
unchanged copy both must say ok."""

import json
import pathlib
import shutil
import struct
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
MODELS = ROOT / "tests" / "golden" / "models"
sys.path.insert(0, str(ROOT / "tests" / "serving"))


def edit_config(change):
    def apply(directory):
        path = directory / "config.json"
        config = json.loads(path.read_text())
        before = json.dumps(config)
        change(config)
        assert json.dumps(config) != before, "the mutation changes nothing"
        path.write_text(json.dumps(config))

    return apply


def times(key, factor):
    def change(config):
        config[key] *= factor

    return edit_config(change)


def plus(key, amount):
    def change(config):
        config[key] += amount

    return edit_config(change)


def flip(key):
    def change(config):
        config[key] = not config[key]

    return edit_config(change)


def read_safetensors(path):
    data = path.read_bytes()
    (length,) = struct.unpack("<Q", data[:8])
    return json.loads(data[8 : 8 + length]), bytearray(data[8 + length :])


def write_safetensors(path, header, data):
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(struct.pack("<Q", len(text)) + text + bytes(data))


def swap_experts(a, b, layer):
    """Swaps the weights of two experts of a layer, by their names in the file's table."""

    def apply(directory):
        path = directory / "model.safetensors"
        header, data = read_safetensors(path)
        swapped = 0
        for name in list(header):
            mark = f"layers.{layer}.mlp.experts.{a}."
            if mark in name or f"layers.{layer}.block_sparse_moe.experts.{a}." in name:
                other = name.replace(f"experts.{a}.", f"experts.{b}.")
                header[name], header[other] = header[other], header[name]
                swapped += 1
        assert swapped == 3, f"{swapped} tensors of expert {a}"
        # Offsets must ascend in the file's own order of data; the table may be in any order.
        write_safetensors(path, dict(sorted(header.items(), key=lambda kv: kv[1].get("data_offsets", [0])[0])), data)

    return apply


def other_rope_pairs(layer):
    """Reorders the rows of each head of q_proj and k_proj from halves to adjacent pairs: the result
    of an engine that rotates the wrong pairs."""

    def apply(directory):
        config = json.loads((directory / "config.json").read_text())
        head_dim = config.get("head_dim") or config["hidden_size"] // config["num_attention_heads"]
        path = directory / "model.safetensors"
        header, data = read_safetensors(path)
        for projection in ("q_proj", "k_proj"):
            entry = header[f"model.layers.{layer}.self_attn.{projection}.weight"]
            begin, end = entry["data_offsets"]
            rows = entry["shape"][0]
            row_bytes = (end - begin) // rows
            old = [bytes(data[begin + i * row_bytes : begin + (i + 1) * row_bytes]) for i in range(rows)]
            new = []
            for first in range(0, rows, head_dim):
                head = old[first : first + head_dim]
                new += [head[(i % 2) * (head_dim // 2) + i // 2] for i in range(head_dim)]
            assert new != old
            data[begin:end] = b"".join(new)
        write_safetensors(path, header, data)

    return apply


ROWS = [
    ("unchanged", "llama-plain", lambda directory: None, True),
    ("unchanged", "qwen3-moe", lambda directory: None, True),
    ("unchanged", "glm-moe-dsa", lambda directory: None, True),
    ("epsilon x 10", "llama-linear-bias-headdim", times("rms_norm_eps", 10), False),
    ("epsilon x 10", "llama-plain", times("rms_norm_eps", 10), False),
    ("window + 1", "mistral-swa", plus("sliding_window", 1), False),
    ("window + 1", "qwen2-yarn-swa", plus("sliding_window", 1), False),
    ("two experts swapped", "qwen3-moe", swap_experts(0, 1, 1), False),
    ("two experts swapped", "mixtral", swap_experts(0, 1, 1), False),
    ("two experts swapped", "deepseek-v3", swap_experts(0, 1, 1), False),
    ("RoPE pairs in the other order", "llama-plain", other_rope_pairs(0), False),
    ("RoPE pairs in the other order", "qwen3", other_rope_pairs(0), False),
    ("one more key chosen", "glm-moe-dsa", plus("index_topk", 1), False),
    ("one expert fewer", "qwen3-moe", plus("num_experts_per_tok", -1), False),
]


def main():
    from sluice_server import binary
    import os

    if len(sys.argv) > 1:
        os.environ["SLUICE"] = sys.argv[1]
    wrong = 0
    for what, model, apply, should_pass in ROWS:
        with tempfile.TemporaryDirectory() as scratch:
            directory = pathlib.Path(scratch) / model
            shutil.copytree(MODELS / model, directory)
            apply(directory)
            golden = str(MODELS / model / "golden.json")
            ours = subprocess.run([binary(), "verify", "--model", str(directory), "--golden", golden, "--modes", "whole"], capture_output=True)
            theirs = subprocess.run([sys.executable, str(ROOT / "tests" / "serving" / "test_golden.py"), str(directory), golden], capture_output=True)
        # 1 is a failed check; any other value is a failed program.
        statuses = (ours.returncode, theirs.returncode)
        as_wanted = statuses == ((0, 0) if should_pass else (1, 1))
        wrong += not as_wanted
        print(f"{model}: {what}: verify {statuses[0]}, test_golden {statuses[1]}: {'as wanted' if as_wanted else 'WRONG'}")
        if not as_wanted:
            print((ours.stdout + ours.stderr + theirs.stdout + theirs.stderr).decode(errors="replace")[-1500:])
    print(f"{len(ROWS) - wrong} of {len(ROWS)} as wanted")
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
