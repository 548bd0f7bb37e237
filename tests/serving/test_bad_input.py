"""Inputs that must be refused or tolerated: one table per kind. After each test health, the pages
held and a canary request are as before (the `canary` fixture)."""

import json
import socket
import time

import pytest

from sluice_server import GOLDEN, TINY, Server, status_of, tiny_records

CHAT = "/v1/chat/completions"
HELLO = [{"role": "user", "content": "Hello"}]


def chat(**fields):
    return {"model": "tiny", "messages": HELLO, "max_tokens": 4, "temperature": 0, **fields}


def completion(**fields):
    return {"model": "tiny", "prompt": "Hello", "max_tokens": 4, "temperature": 0, **fields}


def check_error(reply, status, param=None, code=None):
    """An error object of the catalogue without leaked details."""
    assert reply.status == status, (reply.status, reply.body[:300])
    error = reply.error
    assert set(error) == {"message", "type", "param", "code"}
    assert error["message"]
    for leak in ("0x7f", "/home", "/root", "/src/", "what():", "terminate", "std::"):
        assert leak not in error["message"], error["message"]
    if param is not None:
        assert error["param"] == param, error
    if code is not None:
        assert error["code"] == code, error
    if status in (429, 503):
        assert int(reply.headers["Retry-After"]) >= 1


def rss_bytes(server):
    with open(f"/proc/{server.process.pid}/statm") as f:
        return int(f.read().split()[1]) * 4096


def open_files(server):
    import os

    return len(os.listdir(f"/proc/{server.process.pid}/fd"))


# --- HTTP -----------------------------------------------------------------------------------------

HEAD = b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
BODY = json.dumps(completion()).encode()


def test_endless_header_line(canary):
    before = rss_bytes(canary)
    part = b"a" * 65536
    received = canary.raw([b"GET / HTTP/1.1\r\nX: "] + [part] * 512)
    assert status_of(received) in (431, 0)   # 0: our sending was cut off before the answer was read
    assert rss_bytes(canary) - before < 4 << 20


HTTP_ROWS = [
    ("header line of 9 KiB", b"GET /health HTTP/1.1\r\nX: " + b"a" * 9216 + b"\r\n\r\n", {431}),
    ("10k headers", b"GET /health HTTP/1.1\r\n" + b"".join(b"X%d: 1\r\n" % i for i in range(10000)) + b"\r\n", {431}),
    ("200 headers", b"GET /health HTTP/1.1\r\n" + b"X: 1\r\n" * 200 + b"\r\n", {431}),
    ("request line of 9 KiB", b"GET /" + b"a" * 9216 + b" HTTP/1.1\r\nHost: x\r\n\r\n", {414, 431}),
    ("chunk size -2", HEAD + b"Transfer-Encoding: chunked\r\n\r\n-2\r\nab\r\n0\r\n\r\n", {400}),
    ("chunk size 0x10", HEAD + b"Transfer-Encoding: chunked\r\n\r\n0x10\r\n" + b"a" * 16 + b"\r\n0\r\n\r\n", {400}),
    ("chunk size of 17 digits", HEAD + b"Transfer-Encoding: chunked\r\n\r\nFFFFFFFFFFFFFFFFF\r\nab", {400, 413}),
    ("chunk size beyond the limit", HEAD + b"Transfer-Encoding: chunked\r\n\r\n7FFFFFFF\r\nab", {400, 413}),
    ("content length 10 GB", HEAD + b"Content-Length: 10000000000\r\n\r\n", {413}),
    ("content length -1", HEAD + b"Content-Length: -1\r\n\r\n", {400}),
    ("two content lengths", HEAD + b"Content-Length: 2\r\nContent-Length: 3\r\n\r\n{}", {400}),
    ("length and chunks", HEAD + b"Content-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", {400}),
    ("no length", HEAD + b"\r\n", {400, 411}),
    ("gzip body", HEAD + b"Content-Encoding: gzip\r\nContent-Length: 4\r\n\r\n\x1f\x8b\x08\x00", {415}),
    # No line ends in it: a server may wait for a line until the timeout.
    ("not HTTP", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(64), {400, 408, 0}),
    ("nonsense", b"HELLO\r\n\r\n", {400, 0}),
    ("HTTP/3.7", b"GET /health HTTP/3.7\r\n\r\n", {400, 505, 0}),
    ("NUL in a header", b"GET /health HTTP/1.1\r\nX: a\x00b\r\n\r\n", {400}),
    ("header without colon", b"GET /health HTTP/1.1\r\nnothing\r\n\r\n", {400}),
]


@pytest.mark.parametrize("data, statuses", [pytest.param(d, s, id=n) for n, d, s in HTTP_ROWS])
def test_http(canary, data, statuses):
    assert status_of(canary.raw(data)) in statuses


def test_pipelined_requests(canary):
    """1000 requests at once: all are answered in order, or the connection is closed after some."""
    one = b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n"
    with socket.create_connection(("127.0.0.1", canary.port), timeout=30) as s:
        s.sendall(one * 999 + b"GET /health HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        received = b""
        while part := s.recv(1 << 16):
            received += part
    assert received.count(b"HTTP/1.1 200") == received.count(b"HTTP/1.1 ") > 0


def test_half_closed_and_reset_connections_are_given_back(canary):
    before = open_files(canary)
    sockets = []
    for i in range(100):
        s = socket.create_connection(("127.0.0.1", canary.port))
        s.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{")
        if i % 2:
            s.shutdown(socket.SHUT_WR)
        else:
            s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\x00\x00\x00\x00\x00\x00\x00")
        sockets.append(s)
    for s in sockets:
        s.close()
    end = time.monotonic() + 20
    while open_files(canary) > before and time.monotonic() < end:
        time.sleep(0.1)
    assert open_files(canary) <= before


def test_idle_connections(canary):
    """1000 idle connections cost little and block no client."""
    before = rss_bytes(canary)
    idle = [socket.create_connection(("127.0.0.1", canary.port)) for _ in range(1000)]
    assert canary.get("/health", timeout=2).status == 200
    assert rss_bytes(canary) - before < 32 << 20
    for s in idle:
        s.close()


def test_a_slow_client_gets_408(canary):
    with socket.create_connection(("127.0.0.1", canary.port), timeout=40) as s:
        s.sendall(b"GET /health HTTP/1.1\r\nHost: x\r\n")
        received = b""
        try:
            for _ in range(35):
                s.sendall(b"X")
                s.settimeout(1)
                try:
                    received = s.recv(4096)
                    break
                except socket.timeout:
                    continue
        except (BrokenPipeError, ConnectionResetError):
            pass
    assert status_of(received) in (408, 0)


def test_paths_and_methods(canary):
    check_error(canary.get("/nothing"), 404)
    check_error(canary.get("/v1/../etc/passwd"), 404)
    check_error(canary.get(CHAT), 405)
    check_error(canary.request("DELETE", "/v1/models"), 405)
    assert canary.get("/health", headers={"Host": "evil/../../metrics"}).status == 400


# --- JSON bodies ----------------------------------------------------------------------------------

JSON_ROWS = [
    ("deep arrays", b'{"model":"tiny","prompt":' + b"[" * 100000 + b"]" * 100000 + b"}", 400, "json_too_deep"),
    ("deep objects", b'{"a":' * 100000 + b"1" + b"}" * 100000, 400, "json_too_deep"),
    ("truncated", b'{"model":"tiny","prompt":"a', 400, "invalid_json"),
    ("trailing text", BODY + b"x", 400, "invalid_json"),
    ("NaN", b'{"model":"tiny","prompt":"a","temperature":NaN}', 400, "invalid_json"),
    ("Infinity", b'{"model":"tiny","prompt":"a","temperature":-Infinity}', 400, "invalid_json"),
    ("duplicate keys", b'{"model":"tiny","prompt":"a","prompt":"b"}', 400, "duplicate_key"),
    ("array", b"[]", 400, None),
    ("string", b'"a"', 400, None),
    ("null", b"null", 400, None),
    ("empty", b"", 400, None),
    ("invalid UTF-8", b'{"model":"tiny","prompt":"\xff\xfe"}', 400, "invalid_json"),
    ("lone surrogate", b'{"model":"tiny","prompt":"\\ud800"}', 400, "invalid_json"),
    ("comment", b'{"model":"tiny",/* */"prompt":"a"}', 400, "invalid_json"),
]


@pytest.mark.parametrize("path", ["/v1/completions", CHAT, "/generate", "/tokenize"])
@pytest.mark.parametrize("data, status, code", [pytest.param(d, s, c, id=n) for n, d, s, c in JSON_ROWS])
def test_json(canary, path, data, status, code):
    check_error(canary.post(path, data), status, code=code)


def test_a_number_beyond_every_range_is_refused_by_its_field(canary):
    reply = canary.post("/v1/completions", b'{"model":"tiny","prompt":"a","temperature":1e999}')
    check_error(reply, 400, code="invalid_value")
    assert reply.error["param"] == "temperature"


def test_a_large_body_of_the_wrong_type_is_cheap(canary):
    before = rss_bytes(canary)
    body = b'{"model":"tiny","messages":[' + b"0," * (15 << 20) + b"0]}"
    started = time.monotonic()
    reply = canary.post(CHAT, body)
    check_error(reply, 400)
    assert time.monotonic() - started < 5
    assert rss_bytes(canary) - before < 6 * len(body)


def test_body_over_the_limit(canary):
    check = status_of(canary.raw([HEAD + b"Content-Length: 40000000\r\n\r\n"]))
    assert check == 413


def test_content_type(canary):
    check_error(canary.request("POST", CHAT, BODY, {"Content-Type": "text/html"}), 415)


# --- fields ---------------------------------------------------------------------------------------

FIELD_ROWS = [
    ("n", [0, -1, 10**9, 2**63, "3", 1.5, [], True]),
    ("temperature", [-1, 1e38, "1", 101, [0]]),
    ("top_p", [0, 1.1, -0.5, "x"]),
    ("top_k", [-2, 1.5, 2**70]),
    ("min_p", [2, -0.1]),
    ("frequency_penalty", [1e9, -1e9, 2.01]),
    ("presence_penalty", [1e9, -1e9]),
    ("repetition_penalty", [0, -1, 2.1, 1e-4, 1e-50]),
    ("max_tokens", [0, -1, 1e10, "4"]),
    ("min_tokens", [-1, 10**10]),
    ("seed", [2**64, -(2**63) - 1, 1.5, "1"]),
    ("stop", [[""], ["a"] * 17, ["a" * 257], 5, [5]]),
    ("logit_bias", [{"-1": 1}, {"4096": 1}, {"4294967296": 1}, {"x": 1}, {"05": 1}, {"5": 101}, {"5": "a"}, [1], {str(i): 1 for i in range(1025)}]),
    ("stop_token_ids", [[4096], [-1], [2**40], ["a"], 5]),
    ("stream", ["yes", 1]),
    ("ignore_eos", [1, "true"]),
]


@pytest.mark.parametrize("make, path", [(chat, CHAT), (completion, "/v1/completions")], ids=["chat", "completion"])
@pytest.mark.parametrize("field, value", [pytest.param(f, v, id=f"{f}={str(v)[:20]}") for f, vs in FIELD_ROWS for v in vs])
def test_field(canary, make, path, field, value):
    reply = canary.post(path, make(**{field: value}))
    check_error(reply, 400)
    assert (reply.error["param"] or "").split(".")[0].split("[")[0] == field, reply.error


OTHER_FIELD_ROWS = [
    (CHAT, chat(logprobs=True, top_logprobs=21), "top_logprobs"),
    (CHAT, chat(logprobs=True, top_logprobs=-1), "top_logprobs"),
    (CHAT, chat(logprobs=5), "logprobs"),
    ("/v1/completions", completion(logprobs=21), "logprobs"),
    ("/v1/completions", completion(logprobs=-1), "logprobs"),
    ("/v1/completions", completion(prompt_logprobs=-1), "prompt_logprobs"),
    ("/v1/completions", completion(prompt_logprobs=4096), "prompt_logprobs"),
    ("/v1/completions", completion(stop_token_ids=[4096], min_tokens=1), "stop_token_ids"),
    ("/v1/completions", completion(prompt=[4096]), "prompt"),
    ("/v1/completions", completion(prompt=[-1]), "prompt"),
    ("/v1/completions", completion(prompt=[2**31]), "prompt"),
    ("/v1/completions", completion(prompt=[]), "prompt"),
    ("/v1/completions", completion(prompt=[[]]), "prompt"),
    ("/v1/completions", completion(prompt={"a": 1}), "prompt"),
    ("/v1/completions", {"model": "tiny"}, "prompt"),
    (CHAT, {"model": "tiny"}, "messages"),
    (CHAT, chat(stream_options={"include_usage": True}), "stream_options"),
    (CHAT, chat(response_format={"type": "json_schema", "json_schema": {"name": "a", "schema": {"type": 5}}}), "response_format"),
    ("/v1/completions", completion(regex="(a"), "regex"),
    ("/v1/completions", completion(lora_path="x"), "lora_path"),
]


@pytest.mark.parametrize("path, body, param", [pytest.param(*r, id=f"{r[2]}-{i}") for i, r in enumerate(OTHER_FIELD_ROWS)])
def test_other_fields(canary, path, body, param):
    reply = canary.post(path, body)
    check_error(reply, 400)
    assert (reply.error["param"] or "").split("[")[0].split(".")[0] == param, reply.error


NATIVE_ROWS = [
    ({"input_ids": []}, None),
    ({"input_ids": [4096]}, None),
    ({"input_ids": [1], "text": "a"}, None),
    ({}, None),
    ({"text": "a", "sampling_params": {"temperature": -1}}, "sampling_params.temperature"),
    ({"text": "a", "sampling_params": {"max_new_tokens": -5}}, "sampling_params.max_new_tokens"),
    ({"text": "a", "sampling_params": []}, "sampling_params"),
    ({"text": "a", "return_logprob": True, "top_logprobs_num": 21}, "top_logprobs_num"),
    ({"text": "a", "return_logprob": True, "logprob_start_len": -2}, "logprob_start_len"),
    ({"text": "a", "return_logprob": True, "logprob_start_len": 99999}, "logprob_start_len"),
    ({"text": "a", "image_data": "http://169.254.169.254/"}, "image_data"),
]


@pytest.mark.parametrize("body, param", [pytest.param(*r, id=str(i)) for i, r in enumerate(NATIVE_ROWS)])
def test_native_fields(canary, body, param):
    check_error(canary.post("/generate", body), 400, param=param)


def test_unknown_fields_are_ignored(canary):
    assert canary.post(CHAT, chat(user="u", metadata={}, store=False, nobody_knows_this=1)).status == 200


def test_every_token_banned(canary):
    """A bias cannot reach minus infinity, and a ban of all end tokens leaves the other tokens: the
    request ends normally."""
    reply = canary.post("/v1/completions", completion(logit_bias={str(i): -100 for i in range(1024)}, max_tokens=3))
    assert reply.status == 200


# --- messages and tools ---------------------------------------------------------------------------


def tool(name, **function):
    return {"type": "function", "function": {"name": name, "parameters": {"type": "object"}, **function}}


MESSAGE_ROWS = [
    ("no messages", dict(messages=[]), "messages"),
    ("5000 messages", dict(messages=HELLO * 5000), "messages"),
    ("message is a string", dict(messages=["Hello"]), "messages"),
    ("unknown role", dict(messages=[{"role": "wizard", "content": "a"}]), "messages"),
    ("no role", dict(messages=[{"content": "a"}]), "messages"),
    ("content is a number", dict(messages=[{"role": "user", "content": 5}]), "messages"),
    ("content is null", dict(messages=[{"role": "user", "content": None}]), "messages"),
    ("image over http", dict(messages=[{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "http://a/b.png"}}]}]), "messages"),
    ("image from a file", dict(messages=[{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "file:///etc/passwd"}}]}]), "messages"),
    ("metadata address", dict(messages=[{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "http://169.254.169.254/"}}]}]), "messages"),
    ("audio", dict(messages=[{"role": "user", "content": [{"type": "input_audio", "input_audio": {}}]}]), "messages"),
    ("unknown part", dict(messages=[{"role": "user", "content": [{"type": "hologram"}]}]), "messages"),
    ("tool name of 1 MB", dict(tools=[tool("a" * (1 << 20))]), "tools"),
    ("10k tools", dict(tools=[tool(f"t{i}") for i in range(10000)]), "tools"),
    ("duplicate tools", dict(tools=[tool("a"), tool("a")]), "tools"),
    ("tool without name", dict(tools=[{"type": "function", "function": {}}]), "tools"),
    ("parameters no object", dict(tools=[tool("a", parameters=[1])]), "tools"),
    ("tool of type foo", dict(tools=[{"type": "foo", "function": {"name": "a"}}]), "tools"),
    ("tools no array", dict(tools={"a": 1}), "tools"),
    ("tool choice required of none", dict(tool_choice="required"), "tool_choice"),
    ("tool choice of another name", dict(tools=[tool("a")], tool_choice={"type": "function", "function": {"name": "b"}}), "tool_choice"),
    ("tool choice of another type", dict(tools=[tool("a")], tool_choice={"type": "custom", "function": {"name": "a"}}), "tool_choice"),
    ("tool choice unknown", dict(tools=[tool("a")], tool_choice="maybe"), "tool_choice"),
    ("own template", dict(chat_template="{{ 1 }}"), "chat_template"),
    ("reserved kwarg", dict(chat_template_kwargs={"messages": []}), "chat_template_kwargs"),
    ("kwargs no object", dict(chat_template_kwargs=[1]), "chat_template_kwargs"),
    ("continue and generate", dict(continue_final_message=True, add_generation_prompt=True), None),
]


@pytest.mark.parametrize("fields, param", [pytest.param(f, p, id=n) for n, f, p in MESSAGE_ROWS])
def test_messages_and_tools(canary, fields, param):
    reply = canary.post(CHAT, chat(**fields))
    check_error(reply, 400)
    if param:
        assert (reply.error["param"] or "").split(".")[0].split("[")[0] == param, reply.error


def test_special_tokens_in_text(canary):
    """Text that contains special tokens is served; the token count is that of /tokenize for the
    same prompt."""
    text = "<|endoftext|>[gMASK]<sop><|system|><|user|><|assistant|><|observation|><think></think><tool_call></tool_call>"
    reply = canary.post(CHAT, chat(messages=[{"role": "user", "content": text}]))
    assert reply.status == 200
    counted = canary.post("/tokenize", {"messages": [{"role": "user", "content": text}]})
    if counted.status == 200:
        assert counted.json()["count"] == reply.json()["usage"]["prompt_tokens"]


def test_unclosed_markers_are_plain_text(canary):
    """A prompt that makes the model repeat markers costs no more than any other prompt."""
    started = time.monotonic()
    reply = canary.post(CHAT, chat(messages=[{"role": "user", "content": "<tool_call>" * 1000}], tools=[tool("a")], max_tokens=32))
    assert reply.status == 200
    assert time.monotonic() - started < 30


# --- tokenizer ------------------------------------------------------------------------------------


def test_a_prompt_of_10_mb_is_refused_quickly(canary):
    started = time.monotonic()
    reply = canary.post("/v1/completions", completion(prompt="a" * (10 << 20)))
    check_error(reply, 400)
    assert time.monotonic() - started < 2


@pytest.mark.parametrize("text", ["_" * 100000, "a b" * 30000, "\u4e00" * 50000, " " * 100000, "\n" * 100000], ids=str.__len__)
def test_tokenizing_is_not_quadratic(canary, text):
    started = time.monotonic()
    reply = canary.post("/tokenize", {"model": "tiny", "prompt": text})
    assert reply.status in (200, 400)
    assert time.monotonic() - started < 2


def test_detokenize_of_split_characters(canary):
    ids = canary.post("/tokenize", {"model": "tiny", "prompt": "\u2603\U0001f600", "add_special_tokens": False}).json()["tokens"]
    for cut in range(len(ids) + 1):
        reply = canary.post("/detokenize", {"model": "tiny", "tokens": ids[:cut]})
        assert reply.status == 200
        reply.json()
    for bad in ([4096], [-1], "x", [[1], [-1]], [[1], 1], [["x"]]):
        check_error(canary.post("/detokenize", {"model": "tiny", "tokens": bad}), 400)


# --- load -----------------------------------------------------------------------------------------


def test_a_full_queue_answers_429(tmp_path):
    import threading

    flags = ["--max-running-requests", 1, "--max-queued-requests", 2, "--served-model-name", "tiny"]
    with Server(TINY, *flags, log=tmp_path / "server.log") as server:
        statuses = []
        lock = threading.Lock()

        def one():
            reply = server.post("/v1/completions", completion(max_tokens=300, ignore_eos=True))
            with lock:
                statuses.append(reply.status)
            if reply.status != 200:
                check_error(reply, 429, code="queue_full")

        threads = [threading.Thread(target=one) for _ in range(16)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        assert set(statuses) == {200, 429}
        server.wait_until_idle()


def test_keys(tmp_path):
    flags = ["--api-key", "one,two", "--admin-api-key", "boss", "--served-model-name", "tiny"]
    with Server(TINY, *flags, log=tmp_path / "server.log") as server:
        assert server.get("/health").status == 200
        for path in ("/v1/models", "/get_server_info", "/get_model_info", "/version"):
            check_error(server.get(path), 401)
            check_error(server.get(path, headers={"Authorization": "Bearer wrong"}), 401)
            for key in ("one", "two"):
                assert server.get(path, headers={"Authorization": f"Bearer {key}"}).status == 200
        assert server.post("/flush_cache", {}, headers={"Authorization": "Bearer one"}).status in (401, 403)
        assert server.post("/flush_cache", {}, headers={"Authorization": "Bearer boss"}).status == 200
        log = (tmp_path / "server.log").read_text(errors="replace")
        assert "one,two" not in log and "boss" not in log


def test_logs_hold_no_text(tmp_path):
    """Logs contain neither prompt, output nor key."""
    canary_text = "xylophone-quartz-7731"
    log = tmp_path / "server.log"
    with Server(TINY, "--served-model-name", "tiny", "--log-level", "debug", log=log) as server:
        server.post(CHAT, chat(messages=[{"role": "user", "content": canary_text}]))
        server.post(CHAT, chat(messages=[{"role": canary_text, "content": "a"}]))
        server.post("/v1/completions", json.dumps({"model": "tiny", "prompt": canary_text, "n": canary_text}).encode())
        body = server.post(CHAT, b'{"' + canary_text.encode())
        assert canary_text not in body.body.decode()
        metrics = server.get("/metrics").body.decode()
    assert canary_text not in log.read_text(errors="replace")
    assert canary_text not in metrics


def test_fixtures_are_there():
    assert len(tiny_records()) == 61
    assert (GOLDEN / "models").is_dir()
