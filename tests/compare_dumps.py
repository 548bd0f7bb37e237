#!/usr/bin/env python3
"""Runs `sluice verify --dump` twice with other flags, in separate processes, and compares the
files. Without flags: with one thread, and with two.

    compare_dumps.py SLUICE MODEL GOLDEN [--modes LIST] [--first FLAGS] [--second FLAGS]

Every position's tokens, log-probabilities and hash of the logits' bits must be equal. Exits with 1
if they are not.
"""
import argparse
import json
import pathlib
import shlex
import subprocess
import sys
import tempfile


def dump(args, flags, path):
    command = [args.sluice, "verify", "--model", args.model, "--golden", args.golden, "--dtype", "float32",
               "--modes", args.modes, "--dump", str(path), *shlex.split(flags)]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)}: exit {done.returncode}\n{done.stdout}")
    return json.loads(path.read_text())["runs"]


def positions(runs):
    """Mode, case, position -> the values that must be equal."""
    found = {}
    for run in runs:
        for number, case in enumerate(run["cases"]):
            for row in case["positions"]:
                key = (run["mode"], number, case["case"], row["position"])
                found[key] = (row["logits_hash"], row["next_token"], row["logprob"], row["top_ids"], row["top_logprobs"])
    return found


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("sluice")
    parser.add_argument("model")
    parser.add_argument("golden")
    parser.add_argument("--modes", default="whole,chunk:7,decode")
    parser.add_argument("--first", default="--threads 1")
    parser.add_argument("--second", default="--threads 2")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        one, two = (positions(dump(args, flags, pathlib.Path(folder, f"{i}.json")))
                    for i, flags in enumerate((args.first, args.second)))
    different = sorted(key for key in one.keys() | two.keys() if one.get(key) != two.get(key))
    for key in different[:20]:
        print("differs at mode, run, case, position:", key)
    hashes = {value[0] for value in one.values()}
    print(f"{len(one)} positions with {args.first}, {len(two)} with {args.second}, {len(different)} differ, "
          f"{len(hashes)} distinct hashes")
    # A hash that never varies would compare nothing.
    return 1 if different or len(one) < 2 or len(hashes) < len(one) // 16 else 0


if __name__ == "__main__":
    sys.exit(main())
