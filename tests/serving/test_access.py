"""Keys of a file, their limits, the administrative socket, and the log of requests."""

import hashlib
import http.client
import json
import os
import signal
import socket
import stat
import threading
import time

import openai
import pytest

from sluice_server import TINY, Server, sluice

CHAT = {"model": "tiny", "messages": [{"role": "user", "content": "What is the capital of France?"}], "max_tokens": 8}
# path, body of a request that computes, where the message of an error is
PROTOCOLS = [
    ("/v1/chat/completions", CHAT, ("error", "message")),
    ("/v1/completions", {"prompt": "The capital", "max_tokens": 8}, ("error", "message")),
    ("/v1/responses", {"input": "Hello"}, ("error", "message")),
    ("/v1/embeddings", {"input": "Hello"}, ("error", "message")),
    ("/generate", {"text": "The capital"}, ("error", "message")),
    ("/v1/messages", {**CHAT, "max_tokens": 8}, ("error", "message")),
    ("/api/chat", {"model": "tiny", "messages": CHAT["messages"]}, ("error",)),
    ("/api/generate", {"model": "tiny", "prompt": "Hello"}, ("error",)),
    ("/api/embed", {"model": "tiny", "input": "Hello"}, ("error",)),
]


def bearer(key):
    return {"Authorization": f"Bearer {key}"}


def message_of(reply, path):
    value = reply.json()
    for name in path:
        value = value[name]
    return value


@pytest.fixture(scope="module")
def keyed(tmp_path_factory):
    folder = tmp_path_factory.mktemp("access")
    keys = folder / "keys.yaml"
    keys.write_text(f"""
keys:
- name: alice
  key: canary-alice
- name: one-at-a-time
  key: canary-one
  max_concurrent_requests: 1
- name: frugal
  key: canary-frugal
  max_tokens_per_minute: 30
- name: operator
  key_sha256: {hashlib.sha256(b"canary-operator").hexdigest()}
  role: admin
""")
    keys.chmod(0o600)
    log = folder / "server.log"
    with Server(TINY, "--served-model-name", "tiny", "--max-total-tokens", "16384", "--api-key-file", keys, "--log-format", "json",
                log=log) as server:
        server.keys = keys
        yield server


def test_roles(keyed):
    assert keyed.get("/v1/models").status == 401
    assert keyed.get("/health").status == 200
    assert keyed.get("/v1/models", headers=bearer("canary-alice")).status == 200
    assert keyed.get("/v1/models", headers={"x-api-key": "canary-alice"}).status == 200
    assert keyed.post("/flush_cache", b"", headers=bearer("canary-alice")).status == 403
    assert keyed.post("/flush_cache", b"", headers=bearer("canary-operator")).status == 200
    for path, body, where in PROTOCOLS:
        reply = keyed.post(path, body, headers=bearer("wrong"))
        assert reply.status == 401 and "API key" in message_of(reply, where), (path, reply.body)
        assert keyed.post(path, body, headers=bearer("canary-alice")).status == 200, path


def test_one_request_at_a_time(keyed):
    body = {"text": "Once", "sampling_params": {"max_new_tokens": 3000, "ignore_eos": True}}
    sent = threading.Thread(target=lambda: keyed.post("/generate", {**body, "rid": "long"}, headers=bearer("canary-one")))
    sent.start()
    try:
        end = time.monotonic() + 20
        while keyed.get("/get_server_info", headers=bearer("canary-alice")).json()["internal_states"][0]["num_running_reqs"] == 0:
            assert time.monotonic() < end
            time.sleep(0.02)
        for path, body, where in PROTOCOLS:
            reply = keyed.post(path, body, headers=bearer("canary-one"))
            assert reply.status == 429 and "`one-at-a-time` may run 1 request" in message_of(reply, where), (path, reply.body)
            assert int(reply.headers["Retry-After"]) >= 1
        assert keyed.post("/v1/chat/completions", CHAT, headers=bearer("canary-alice")).status == 200
    finally:
        keyed.post("/abort_request", {"rid": "long"}, headers=bearer("canary-one"))
        sent.join()


def test_tokens_a_minute_and_the_openai_client_waits(keyed):
    assert keyed.post("/v1/chat/completions", {**CHAT, "max_tokens": 40, "ignore_eos": True},
                      headers=bearer("canary-frugal")).status == 200
    for path, body, where in PROTOCOLS:
        reply = keyed.post(path, body, headers=bearer("canary-frugal"))
        assert reply.status == 429 and "30 tokens a minute" in message_of(reply, where), (path, reply.body)
        assert 1 < int(reply.headers["Retry-After"]) < 120
    client = openai.OpenAI(base_url=f"{keyed.url}/v1", api_key="canary-frugal", max_retries=0)
    with pytest.raises(openai.RateLimitError) as refused:
        client.chat.completions.create(**CHAT)
    assert refused.value.code == "rate_limit_exceeded"


def test_a_key_reuses_its_own_prompts_only(keyed):
    text = "A prompt of several words that nobody has sent to this server before, long enough to be kept. " * 4

    def cached(key, **more):
        reply = keyed.post("/v1/completions", {"prompt": text, "max_tokens": 1, **more}, headers=bearer(key))
        return reply.json()["usage"]["prompt_tokens_details"]["cached_tokens"]

    assert cached("canary-alice") == 0 and cached("canary-alice") > 0
    assert cached("canary-operator") == 0
    assert cached("canary-alice", cache_salt="s") == 0 and cached("canary-alice", cache_salt="s") > 0


def test_a_response_belongs_to_its_key(keyed):
    made = keyed.post("/v1/responses", {"input": "Hello", "max_output_tokens": 4}, headers=bearer("canary-alice")).json()["id"]
    assert keyed.get(f"/v1/responses/{made}", headers=bearer("canary-alice")).status == 200
    assert keyed.get(f"/v1/responses/{made}", headers=bearer("canary-operator")).status == 404


def test_the_log_is_json_and_holds_neither_keys_nor_prompts(keyed):
    keyed.post("/v1/chat/completions", {**CHAT, "messages": [{"role": "user", "content": "canary-prompt"}]},
               headers={**bearer("canary-alice"), "X-Request-Id": "logged-one"})
    keyed.post("/v1/chat/completions", CHAT, headers={**bearer("canary-wrong"), "X-Request-Id": "logged-two"})
    end = time.monotonic() + 10
    lines = {}
    while len(lines) < 2 and time.monotonic() < end:
        parsed = [json.loads(line) for line in keyed.log_path.read_text().splitlines()]
        lines = {line["request_id"]: line for line in parsed if line.get("request_id", "").startswith("logged-")}
        time.sleep(0.05)
    assert "canary" not in keyed.log_path.read_text()
    good, refused = lines["logged-one"], lines["logged-two"]
    assert good["level"] == "info" and good["route"] == "/v1/chat/completions" and good["status"] == 200
    assert good["key"] == "alice" and good["prompt_tokens"] > 0 and good["completion_tokens"] > 0 and good["duration_ms"] > 0
    assert refused["status"] == 401 and "key" not in refused


def test_the_file_is_read_again_at_sighup(keyed):
    before = keyed.keys.read_text()

    def log_has(text):
        end = time.monotonic() + 10
        while text not in keyed.log_path.read_text():
            assert time.monotonic() < end, text
            time.sleep(0.05)

    keyed.keys.write_text(before.replace("canary-alice", "canary-renewed"))
    keyed.process.send_signal(signal.SIGHUP)
    log_has("read again: 4 keys")
    assert keyed.get("/v1/models", headers=bearer("canary-alice")).status == 401
    assert keyed.get("/v1/models", headers=bearer("canary-renewed")).status == 200
    keyed.keys.write_text(before.replace("role:", "rolle:"))
    keyed.process.send_signal(signal.SIGHUP)
    log_has("unknown field `rolle`, did you mean `role`?")
    assert keyed.get("/v1/models", headers=bearer("canary-renewed")).status == 200
    keyed.keys.write_text(before)
    keyed.process.send_signal(signal.SIGHUP)
    log_has("keys stay as they were")
    end = time.monotonic() + 10
    while keyed.get("/v1/models", headers=bearer("canary-alice")).status != 200:
        assert time.monotonic() < end


def over(path, method, target, body=None):
    """The status of a request over a Unix socket."""
    connection = http.client.HTTPConnection("localhost", timeout=20)
    connection.sock = socket.socket(socket.AF_UNIX)
    connection.sock.connect(str(path))
    connection.request(method, target, body, {"Content-Type": "application/json"} if body else {})
    status = connection.getresponse().status
    connection.close()
    return status


def test_administration_over_a_socket(tmp_path):
    path = tmp_path / "admin.sock"
    with Server(TINY, "--max-total-tokens", "8192", "--api-key", "k", "--admin-api-key", "a", "--admin-socket", path,
                log=tmp_path / "log") as server:
        assert stat.S_IMODE(os.stat(path).st_mode) == 0o600
        assert server.post("/flush_cache", b"", headers=bearer("a")).status == 403
        assert over(path, "POST", "/flush_cache") == 200
        assert over(path, "POST", "/abort_request", '{"abort_all": true}') == 200
        assert over(path, "GET", "/v1/models") == 200
        done = sluice("serve", TINY, "--admin-socket", path)
        assert done.returncode == 2 and "another program listens on" in done.stderr
    assert not path.exists()


def test_without_keys_scripts_flush_the_cache(tiny):
    assert tiny.post("/flush_cache", b"").status == 200
    assert tiny.post("/flush_cache", b"", headers={"X-Forwarded-For": "10.0.0.1"}).status == 403


@pytest.mark.parametrize("text, what", [
    ("keys: [{name: a, key: canary, rate: 5}]", "unknown field `rate`"),
    ("keys: [{name: a, key: canary, max_tokens_per_minut: 5}]", "did you mean `max_tokens_per_minute`?"),
    ("keys: [{name: a}]", "give `key` or `key_sha256`"),
    ("keys: []", "at least one key"),
    ("keys:\n- name: a\n  key: *x\n", "line 3"),
])
def test_a_faulty_file_of_keys_stops_the_start(tmp_path, text, what):
    path = tmp_path / "keys.yaml"
    path.write_text(text)
    done = sluice("serve", TINY, "--api-key-file", path)
    assert done.returncode == 2 and what in done.stderr and "canary" not in done.stderr, done.stderr


def test_a_file_that_others_may_read_is_told(tmp_path):
    path = tmp_path / "keys.json"
    path.write_text(json.dumps({"keys": [{"name": "a", "key": "k"}]}))
    path.chmod(0o644)
    with Server(TINY, "--max-total-tokens", "8192", "--api-key-file", path, log=tmp_path / "log"):
        pass
    assert "warning: " in (tmp_path / "log").read_text() and "(mode 644): chmod 600" in (tmp_path / "log").read_text()
