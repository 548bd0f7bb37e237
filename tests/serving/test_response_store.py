"""Responses that are kept in a file: they outlive the server, belong to their key, are bound, and no state of the disk
takes the server along."""

import contextlib
import os
import re
import signal
import sqlite3
import time

import pytest

from sluice_server import ROOT, TINY, Server, sluice

ODD_DISK = os.environ.get("SLUICE_ODD_DISK", str(ROOT / "build" / "release" / "tests" / "libodd_disk.so"))   # odd_disk.cpp
FLAGS = ("--dtype", "float32", "--served-model-name", "tiny", "--threads", "1")
ONE, TWO = {"Authorization": "Bearer key-one"}, {"Authorization": "Bearer key-two"}


@pytest.fixture
def path(tmp_path):
    return tmp_path / "responses.db"


def start(path, tmp_path, *flags, **more):
    return Server(TINY, *FLAGS, "--response-store", path, *flags, log=tmp_path / "server.log", **more)


def create(server, headers=None, **fields):
    return server.post("/v1/responses", {"model": "tiny", "input": "What is the capital of France?", "temperature": 0,
                                         "max_output_tokens": 4, **fields}, headers=headers)


def get(server, answer, headers=None, more=""):
    return server.get(f"/v1/responses/{answer['id']}{more}", headers=headers)


def delete(server, answer, headers=None):
    return server.request("DELETE", f"/v1/responses/{answer['id']}", headers=headers)


def figure(server, name, headers=None):
    found = re.search(rf"^sluice:response_store_{name} (\S+)$", server.get("/metrics", headers=headers).body.decode(), re.MULTILINE)
    return float(found.group(1))


def wait_for(server, name, is_right, headers=None):
    end = time.monotonic() + 20
    while not is_right(figure(server, name, headers)):
        assert time.monotonic() < end, (name, figure(server, name, headers))
        time.sleep(0.02)


def test_responses_outlive_the_server_and_belong_to_their_key(path, tmp_path):
    keys = ("--api-key", "key-one", "--api-key", "key-two")
    with start(path, tmp_path, *keys) as server:
        first = create(server, ONE).json()
        second = create(server, ONE, input="And of Spain?", previous_response_id=first["id"]).json()
        unkept = create(server, ONE, store=False).json()
        gone = create(server, ONE).json()
        assert delete(server, gone, ONE).json() == {"id": gone["id"], "object": "response", "deleted": True}
    with start(path, tmp_path, *keys) as server:
        for answer in first, second:
            assert get(server, answer, ONE).json() == answer
            assert get(server, answer, TWO).status == 404
            assert delete(server, answer, TWO).status == 404
            assert create(server, TWO, previous_response_id=answer["id"]).status == 404
        assert get(server, unkept, ONE).status == get(server, gone, ONE).status == 404
        items = get(server, second, ONE, "/input_items").json()["data"]
        assert [item["content"][0]["text"] for item in items] == ["And of Spain?"]
        again = create(server, ONE, input="And of Spain?", previous_response_id=first["id"]).json()
        assert again["usage"]["input_tokens"] == second["usage"]["input_tokens"]
        assert again["output"][0]["content"] == second["output"][0]["content"]
        cancelled = server.post(f"/v1/responses/{first['id']}/cancel", {}, headers=ONE)
        assert cancelled.status == 400 and "is over" in cancelled.error["message"]
        assert delete(server, first, ONE).status == 200
        broken = create(server, ONE, previous_response_id=second["id"])
        assert broken.status == 404 and first["id"] in broken.error["message"]
    with start(path, tmp_path, *keys) as server:
        assert get(server, first, ONE).status == 404 and get(server, second, ONE).status == 200


def test_a_killed_server_loses_nothing_that_is_written(path, tmp_path):
    with start(path, tmp_path, exit_status=-signal.SIGKILL) as server:
        answer = create(server).json()
        wait_for(server, "file_responses", lambda value: value == 1)
        server.process.kill()
        server.process.wait()
    with start(path, tmp_path) as server:
        assert get(server, answer).json() == answer


def test_the_oldest_go_first(path, tmp_path):
    bounds = ("--response-store-max-entries", "3")
    with start(path, tmp_path, *bounds) as server:
        answers = [create(server).json() for _ in range(5)]
    with start(path, tmp_path, *bounds) as server:
        assert [get(server, answer).status for answer in answers] == [404, 404, 200, 200, 200]
        assert figure(server, "file_responses") == 3


def test_memory_is_bound_as_well(tmp_path):
    with Server(TINY, *FLAGS, "--response-store-max-entries", "2", log=tmp_path / "log") as server:
        answers = [create(server).json() for _ in range(3)]
        assert [get(server, answer).status for answer in answers] == [404, 200, 200]
        assert figure(server, "memory_responses") == 2


def test_a_file_that_cannot_be_used_is_named_at_the_start(path, tmp_path):
    def refused(*words):
        run = sluice("serve", "--model", TINY, "--response-store", path)
        assert run.returncode == 2, run.stderr
        assert str(path) in run.stderr and all(word in run.stderr for word in words), run.stderr

    path.write_bytes(b"no database" * 1000)
    refused("damaged")
    path.unlink()
    with contextlib.closing(sqlite3.connect(path)) as other, other:
        other.execute("CREATE TABLE mine (x)")
    refused("something else")
    path.unlink()
    path.mkdir()
    refused("cannot be opened")
    path.rmdir()
    path = path / "absent" / "store.db"
    refused("No such file")


def test_a_locked_file_is_waited_for(path, tmp_path):
    with start(path, tmp_path) as server:
        before = create(server).json()
        wait_for(server, "waiting_bytes", lambda value: value == 0)
        with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as other:
            other.execute("BEGIN EXCLUSIVE")
            answer = create(server)
            assert answer.status == 200 and get(server, answer.json()).status == 200
            reply = delete(server, before)
            assert reply.status == 503 and "locked" in reply.error["message"] and reply.error["code"] == "store_unavailable"
            assert str(tmp_path) not in reply.body.decode() and "Retry-After" in reply.headers
            assert figure(server, "failures_total") > 0
            other.execute("ROLLBACK")
        wait_for(server, "waiting_bytes", lambda value: value == 0)
        assert delete(server, before).status == 200
        assert figure(server, "unwritten_total") == 0
    with start(path, tmp_path) as server:
        assert get(server, answer.json()).status == 200


def test_a_full_disk_takes_nothing_but_the_file(path, tmp_path):
    with start(path, tmp_path, env={"LD_PRELOAD": ODD_DISK, "SLUICE_DISK_BYTES": str(200_000)}) as server:
        answers = []
        end = time.monotonic() + 60
        while figure(server, "failures_total") == 0:
            assert time.monotonic() < end
            answers.append(create(server, input="word " * 400))
        answers.append(create(server))
        assert {answer.status for answer in answers} == {200}
        assert get(server, answers[-1].json()).status == 200
        reply = delete(server, answers[0].json())
        assert reply.status == 503 and "full" in reply.error["message"]
        assert server.get("/health").status == server.get("/ready").status == 200
    log = (tmp_path / "server.log").read_text()
    assert log.count("the disk is full") == 1 and "were not written at the end" in log
    with start(path, tmp_path) as server:
        assert get(server, answers[0].json()).json() == answers[0].json()


def test_a_file_that_is_damaged_while_it_is_used(path, tmp_path):
    with start(path, tmp_path) as server:
        for _ in range(40):
            create(server, input="word " * 300)
    with contextlib.closing(sqlite3.connect(path)) as file:
        ids = [row[0] for row in file.execute("SELECT id FROM responses ORDER BY seq")]
    with open(path, "r+b") as file:
        size = path.stat().st_size
        file.seek(size // 4 // 4096 * 4096)
        file.write(b"\xa5" * (size - file.tell()))
    with start(path, tmp_path) as server:
        replies = [server.get(f"/v1/responses/{name}") for name in ids]
        faults = [reply for reply in replies if reply.status != 200]
        assert faults and all(reply.status == 503 and "damaged" in reply.error["message"] for reply in faults)
        answer = create(server)
        assert answer.status == 200 and get(server, answer.json()).status == 200
        assert create(server, previous_response_id=answer.json()["id"]).status == 200
        assert server.get("/ready").status == 200
    assert (tmp_path / "server.log").read_text().count("cannot be read: the file is damaged") <= 2
