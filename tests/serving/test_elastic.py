"""A server outlives its ranks (--elastic-ep-backend): tokens of the others, errors of the lost one's requests, metrics."""

import collections
import contextlib
import json
import os
import signal
import threading
import time

import pytest
from sluice_server import GOLDEN, TINY, Server, sluice
from test_disconnects import long_body, start_stream
from test_eplb import figure
from test_ranks import FLAGS, ranks_of

TOLD_S, HUNG_S = 2, 5


def elastic(size):
    return ("--tp-size", size, "--dp-size", size, "--enable-dp-attention", "--ep-size", size,
            "--elastic-ep-backend", "shared-memory")


def stream(server, i, tokens, begun, ends):
    """Releases `begun` at the first token. ends[i]: when the stream ended, how, and its tokens."""
    how, ids = "cut", None
    with contextlib.closing(start_stream(server, long_body(i, tokens, True))) as connection:
        for line in connection.getresponse():
            if b'"error"' in line:
                how = "rank_lost" if b"rank_lost" in line else "error"
            elif line.startswith(b"data: {"):
                if ids is None:
                    begun.release()
                ids = json.loads(line[6:])["output_ids"]
            elif line.strip() == b"data: [DONE]" and how == "cut":
                how = "whole"
    ends[i] = (time.monotonic(), how, ids)


@pytest.mark.parametrize("act, size", [(signal.SIGKILL, "2"), (signal.SIGKILL, "4"), (signal.SIGSTOP, "2")],
                         ids=["killed, two", "killed, four", "stopped"])
def test_streams_of_other_ranks_go_on_with_the_same_tokens(tmp_path, tiny, act, size):
    count, tokens, begun, ends = 8, 160, threading.Semaphore(0), {}
    with Server(TINY, *FLAGS, *elastic(size), log=tmp_path / "log") as server:
        assert figure(server, "sluice:ranks_alive") == int(size)
        threads = [threading.Thread(target=stream, args=(server, i, tokens, begun, ends)) for i in range(count)]
        for thread in threads:
            thread.start()
        for _ in threads:
            assert begun.acquire(timeout=120)
        begin = time.monotonic()
        os.kill(ranks_of(server)[0], act)
        for thread in threads:
            thread.join(300)
        hows = collections.Counter(how for _, how, _ in ends.values())
        assert hows["rank_lost"] > 0 and hows["whole"] > 0 and sum(hows.values()) == hows["rank_lost"] + hows["whole"], hows
        told = max(when - begin for when, how, _ in ends.values() if how == "rank_lost")
        assert told < TOLD_S + (HUNG_S + 1 if act == signal.SIGSTOP else 0)
        assert figure(server, "sluice:ranks_alive") == int(size) - 1
        assert server.get("/health").status == 200
        after = [server.post("/generate", long_body(i, 24, False), timeout=300).json()["output_ids"] for i in range(4)]
    assert "is lost: it" in (tmp_path / "log").read_text()
    for i, (_, how, ids) in ends.items():
        if how == "whole":
            assert ids == tiny.post("/generate", long_body(i, tokens, False), timeout=300).json()["output_ids"], i
    for i, ids in enumerate(after):
        assert ids == tiny.post("/generate", long_body(i, 24, False), timeout=300).json()["output_ids"], i


def test_every_rank_but_the_first_may_be_lost(tmp_path, tiny):
    with Server(TINY, *FLAGS, *elastic("4"), log=tmp_path / "log") as server:
        for left in (3, 2, 1):
            os.kill(ranks_of(server)[0], signal.SIGKILL)
            end = time.monotonic() + 1
            while figure(server, "sluice:ranks_alive") != left and time.monotonic() < end:
                time.sleep(0.02)
            assert figure(server, "sluice:ranks_alive") == left
            for i in range(3):   # none of them goes to a lost rank
                reply = server.post("/generate", long_body(i, 16, False), timeout=300)
                assert reply.status == 200, reply.body
                assert reply.json()["output_ids"] == \
                    tiny.post("/generate", long_body(i, 16, False), timeout=300).json()["output_ids"]


@pytest.mark.parametrize("flags, said", [
    (("--tp-size", "2"), "give --tp-size 2 --dp-size 2 --enable-dp-attention --ep-size 2"),
    ((*elastic("2")[:-2], "--ep-num-redundant-experts", "2"), "leave out --ep-num-redundant-experts"),
    (("--pp-size", "2"), "give --tp-size 2 --dp-size 2 --enable-dp-attention --ep-size 2"),
])
def test_what_cannot_be_outlived_is_refused(flags, said):
    done = sluice("generate", "--model", GOLDEN / "models" / "mixtral", "--input-ids", "1,2", "--device", "cpu", *flags,
                  "--elastic-ep-backend", "shared-memory")
    assert done.returncode == 2 and said in done.stderr, done.stderr
