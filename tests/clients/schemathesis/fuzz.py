"""Starts a server, lets Schemathesis at it for as many seconds as are given, and asks again."""

import os
import pathlib
import re
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[1] / "serving"))

from sluice_server import TINY, Server  # noqa: E402

CANARY = {"messages": [{"role": "user", "content": "What is the capital of France?"}], "temperature": 0, "max_tokens": 16}
CHECKS = "no_internal_error,errors_say_what,status_code_conformance,content_type_conformance,allow_header_conformance"


def answer(server):
    reply = server.post("/v1/chat/completions", CANARY)
    assert reply.status == 200, reply.body
    return reply.json()["choices"][0]["message"]["content"]


def num_requests(server):
    return int(sum(float(value) for value in re.findall(
        r"^sluice:http_requests_total\{.*\} (\S+)$", server.get("/metrics").body.decode(), re.MULTILINE)))


def main(seconds):
    folder = pathlib.Path(tempfile.mkdtemp(prefix="schemathesis-"))
    # A short context bounds each answer; the stores make their routes do something.
    with Server(TINY, "--dtype", "float32", "--context-length", "256", "--response-store", folder / "responses.db",
                "--page-store", folder / "chats.db", log=folder / "server.log") as server:
        before = answer(server)
        program = pathlib.Path(sys.executable).with_name("st")
        run = subprocess.run(
            [program, "run", server.url + "/openapi.json", "--checks", CHECKS, "--max-time", str(seconds), "--workers", "4",
             "--phases", "coverage,fuzzing", "--max-examples", "1000", "--continue-on-failure", "--request-timeout", "60",
             "--suppress-health-check", "all", "--warnings", "off", "--no-shrink", "--no-color"],
            cwd=folder, env={**os.environ, "SCHEMATHESIS_HOOKS": "hooks", "PYTHONPATH": str(HERE)}, check=False)
        count = num_requests(server)
        assert server.get("/health").status == server.get("/ready").status == 200
        server.wait_until_idle(60)
        assert answer(server) == before
        statuses = sorted(set(re.findall(r'^sluice:http_requests_total\{.*status="(\d+)"', server.get("/metrics").body.decode(), re.MULTILINE)))
    print(f"{count} requests; statuses {' '.join(statuses)}; the server's log is {folder}/server.log")
    return run.returncode


sys.exit(main(int(sys.argv[1])))
