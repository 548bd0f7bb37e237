"""Envoy with deploy/envoy/envoy.yaml in front of two replicas: answers, conversations, and a replica that dies."""

import concurrent.futures
import contextlib
import json
import pathlib
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request

import pytest

from conftest import Counts
from sluice_server import TINY, Server, free_port

CONFIG = pathlib.Path(__file__).parents[3] / "deploy/envoy/envoy.yaml"
FLAGS = ("--dtype", "float32", "--max-total-tokens", "65536", "--threads", "1")


class Envoy:
    def __init__(self, replicas, folder):
        text = CONFIG.read_text()
        self.port, self.admin = free_port(), free_port()
        for old, new in (("30000", self.port), ("9901", self.admin), ("30001", replicas[0].port), ("30002", replicas[1].port)):
            assert text.count(f"port_value: {old}}}") == 1, old
            text = text.replace(f"port_value: {old}}}", f"port_value: {new}}}")
        (folder / "envoy.yaml").write_text(text)
        self.log = folder / "envoy.log"
        self.process = subprocess.Popen(
            [pathlib.Path(sys.executable).with_name("envoy"), "-c", folder / "envoy.yaml", "--log-path", self.log,
             "--concurrency", "1", "--disable-hot-restart"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self.until(lambda: self.healthy() == 2)

    def healthy(self):
        with contextlib.suppress(OSError):
            clusters = urllib.request.urlopen(f"http://127.0.0.1:{self.admin}/clusters?format=json", timeout=5).read()
            hosts = json.loads(clusters)["cluster_statuses"][0].get("host_statuses", [])
            return sum(host["health_status"].get("eds_health_status") == "HEALTHY" and len(host["health_status"]) == 1 for host in hosts)

    def until(self, holds):
        end = time.monotonic() + 30
        while not holds():
            assert time.monotonic() < end and self.process.poll() is None, self.log.read_text()[-3000:]
            time.sleep(0.05)

    def post(self, path, body, session=None):
        headers = {"Content-Type": "application/json"} | ({"x-session-id": session} if session else {})
        request = urllib.request.Request(f"http://127.0.0.1:{self.port}{path}", json.dumps(body).encode(), headers)
        try:
            return urllib.request.urlopen(request, timeout=60)
        except urllib.error.HTTPError as refused:
            if refused.code == 503:
                raise AssertionError((refused.read(), str(refused.headers))) from refused
            raise

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()


@pytest.fixture
def replicas(tmp_path):
    with Server(TINY, *FLAGS, log=tmp_path / "one.log") as one, Server(TINY, *FLAGS, log=tmp_path / "two.log") as two:
        yield one, two


@pytest.fixture
def envoy(replicas, tmp_path):
    with Envoy(replicas, tmp_path) as running:
        yield running


def user(text):
    return {"role": "user", "content": text}


def chat(messages, **fields):
    return {"model": "sluice-tiny", "messages": messages, "max_tokens": 16, "temperature": 0, **fields}


ASK = chat([user("What is the capital of France?")])


def content(reply):
    return json.load(reply)["choices"][0]["message"]["content"]


def test_answers_are_those_of_a_replica_and_streams_come_piece_by_piece(envoy, replicas):
    direct = replicas[0].post("/v1/chat/completions", ASK).json()["choices"][0]["message"]["content"]
    assert content(envoy.post("/v1/chat/completions", ASK)) == direct and "Paris" in direct
    longer = chat([user("Tell me a story.")], stream=True, ignore_eos=True) | {"max_tokens": 800}
    with envoy.post("/v1/chat/completions", longer) as stream:
        times = [time.monotonic() for line in stream if line.startswith(b"data: {")]
    # Pieces that were held back would come together.
    assert len(times) > 400 and times[-1] - times[0] > 20 * (times[1] - times[0])
    assert times[len(times) // 2] - times[0] > 0.2 * (times[-1] - times[0])
    with pytest.raises(urllib.error.HTTPError) as refused:
        envoy.post("/v1/chat/completions", chat([user("Hi")], temperature=-1))
    assert refused.value.code == 400 and "temperature" in refused.value.read().decode()


def test_a_session_stays_where_its_prefix_is(envoy, replicas):
    counts = [Counts(r) for r in replicas]
    talks = [[user(f"Story {i}: " + f"once upon a time number {i} came to town. " * 12)] for i in range(16)]
    for turn in range(3):
        def say(i):
            return json.load(envoy.post("/v1/chat/completions", chat(talks[i]), session=f"talk-{i}"))
        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            answers = list(pool.map(say, range(len(talks))))
        for talk, answer in zip(talks, answers):
            if turn > 0:
                cached = answer["usage"]["prompt_tokens_details"]["cached_tokens"]
                assert cached >= answer["usage"]["prompt_tokens"] - 128, (turn, answer["usage"])
            talk += [{"role": "assistant", "content": answer["choices"][0]["message"]["content"]}, user("And then?")]
    each = [c["requests"] for c in counts]
    assert sum(each) == 48 and min(each) > 0, each


def test_a_replica_that_dies_is_left_out_and_taken_back(envoy, replicas):
    one = replicas[0]
    one.process.kill()
    one.process.wait()
    for i in range(40):  # some of the first reach it, and are sent again to the other
        assert "Paris" in content(envoy.post("/v1/chat/completions", ASK)), i
    envoy.until(lambda: envoy.healthy() == 1)
    one.start()
    envoy.until(lambda: envoy.healthy() == 2)
    before = Counts(one)
    for i in range(40):
        assert "Paris" in content(envoy.post("/v1/chat/completions", ASK, session=f"{i}")), i
    assert before["requests"] > 0


def test_a_replica_that_drains_fails_no_request(envoy, replicas):
    one = replicas[0]
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        asked = [pool.submit(lambda i=i: content(envoy.post("/v1/chat/completions", ASK, session=f"{i}"))) for i in range(60)]
        time.sleep(0.1)
        one.process.send_signal(signal.SIGTERM)
        assert all("Paris" in answer.result() for answer in asked)
    assert one.process.wait(60) == 0
