#!/usr/bin/env python3
"""Captures of random patterns beside Python's `re`: the groups of a text that matches whole.

    python3 tests/differential/captures.py build/release/bin/sluice models/sluice-tiny [--cases 2000] [--seed 1]

Patterns have classes, groups, alternatives, and greedy and lazy repetitions. Named groups stand outside repetitions,
where Python keeps the last text alone. Texts are letters; those that do not match must be refused.
"""

import argparse
import itertools
import json
import random
import re
import subprocess
import sys
import tempfile

ATOMS = ["a", "b", "c", "[ab]", "[^a]", ".", "ab", "bc"]
MARKS = ["*", "+", "?", "*?", "+?", "??", "{2}", "{1,2}", "{0,2}?", "{2,}"]


class Patterns:
    def __init__(self, rng):
        self.rng = rng
        self.names = 0

    def pattern(self, depth, in_loop):
        parts = [self.sequence(depth, in_loop) for _ in range(self.rng.choice([1, 1, 1, 2, 3]))]
        return "|".join(parts)

    def sequence(self, depth, in_loop):
        return "".join(self.item(depth, in_loop) for _ in range(self.rng.choice([1, 1, 2, 2, 3])))

    def item(self, depth, in_loop):
        if depth == 0 or self.rng.random() < 0.45:
            atom = self.rng.choice(ATOMS)
            if self.rng.random() < 0.4:
                return (atom if len(atom) == 1 or atom[0] == "[" else f"(?:{atom})") + self.rng.choice(MARKS)
            return atom
        mark = self.rng.choice(MARKS) if self.rng.random() < 0.4 else ""
        loops = in_loop or bool(mark) and mark[0] != "?"
        inner = self.pattern(depth - 1, loops)
        if loops or self.rng.random() < 0.35:
            return f"(?:{inner}){mark}"
        self.names += 1
        return f"(?P<g{self.names}>{inner}){mark}"


def captures(match):
    """In the order of their ends, which is that of their numbers."""
    names = sorted(match.re.groupindex, key=lambda name: int(name[1:]))
    return [[name, match.group(name)] for name in names if match.start(name) >= 0]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sluice")
    parser.add_argument("tokenizer")
    parser.add_argument("--cases", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    rng = random.Random(args.seed)
    short = ["".join(letters) for n in range(6) for letters in itertools.product("abc", repeat=n)]
    cases = []
    while len(cases) < args.cases:
        patterns = Patterns(rng)
        pattern = patterns.pattern(2, False)
        if patterns.names == 0 or len(pattern) > 300:
            continue
        texts = rng.sample(short, 60) + ["".join(rng.choice("abc") for _ in range(rng.randint(6, 9)))
                                         for _ in range(30)]
        matches = [(text, re.fullmatch(pattern, text)) for text in dict.fromkeys(texts)]
        valid = [(text, match) for text, match in matches if match][:12]
        if not valid:
            continue
        cases.append({"id": f"{args.seed}-{len(cases)}", "regex": pattern, "valid": [text for text, _ in valid],
                      "invalid": [text for text, match in matches if not match][:8],
                      "captures": [captures(match) for _, match in valid]})
    with tempfile.NamedTemporaryFile("w", suffix=".jsonl", delete=False) as file:
        file.writelines(json.dumps(case) + "\n" for case in cases)
    done = subprocess.run([args.sluice, "verify", "--grammar", file.name, "--tokenizer", args.tokenizer],
                          capture_output=True, text=True, check=False)
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    if not lines:
        sys.exit(done.stderr)
    wrong = 0
    for case, line in zip(cases, lines[:-1]):
        expected = dict(zip(case["valid"], case["captures"]))
        for one in line.get("captures", []):
            wrong += 1
            if wrong <= 20:
                print(f"{case['regex']!r} of {one['text']!r}: {one['found']}, Python has {expected[one['text']]}")
    summary = lines[-1]
    print(f"{summary['captures'][0]} of {summary['captures'][1]} texts right, {summary['captures_refused']} patterns "
          f"refused, {summary['over_accepting']} over-accepting, {summary['too_strict']} too strict")
    return 1 if wrong or summary["captures_refused"] or summary["over_accepting"] or summary["too_strict"] else 0


if __name__ == "__main__":
    sys.exit(main())
