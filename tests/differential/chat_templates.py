#!/usr/bin/env python3
"""Compares the prompts of chat templates with those of transformers: every *.jinja file of the folders given, with the
sixty conversations of conversations.py.

    cmake --build --preset release --target render_templates
    build/venv-transformers/bin/python tests/differential/chat_templates.py tests/golden/chat_templates [FOLDER ...]

Public templates stand in the sources of vLLM (examples/), llama.cpp (models/templates/), TRL and Axolotl; they are no
part of this repository. A template counts once, whatever its file is called. Prompts must be equal, errors must have
the same class, and what a template raises the same message. Sluice gives a message's reasoning each name that templates
read, as vLLM does; transformers only the name that the client wrote. A prompt that equals transformers' with all names
is counted apart.
"""
import argparse
import collections
import glob
import json
import os
import sys

import conversations
import reference


NAMES = ("reasoning_content", "thinking", "reasoning")


def with_all_names(request):
    """The request's text with each message's reasoning under all its names."""
    def renamed(message):
        said = next((message[name] for name in NAMES if isinstance(message, dict) and message.get(name) is not None), None)
        return message if said is None else {**dict.fromkeys(NAMES, said), **message}
    fields = json.loads(request)
    return json.dumps({**fields, "messages": [renamed(message) for message in fields["messages"]]})


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs="+")
    parser.add_argument("--show", type=int, default=20)
    parser.add_argument("--program")
    args = parser.parse_args()
    path = reference.program(args.program)
    reference.guard()
    templates = {}
    for folder in args.folders:
        for file in sorted(glob.glob(os.path.join(folder, "**", "*.jinja*"), recursive=True)):
            with open(file, encoding="utf-8", newline="") as opened:
                templates.setdefault(opened.read(), file)
    requests = conversations.requests()
    cases = [{"file": file, "name": name, "template": source, "request": request, "chat": True}
             for source, file in templates.items() for name, request in requests.items()]
    counts, skipped, shown, wrong = collections.Counter(), collections.Counter(), 0, set()
    for case, our in zip(cases, reference.run_program(path, cases)):
        their = reference.render_chat(case["template"], case["request"])
        if "skipped" in their:
            skipped[their["skipped"]] += 1
            continue
        counts["texts" if "text" in their else "errors"] += 1
        found = reference.difference(our, their)
        if not found:
            continue
        if not reference.difference(our, reference.render_chat(case["template"], with_all_names(case["request"]))):
            counts["names"] += 1
            continue
        counts["differences"] += 1
        wrong.add(case["file"])
        shown += 1
        if shown > args.show:
            continue
        print(f"{case['file']} {case['name']}: {found}")
        mine, other = our.get("text"), their.get("text")
        if mine is not None and other is not None:
            at = next((i for i, (a, b) in enumerate(zip(mine, other)) if a != b), min(len(mine), len(other)))
            mine, other = mine[max(0, at - 60):at + 80], other[max(0, at - 60):at + 80]
        print(f"  ours   {json.dumps(mine or our, ensure_ascii=False)[:300]}")
        print(f"  theirs {json.dumps(other or their, ensure_ascii=False)[:300]}")
    print(f"{len(templates)} templates x {len(requests)} conversations: {counts['texts']} prompts and {counts['errors']} errors compared, "
          f"{counts['differences']} differences in {len(wrong)} templates")
    print(f"{counts['names']} equal with reasoning under all its names")
    for reason, count in skipped.most_common():
        print(f"{count} not compared: {reason}")
    return 1 if counts["differences"] else 0


if __name__ == "__main__":
    sys.exit(main())
