#!/usr/bin/env python3
"""Joins what the stages of tools/gpu_check.sh left in a folder: gpu_result.py FOLDER RESULT.json

Each figure of the bench stage gets its share of the ceilings measured in the same folder.
"""
import json
import pathlib
import sys


def read_lines(path):
    return [json.loads(line) for line in path.read_text().splitlines() if line.startswith("{")] if path.exists() else []


def main():
    folder, target = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])
    result = {"stages": {}}
    for summary in sorted(folder.glob("*.summary")):
        stage = summary.stem
        steps = read_lines(folder / f"{stage}.steps")
        result["stages"][stage] = {"steps": len(steps), "failed": [s["step"] for s in steps if s["status"] != 0]}
    ceilings = folder / "ceilings.json"
    if ceilings.exists():
        result["ceilings"] = json.loads(ceilings.read_text())
    result["bench"] = []
    for line in read_lines(folder / "bench.jsonl"):
        shape = pathlib.Path(line["model"]).name
        if "ceilings" in result and line["batch_size"] == 1 and line["median_decode_latency"] > 0:
            rate = line["decode_weight_bytes"] / line["median_decode_latency"]
            line["decode_share_of_copy_rate"] = round(rate / result["ceilings"]["copy_bytes_per_s"], 3)
        line["model"] = shape
        result["bench"].append(line)
    text = json.dumps(result, indent=1) + "\n"
    (folder / "result.json").write_text(text)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text)
    except OSError as error:
        print(f"{target} was not written: {error}; see {folder}/result.json")
    print(text)


if __name__ == "__main__":
    main()
