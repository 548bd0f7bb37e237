"""The page's chats on the server: --page-store FILE."""

import json
import sqlite3

import pytest

from sluice_server import TINY, Server, sluice

FLAGS = ("--dtype", "float32", "--threads", "1")
ONE, TWO = {"Authorization": "Bearer key-one"}, {"Authorization": "Bearer key-two"}
JSON = {"Content-Type": "application/json"}


def chat(name, updated=1, **more):
    return {"id": name, "title": f"About {name}", "updated": updated, "nodes": {"root": {"id": "root"}}, **more}


def put(server, value, headers=None, name=None):
    return server.request("PUT", f"/page/chats/{name or value['id']}", json.dumps(value), {**JSON, **(headers or {})})


def heads(server, headers=None):
    return server.get("/page/chats", headers=headers).json()


@pytest.fixture
def path(tmp_path):
    return tmp_path / "chats.db"


def start(path, tmp_path, *flags):
    return Server(TINY, *FLAGS, "--page-store", path, *flags, log=tmp_path / "log")


def test_by_default_browsers_keep_them(tmp_path):
    with Server(TINY, *FLAGS, log=tmp_path / "log") as server:
        assert heads(server) == {"object": "list", "store": "browser", "data": []}
        reply = put(server, chat("a"))
        assert reply.status == 404 and "--page-store" in reply.error["message"]
        assert server.get("/page/chats/a").status == 404


def test_chats_outlive_the_server_and_belong_to_their_key(path, tmp_path):
    keys = ("--api-key", "key-one", "--api-key", "key-two")
    with start(path, tmp_path, *keys) as server:
        assert server.get("/page/chats").status == server.get("/page/chats/a").status == put(server, chat("a")).status == 401
        assert put(server, chat("a", 1, text="é" * 5000), ONE).status == 200
        assert put(server, chat("b", 3), ONE).status == 200
        assert put(server, chat("a", 2), TWO).status == 200
    with start(path, tmp_path, *keys) as server:
        assert heads(server, ONE) == {"object": "list", "store": "server", "data": [
            {"id": "b", "title": "About b", "updated": 3}, {"id": "a", "title": "About a", "updated": 1}]}
        reply = server.get("/page/chats/a", headers=ONE)
        assert reply.json() == chat("a", 1, text="é" * 5000) and reply.headers["Cache-Control"] == "no-store"
        assert server.get("/page/chats/a", headers=TWO).json() == chat("a", 2)
        assert server.get("/page/chats/b", headers=TWO).status == 404
        assert server.request("DELETE", "/page/chats/b", headers=TWO).status == 404
        assert server.request("DELETE", "/page/chats/b", headers=ONE).status == 200
        assert [one["id"] for one in heads(server, ONE)["data"]] == ["a"]


def test_bad_input_gets_400(path, tmp_path):
    with start(path, tmp_path) as server:
        for name in ("a.b", "a/b", "x" * 65, "%C3%A9", "a%20b"):
            assert server.get(f"/page/chats/{name}").status == 400, name
        for value in ({}, [], {"id": "b", "updated": 1}, {"id": "a"}, {"id": "a", "updated": "1"}, {"id": "a", "updated": 1.5},
                      {"id": "a", "updated": 1, "title": "x" * 1025}):
            assert put(server, value, name="a").status == 400, value
        for body in (b"", b"{", b"\xff", b"null"):
            assert server.request("PUT", "/page/chats/a", body, JSON).status in (400, 411), body
        assert server.request("PUT", "/page/chats/a", json.dumps(chat("a")), {"Content-Type": "text/plain"}).status == 415
        assert server.request("POST", "/page/chats/a", json.dumps(chat("a")), JSON).status == 405
        foreign = server.request("OPTIONS", "/page/chats/a", headers={
            "Origin": "https://evil.example", "Access-Control-Request-Method": "PUT"})
        assert foreign.status == 403
        assert heads(server)["data"] == []


def test_the_switch_of_the_page(path, tmp_path):
    with start(path, tmp_path, "--no-webui") as server:
        assert server.get("/page/chats").status == server.get("/page/chats/a").status == 404


def test_a_locked_file_and_a_wrong_one(path, tmp_path):
    with start(path, tmp_path) as server:
        assert put(server, chat("a")).status == 200
        other = sqlite3.connect(path, isolation_level=None)
        other.execute("BEGIN EXCLUSIVE")
        reply = put(server, chat("b"))
        assert reply.status == 503 and "locked" in reply.error["message"]
        assert server.get("/page/chats/a").json() == chat("a")
        other.execute("ROLLBACK")
        other.close()
        assert put(server, chat("b")).status == 200
    run = sluice("serve", "--model", TINY, "--response-store", path)
    assert run.returncode == 2 and "something else" in run.stderr
