"""Starts a server, lets Schemathesis at it for as many seconds and with as many processes as are given, and asks again.

Each process has a seed of its own, so its requests differ. The first also sends the cases that Schemathesis derives
from the schema without chance.
"""

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


def start(server, folder, index, seconds):
    """A process of Schemathesis; what it finds goes to a file of the folder."""
    cwd = folder / f"process-{index}"
    cwd.mkdir()
    program = pathlib.Path(sys.executable).with_name("st")
    return subprocess.Popen(
        [program, "run", server.url + "/openapi.json", "--checks", CHECKS, "--max-time", str(seconds), "--workers", "4",
         "--phases", "fuzzing" if index else "coverage,fuzzing", "--seed", str(SEED + index), "--max-examples", "1000",
         "--continue-on-failure", "--request-timeout", "300", "--suppress-health-check", "all", "--warnings", "off",
         "--no-shrink", "--no-color"],
        cwd=cwd, stdout=open(cwd / "report.txt", "wb"), stderr=subprocess.STDOUT,
        env={**os.environ, "SCHEMATHESIS_HOOKS": "hooks", "PYTHONPATH": str(HERE),
             "HYPOTHESIS_STORAGE_DIRECTORY": str(cwd / "hypothesis")})


def main(seconds, num_processes):
    folder = pathlib.Path(tempfile.mkdtemp(prefix="schemathesis-"))
    # A short context bounds each answer; the stores make their routes do something.
    with Server(TINY, "--dtype", "float32", "--context-length", "256", "--response-store", folder / "responses.db",
                "--page-store", folder / "chats.db", log=folder / "server.log") as server:
        before = answer(server)
        runs = [start(server, folder, index, seconds) for index in range(num_processes)]
        codes = [run.wait() for run in runs]
        count = num_requests(server)
        assert server.get("/health").status == server.get("/ready").status == 200
        server.wait_until_idle(60)
        assert answer(server) == before
        statuses = sorted(set(re.findall(r'^sluice:http_requests_total\{.*status="(\d+)"', server.get("/metrics").body.decode(), re.MULTILINE)))
    for index, code in enumerate(codes):
        report = (folder / f"process-{index}" / "report.txt").read_text(errors="replace")
        print(report if code or index == 0 else report[-300:])
    print(f"{count} requests of seeds {SEED} to {SEED + num_processes - 1}; statuses {' '.join(statuses)}; "
          f"reports and the server's log are in {folder}")
    return max(codes)


SEED = int(os.environ.get("SEED", "1"))
sys.exit(main(int(sys.argv[1]), int(sys.argv[2])))
