#!/usr/bin/env python3
"""Compares Sluice with transformers on the same GGUF file: tokens, a chat, perplexity.

    tools/fetch_smollm2
    python3 -m venv /tmp/oracle && /tmp/oracle/bin/pip install torch transformers gguf accelerate
    /tmp/oracle/bin/python tools/check_smollm2.py [--model FILE.gguf] [--mode "NAME=FLAGS" ...]

1. With --dtype float32 the first 48 greedy tokens on ten prompts equal those of transformers, which widens the same file
   to float32; or they part where the two most likely tokens of transformers are less than 2e-2 apart in logits. Each
   parting is shown with its gap.
2. Over chat, the capital of France is Paris, for both.
3. The perplexity of tests/data/perplexity.txt in bfloat16, with the file's blocks kept quantised, and in each --mode, is within
   0.5 % of that in float32, which equals that of transformers to 1e-4.

The program is that of the environment variable SLUICE, else build/sluice. Ends with 1 when something does not hold.
"""

import argparse
import json
import math
import pathlib
import shlex
import sys

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests" / "serving"))

from sluice_server import Server  # noqa: E402

NUM_TOKENS = 48
MAX_GAP = 2e-2            # between the two most likely tokens, where outputs may part
MAX_PERPLEXITY_CHANGE = 5e-3
PROMPTS = [
    "The capital of France is",
    "Once upon a time there was a small",
    "def fibonacci(n):\n",
    "Water boils at a temperature of",
    "The three primary colours are",
    "To make a cup of tea, first",
    "In 1969, two astronauts",
    "Dear Sir or Madam,\n\nI am writing to",
    "Q: What is 12 + 30?\nA:",
    "The quick brown fox",
]
QUESTION = "What is the capital of France?"


class Oracle:
    def __init__(self, path):
        import torch
        from transformers import AutoModelForCausalLM, AutoTokenizer

        self.torch = torch
        where = {"pretrained_model_name_or_path": str(path.parent), "gguf_file": path.name}
        self.tokenizer = AutoTokenizer.from_pretrained(**where)
        self.model = AutoModelForCausalLM.from_pretrained(**where, dtype=torch.float32).eval()

    def greedy(self, ids, num_tokens):
        """The tokens that follow, and of each how far the second most likely one was behind."""
        torch = self.torch
        with torch.no_grad():
            out = self.model.generate(torch.tensor([ids]), max_new_tokens=num_tokens, do_sample=False,
                                      output_logits=True, return_dict_in_generate=True)
        best = [torch.topk(logits[0], 2).values for logits in out.logits]
        return out.sequences[0, len(ids):].tolist(), [(top[0] - top[1]).item() for top in best]

    def chat(self, question):
        ids = self.tokenizer.apply_chat_template([{"role": "user", "content": question}], add_generation_prompt=True,
                                                 return_dict=False)
        return self.tokenizer.decode(self.greedy(ids, NUM_TOKENS)[0], skip_special_tokens=True)

    def mean_logprob(self, ids):
        torch = self.torch
        with torch.no_grad():
            logprobs = torch.log_softmax(self.model(torch.tensor([ids])).logits[0, :-1].double(), -1)
        return logprobs.gather(1, torch.tensor(ids[1:])[:, None]).mean().item()


def greedy(server, ids, num_tokens):
    reply = server.post("/generate", {"input_ids": ids, "sampling_params": {"temperature": 0, "max_new_tokens": num_tokens}})
    assert reply.status == 200, reply.body
    return reply.json()["output_ids"]


def mean_logprob(server, ids):
    reply = server.post("/generate", {"input_ids": ids, "sampling_params": {"temperature": 0, "max_new_tokens": 1},
                                      "return_logprob": True, "logprob_start_len": 0}, timeout=600)
    assert reply.status == 200, reply.body
    rows = [row[0] for row in reply.json()["meta_info"]["input_token_logprobs"] if row[0] is not None]
    assert len(rows) == len(ids) - 1, (len(rows), len(ids))
    return sum(rows) / len(rows)


def check_tokens(server, oracle):
    """Whether every prompt's tokens are those of transformers, or part where it does not matter."""
    good = True
    for prompt in PROMPTS:
        ids = oracle.tokenizer(prompt)["input_ids"]
        own_ids = server.post("/tokenize", {"prompt": prompt}).json()["tokens"]
        wanted, gaps = oracle.greedy(ids, NUM_TOKENS)
        seen = greedy(server, ids, NUM_TOKENS)
        # Generation ends with the end token, which only transformers shows.
        while wanted and wanted[-1] in oracle.tokenizer.all_special_ids and len(wanted) > len(seen):
            wanted.pop()
        same = next((i for i, (a, b) in enumerate(zip(wanted, seen)) if a != b), min(len(wanted), len(seen)))
        parts = same < max(len(wanted), len(seen))
        holds = ids == own_ids and (not parts or gaps[same] < MAX_GAP)
        good &= holds
        note = f"part at token {same}, where the gap is {gaps[same]:.4f}" if parts else f"{len(wanted)} tokens equal"
        if ids != own_ids:
            note += f"; the prompt's tokens differ: {own_ids}, not {ids}"
        print(f"{'ok ' if holds else 'BAD'} {json.dumps(prompt):44} {note}; smallest gap {min(gaps):.4f}")
    return good


def check_chat(server, oracle):
    reply = server.post("/v1/chat/completions", {"model": "m", "messages": [{"role": "user", "content": QUESTION}],
                                                 "temperature": 0, "max_tokens": NUM_TOKENS})
    seen = reply.json()["choices"][0]["message"]["content"]
    wanted = oracle.chat(QUESTION)
    print(f"chat: sluice {seen!r}, transformers {wanted!r}")
    return "Paris" in seen and "Paris" in wanted


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=pathlib.Path, default=ROOT / "models/smollm2/SmolLM2-135M-Instruct.Q4_1.gguf")
    parser.add_argument("--mode", action="append", default=[], help='more perplexities: "NAME=FLAGS of serve"')
    parser.add_argument("--flags", default="", help="flags of serve for all modes, such as --threads 2")
    args = parser.parse_args()
    flags = shlex.split(args.flags) + ["--served-model-name", "m"]
    oracle = Oracle(args.model)
    text_ids = oracle.tokenizer((ROOT / "tests/data/perplexity.txt").read_text())["input_ids"]

    with Server(args.model, "--dtype", "float32", *flags) as server:
        good = check_tokens(server, oracle)
        good &= check_chat(server, oracle)
        exact = mean_logprob(server, text_ids)
    reference = oracle.mean_logprob(text_ids)
    print(f"perplexity of {len(text_ids)} tokens: transformers {math.exp(-reference):.5f}")
    for name, mode, allowed in [("float32", None, 1e-4), ("bfloat16", "--dtype bfloat16 --quantization none", MAX_PERPLEXITY_CHANGE),
                               ("blocks kept", "--dtype bfloat16", MAX_PERPLEXITY_CHANGE)] + [
        (name, given, MAX_PERPLEXITY_CHANGE) for name, given in (row.split("=", 1) for row in args.mode)
    ]:
        mean, base = exact, reference
        if mode is not None:
            with Server(args.model, *shlex.split(mode), *flags) as server:
                mean, base = mean_logprob(server, text_ids), exact
        change = math.exp(base - mean) - 1
        holds = abs(change) <= allowed
        good &= holds
        print(f"{'ok ' if holds else 'BAD'} perplexity {name}: {math.exp(-mean):.5f}, {change:+.5%} (allowed {allowed:.2%})")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
