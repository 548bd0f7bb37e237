"""Ranks in processes of their own: streams, disconnects, and ranks that die or hang."""

import contextlib
import json
import os
import pathlib
import signal
import threading
import time

import pytest
from sluice_server import GOLDEN, TINY, Server, sluice
from test_disconnects import long_body, start_stream

FLAGS = ("--dtype", "float32", "--max-total-tokens", "32768", "--device", "cpu")


def ranks_of(server):
    """The processes that the server has started."""
    children = []
    for entry in pathlib.Path("/proc").iterdir():
        with contextlib.suppress(OSError, ValueError):
            stat = (entry / "stat").read_text().rsplit(") ", 1)[1].split()
            if int(stat[1]) == server.process.pid and stat[0] != "Z":
                children.append(int(entry.name))
    return children


def is_running(pid):
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(") ", 1)[1][0] != "Z"
    except OSError:
        return False


@pytest.fixture(scope="module")
def two(tmp_path_factory):
    log = tmp_path_factory.mktemp("ranks") / "server.log"
    with Server(TINY, *FLAGS, "--tp-size", "2", log=log) as server:
        yield server


def test_streams_with_disconnects_get_the_tokens_of_one_rank(two, tiny):
    assert len(ranks_of(two)) == 1
    count, tokens = 16, 32
    results = [None] * count

    def one(i):
        connection = start_stream(two, long_body(i, tokens, True))
        with contextlib.closing(connection):
            if i % 5 == 0:
                results[i] = "left"
                return
            events = 0
            for line in connection.getresponse():
                if line.startswith(b"data: {"):
                    events, last = events + 1, line
                if i % 5 == 1 and events == 3:
                    results[i] = "left"
                    return
                if line.strip() == b"data: [DONE]":
                    results[i] = json.loads(last[6:])["output_ids"]

    threads = [threading.Thread(target=one, args=(i,)) for i in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    two.wait_until_idle()
    for i, result in enumerate(results):
        if result == "left":
            continue
        alone = tiny.post("/generate", long_body(i, tokens, False), timeout=600).json()
        assert result == alone["output_ids"], i


@pytest.mark.parametrize("fields", [
    {"response_format": {"type": "json_object"}},
    {"n": 3, "temperature": 0.8, "seed": 7},
    {"logprobs": True, "top_logprobs": 3, "temperature": 0},
    {"temperature": 1.2, "seed": 11, "presence_penalty": 0.5, "logit_bias": {"17": 3}},
    {"stop": ["e"], "temperature": 0},
    {"deterministic": True, "temperature": 0},
])
def test_features_of_requests_do_not_depend_on_ranks(two, tiny, fields):
    body = {"messages": [{"role": "user", "content": "What is the capital of France?"}], "max_tokens": 24, **fields}

    def choices(server):
        reply = server.post("/v1/chat/completions", {"model": server.get("/v1/models").json()["data"][0]["id"], **body})
        assert reply.status == 200, reply.body
        return [(c["message"]["content"], c["finish_reason"]) for c in reply.json()["choices"]]

    assert choices(two) == choices(tiny)


@pytest.mark.parametrize("flags", [
    ("--speculative-algorithm", "NGRAM"),
    ("--kv-cache-dtype", "int8"),
    ("--disable-radix-cache",),
    ("--quantization", "int8"),
    ("--dtype", "bfloat16"),
])
def test_options_of_the_server_reach_every_rank(tmp_path, flags):
    prompt = ("--model", TINY, "--input-ids", ",".join(str(100 + i % 7) for i in range(40)), "--max-new-tokens", "24", *FLAGS, *flags)
    two = sluice("generate", *prompt, "--tp-size", "2", env={"SLUICE_ARG_THREADS": "2"})
    assert two.returncode == 0, two.stderr
    one = sluice("generate", *prompt, env={"SLUICE_ARG_THREADS": "2"})
    if flags[0] not in ("--quantization", "--dtype", "--kv-cache-dtype"):   # roundings of sums differ there
        assert two.stdout == one.stdout
    again = sluice("generate", *prompt, "--tp-size", "2", env={"SLUICE_ARG_THREADS": "4"})
    assert again.stdout == two.stdout


def end_in_the_middle(tmp_path, sign):
    """Streams run; a rank gets `sign`. What the clients see, and when the server ends."""
    server = Server(TINY, *FLAGS, "--tp-size", "2", log=tmp_path / "log", exit_status=4)
    ranks = ranks_of(server)
    assert len(ranks) == 1
    ends = []

    def one(i):
        connection = start_stream(server, long_body(i, 4000, True))
        with contextlib.closing(connection):
            text = b""
            with contextlib.suppress(OSError):
                for line in connection.getresponse():
                    text = line if line.strip() else text
            ends.append((time.monotonic(), text))

    threads = [threading.Thread(target=one, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    while server.state()["num_running_reqs"] < 4:
        time.sleep(0.02)
    begin = time.monotonic()
    os.kill(ranks[0], sign)
    status = server.process.wait(timeout=30)
    end = time.monotonic()
    for thread in threads:
        thread.join()
    server.stop()
    assert status == 4
    assert not any(map(is_running, ranks)), "a rank is left"
    return [(when - begin, text) for when, text in ends], end - begin


def test_a_killed_rank_ends_streams_with_an_error_and_the_server(tmp_path):
    ends, seconds = end_in_the_middle(tmp_path, signal.SIGKILL)
    assert seconds < 10
    for when, text in ends:
        assert when < 3, "noticed within 1 s, told within 2"
        assert b"error" in text, text
    assert "killed by signal 9" in (tmp_path / "log").read_text()


def test_a_stopped_rank_counts_as_hung(tmp_path):
    ends, seconds = end_in_the_middle(tmp_path, signal.SIGSTOP)
    assert seconds < 20
    for when, text in ends:
        assert when < 12, "noticed within 10 s, told within 2"
        assert b"error" in text, text
    assert "no sign of life" in (tmp_path / "log").read_text()


def test_a_rank_that_dies_without_work_makes_the_server_unready(tmp_path):
    server = Server(TINY, *FLAGS, "--tp-size", "2", log=tmp_path / "log", exit_status=4)
    ranks = ranks_of(server)
    os.kill(ranks[0], signal.SIGKILL)
    time.sleep(0.5)
    with contextlib.suppress(OSError):   # it may have ended already
        assert server.get("/ready", timeout=1).status == 503
    assert server.process.wait(timeout=10) == 4
    server.stop()


def test_no_rank_outlives_a_killed_server(tmp_path):
    server = Server(TINY, *FLAGS, "--tp-size", "2", log=tmp_path / "log", exit_status=-9)
    ranks = ranks_of(server)
    os.kill(ranks[0], signal.SIGSTOP)   # even one that cannot notice
    server.process.kill()
    server.process.wait()
    end = time.monotonic() + 5
    while any(map(is_running, ranks)) and time.monotonic() < end:
        time.sleep(0.05)
    assert not any(map(is_running, ranks))
    server.stop()


def test_signals_of_a_terminal_drain_the_server_with_its_ranks(tmp_path):
    server = Server(TINY, *FLAGS, "--tp-size", "2", log=tmp_path / "log")
    ranks = ranks_of(server)
    replies = []
    thread = threading.Thread(target=lambda: replies.append(server.post("/generate", long_body(1, 200, False))))
    thread.start()
    while server.state()["num_running_reqs"] < 1:
        time.sleep(0.01)
    for pid in (*ranks, server.process.pid):
        os.kill(pid, signal.SIGINT)
    assert server.process.wait(timeout=60) == 0
    thread.join()
    assert replies[0].status == 200 and len(replies[0].json()["output_ids"]) == 200
    assert not any(map(is_running, ranks))
    server.stop()


@pytest.mark.parametrize("model, size, said", [
    (TINY, 7, "cannot be shared equally by 7 ranks; --tp-size "),
    (GOLDEN / "models" / "qwen3", 64, "cannot be shared equally by 64 ranks"),
    (TINY, 0, "--tp-size"),
    (TINY, 65, "--tp-size"),
])
def test_what_does_not_divide_is_refused_in_seconds(model, size, said):
    begin = time.monotonic()
    done = sluice("generate", "--model", model, "--input-ids", "1,2", "--device", "cpu", "--tp-size", size)
    assert done.returncode == 2
    assert said in done.stderr, done.stderr
    assert time.monotonic() - begin < 5


def test_a_rank_is_no_verb_of_users():
    done = sluice("rank")
    assert done.returncode == 4
    assert "the engine starts its ranks itself" in done.stderr
