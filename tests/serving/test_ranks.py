"""Ranks and stages in processes of their own: streams, disconnects, and ranks that die or hang."""

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
RANKS = ("--tp-size", "2")
STAGES = ("--pp-size", "2")
GROUPS = ("--dp-size", "2", "--enable-dp-attention")
TREES = ("--speculative-num-steps", "3", "--speculative-eagle-topk", "3", "--speculative-num-draft-tokens", "12",
         "--speculative-adaptive=false")


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


@pytest.fixture(scope="module", params=[(RANKS, 2, 16), (STAGES, 2, 16), (RANKS + STAGES, 4, 16), (RANKS + GROUPS, 2, 16),
                                        (("--tp-size", "4", *GROUPS), 4, 64),
                                        ((*RANKS, "--speculative-algorithm", "NEXTN", *TREES), 2, 16)],
                ids=["ranks", "stages", "both", "groups", "ranks of groups", "ranks with trees"])
def two(tmp_path_factory, request):
    flags, num_processes, num_streams = request.param
    log = tmp_path_factory.mktemp("ranks") / "server.log"
    with Server(TINY, *FLAGS, *flags, log=log) as server:
        server.num_processes, server.num_streams = num_processes, num_streams
        yield server


def test_streams_with_disconnects_get_the_tokens_of_one_rank(two, tiny):
    assert len(ranks_of(two)) == two.num_processes - 1
    count, tokens = two.num_streams, 32
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
    {"response_format": {"type": "json_object"}, "temperature": 0},
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


# The last column: whether tokens are those of one rank. Where products are rounded, sums of two parts round differently.
@pytest.mark.parametrize("model, flags, equal", [
    ("sluice-tiny", ("--speculative-algorithm", "NGRAM", "--speculative-adaptive=false"), True),
    ("sluice-tiny", ("--speculative-algorithm", "SUFFIX", "--speculative-adaptive=false"), True),
    ("sluice-tiny", ("--speculative-algorithm", "NEXTN", "--speculative-adaptive=false"), True),
    ("sluice-tiny", ("--speculative-algorithm", "NEXTN", *TREES), True),
    ("glm-moe-dsa", ("--speculative-algorithm", "NEXTN", *TREES), True),
    ("sluice-tiny", ("--disable-radix-cache",), True),
    ("sluice-tiny", ("--quantization", "int8"), False),
    ("sluice-tiny", ("--dtype", "bfloat16"), False),
    ("qwen3", ("--kv-cache-dtype", "int8"), False),
    ("qwen3", ("--kv-cache-dtype", "fp8_e4m3"), False),
    ("qwen3", ("--load-format", "dummy"), True),
    ("qwen2-tied", ("--quantization", "int4"), False),
])
def test_options_of_the_server_reach_every_rank(model, flags, equal):
    directory = TINY if model == TINY.name else GOLDEN / "models" / model
    ids = ",".join(str(50 + i % 7) for i in range(40))
    command = ("generate", "--model", directory, "--tokenizer-path", TINY, "--input-ids", ids, "--max-new-tokens", "24",
               "--temperature", "0", *FLAGS, *flags)

    def run(ranks, threads):
        done = sluice(*command, "--tp-size", ranks, env={"SLUICE_ARG_THREADS": str(threads)})
        assert done.returncode == 0, done.stderr
        return done.stdout

    two = run(2, 2)
    assert run(2, 4) == two
    if equal:
        assert run(1, 2) == two


# Stages change no arithmetic, so tokens are always those of one.
@pytest.mark.parametrize("model, flags", [
    ("sluice-tiny", ("--speculative-algorithm", "NGRAM")),
    ("sluice-tiny", ("--speculative-algorithm", "NGRAM", "--speculative-adaptive=false")),
    ("sluice-tiny", ("--pp-max-micro-batch-size", "1")),
    ("sluice-tiny", ("--disable-overlap-schedule",)),
    ("sluice-tiny", ("--quantization", "int8")),
    ("sluice-tiny", ("--dtype", "bfloat16")),
    ("qwen3", ("--kv-cache-dtype", "fp8_e4m3")),
    ("qwen2-tied", ("--quantization", "int4")),
    ("glm-moe-dsa-shared-index", ("--dtype", "bfloat16", "--index-cache-dtype", "fp8_e4m3")),
])
def test_options_of_the_server_reach_every_stage(model, flags):
    directory = TINY if model == TINY.name else GOLDEN / "models" / model
    ids = ",".join(str(50 + i % 7) for i in range(40))

    def run(size):
        done = sluice("generate", "--model", directory, "--tokenizer-path", TINY, "--input-ids", ids, "--max-new-tokens",
                      "24", "--temperature", "0", *FLAGS, *(flags if size == 2 or "--pp-max" not in flags[0] else ()),
                      "--pp-size", size)
        assert done.returncode == 0, done.stderr
        return done.stdout

    assert run(2) == run(1)


# Groups are chosen by load and prefix, so the rows that a product has together differ from those of one rank: on a CPU
# that changes no bit.
@pytest.mark.parametrize("model, flags, equal", [
    ("sluice-tiny", ("--speculative-algorithm", "NGRAM", "--speculative-adaptive=false"), True),
    ("sluice-tiny", ("--quantization", "int8"), False),
    ("sluice-tiny", ("--dtype", "bfloat16"), False),
    ("sluice-tiny", ("--enable-expert-parallel",), True),
    ("qwen3", ("--kv-cache-dtype", "fp8_e4m3"), True),
    ("glm-moe-dsa", (), True),
])
def test_options_of_the_server_reach_every_group(model, flags, equal):
    directory = TINY if model == TINY.name else GOLDEN / "models" / model
    ids = ",".join(str(50 + i % 7) for i in range(40))

    def run(*more):
        done = sluice("generate", "--model", directory, "--tokenizer-path", TINY, "--input-ids", ids, "--max-new-tokens",
                      "24", "--temperature", "0", *FLAGS, *(f for f in flags if more or f != "--enable-expert-parallel"), *more)
        assert done.returncode == 0, done.stderr
        return done.stdout

    if equal:
        assert run(*RANKS, *GROUPS) == run()
    else:
        assert run(*RANKS, *GROUPS)


def test_a_conversation_returns_to_the_group_that_has_its_prefix(tmp_path):
    with Server(TINY, *FLAGS, *RANKS, *GROUPS, log=tmp_path / "log") as server:
        for turn in range(4):
            replies = []

            def one(i):
                ids = [40 + (7 * i + j) % 90 for j in range(640 + 64 * turn)]
                body = {"input_ids": ids, "sampling_params": {"max_new_tokens": 4, "temperature": 0}}
                replies.append(server.post("/generate", body).json()["meta_info"]["cached_tokens"])

            threads = [threading.Thread(target=one, args=(i,)) for i in range(4)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            assert replies == [640 + 64 * (turn - 1) if turn > 0 else 0] * 4, turn


def test_a_long_prompt_beside_others_goes_through_stages_in_chunks(tmp_path, tiny):
    flags = (*FLAGS, *STAGES, "--chunked-prefill-size", "16", "--max-running-requests", "3")
    with Server(TINY, *flags, log=tmp_path / "log") as server:
        bodies = [{"input_ids": [40 + (7 * i + j) % 90 for j in range(length)], "return_logprob": True,
                   "sampling_params": {"max_new_tokens": 20, "temperature": 0.9, "sampling_seed": i}}
                  for i, length in enumerate((200, 3, 70, 16, 33))]
        replies = [None] * len(bodies)

        def one(i):
            replies[i] = server.post("/generate", bodies[i])

        threads = [threading.Thread(target=one, args=(i,)) for i in range(len(bodies))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        for body, reply in zip(bodies, replies, strict=True):
            alone = tiny.post("/generate", body).json()
            got = reply.json()
            assert got["output_ids"] == alone["output_ids"]
            assert got["meta_info"]["output_token_logprobs"] == alone["meta_info"]["output_token_logprobs"]


def end_in_the_middle(tmp_path, sign, flags):
    """Streams run; a rank gets `sign`. What the clients see, and when the server ends."""
    server = Server(TINY, *FLAGS, *flags, log=tmp_path / "log", exit_status=4)
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


@pytest.mark.parametrize("flags", [RANKS, STAGES, RANKS + GROUPS], ids=["ranks", "stages", "groups"])
def test_a_killed_rank_ends_streams_with_an_error_and_the_server(tmp_path, flags):
    ends, seconds = end_in_the_middle(tmp_path, signal.SIGKILL, flags)
    assert seconds < 10
    for when, text in ends:
        assert when < 3, "noticed within 1 s, told within 2"
        assert b"error" in text, text
    assert "killed by signal 9" in (tmp_path / "log").read_text()


@pytest.mark.parametrize("flags", [RANKS, STAGES, RANKS + GROUPS], ids=["ranks", "stages", "groups"])
def test_a_stopped_rank_counts_as_hung(tmp_path, flags):
    ends, seconds = end_in_the_middle(tmp_path, signal.SIGSTOP, flags)
    assert seconds < 20
    for when, text in ends:
        assert when < 12, "noticed within 10 s, told within 2"
        assert b"error" in text, text
    assert "no sign of life" in (tmp_path / "log").read_text()


@pytest.mark.parametrize("flags", [RANKS, STAGES, RANKS + GROUPS], ids=["ranks", "stages", "groups"])
def test_a_rank_that_dies_without_work_makes_the_server_unready(tmp_path, flags):
    server = Server(TINY, *FLAGS, *flags, log=tmp_path / "log", exit_status=4)
    ranks = ranks_of(server)
    os.kill(ranks[0], signal.SIGKILL)
    time.sleep(0.5)
    with contextlib.suppress(OSError):   # it may have ended already
        assert server.get("/ready", timeout=1).status == 503
    assert server.process.wait(timeout=10) == 4
    server.stop()


def test_no_rank_outlives_a_killed_server(tmp_path):
    server = Server(TINY, *FLAGS, *RANKS, *STAGES, log=tmp_path / "log", exit_status=-9)
    ranks = ranks_of(server)
    os.kill(ranks[0], signal.SIGSTOP)   # even one that cannot notice
    server.process.kill()
    server.process.wait()
    end = time.monotonic() + 5
    while any(map(is_running, ranks)) and time.monotonic() < end:
        time.sleep(0.05)
    assert not any(map(is_running, ranks))
    server.stop()


@pytest.mark.parametrize("flags", [RANKS, STAGES, RANKS + GROUPS], ids=["ranks", "stages", "groups"])
def test_signals_of_a_terminal_drain_the_server_with_its_ranks(tmp_path, flags):
    server = Server(TINY, *FLAGS, *flags, log=tmp_path / "log")
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


@pytest.mark.parametrize("model, flags, said", [
    (TINY, ("--pp-size", "63"), "each stage needs a layer, and the model has "),
    (TINY, ("--pp-size", "0"), "--pp-size"),
    (TINY, ("--pp-size", "2", "--tp-size", "64"), "--tp-size"),
    (TINY, ("--pp-size", "2", "--speculative-algorithm", "NEXTN"), "stages draft with grammars, NGRAM and SUFFIX"),
    (TINY, ("--pp-size", "2", "--speculative-algorithm", "NEXTN", *TREES), "stages draft with grammars, NGRAM and SUFFIX"),
    (TINY, ("--pp-max-micro-batch-size", "4"), "add --pp-size"),
    (TINY, ("--tp-size", "2", "--dp-size", "2"), "with --enable-dp-attention"),
    (TINY, ("--enable-dp-attention",), "add --dp-size"),
    (TINY, (*GROUPS,), "--tp-size 2, 4, 8, 16 would do"),
    (TINY, ("--tp-size", "3", *GROUPS), "--tp-size 2, 4, 8, 16 would do"),
    (TINY, (*RANKS, *GROUPS, *STAGES), "exclude each other"),
])
def test_stages_that_cannot_be_are_refused_in_seconds(model, flags, said):
    begin = time.monotonic()
    done = sluice("generate", "--model", model, "--input-ids", "1,2", "--device", "cpu", *flags)
    assert done.returncode == 2
    assert said in done.stderr, done.stderr
    assert time.monotonic() - begin < 5


def test_a_rank_is_no_verb_of_users():
    done = sluice("rank")
    assert done.returncode == 4
    assert "the engine starts its ranks itself" in done.stderr
