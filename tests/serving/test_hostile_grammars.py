"""Grammars that break or stall servers: each gets its answer in its seconds, and others go on.

The cases are public data that lies beside the project; without it the test is skipped.
"""

import gzip
import json
import os
import socket
import time
from pathlib import Path

import pytest

from sluice_server import ROOT, TINY, Server

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


def costly_request(n):
    """A chat whose schema takes long: two patterns that have some 2^n states together."""
    both = [{"pattern": f"^(a|b)*a(a|b){{{n}}}$"}, {"pattern": f"^(a|b)*b(a|b){{{n + 1}}}$"}]
    return json.dumps({"messages": [{"role": "user", "content": "hi"}], "max_tokens": 8, "json_schema": json.dumps({"allOf": both})})


def send(server, body):
    connection = socket.create_connection(("127.0.0.1", server.port), timeout=60)
    head = f"POST {CHAT} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    connection.sendall((head + body).encode())
    return connection


def second_of_compile(server):
    """An n whose schema alone takes half a second or more on this machine, and its seconds."""
    for n in range(14, 20):
        begin = time.monotonic()
        with send(server, costly_request(n)) as one:
            assert b" 200 " in one.recv(64)
        seconds = time.monotonic() - begin
        if seconds >= 0.5:
            break
    return n, seconds


def plain_seconds(server):
    begin = time.monotonic()
    assert server.post(CHAT, {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 1}, timeout=60).status == 200
    return time.monotonic() - begin


def test_plain_requests_do_not_wait_for_compiles(tiny):
    n, alone = second_of_compile(tiny)
    waiting = [send(tiny, costly_request(n + 1 + i)) for i in range(12)]
    try:
        time.sleep(0.1)
        assert sorted(plain_seconds(tiny) for _ in range(5))[2] < alone / 2
    finally:
        for connection in waiting:
            connection.close()
    # Their compiles end with them: the next does not wait for a dozen.
    time.sleep(0.2)
    begin = time.monotonic()
    body = {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 8, "regex": "a{3}"}
    assert tiny.post(CHAT, body, timeout=60).json()["choices"][0]["message"]["content"] == "aaa"
    assert time.monotonic() - begin < alone


def test_the_end_of_a_server_does_not_wait_for_compiles(tmp_path):
    with Server(TINY, log=tmp_path / "log") as server:
        waiting = [send(server, costly_request(15 + i)) for i in range(8)]
        time.sleep(0.3)
        begin = time.monotonic()
        server.stop()
        assert time.monotonic() - begin < 10
        answers = [connection.recv(4096) for connection in waiting]
        assert all(b" 200 " in answer or b" 503 " in answer or b" 400 " in answer for answer in answers), answers
        assert any(b" 503 " in answer for answer in answers)
