#!/usr/bin/env python3
"""Every class of transformers that generates text, through the Transformers plugin: right, or refused with the reason.

    run.py [--work DIR] [--sluice PROGRAM] [--table FILE] [--keep-checkpoints] [MODEL_TYPE ...]

It needs a Python with torch and transformers (tools/transformers_venv makes one). For each class reference.py writes a
small random checkpoint and the log-probabilities of the class itself. `sluice verify` then runs the checkpoint through the
plugin in five modes: whole prompts, chunks, a cached prefix, a mixed batch, and greedy decoding. Where the program has a
class of its own, that runs as well. A difference above TOLERANCE, a crash or a hang is a failure, and the exit status 1.
"""

import argparse
import json
import os
import pathlib
import re
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
MODES = "whole,chunk:3,cached,mixed,decode"
SECONDS = 300

# Both sides compute in float32, in another order of summation. With logits of a spread of about 3 and sums of at most a few
# hundred terms, a layer moves a log-probability by some 1e-6, and four layers by 1e-5. Classes that route or round
# amplify that. 1e-3 lies a hundred times above, and a wrong mask, position or weight a hundred times higher.
TOLERANCE = 1e-3


def worst_difference(dump, logps):
    """The largest difference of the dump's log-probabilities to the class's, and the number of rows compared."""
    worst, rows = 0.0, 0
    for run in dump["runs"]:
        for case in run["cases"]:
            expected = logps[case["case"]]
            for position in case["positions"]:
                if position["position"] >= len(expected):
                    continue
                row = expected[position["position"]]
                pairs = [*zip(position["top_ids"], position["top_logprobs"]), (position["next_token"], position["logprob"])]
                worst = max([worst] + [abs(float(row[token]) - value) for token, value in pairs])
                rows += 1
    return worst, rows


def reason_of(text):
    """The reason in the program's error line, without what differs among machines."""
    line = next((line for line in text.splitlines() if "error:" in line), text.strip()[-300:])
    line = line.split("error:", 1)[-1].strip()
    for marker in ("building the model of the Transformers fallback: ", "the first token of the Transformers fallback: "):
        line = line.split(marker, 1)[-1]
    line = re.split(r"\. (So \w+ cannot run there|The nearest architecture)", line)[0]
    line = re.sub(r"/\S*/(\w+\.py):\d+", r"\1", line)
    return re.sub(r"/\S*/config\.json", "config.json", line).replace("|", "\\|")[:300]


def outcome(program, folder, implementation, python):
    import torch

    dump = folder / f"dump-{implementation}.json"
    dump.unlink(missing_ok=True)
    command = [
        program, "verify", "--model", folder, "--golden", folder / "golden.json", "--dtype", "float32", "--modes", MODES, "--dump",
        dump, "--model-impl", implementation,
    ]
    environment = {**os.environ, "SLUICE_PYTHON": python, "OMP_NUM_THREADS": "1"}
    try:
        done = subprocess.run(list(map(str, command)), capture_output=True, text=True, timeout=SECONDS, env=environment)
    except subprocess.TimeoutExpired:
        return "HANG", f"no end after {SECONDS} s"
    (folder / f"log-{implementation}").write_text(done.stdout + done.stderr)
    if done.returncode == 2 and "error: " in done.stderr:
        return "refused", reason_of(done.stderr)
    if done.returncode not in (0, 1) or not dump.exists():
        return "CRASH", f"exit status {done.returncode}: {(done.stderr or done.stdout).strip()[-200:]}"
    worst, rows = worst_difference(json.loads(dump.read_text()), torch.load(folder / "reference.pt"))
    if rows < 100:
        return "WRONG", f"only {rows} rows could be compared"
    verdict = "right" if worst <= TOLERANCE else "WRONG"
    return verdict, f"{worst:.1g}"


def native_names(program):
    facts = json.loads(subprocess.run([program, "version", "--json"], check=True, capture_output=True, text=True).stdout)
    return {row["name"] for row in facts["architectures"]}


def run_one(program, work, kind, native, python, keep):
    folder = work / kind
    state = json.loads((folder / "state.json").read_text())
    result = {"type": kind, "class": state.get("architecture"), "state": state}
    if "error" not in state:
        result["plugin"] = outcome(program, folder, "transformers", python)
        if result["class"] in native:
            result["native"] = outcome(program, folder, "sluice", python)
    if not keep:
        for path in folder.glob("*.safetensors"):
            path.unlink()
    return result


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", type=pathlib.Path, default=ROOT / "build" / "fallback")
    parser.add_argument("--sluice", default=str(ROOT / "build" / "release" / "bin" / "sluice"))
    parser.add_argument("--table", type=pathlib.Path, help="write the page here")
    parser.add_argument("--keep-checkpoints", action="store_true")
    parser.add_argument("--no-reference", action="store_true", help="take the checkpoints that are there")
    parser.add_argument("types", nargs="*")
    args = parser.parse_args()
    native = native_names(args.sluice)
    if not args.no_reference:
        subprocess.run([sys.executable, HERE / "reference.py", args.work, *args.types], check=True, stdout=subprocess.DEVNULL)
    for kind in args.types or sorted(path.parent.name for path in args.work.glob("*/state.json")):
        result = run_one(args.sluice, args.work, kind, native, sys.executable, args.keep_checkpoints)
        print(kind, result["class"], result.get("plugin"), result.get("native"), result["state"].get("error", ""), flush=True)
        (args.work / kind / "result.json").write_text(json.dumps(result, indent=1))
    results = {path.parent.name: json.loads(path.read_text()) for path in sorted(args.work.glob("*/result.json"))}
    if args.table:
        import table

        args.table.write_text(table.page(results))
    bad = [k for k, r in results.items() for side in ("plugin", "native") if r.get(side) and r[side][0] not in ("right", "refused")]
    untested = [k for k, r in results.items() if "error" in r["state"]]
    print(f"{len(results)} classes; failed: {sorted(set(bad)) or 'none'}; without a reference: {untested or 'none'}")
    return 1 if bad or untested else 0


if __name__ == "__main__":
    sys.exit(main())
