#!/usr/bin/env python3
"""Masks of Sluice beside those of xgrammar and llguidance: the same schemas, texts and tokenizer.

  python3 bench/grammar/compare.py --sluice build/release/bin/sluice --tokenizer DIR \
      --cases schemas.jsonl.gz [--every 20] [--timeout 20]

DIR holds a tekken.json. The Python needs xgrammar, llguidance, tiktoken and numpy; torch and
transformers are not needed. Every engine runs on one thread, its thread's processor time is
counted, and every text is walked token by token, as it is written and without white space. A case
of a peer that takes more than the timeout to compile is counted as timed out.
"""

import argparse
import base64
import gzip
import json
import multiprocessing
import os
import subprocess
import sys
import tempfile
import time
import types


def read_cases(path, every):
    opener = gzip.open if path.endswith(".gz") else open
    with opener(path, "rt", encoding="utf-8") as file:
        lines = file.readlines()
    return [line for index, line in enumerate(lines) if index % every == every // 2]


class Tekken:
    def __init__(self, directory):
        import tiktoken

        with open(os.path.join(directory, "tekken.json"), encoding="utf-8") as file:
            data = json.load(file)
        config = data["config"]
        self.num_special = config["default_num_special_tokens"]
        size = config["default_vocab_size"] - self.num_special
        ranks = {base64.b64decode(row["token_bytes"]): row["rank"] for row in data["vocab"][:size]}
        self.encoding = tiktoken.Encoding("tekken", pat_str=config["pattern"],
                                          mergeable_ranks=ranks, special_tokens={})
        self.tokens = [b""] * self.num_special + [None] * size
        for token, rank in ranks.items():
            self.tokens[rank + self.num_special] = token
        self.stop = 2

    def encode(self, text):
        ids = self.encoding.encode(text, disallowed_special=())
        return [rank + self.num_special for rank in ids]


class XGrammar:
    def __init__(self, tokenizer, strict):
        import numpy
        import tvm_ffi  # noqa: F401  (looks for torch itself, so it comes before the stand-in)

        class Anything(types.ModuleType):
            def __getattr__(self, name):
                if name.startswith("__"):
                    raise AttributeError(name)
                return type(name, (), {})

        torch = Anything("torch")
        torch.tensor = torch.full = lambda *a, **k: None
        torch.int32 = numpy.int32
        sys.modules.setdefault("torch", torch)
        sys.modules.setdefault("transformers", Anything("transformers"))
        import xgrammar

        self.x = xgrammar
        info = xgrammar.TokenizerInfo(tokenizer.tokens, vocab_type=xgrammar.VocabType.RAW,
                                      vocab_size=len(tokenizer.tokens),
                                      stop_token_ids=[tokenizer.stop])
        self.compiler = xgrammar.GrammarCompiler(info, max_threads=1)
        self.bits = numpy.zeros((1, (len(tokenizer.tokens) + 31) // 32), dtype=numpy.int32)
        self.strict = strict

    def compile(self, schema):
        self.grammar = self.compiler.compile_json_schema(schema, strict_mode=self.strict)
        return self.grammar.memory_size_bytes

    def begin(self):
        self.matcher = self.x.GrammarMatcher(self.grammar)

    def fill(self):
        return self.matcher.fill_next_token_bitmask(self.bits)

    def allows(self, token):
        return bool(self.bits[0][token // 32] >> (token % 32) & 1)

    def accept(self, token):
        return self.matcher.accept_token(token)


class LLGuidance:
    def __init__(self, tokenizer):
        import llguidance
        import llguidance.numpy

        self.l = llguidance
        size = len(tokenizer.tokens)

        class Wrapped:  # what LLTokenizer reads of a tokenizer
            eos_token_id = tokenizer.stop
            bos_token_id = None
            tokens = [t if t else f"<special{i}>".encode() for i, t in enumerate(tokenizer.tokens)]
            special_token_ids = [i for i in range(size) if not tokenizer.tokens[i]]

            def __call__(self, text):
                return tokenizer.encode(text)

        self.tokenizer = llguidance.LLTokenizer(llguidance.TokenizerWrapper(Wrapped()))
        self.bits = llguidance.numpy.allocate_token_bitmask(1, size)

    def compile(self, schema):
        self.text = self.l.LLMatcher.grammar_from_json_schema(schema)
        self.begin()
        if self.matcher.is_error():
            raise ValueError(self.matcher.get_error())
        return 0

    def begin(self):
        self.matcher = self.l.LLMatcher(self.tokenizer, self.text)

    def fill(self):
        self.l.numpy.fill_next_token_bitmask(self.matcher, self.bits)

    def allows(self, token):
        return bool(self.bits[0][token // 32] >> (token % 32) & 1)

    def accept(self, token):
        return self.matcher.consume_token(token)


def run_peer(name, directory, pipe):
    """Answers lines of cases with dictionaries of results."""
    tokenizer = Tekken(directory)
    engine = LLGuidance(tokenizer) if name == "llguidance" else XGrammar(
        tokenizer, strict=name == "xgrammar")
    pipe.send("ready")
    while True:
        case = json.loads(pipe.recv())
        schema = json.dumps(case["schema"])
        result = {"mask_ns": []}
        begin = time.thread_time_ns()
        try:
            result["bytes"] = engine.compile(schema)
        except Exception as error:  # the peer refuses
            pipe.send({"refused": str(error)[:200]})
            continue
        result["compile_us"] = (time.thread_time_ns() - begin) / 1000
        wrong = {"valid": 0, "invalid": 0}
        for kind in wrong:
            for text in case.get(kind, []):
                compact = json.dumps(json.loads(text), separators=(",", ":"), ensure_ascii=False)
                for form in (text, compact):
                    engine.begin()
                    accepted = True
                    for token in tokenizer.encode(form) + [tokenizer.stop]:
                        begin = time.thread_time_ns()
                        engine.fill()
                        result["mask_ns"].append(time.thread_time_ns() - begin)
                        if not engine.allows(token) or not engine.accept(token):
                            accepted = False
                            break
                    wrong[kind] += accepted != (kind == "valid")
        result.update(wrong)
        pipe.send(result)


def peer_results(name, arguments, lines):
    results = []
    process = None
    for line in lines:
        if process is None:
            pipe, other = multiprocessing.Pipe()
            process = multiprocessing.Process(target=run_peer,
                                              args=(name, arguments.tokenizer, other))
            process.start()
            pipe.recv()
        pipe.send(line)
        try:
            ready = pipe.poll(arguments.timeout)
            results.append(pipe.recv() if ready else {"refused": "time"})
        except EOFError:
            ready = False
            results.append({"refused": "crash"})
        if not ready:
            process.kill()
            process.join()
            process = None
    if process is not None:
        process.kill()
    return results


def sluice_results(arguments, lines):
    with tempfile.TemporaryDirectory() as folder:
        cases, out = os.path.join(folder, "cases.jsonl"), os.path.join(folder, "out.jsonl")
        with open(cases, "w", encoding="utf-8") as file:
            file.writelines(lines)
        subprocess.run([arguments.sluice, "verify", "--grammar", cases, "--tokenizer",
                        arguments.tokenizer, "--json", out], check=False,
                       stdout=subprocess.DEVNULL)
        with open(out, encoding="utf-8") as file:
            rows = [json.loads(row) for row in file]
    results = []
    for row in rows:
        if "refused" in row:
            results.append({"refused": row["refused"]})
            continue
        results.append({"compile_us": row["compile_us"], "mask_ns": row["mask_ns"],
                        "bytes": row["bytes"],
                        "valid": sum(entry[0] == 0 for entry in row["valid"]),
                        "invalid": sum(entry[0] == 1 for entry in row["invalid"])})
    return results


def quantile(values, share):
    return sorted(values)[int(share * (len(values) - 1))] if values else float("nan")


def row(name, results):
    compiled = [one for one in results if "refused" not in one]
    compiles = [one["compile_us"] / 1000 for one in compiled]
    masks = [ns / 1000 for one in compiled for ns in one["mask_ns"]]
    right = sum(one["valid"] == one["invalid"] == 0 for one in compiled)
    over = sum(one["invalid"] > 0 for one in compiled)
    count = len(results)
    cells = [name, f"{100 * len(compiled) / count:.1f}", f"{100 * right / count:.1f}",
             f"{100 * over / count:.1f}",
             " / ".join(f"{quantile(compiles, share):.2f}" for share in (0.5, 0.95, 1)),
             " / ".join(f"{quantile(masks, share):.1f}" for share in (0.5, 0.99, 0.999)),
             f"{sum(masks) / max(1, len(masks)):.1f}",
             f"{quantile([one['bytes'] for one in compiled], 0.95) / 1e6:.2f}"]
    print("| " + " | ".join(cells) + " |", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--sluice", default="build/release/bin/sluice")
    parser.add_argument("--tokenizer", required=True)
    parser.add_argument("--cases", required=True)
    parser.add_argument("--every", type=int, default=1, help="take one case of so many")
    parser.add_argument("--timeout", type=float, default=20, help="seconds a peer has for a case")
    parser.add_argument("--engines", default="sluice,llguidance,xgrammar,xgrammar-open")
    arguments = parser.parse_args()
    lines = read_cases(arguments.cases, arguments.every)
    print(f"{len(lines)} cases")
    print("| engine | compiled % | fully right % | over-accepting % | compile ms p50 / p95 / max "
          "| mask us p50 / p99 / p99.9 | mean | MB p95 |")
    print("| --- | --- | --- | --- | --- | --- | --- | --- |", flush=True)
    for name in arguments.engines.split(","):
        row(name, sluice_results(arguments, lines) if name == "sluice"
            else peer_results(name, arguments, lines))


if __name__ == "__main__":
    main()
