"""The routers of SGLang and vLLM in front of two replicas: their prefix caches, and a replica that dies and returns."""

import concurrent.futures
import contextlib
import json
import os
import signal
import subprocess
import sys
import time
import urllib.request

import pytest

from conftest import Counts
from sluice_server import TINY, Server, free_port

FLAGS = ("--dtype", "float32", "--max-total-tokens", "65536", "--threads", "1")
ROUTERS = {"sglang": "sglang_router.launch_router", "vllm": "vllm_router.launch_router"}


class Router:
    def __init__(self, kind, workers, log, policy="cache_aware"):
        pytest.importorskip(ROUTERS[kind].split(".")[0])
        self.url = f"http://127.0.0.1:{free_port()}"
        self.log = open(log, "wb")
        self.process = subprocess.Popen(
            [sys.executable, "-m", ROUTERS[kind], "--host", "127.0.0.1", "--port", self.url.rsplit(":", 1)[1], "--policy", policy,
             "--prometheus-port", str(free_port()), "--health-check-interval-secs", "1", "--health-failure-threshold", "1",
             "--health-success-threshold", "1", "--cb-timeout-duration-secs", "2", "--worker-urls", *workers],
            stdout=self.log, stderr=subprocess.STDOUT, start_new_session=True)
        end = time.monotonic() + 60
        while True:
            with contextlib.suppress(OSError):
                if json.load(urllib.request.urlopen(self.url + "/v1/models", timeout=5))["data"]:
                    return
            assert time.monotonic() < end and self.process.poll() is None, open(log).read()[-3000:]
            time.sleep(0.2)

    def post(self, path, body):
        request = urllib.request.Request(self.url + path, json.dumps(body).encode(), {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=60) as reply:
            return reply.read().decode()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        self.log.close()


@pytest.fixture
def replicas(tmp_path):
    with Server(TINY, *FLAGS, log=tmp_path / "one.log") as one, Server(TINY, *FLAGS, log=tmp_path / "two.log") as two:
        yield one, two


def chat(messages, **fields):
    return {"model": "sluice-tiny", "messages": messages, "max_tokens": 16, "temperature": 0, **fields}


def user(text):
    return {"role": "user", "content": text}


ASK = [user("What is the capital of France?")]


@pytest.mark.parametrize("kind", ROUTERS)
def test_routes_answer_as_they_do_without_a_router(kind, replicas, tmp_path):
    with Router(kind, [r.url for r in replicas], tmp_path / "router.log") as router:
        direct = replicas[0].post("/v1/chat/completions", chat(ASK)).json()
        routed = json.loads(router.post("/v1/chat/completions", chat(ASK)))
        assert routed["choices"] == direct["choices"] and "Paris" in routed["choices"][0]["message"]["content"]
        lines = router.post("/v1/chat/completions", chat(ASK, stream=True)).split("\n\n")
        events = [json.loads(line[6:]) for line in lines if line.startswith("data: {")]
        text = "".join(e["choices"][0]["delta"].get("content") or "" for e in events if e["choices"])
        assert text == direct["choices"][0]["message"]["content"] and "data: [DONE]" in lines
        completion = json.loads(router.post("/v1/completions", {"model": "sluice-tiny", "prompt": "Paris", "max_tokens": 4}))
        assert completion["usage"]["completion_tokens"] == 4
        if kind == "sglang":
            native = json.loads(router.post("/generate", {"text": "Paris", "sampling_params": {"max_new_tokens": 4}}))
            assert native["meta_info"]["completion_tokens"] == 4


@pytest.mark.parametrize("kind", ROUTERS)
def test_conversations_return_to_the_replica_that_has_their_prefix(kind, replicas, tmp_path):
    with Router(kind, [r.url for r in replicas], tmp_path / "router.log") as router:
        counts = [Counts(r) for r in replicas]
        talks = [[user(f"Story {i}: " + f"once upon a time number {i} came to town. " * 12)] for i in range(8)]
        for turn in range(3):
            with concurrent.futures.ThreadPoolExecutor(8) as pool:
                answers = pool.map(lambda talk: json.loads(router.post("/v1/chat/completions", chat(talk))), talks)
            for talk, answer in zip(talks, answers):
                if turn > 0:
                    cached = answer["usage"]["prompt_tokens_details"]["cached_tokens"]
                    assert cached >= answer["usage"]["prompt_tokens"] - 128, (turn, answer["usage"])
                talk += [{"role": "assistant", "content": answer["choices"][0]["message"]["content"]}, user("And then?")]
        each = [c["requests"] for c in counts]
        assert sum(each) == 24 and min(each) > 0, each


@pytest.mark.parametrize("kind", ROUTERS)
def test_a_replica_that_dies_is_left_out_and_taken_back(kind, replicas, tmp_path):
    one, two = replicas
    with Router(kind, [one.url, two.url], tmp_path / "router.log", policy="round_robin") as router:
        one.process.kill()
        one.process.wait()
        for i in range(12):  # the first of them reach it, and are sent again to the other
            assert "Paris" in router.post("/v1/chat/completions", chat(ASK)), i
        one.start()
        before, end = Counts(one), time.monotonic() + 30
        while before["requests"] == 0:
            router.post("/v1/chat/completions", chat(ASK))
            assert time.monotonic() < end, (tmp_path / "router.log").read_text()[-3000:]
