"""Grammars that break or stall servers: each gets its answer in its seconds, and others go on.

The cases are public data that lies beside the project; without it the test is skipped.
"""

import gzip
import json
import os
import time
from pathlib import Path

import pytest

from sluice_server import ROOT

FILE = Path(ROOT).parent / "shared" / "golden" / "grammar" / "hostile-dev.jsonl.gz"
CHAT = "/v1/chat/completions"
# Time of a busy machine.
SLACK = 4


def cases():
    if not FILE.exists():
        return []
    return [json.loads(line) for line in gzip.open(FILE)]


def body_of(case):
    def text(name):
        return eval(case["make"], {"json": json}) if "make" in case else case[name]  # noqa: S307

    if case["kind"] == "body":
        body = json.loads(text("body"))
        return {**body, "model": "tiny", "max_tokens": body.get("max_tokens", 8)}
    field, name = {"schema": ("json_schema", "schema_text"), "regex": ("regex", "regex"), "ebnf": ("ebnf", "ebnf")}[case["kind"]]
    return {"model": "tiny", "messages": [{"role": "user", "content": "hi"}], "max_tokens": 8, field: text(name)}


def resident_mib(pid):
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmHWM"):
            return int(line.split()[1]) / 1024
    return 0


@pytest.mark.skipif(not FILE.exists(), reason="the data is not beside the project")
def test_each_case_gets_its_answer(tiny):
    wrong = []
    pid = tiny.process.pid
    tiny.post(CHAT, {"model": "tiny", "messages": [{"role": "user", "content": "hi"}], "max_tokens": 8})
    for case in cases():
        before = resident_mib(pid)
        begin = time.monotonic()
        reply = tiny.post(CHAT, body_of(case), timeout=120)
        seconds = time.monotonic() - begin
        grown = resident_mib(pid) - before
        allowed = {"400": (400,), "ok": (200,), "either": (200, 400, 413)}[case["expect"]]
        # A row without a token ends with an error of its own.
        ended = case["expect"] == "either" and reply.status == 500 and reply.error["code"].startswith("grammar_")
        if reply.status not in allowed and not ended:
            wrong.append((case["id"], case["expect"], reply.status, reply.body[:200]))
        if seconds > float(case["seconds"]) * SLACK:
            wrong.append((case["id"], f"{seconds:.1f} s of {case['seconds']}"))
        if grown > float(case["mib"]):
            wrong.append((case["id"], f"{grown:.0f} MiB of {case['mib']}"))
        if os.environ.get("SLUICE_SHOW_CASES"):
            print(case["id"], case["expect"], reply.status, f"{seconds:.2f} s {grown:.0f} MiB", reply.body[:160])
    assert not wrong, "\n".join(map(str, wrong))
    assert tiny.get("/health").status == 200


def test_a_schema_beyond_its_budget_is_refused(tiny):
    """Keys split by ten patterns need more than a compile may cost. Each text thread gets the schema twice."""
    keys = [f"{chr(97 + i)}.*{chr(97 + i * 7 % 26)}{i}" for i in range(10)]
    schema = {"patternProperties": {key: {"maximum": i} for i, key in enumerate(keys)}}
    for i in range(4):
        schema["title"] = str(i)
        body = {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 8, "json_schema": json.dumps(schema)}
        reply = tiny.post(CHAT, body, timeout=120)
        assert reply.status == 400, reply.body[:300]
        assert reply.error["code"] == "json_schema_too_large"
    assert tiny.get("/health").status == 200
