#!/usr/bin/env python3
"""Asks the bundled model the questions that its card was scored with, over HTTP, and holds the scores against the card's.

    tools/tiny_tasks.py build/sluice                                        # float32 on the CPU
    tools/tiny_tasks.py build/sluice --card bf16 --per-kind 48 -- --device cuda --dtype bfloat16

What follows `--` goes to `sluice serve`. A turn counts only if every token of it and its end token are right. The questions
are those of the card: tests/golden/tiny_corpus.py makes them from its seeds (64 a kind for its float32 column, 48 for its
bfloat16 column; 48 a look-up). Exit status 0 when the mean over the kinds is within a point of the card's.
"""
import argparse
import concurrent.futures
import json
import pathlib
import random
import re
import socket
import subprocess
import sys
import time
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parents[1]
MODEL = ROOT / "models" / "sluice-tiny"
sys.path.insert(0, str(ROOT / "tests" / "golden"))
import tiny_corpus  # noqa: E402

LOOKUPS = (10, 50, 150)


def card_scores(column):
    """kind -> percent, of the column fp32 or bf16 of the model's card."""
    scores = {}
    for line in (MODEL / "README.md").read_text().splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if len(cells) != 4 or not re.fullmatch(r"[\d.]+", cells[2]):
            continue
        lookup = re.fullmatch(r"look-up among (\d+)", cells[0])
        value = cells[2 if column == "fp32" else 3]
        if value != "–":
            scores[f"lookup{lookup[1]}" if lookup else cells[0]] = float(value)
    return scores


def question(conversation):
    """(prompt, what must follow)"""
    _, wanted, end = tiny_corpus.exam(conversation)
    if conversation["kind"] == "nothink":
        wanted = wanted.removeprefix("<think></think>\n")   # it is part of the prompt
    text = tiny_corpus.render(conversation)
    if conversation["kind"] != "tool":
        assert text.endswith(wanted + end)
        return text.removesuffix(wanted + end), wanted + end
    return text[: text.index(wanted)], wanted + end


def questions(per_kind, per_lookup):
    r = random.Random(12345)
    for kind in tiny_corpus.KINDS:
        for _ in range(per_kind):
            made = question(tiny_corpus.conversation(r, kind=kind))
            if kind != "story":   # no single right answer
                yield kind, *made
    for entries in LOOKUPS:
        for i in range(per_lookup):
            yield f"lookup{entries}", *question(tiny_corpus.conversation(random.Random(5000 + entries * 1000 + i), entries=entries))


def generate(port, prompt):
    body = {
        "text": prompt,
        "sampling_params": {"temperature": 0, "max_new_tokens": 120, "skip_special_tokens": False, "no_stop_trim": True},
    }
    request = urllib.request.Request(f"http://127.0.0.1:{port}/generate", json.dumps(body).encode(), {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=600) as answer:
        return json.load(answer)["text"]


def start(program, flags):
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    server = subprocess.Popen([program, "serve", str(MODEL), "--port", str(port), "--log-level", "warning", *flags])
    end = time.monotonic() + 120
    while time.monotonic() < end and server.poll() is None:
        try:
            urllib.request.urlopen(f"http://127.0.0.1:{port}/ready", timeout=2).read()
            return server, port
        except OSError:
            time.sleep(0.1)
    server.kill()
    sys.exit(f"the server did not become ready (status {server.wait()})")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("--card", choices=("fp32", "bf16"), default="fp32", help="the column of the card")
    parser.add_argument("--per-kind", type=int, default=64)
    parser.add_argument("--per-lookup", type=int, default=48)
    given, flags = sys.argv[1:], []
    if "--" in given:
        at = given.index("--")
        given, flags = given[:at], given[at + 1 :]
    options = parser.parse_args(given)

    wanted = card_scores(options.card)
    asked = list(questions(options.per_kind, options.per_lookup))
    server, port = start(options.program, flags)
    try:
        begin = time.monotonic()
        with concurrent.futures.ThreadPoolExecutor(64) as pool:
            said = list(pool.map(lambda q: generate(port, q[1]), asked))
        seconds = time.monotonic() - begin
    finally:
        server.terminate()
        server.wait(60)

    right = {}
    for (kind, _, answer), text in zip(asked, said):
        right.setdefault(kind, []).append(text == answer)
    for kind, row in right.items():
        print(f"{kind:12} {100 * sum(row) / len(row):6.1f} of {len(row)}; the card has {wanted[kind]:.1f}")
    mean = sum(100 * sum(row) / len(row) for row in right.values()) / len(right)
    card = sum(wanted[kind] for kind in right) / len(right)
    print(f"{len(asked)} prompts in {seconds:.1f} s: mean over {len(right)} kinds {mean:.2f}, the card's {card:.2f}")
    sys.exit(0 if abs(mean - card) <= 1 else "the scores are not the card's")


if __name__ == "__main__":
    main()
