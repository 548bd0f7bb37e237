"""Clients that disconnect, and too little memory for the requests."""

import http.client
import json
import random
import socket
import threading

from sluice_server import TINY, Server


def start_stream(server, body):
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=300)
    connection.request("POST", "/generate", json.dumps(body), {"Content-Type": "application/json"})
    return connection


def long_body(i, max_new_tokens, stream):
    random_ids = random.Random(i)
    return {
        "input_ids": [random_ids.randrange(100, 4000) for _ in range(40 + 7 * (i % 20))],
        "sampling_params": {"temperature": 0, "max_new_tokens": max_new_tokens, "ignore_eos": True},
        "stream": stream,
    }


def run_all(server, count, make_body):
    """Sends `count` requests at once; returns their replies in order."""
    replies = [None] * count

    def one(i):
        replies[i] = server.post("/generate", make_body(i), timeout=600)

    threads = [threading.Thread(target=one, args=(i,)) for i in range(count)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    return replies


def test_streams_of_which_a_fifth_goes_away(tiny):
    """64 at once; 20 % disconnect, at various points. The other replies are complete, and no page
    stays held."""
    count, tokens = 64, 48
    aborted_before = tiny.state()["aborted"]
    results = [None] * count

    def one(i):
        connection = start_stream(tiny, long_body(i, tokens, True))
        leave_after = (i // 5) % 5 if i % 5 == 0 else None   # events; 0: before anything came
        try:
            if leave_after == 0:
                results[i] = "left"
                return
            response = connection.getresponse()
            events = 0
            for line in response:
                if line.startswith(b"data: {"):
                    events += 1
                    last = line
                if leave_after is not None and events >= leave_after:
                    results[i] = "left"
                    return
                if line.strip() == b"data: [DONE]":
                    results[i] = json.loads(last[6:])["output_ids"]
                    return
        finally:
            connection.close()

    threads = [threading.Thread(target=one, args=(i,)) for i in range(count)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert sum(r == "left" for r in results) == 13
    assert all(r == "left" or len(r) == tokens for r in results)
    state = tiny.wait_until_idle()
    assert state["aborted"] > aborted_before
    # The remaining clients got the tokens that they get alone.
    for i in (1, 2, 63):
        alone = tiny.post("/generate", long_body(i, tokens, False)).json()["output_ids"]
        assert results[i] == alone


def test_a_waiting_client_that_goes_away_stops_its_request(tiny):
    """Not streamed: no byte is sent until the end, so the server must notice the hang-up by
    reading."""
    before = tiny.wait_until_idle()
    connection = start_stream(tiny, long_body(1, 4000, False))
    while tiny.state()["num_running_reqs"] == 0:
        pass
    connection.close()
    after = tiny.wait_until_idle(timeout=5)
    assert after["generated_tokens"] - before["generated_tokens"] < 3000
    assert after["aborted"] == before["aborted"] + 1


def test_a_reset_in_the_middle_of_a_body(canary):
    for _ in range(20):
        s = socket.create_connection(("127.0.0.1", canary.port))
        s.sendall(b"POST /generate HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 1000\r\n\r\n{")
        # close by RST
        s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\x00\x00\x00\x00\x00\x00\x00")
        s.close()


def test_a_small_pool_gives_the_same_tokens(tiny, tmp_path):
    """Memory for 1.5 requests: 64 long ones finish, some after retraction, with the tokens of a
    large pool."""
    count, tokens = 64, 200
    longest = 40 + 7 * 19 + tokens
    pages = -(-int(1.5 * longest) // 64)
    roomy = [r.json()["output_ids"] for r in run_all(tiny, count, lambda i: long_body(i, tokens, False))]
    flags = ["--dtype", "float32", "--max-total-tokens", pages * 64, "--schedule-conservativeness", "0.01"]
    with Server(TINY, *flags, log=tmp_path / "server.log") as small:
        replies = run_all(small, count, lambda i: long_body(i, tokens, False))
        assert [r.status for r in replies] == [200] * count
        tight = [r.json()["output_ids"] for r in replies]
        state = small.wait_until_idle()
    assert all(len(t) == tokens for t in tight)
    assert tight == roomy
    assert state["retracted"] > 0, "the pool was large enough: the test shows nothing"


def test_what_can_never_fit_is_refused_with_both_numbers(tmp_path):
    flags = ["--dtype", "float32", "--max-total-tokens", 256]
    with Server(TINY, *flags, log=tmp_path / "server.log") as small:
        reply = small.post("/generate", {"input_ids": [5] * 400, "sampling_params": {"max_new_tokens": 10}})
        assert reply.status == 400
        # The context of the model is 8192; that of the server is what its cache holds.
        assert "400 tokens" in reply.error["message"] and "context of 256" in reply.error["message"]
        assert small.get("/v1/models").json()["data"][0]["max_model_len"] == 256
        assert small.post("/generate", {"input_ids": [5] * 40, "sampling_params": {"max_new_tokens": 10}}).status == 200
