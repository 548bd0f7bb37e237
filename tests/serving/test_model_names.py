"""Which names of the model the API tells and takes, and what the log says of requests."""

import os
import pathlib

import pytest

from sluice_server import TINY, Server

CHAT = {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 1}


def names(server):
    return [model["id"] for model in server.get("/v1/models").json()["data"]]


def asks(server, name):
    reply = server.post("/v1/chat/completions", {**CHAT, "model": name})
    return reply.status, reply.json().get("model")


def test_a_folder_has_its_last_part_as_name(tmp_path):
    log = tmp_path / "log"
    with Server(TINY, "--max-total-tokens", "8192", log=log) as server:
        assert names(server) == ["sluice-tiny"] and str(TINY) not in server.get("/v1/models").body.decode()
        for name in ("sluice-tiny", str(TINY), "default", "dummy", "tgi"):
            assert asks(server, name) == (200, name)
        assert server.get("/v1/models/sluice-tiny").status == 200
        assert server.post("/v1/chat/completions", CHAT).json()["model"] == "sluice-tiny"
        reply = server.post("/v1/chat/completions", {**CHAT, "model": "gpt-4o"})
        assert reply.status == 404 and "`sluice-tiny`" in reply.error["message"]
        assert server.get("/nowhere").status == 404
        assert 'model_name="sluice-tiny"' in server.get("/metrics").body.decode()
        server.get("/health")
    lines = log.read_text().splitlines()
    of = [line.split("] ", 1)[1] for line in lines if " request " in line]
    assert sum(line.startswith("POST /v1/chat/completions 200, ") for line in of) == 6
    assert sum(line.startswith("POST /v1/chat/completions 404, ") for line in of) == 1
    assert sum(line.startswith("GET other 404, ") for line in of) == 1
    assert not any("/health" in line or "gpt-4o" in line for line in of)
    assert max(map(len, lines)) < 400  # no line of the start fills a screen


def test_served_names_win():
    with Server(TINY, "--max-total-tokens", "8192", "--served-model-name", "a,b") as server:
        assert names(server) == ["a", "b"]
        assert [asks(server, name)[0] for name in ("a", "b", str(TINY), "sluice-tiny")] == [200, 200, 200, 404]


def test_any_name():
    with Server(TINY, "--max-total-tokens", "8192", "--served-model-name", "*") as server:
        assert names(server) == ["sluice-tiny"]
        assert asks(server, "gpt-4o") == (200, "gpt-4o") and asks(server, "org/x:y")[0] == 200


@pytest.mark.parametrize("argument, cwd", [(".", TINY), ("sluice-tiny/", TINY.parent)])
def test_a_folder_from_within(argument, cwd, monkeypatch):
    monkeypatch.setenv("SLUICE", str(pathlib.Path(os.environ["SLUICE"]).resolve()))
    monkeypatch.chdir(cwd)
    with Server(argument, "--max-total-tokens", "8192") as server:
        assert names(server) == ["sluice-tiny"] and asks(server, argument)[0] == 200
