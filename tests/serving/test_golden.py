"""Golden files over /generate, with a comparison of its own that shares no code with the program.

For every checkpoint the prompt is sent as token ids. The five best log-probabilities after every
token, the greedy tokens and their log-probabilities must be the reference's
(tests/golden/README.md, Tolerances)."""

import json
import pathlib

import pytest

from sluice_server import GOLDEN, TINY, Server

TOLERANCE = 2e-4
MODELS = sorted(p.parent for p in (GOLDEN / "models").glob("*/golden.json"))


def variants():
    for directory in MODELS:
        yield pytest.param(directory, "config.json", id=directory.name)
        if (directory / "config.hub.json").exists():
            yield pytest.param(directory, "config.hub.json", id=directory.name + "-hub")


def with_config(directory, config, tmp_path):
    """The same checkpoint under another config.json."""
    if config == "config.json":
        return directory
    copy = tmp_path / directory.name
    copy.mkdir()
    for file in directory.iterdir():
        if file.name != "config.json":
            (copy / file.name).symlink_to(file.resolve())
    (copy / "config.json").write_bytes((directory / config).read_bytes())
    return copy


def mismatches(got, reference_ids, reference_logprobs, tolerance=TOLERANCE):
    """`got`: [[logprob, id, ...], ...], best first. Compares rank by rank, and by id if a rank is
    not a near-tie."""
    if len(got) != len(reference_ids):
        return [f"{len(got)} candidates, not {len(reference_ids)}"]
    found = []
    values = [entry[0] for entry in got]
    if values != sorted(values, reverse=True):
        found.append(f"not in order: {values}")
    for rank, (value, reference) in enumerate(zip(values, reference_logprobs)):
        if not abs(value - reference) <= tolerance:
            found.append(f"rank {rank}: {value} for {reference}")
    ours = {entry[1]: entry[0] for entry in got}
    for token, reference in zip(reference_ids, reference_logprobs):
        if token in ours:
            if not abs(ours[token] - reference) <= tolerance:
                found.append(f"token {token}: {ours[token]} for {reference}")
        elif reference > values[-1] + tolerance:
            found.append(f"token {token} is missing")
    return found


def check_prompt(server, prompt, tolerance=TOLERANCE):
    ids = prompt["ids"]
    reply = server.post(
        "/generate",
        {
            "input_ids": ids,
            "sampling_params": {"temperature": 0, "max_new_tokens": max(1, len(prompt["greedy"])), "ignore_eos": True},
            "return_logprob": True,
            "logprob_start_len": 0,
            "top_logprobs_num": 5,
        },
    )
    assert reply.status == 200, reply.body
    answer = reply.json()
    meta = answer["meta_info"]
    errors = []
    # Entry i of the input is about token i; the first entry has no previous token.
    assert [entry[1] for entry in meta["input_token_logprobs"]] == ids
    assert len(meta["input_top_logprobs"]) == len(ids)
    assert meta["input_token_logprobs"][0][0] is None and meta["input_top_logprobs"][0] is None
    rows = meta["input_top_logprobs"][1:] + meta["output_top_logprobs"][:1]
    for position, row in enumerate(rows):
        for error in mismatches(row, prompt["top5_ids"][position], prompt["top5_logprobs"][position], tolerance):
            errors.append(f"position {position}: {error}")
        if row[0][1] != prompt["argmax"][position] and abs(row[0][0] - row[1][0]) > tolerance:
            errors.append(f"position {position}: the best is {row[0][1]}, not {prompt['argmax'][position]}")
    # The log-probability of each prompt token agrees with the list of the best, if it is in the
    # list.
    for position, entry in enumerate(meta["input_token_logprobs"][1:]):
        among = [c[0] for c in rows[position] if c[1] == entry[1]]
        if among and among[0] != entry[0]:
            errors.append(f"position {position}: {entry[0]} and {among[0]} for the same token")
    if prompt["greedy"]:
        if answer["output_ids"] != prompt["greedy"]:
            errors.append(f"greedy tokens {answer['output_ids']}, not {prompt['greedy']}")
        for step, (entry, reference) in enumerate(zip(meta["output_token_logprobs"], prompt["greedy_logprobs"])):
            if not abs(entry[0] - reference) <= tolerance:
                errors.append(f"generated token {step}: {entry[0]} for {reference}")
    return errors


def check_model(directory, golden, log):
    """All prompts of a golden file; returns the list of differences."""
    prompts = golden["prompts"]
    if golden["config"].get("rope_parameters", {}).get("rope_type") == "dynamic":
        # The base grows with the sequence past 64 tokens: the reference's longer prompts are single
        # passes.
        prompts = [p for p in prompts if p["length"] <= 33]
    errors = []
    # The checkpoints have no tokenizer: any other will do, since ids are sent and compared.
    with Server(directory, "--dtype", "float32", "--tokenizer-path", TINY, "--max-total-tokens", 4096, log=log) as server:
        for prompt in prompts:
            errors += [f"prompt of {prompt['length']}: {e}" for e in check_prompt(server, prompt)]
    return errors


@pytest.mark.parametrize("directory, config", variants())
def test_golden(directory, config, tmp_path):
    golden = json.loads((directory / "golden.json").read_text())
    errors = check_model(with_config(directory, config, tmp_path), golden, tmp_path / "server.log")
    assert not errors, "\n".join(errors[:20])


def test_there_are_models():
    assert len(MODELS) >= 20


def main():
    """test_golden.py MODEL_DIRECTORY [GOLDEN]: exits with 1 when the model does not agree, with 2
    when the check itself fails (used by tests/mutation)."""
    import sys
    import traceback

    directory = pathlib.Path(sys.argv[1])
    golden = json.loads(pathlib.Path(sys.argv[2] if len(sys.argv) > 2 else directory / "golden.json").read_text())
    try:
        errors = check_model(directory, golden, None)
    except Exception:
        traceback.print_exc()
        sys.exit(2)
    print("\n".join(errors[:5]) or "ok")
    sys.exit(1 if errors else 0)


if __name__ == "__main__":
    main()
