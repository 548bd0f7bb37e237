#!/usr/bin/env python3
"""Every class of transformers that generates text, through the Transformers plugin: right, or refused with the reason.

    run.py [--work DIR] [--build DIR] [--record] [--keep-checkpoints] [MODEL_TYPE ...]

It needs a Python with torch and transformers (tools/transformers_venv makes one), and the target verify_many. For each class reference.py writes a
small random checkpoint and the log-probabilities of the class itself. `sluice verify` then runs the checkpoint through the
plugin in four modes: whole prompts, chunks, a mixed batch of two, and greedy decoding. Where the program has a
class of its own, that runs as well. A difference above TOLERANCE, a crash or a hang is a failure, and the exit status 1.
"""

import argparse
import json
import os
import pathlib
import re
import select
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
RESULTS = HERE / "results.json"
MODES = "whole,chunk:3,mixed,decode"
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


def one_line(text):
    """For a cell of a table."""
    text = re.sub(r"<class '([\w.]+\.)?(\w+)'>", r"\2", " ".join(text.split()))
    return text.split(" You can install")[0].replace("|", "\\|")[:240].strip()


def reason_of(text):
    """The reason in the program's error line, without what differs among machines."""
    line = next((line for line in text.splitlines() if "error:" in line), text.strip()[-300:])
    line = line.split("error:", 1)[-1].strip()
    for marker in ("building the model of the Transformers fallback: ", "the first token of the Transformers fallback: "):
        line = line.split(marker, 1)[-1]
    line = re.split(r"\. (So \w+ cannot run there|The nearest architecture)", line)[0]
    line = re.sub(r"/\S*/(\w+\.py):\d+", r"\1", line)
    return one_line(re.sub(r"/\S*/config\.json", "config.json", line))


class Program:
    """verify_many: the program's verbs in one process, begun again after a crash or a hang."""

    def __init__(self, path, python):
        self.path, self.process = str(path), None
        self.environment = {**os.environ, "SLUICE_PYTHON": python, "OMP_NUM_THREADS": "1"}

    def run(self, log, *words):
        """The exit status; None after SECONDS, "crash" if the process ends."""
        if self.process is None:
            self.process = subprocess.Popen(
                [self.path], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=self.environment
            )
        self.process.stdin.write("\t".join(map(str, [log, *words])) + "\n")
        self.process.stdin.flush()
        ready, _, _ = select.select([self.process.stdout], [], [], SECONDS)
        answer = self.process.stdout.readline() if ready else None
        if not answer:
            self.process.kill()
            self.process.wait()
            self.process = None
            return None if answer is None else "crash"
        return int(answer)


def outcome(program, folder, implementation):
    import torch

    dump, log = folder / f"dump-{implementation}.json", folder / f"log-{implementation}"
    dump.unlink(missing_ok=True)
    status = program.run(
        log, "verify", "--model", folder, "--golden", folder / "golden.json", "--dtype", "float32", "--modes", MODES, "--dump", dump,
        "--model-impl", implementation, "--device", "cpu", "--context-length", 128,
    )
    text = log.read_text()
    if status is None:
        return "HANG", f"no end after {SECONDS} s"
    if status == 2 and "error: " in text:
        return "refused", reason_of(text)
    if status not in (0, 1) or not dump.exists():
        return "CRASH", f"exit status {status}: {text.strip()[-200:]}"
    worst, rows = worst_difference(json.loads(dump.read_text()), torch.load(folder / "reference.pt"))
    if rows < 100:
        return "WRONG", f"only {rows} rows could be compared"
    verdict = "right" if worst <= TOLERANCE else "WRONG"
    return verdict, f"{worst:.1g}"


def recorded(results):
    """One line a class, without what differs from run to run."""
    import torch
    import transformers

    rows = {}
    for kind, result in sorted(results.items()):
        name = result["class"] or transformers.models.auto.modeling_auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES[kind]
        plugin = result.get("plugin") or ["not compared", one_line(result["state"]["error"])]
        rows[kind] = [name, plugin[0], "" if plugin[0] == "right" else one_line(plugin[1]), (result.get("native") or [""])[0]]
    lines = ",\n".join(f"  {json.dumps(kind)}: {json.dumps(row)}" for kind, row in rows.items())
    versions = json.dumps({"torch": torch.__version__.split("+")[0], "transformers": transformers.__version__})
    return f'{{"versions": {versions}, "tolerance": {TOLERANCE}, "classes": {{\n{lines}\n}}}}\n'


def native_names(program):
    facts = json.loads(subprocess.run([program, "version", "--json"], check=True, capture_output=True, text=True).stdout)
    return {row["name"] for row in facts["architectures"]}


def run_one(program, work, kind, native, keep):
    folder = work / kind
    state = json.loads((folder / "state.json").read_text())
    result = {"type": kind, "class": state.get("architecture"), "state": state}
    if "error" not in state:
        result["plugin"] = outcome(program, folder, "transformers")
        if result["class"] in native:
            result["native"] = outcome(program, folder, "sluice")
    if not keep:
        for path in folder.glob("*.safetensors"):
            path.unlink()
    return result


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", type=pathlib.Path, default=ROOT / "build" / "fallback")
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build" / "release", help="with bin/sluice and bin/verify_many")
    parser.add_argument("--record", action="store_true", help=f"write {RESULTS.name}, from which tools/models_doc makes a page")
    parser.add_argument("--keep-checkpoints", action="store_true")
    parser.add_argument("--no-reference", action="store_true", help="take the checkpoints that are there")
    parser.add_argument("types", nargs="*")
    args = parser.parse_args()
    native = native_names(args.build / "bin" / "sluice")
    program = Program(args.build / "bin" / "verify_many", sys.executable)
    if not args.no_reference:
        subprocess.run([sys.executable, HERE / "reference.py", args.work, *args.types], check=True, stdout=subprocess.DEVNULL)
    for kind in args.types or sorted(path.parent.name for path in args.work.glob("*/state.json")):
        result = run_one(program, args.work, kind, native, args.keep_checkpoints)
        print(kind, result["class"], result.get("plugin"), result.get("native"), result["state"].get("error", ""), flush=True)
        (args.work / kind / "result.json").write_text(json.dumps(result, indent=1))
    results = {path.parent.name: json.loads(path.read_text()) for path in sorted(args.work.glob("*/result.json"))}
    if args.record:
        RESULTS.write_text(recorded(results))
    bad = [k for k, r in results.items() for side in ("plugin", "native") if r.get(side) and r[side][0] not in ("right", "refused")]
    untested = [k for k, r in results.items() if "error" in r["state"]]
    print(f"{len(results)} classes; failed: {sorted(set(bad)) or 'none'}; without a reference: {untested or 'none'}")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
