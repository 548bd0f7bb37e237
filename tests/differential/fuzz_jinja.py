#!/usr/bin/env python3
"""Compares our template language with jinja2 in transformers' environment on random templates.

    cmake --build --preset release --target render_templates
    build/venv-transformers/bin/python tests/differential/fuzz_jinja.py [--seed 1] [--cases 20000] [--show 20]

Every case is made from its seed, so a case of a report can be repeated with --seed N --cases 1. Texts must be equal,
and errors must have the same class. `not_compared` below lists what has no equal result, with the reason.
"""
import argparse
import collections
import json
import random
import re
import sys

import jinja_grammar
import reference


def template_and_context(case):
    return case["template"] + case["variables"]


def not_compared(case, ours, theirs):
    """The reason why two results cannot be compared; None if they can."""
    if "skipped" in theirs:
        return theirs["skipped"]
    if re.search(r"0x[0-9a-f]{6,}|<(built-in|bound) |<generator|<function|_iterator", theirs.get("text", "")):
        return "the text has the address of a Python object"
    if "error" in theirs and re.search(r"object at 0x", theirs["error"]["message"]):
        return "the message has the address of a Python object"
    if "sameas" in case["template"] and re.sub("True|False", "", ours.get("text", "")) == re.sub("True|False", "", theirs.get("text", "x")):
        return "whether two equal texts are one object in Python" if ours["text"] != theirs["text"] else None
    if re.search(r"0X[0-9A-F]{6,}", theirs.get("text", "")):
        return "the text has the address of a Python object"
    message = ours.get("error", {}).get("message", "")
    if re.search(r"'bytes'? object", message):
        return "bytes has decode alone"
    if "bytes-like" in theirs.get("error", {}).get("message", ""):
        return "bytes has decode alone"
    if "complex numbers" in message:
        return "a complex number: a power of a negative number fails here with a ValueError"
    if message.startswith("sequence item: expected str"):
        return "a filter block that gives no text fails where it stands, in jinja2 after the text around it"
    if re.search(r"[\dn]j\)", theirs.get("text", "")):
        return "a complex number: a power of a negative number fails here with a ValueError"
    if "\ufffd" in ours.get("text", "") and "\ufffd" not in template_and_context(case):
        return "half of a surrogate pair, which UTF-8 does not have"
    if "error" in ours and ours["error"]["kind"] == "fuel":
        return "our limit of work (docs/rules.md, R16)"
    if "error" in theirs and theirs["error"]["type"] in ("RecursionError", "MemoryError"):
        return "the reference's limit of recursion"
    return None


def record(file):
    """Writes the known templates with the reference's results, in the form of a snippets.json."""
    variables, rows = json.dumps(jinja_grammar.CONTEXT), []
    for template in jinja_grammar.KNOWN:
        their = reference.render_snippet(template, variables)
        row = {"template": template}
        if "text" in their:
            row["expected"] = their["text"]
        else:
            row["error"] = {key: their["error"][key] for key in ("type", "message")}
        if not not_compared({"template": template, "variables": variables}, {}, their) and "\\ud83d" not in template:
            rows.append(row)
    document = {"format": 1, "now": reference.NOW.isoformat(), "context": jinja_grammar.CONTEXT,
                "versions": reference.versions(), "snippets": rows}
    with open(file, "w", encoding="utf-8") as out:
        json.dump(document, out, ensure_ascii=True, indent=1)
        out.write("\n")
    print(f"{len(rows)} templates")
    return 0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--cases", type=int, default=20000)
    parser.add_argument("--kinds", default="expression,statement,syntax,known")
    parser.add_argument("--show", type=int, default=20)
    parser.add_argument("--program")
    parser.add_argument("--record", metavar="FILE", help="write tests/golden/chat_templates/language.json instead")
    args = parser.parse_args()
    if args.record:
        return record(args.record)
    path = reference.program(args.program)
    reference.guard()
    kinds = args.kinds.split(",")
    variables = json.dumps(jinja_grammar.CONTEXT)
    cases = []
    for seed in range(args.seed, args.seed + args.cases):
        kind = kinds[seed % len(kinds)]
        template = jinja_grammar.template_of(kind, seed // len(kinds), random.Random(seed))
        if not jinja_grammar.is_unrepeatable(template):
            cases.append({"seed": seed, "kind": kind, "template": template, "variables": variables})
    ours = reference.run_program(path, cases)
    counts, reasons, shown = collections.Counter(), collections.Counter(), 0
    for case, our in zip(cases, ours):
        their = reference.render_snippet(case["template"], variables)
        reason = not_compared(case, our, their)
        if reason:
            reasons[reason] += 1
            continue
        if reference.difference(our, their):
            with reference.without_folding():
                evaluated = reference.render_snippet(case["template"], variables)
            if not reference.difference(our, evaluated) or not_compared(case, our, evaluated):
                reasons["jinja2 folds a constant expression to what its evaluation does not give"] += 1
                continue
        counts["texts" if "text" in their else "errors"] += 1
        found = reference.difference(our, their)
        if not found:
            continue
        counts["differences"] += 1
        shown += 1
        if shown <= args.show:
            print(f"seed {case['seed']} ({case['kind']}): {found}\n  {case['template']!r}")
            print(f"  ours   {json.dumps(our, ensure_ascii=False)[:300]}")
            print(f"  theirs {json.dumps(their, ensure_ascii=False)[:300].encode(errors='replace').decode()}")
    print(f"{counts['texts']} texts and {counts['errors']} errors compared: {counts['differences']} differences")
    for reason, count in reasons.most_common():
        print(f"{count} not compared: {reason}")
    return 1 if counts["differences"] else 0


if __name__ == "__main__":
    sys.exit(main())
