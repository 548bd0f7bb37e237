#!/usr/bin/env python3
"""Drafts from the prompt in an answer that repeats a file with ten changes: tokens a second over plain decoding.

    bench/replayed_edit.py BINARY FILE [--rounds N] [--drafts LIST] -- [options of `sluice bench latency`]

The prompt asks for FILE with changes, and holds it. The answer is FILE with ten names changed, one in each tenth. The
answer is given (`--replay-answer`): so a model of random weights will do. Settings run by turns, and the medians of
their rounds are compared.
"""

import argparse
import json
import pathlib
import re
import statistics
import subprocess
import sys
import tempfile

CHANGES = 10
NAME = re.compile(r"[A-Za-z_]{4,}")


def edited(text):
    """`text` with one name changed in each tenth of it."""
    names = list(NAME.finditer(text))
    if len(names) < CHANGES:
        raise SystemExit(f"error: the file has {len(names)} names of four letters, and {CHANGES} are to be changed")
    out, end = [], 0
    for change in range(CHANGES):
        name = names[len(names) * (2 * change + 1) // (2 * CHANGES)]
        out += [text[end:name.start()], f"new_{name.group()}"]
        end = name.end()
    return "".join([*out, text[end:]])


def run(binary, flags):
    done = subprocess.run([binary, "bench", "latency", "--json", "--tries", "1", "--roofline-mib", "0", *flags],
                          capture_output=True, text=True)
    if done.returncode != 0:
        raise SystemExit(done.stderr)
    return json.loads(done.stdout)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("binary")
    parser.add_argument("file", type=pathlib.Path)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--drafts", default="3,7,15", help="numbers of drafts, with commas")
    end = sys.argv.index("--") if "--" in sys.argv else len(sys.argv)
    arguments, options = parser.parse_args(sys.argv[1:end]), sys.argv[end + 1:]
    drafts = ["--speculative-algorithm", "NGRAM", "--speculative-num-steps"]
    settings = {"plain": []}
    for number in arguments.drafts.split(","):
        settings[f"{number} drafts"] = [*drafts, number, "--speculative-adaptive=false"]
    settings["controller"] = [*drafts, max(arguments.drafts.split(","), key=int)]
    text = arguments.file.read_text()
    found = {name: [] for name in settings}
    with tempfile.TemporaryDirectory() as folder:
        prompt, answer = pathlib.Path(folder, "prompt"), pathlib.Path(folder, "answer")
        prompt.write_text(f"Make ten changes in this file, and give me all of it.\n\n{text}\n")
        answer.write_text(edited(text))
        files = ["--replay-prompt", prompt, "--replay-answer", answer]
        for _ in range(arguments.rounds):
            for name, flags in settings.items():
                found[name].append(run(arguments.binary, [*files, *flags, *options]))
    first = found["plain"][0]
    print(f"{first['input_len']} tokens of prompt, {first['output_len']} of the answer")
    rates = {name: statistics.median(one["mean_decode_throughput"] for one in all) for name, all in found.items()}
    for name, rate in rates.items():
        print(f"{name:12}{rate:10.1f} tokens/s{rate / rates['plain']:7.2f} of plain"
              f"{found[name][0]['tokens_per_step']:7.2f} tokens a step")


if __name__ == "__main__":
    main()
