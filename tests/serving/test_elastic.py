"""A server outlives its ranks (--elastic-ep-backend): tokens of the others, errors of the lost one's requests, metrics."""

import collections
import contextlib
import json
import os
import shutil
import signal
import struct
import threading
import time

import pytest
from sluice_server import GOLDEN, TINY, Server, sluice
from test_bad_models import tensors_of, write_tensors
from test_disconnects import long_body, start_stream
from test_eplb import figure, figures
from test_quantised_checkpoints import FIXTURES
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


def lose_one(server, left):
    """Without any request: the server notices it by itself."""
    os.kill(ranks_of(server)[0], signal.SIGKILL)
    end = time.monotonic() + 1
    while figure(server, "sluice:ranks_alive") != left and time.monotonic() < end:
        time.sleep(0.02)
    assert figure(server, "sluice:ranks_alive") == left


def capacity(server):
    end = time.monotonic() + 2
    while not (pages := sum(figures(server, "sluice:kv_pages").values())) and time.monotonic() < end:
        time.sleep(0.02)   # a server that has just started has not counted them yet
    return figure(server, "sglang:max_total_num_tokens"), server.get("/get_server_info").json()["max_total_num_tokens"], pages


def test_every_rank_but_the_first_may_be_lost(tmp_path, tiny):
    with Server(TINY, *FLAGS, *elastic("4"), log=tmp_path / "log") as server:
        whole = capacity(server)
        for left in (3, 2, 1):
            lose_one(server, left)
            assert capacity(server) == tuple(figure * left / 4 for figure in whole)
            for i in range(3):   # none of them goes to a lost rank
                reply = server.post("/generate", long_body(i, 16, False), timeout=300)
                assert reply.status == 200, reply.body
                assert reply.json()["output_ids"] == \
                    tiny.post("/generate", long_body(i, 16, False), timeout=300).json()["output_ids"]


def generate_all(server):
    bodies = [{"input_ids": [5 + (7 * i + j * (1 + i)) % 290 for j in range(30 + 9 * i)],
               "sampling_params": {"temperature": 0, "max_new_tokens": 24, "ignore_eos": True}} for i in range(4)]
    replies = [server.post("/generate", body, timeout=300) for body in bodies]
    assert all(reply.status == 200 for reply in replies), replies[0].body
    return [reply.json()["output_ids"] for reply in replies]


def outlive(tmp_path, folder, *flags):
    """The log of a server that gives the same tokens before and after a loss."""
    with Server(folder, "--tokenizer-path", TINY, "--max-total-tokens", "8192", "--device", "cpu", *elastic("2"), *flags,
                log=tmp_path / "log") as server:
        before = generate_all(server)
        lose_one(server, 1)
        assert generate_all(server) == before
    return (tmp_path / "log").read_text()


# Experts keep their form when others compute them. The last column: what the log says of the form.
@pytest.mark.parametrize("model, flags, said", [
    ("quant-fp8-block-deepseek-v3", (), "computed as stored: fp8 in blocks"),
    ("quant-fp8-block-deepseek-v3", ("--dtype", "float32"), "widened"),
    ("quant-mxfp4-gpt-oss", (), "computed as stored: MXFP4 in groups of 32 in 4 matrices"),
    ("quant-mxfp4-gpt-oss", ("--dtype", "float32"), "widened"),
    ("sluice-tiny", ("--quantization", "int8"), ""),
    ("sluice-tiny", ("--quantization", "int4", "--dtype", "bfloat16"), ""),
    ("sluice-tiny", ("--quantization", "fp8", "--dtype", "bfloat16"), ""),
    ("qwen3-moe", ("--dtype", "bfloat16"), ""),
    ("deepseek-v3", ("--load-format", "dummy", "--quantization", "int8"), ""),
])
def test_experts_keep_their_form(tmp_path, model, flags, said):
    places = {"sluice-tiny": TINY, **{path.name: path for path in [*(GOLDEN / "models").iterdir(), *FIXTURES]}}
    if model not in places:
        pytest.skip(f"{model} is not unpacked")
    assert said in outlive(tmp_path, places[model], *flags)


def test_an_expert_of_another_form_widens_those_of_all_ranks(tmp_path):
    source = next((path for path in FIXTURES if path.name == "quant-fp8-block-deepseek-v3"), None)
    if source is None:
        pytest.skip("the fixture is not unpacked")
    folder = tmp_path / "model"
    folder.mkdir()
    for path in source.iterdir():
        shutil.copyfile(path, folder / path.name)
    tensors, data = tensors_of(folder)
    parts = {name: data[slice(*info["data_offsets"])] for name, info in tensors.items() if name != "__metadata__"}
    for part in ("gate", "up", "down"):   # of one expert of the second rank
        name = f"model.layers.1.mlp.experts.3.{part}_proj.weight"
        del tensors[name + "_scale_inv"], parts[name + "_scale_inv"]
        tensors[name]["dtype"] = "BF16"
        parts[name] = b"".join(struct.pack("<f", ((7 * i) % 23 - 11) / 100)[2:] for i in range(len(parts[name])))
    begin = 0
    for name, part in parts.items():
        tensors[name]["data_offsets"] = [begin, begin + len(part)]
        begin += len(part)
    write_tensors(folder, tensors, b"".join(parts.values()))
    outlive(tmp_path, folder)


@pytest.mark.parametrize("flags, said", [
    (("--tp-size", "2"), "give --tp-size 2 --dp-size 2 --enable-dp-attention --ep-size 2"),
    ((*elastic("2")[:-2], "--ep-num-redundant-experts", "2"), "leave out --ep-num-redundant-experts"),
    (("--pp-size", "2"), "give --tp-size 2 --dp-size 2 --enable-dp-attention --ep-size 2"),
])
def test_what_cannot_be_outlived_is_refused(flags, said):
    done = sluice("generate", "--model", GOLDEN / "models" / "mixtral", "--input-ids", "1,2", "--device", "cpu", *flags,
                  "--elastic-ep-backend", "shared-memory")
    assert done.returncode == 2 and said in done.stderr, done.stderr
