#!/usr/bin/env python3
"""Writes traces of coding agents in the format of public sets: agent_traces.py FOLDER [--sessions N] [--seed S]

A trace is a file `SESSION.json`, which aiperf's loader `weka_trace` reads. A trace has no text. A request has a time, the
length of its prompt, the length of its answer, and the ids of its prompt's blocks. Equal ids mean equal tokens.

The shape is that of recorded sessions, scaled to a model of 8,192 tokens:
- A session opens with the definitions of tools, a system prompt and a task.
- A turn ends with a call of a tool, and the next turn adds the answer and the tool's result to the prompt.
- Most results are short and a few are long (log-normal).
- Some turns start a nested session, which has a prompt of its own and several turns.
"""

import argparse
import json
import pathlib
import random

BLOCK = 64                # tokens of one block
TOOLS, SYSTEM = 512, 256  # tokens of the definitions and of the system prompt
MAX_PROMPT = 5000


def tokens(rng, median, spread, low, high):
    return min(max(round(rng.lognormvariate(0, spread) * median), low), high)


class Context:
    """The prompt of one agent: `num_tokens` and the ids of its whole blocks."""

    def __init__(self, new_ids, shared, num_tokens):
        self.new_ids = new_ids
        self.ids = list(shared)
        self.num_tokens = 0
        self.grow(num_tokens)

    def grow(self, num_tokens):
        self.num_tokens += num_tokens
        while (len(self.ids) + 1) * BLOCK <= self.num_tokens:
            self.ids.append(next(self.new_ids))


def turns(rng, context, start, count):
    """Requests of one agent one after the other: each prompt holds the prompt and the answer before it."""
    now, out = start, []
    for i in range(count):
        last = i == count - 1 or context.num_tokens > MAX_PROMPT
        answer = tokens(rng, 24, 0.6, 8, 96)
        api_time = round(0.2 + 0.01 * answer, 3)
        think_time = 0.0 if i == 0 else round(tokens(rng, 150, 0.8, 20, 1000) / 1000, 3)
        now = round(now + think_time, 3)
        out.append({"t": now, "type": "s", "model": "agent", "in": context.num_tokens, "out": answer,
                    "hash_ids": list(context.ids), "input_types": ["text"] if i == 0 else ["tool_result"],
                    "output_types": ["text"] if last else ["text", "tool_use"], "stop": "end_turn" if last else "tool_use",
                    "api_time": api_time, "think_time": think_time, "ttft": 0.1})
        now = round(now + api_time, 3)
        if last:
            break
        context.grow(answer + tokens(rng, 180, 0.9, 16, 1200))
    return out, now


def session(number, seed):
    rng = random.Random(f"{seed}.{number}")
    new_ids = iter(range(1, 1 << 30))
    head = [next(new_ids) for _ in range((TOOLS + SYSTEM) // BLOCK)]
    context = Context(new_ids, head, TOOLS + SYSTEM + tokens(rng, 120, 0.5, 40, 400))
    requests, now = [], 0.0
    for stretch in range(2):
        if stretch:
            inner, end = turns(rng, Context(new_ids, head, TOOLS + SYSTEM + 96), now, rng.randint(2, 3))
            requests.append({"t": now, "type": "subagent", "agent_id": f"agent_{stretch:03}", "subagent_type": "Explore",
                             "duration_ms": round((end - now) * 1000), "total_tokens": sum(r["in"] + r["out"] for r in inner),
                             "tool_use_count": len(inner) - 1, "status": "completed", "requests": inner, "models": ["agent"],
                             "tool_tokens": TOOLS, "system_tokens": SYSTEM})
            now = round(end + 0.05, 3)
        more, now = turns(rng, context, now, rng.randint(3, 6))
        requests += more
        context.grow(more[-1]["out"] + tokens(rng, 60, 0.5, 16, 200))
        now = round(now + 0.3, 3)
    return {"id": f"session-{seed}-{number:04}", "models": ["agent"], "block_size": BLOCK, "hash_id_scope": "local",
            "tool_tokens": TOOLS, "system_tokens": SYSTEM, "requests": requests}


def write(folder, sessions, seed=0):
    """Writes the files; returns the traces."""
    pathlib.Path(folder).mkdir(parents=True, exist_ok=True)
    traces = [session(number, seed) for number in range(sessions)]
    for trace in traces:
        (pathlib.Path(folder) / f"{trace['id']}.json").write_text(json.dumps(trace))
    return traces


def shared_share(traces):
    """The share of all prompt tokens that an earlier prompt of the session holds: what an unbounded cache hits."""
    hit = total = 0
    for trace in traces:
        seen = set()
        for entry in trace["requests"]:
            for request in entry.get("requests", [entry]):
                total += request["in"]
                hit += BLOCK * sum(block in seen for block in request["hash_ids"])
                seen.update(request["hash_ids"])
    return hit / total


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--sessions", type=int, default=8)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    traces = write(options.folder, options.sessions, options.seed)
    requests = sum(len(entry.get("requests", [entry])) for trace in traces for entry in trace["requests"])
    print(f"{len(traces)} sessions, {requests} requests, {shared_share(traces):.1%} of the prompts' tokens shared")


if __name__ == "__main__":
    main()
