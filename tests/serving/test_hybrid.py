"""Models with recurrent layers over HTTP. Their states are found again for common prefixes. Many
requests at once get the tokens that each gets alone. A client that disconnects releases its state.
The models are fixtures, so the reference tokens hold too."""

import http.client
import json
import os
import pathlib
import random
import select
import threading

import pytest

from sluice_server import ROOT, TINY, Server
from test_golden import check_prompt

MORE = pathlib.Path(os.environ.get("SLUICE_GOLDEN_MORE", ROOT / "build" / "release" / "golden"))
FLAGS = ["--dtype", "float32", "--tokenizer-path", TINY, "--context-length", 512, "--max-total-tokens", 8192, "--max-running-requests", 8]


@pytest.fixture(scope="module", params=["qwen3-next", "mamba2"])
def model(request):
    """Gated delta layers beside attention and experts; and recurrent layers alone."""
    return MORE / request.param


@pytest.fixture(scope="module")
def server(model, tmp_path_factory):
    with Server(model, *FLAGS, log=tmp_path_factory.mktemp("hybrid") / "log") as server:
        yield server


def ids(count, seed):
    values = random.Random(seed)
    return [values.randrange(5, 300) for _ in range(count)]


def body(prompt, count=24, **more):
    return {"input_ids": prompt, "sampling_params": {"temperature": 0, "max_new_tokens": count, "ignore_eos": True}, **more}


def generate(server, prompt, count=24):
    reply = server.post("/generate", body(prompt, count))
    assert reply.status == 200, reply.body
    answer = reply.json()
    return answer["output_ids"], answer["meta_info"]["cached_tokens"]


def states_in_use(server):
    lines = server.get("/metrics").body.decode().splitlines()
    (value,) = (float(line.split()[-1]) for line in lines if line.startswith("sglang:mamba_usage"))
    return value


def test_reference_tokens(model, server):
    golden = json.loads((model / "golden.json").read_text())
    errors = [f"prompt of {p['length']}: {e}" for p in golden["prompts"] for e in check_prompt(server, p, 5e-4)]
    assert not errors, "\n".join(errors[:20])


def test_common_beginnings_are_found_again(model, server, tmp_path):
    first, common = ids(200, 1), ids(150, 2)
    with Server(model, *FLAGS, "--disable-radix-cache", log=tmp_path / "log") as cold:
        answer, cached = generate(server, first)
        assert cached == 0
        # The same prompt, a longer one, the next turn; then prompts of which the third finds the
        # first two's common prefix.
        rows = [(first, 192), (first + ids(40, 3), 192), (first + answer + ids(30, 4), 223),
                (common + ids(90, 5), 0), (common + ids(80, 6), 0), (common + ids(100, 7), 128)]
        for prompt, wanted in rows:
            tokens, cached = generate(server, prompt)
            assert cached == wanted
            assert generate(cold, prompt) == (tokens, 0)
    server.wait_until_idle()
    assert states_in_use(server) == 0


def test_many_at_once(server):
    """Twenty-four streams over eight slots, with common prefixes: each gets the tokens that it gets
    alone."""
    prompts = [ids(100 + 40 * (i % 3), i % 5) + ids(3 * i, 100 + i) for i in range(24)]
    seen = [None] * len(prompts)

    def one(i):
        connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=300)
        connection.request("POST", "/generate", json.dumps(body(prompts[i], 40, stream=True)), {"Content-Type": "application/json"})
        events = [line[6:] for line in connection.getresponse() if line.startswith(b"data: ")]
        connection.close()
        assert events[-1].strip() == b"[DONE]"
        seen[i] = json.loads(events[-2])["output_ids"]

    threads = [threading.Thread(target=one, args=(i,)) for i in range(len(prompts))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    server.wait_until_idle()
    assert states_in_use(server) == 0
    assert server.post("/flush_cache", {}).status == 200
    for i in (0, 7, 13, 23):
        assert generate(server, prompts[i], 40)[0] == seen[i]


def asked(server, prompt, stream):
    """A connection with a running request."""
    for _ in range(100):
        connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=300)
        connection.request("POST", "/generate", json.dumps(body(prompt, 380, stream=stream)), {"Content-Type": "application/json"})
        if stream:
            connection.getresponse().readline()
            return connection
        # On a busy machine the whole answer may come between two checks: then try once more.
        while not select.select([connection.sock], [], [], 0)[0]:
            if server.state()["num_running_reqs"] > 0:
                return connection
        connection.close()
    raise AssertionError("every answer was there before the server was seen to compute it")


def test_clients_that_go_away(server):
    """In the middle of a stream, and while waiting for a whole answer; the partial states do not
    harm other requests."""
    prompt = ids(130, 50)
    aborted = server.wait_until_idle()["aborted"]
    for stream in (True, False):
        for _ in range(4):
            connection = asked(server, prompt, stream)
            connection.sock.close() if connection.sock else None
            connection.close()
            server.wait_until_idle(timeout=20)
            assert states_in_use(server) == 0
    assert server.state()["aborted"] > aborted
    after = generate(server, prompt, 60)[0]
    assert server.post("/flush_cache", {}).status == 200
    assert generate(server, prompt, 60) == (after, 0)
