"""Every flag of the server that the other files do not cover: its effect, seen from outside."""

import http.client
import json
import signal
import subprocess
import threading
import time

import pytest
from sluice_server import GOLDEN, TINY, Server, binary

SUM = [{"role": "user", "content": "What is the sum of 25, 17 and 40?"}]
TIMER = [{"type": "function", "function": {"name": "get_weather", "description": "The weather of a city", "parameters": {
    "type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}}}]


def start(tmp_path, *flags):
    return Server(TINY, "--max-total-tokens", "16384", *flags, log=tmp_path / "server.log")


def chat(server, messages, **fields):
    reply = server.post("/v1/chat/completions", {"messages": messages, "temperature": 0, "max_tokens": 80, **fields})
    assert reply.status == 200, reply.body
    return reply.json()["choices"][0]["message"]


def prompt(length, salt=0):
    return [20 + (i * 37 + salt * 101) % 4000 for i in range(length)]


def generate(server, ids, tokens, **params):
    return server.post("/generate", {"input_ids": ids, "sampling_params": {
        "temperature": 0, "max_new_tokens": tokens, "ignore_eos": True, **params}})


def test_parsers_can_be_switched_off(tmp_path):
    with start(tmp_path) as server:
        assert "42" in chat(server, SUM)["reasoning_content"]
    with start(tmp_path, "--reasoning-parser", "none", "--tool-call-parser", "none") as server:
        message = chat(server, SUM)
        assert "reasoning_content" not in message and "42" in message["content"] and "82" in message["content"]
        message = chat(server, [{"role": "user", "content": "What is the weather in Paris?"}], tools=TIMER)
        assert "tool_calls" not in message and "get_weather" in message["content"]


def test_log_level_silences_lines(tmp_path):
    def lines(level):
        with start(tmp_path, "--log-level", level) as server:
            generate(server, prompt(8), 4)
        return (tmp_path / "server.log").read_text().splitlines()

    assert any("ready to roll" in line for line in lines("info"))
    assert lines("error") == []


def test_random_seed_repeats_a_run(tmp_path):
    def run(seed):
        with start(tmp_path, "--random-seed", seed) as server:
            return [generate(server, prompt(8), 12, temperature=5.0).json()["output_ids"] for _ in range(3)]

    first, again, other = run(1), run(1), run(2)
    assert first == again
    assert first != other
    assert len({tuple(tokens) for tokens in first}) == 3  # each request gets its own random seed


def test_mem_fraction_static_sizes_the_pool(tmp_path):
    def kv_bytes(fraction):
        with Server(TINY, "--mem-fraction-static", fraction, "--max-running-requests", "1000",
                    log=tmp_path / "server.log") as server:
            return server.get("/get_server_info").json()["memory_plan"]["kv_bytes"]

    small, large = kv_bytes("0.05"), kv_bytes("0.1")
    assert 1.5 < large / small < 2.6


@pytest.mark.parametrize("policy, winner", [("fcfs", "first"), ("lpm", "cached"), ("priority", "urgent")])
def test_schedule_policy_orders_the_queue(tmp_path, policy, winner):
    with start(tmp_path, "--schedule-policy", policy, "--max-running-requests", "1") as server:
        assert generate(server, prompt(512, 1), 1).status == 200   # now cached
        began = {}  # when the server began each of them, by its own account

        def ask(name, ids, priority=0):
            # Long enough to outlast a thread of the test that a busy machine delays.
            body = {"input_ids": ids, "sampling_params": {"temperature": 0, "max_new_tokens": 60, "ignore_eos": True},
                    "priority": priority}
            asked = time.monotonic()
            reply = server.post("/generate", body)
            assert reply.status == 200
            began[name] = asked + reply.json()["meta_info"]["queue_time"]

        blocker = threading.Thread(target=generate, args=(server, prompt(64, 9), 600))
        blocker.start()
        while server.state()["num_running_reqs"] == 0:
            time.sleep(0.005)
        threads = []
        for position, (name, ids, priority) in enumerate(
                [("first", prompt(256, 2), 5), ("cached", prompt(512, 1) + [77], 5), ("urgent", prompt(256, 3), 0)]):
            threads.append(threading.Thread(target=ask, args=(name, ids, priority)))
            threads[-1].start()
            while server.state()["num_queue_reqs"] <= position:
                time.sleep(0.005)
        for thread in [blocker, *threads]:
            thread.join()
        assert min(began, key=began.get) == winner, began


def test_stream_interval_gathers_tokens(tmp_path):
    def events(interval):
        with start(tmp_path, "--stream-interval", interval) as server:
            reply = server.post("/v1/completions", {"prompt": prompt(16), "max_tokens": 41, "ignore_eos": True,
                                                    "temperature": 0, "stream": True, "skip_special_tokens": False})
            lines = [json.loads(line[6:]) for line in reply.body.decode().splitlines()
                     if line.startswith("data: {")]
            return len(lines), "".join(choice["text"] for event in lines for choice in event["choices"])

    many, text = events("1")
    few, same = events("10")
    assert text == same
    assert few <= many / 3


def test_drain_timeout_cuts_what_is_left(tmp_path):
    server = start(tmp_path, "--drain-timeout", "1", "--context-length", "8192")
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
    connection.request("POST", "/v1/completions", json.dumps(
        {"prompt": prompt(16), "max_tokens": 8000, "ignore_eos": True, "temperature": 0, "stream": True}),
        {"Content-Type": "application/json"})
    reply = connection.getresponse()
    assert reply.status == 200
    reply.readline()
    begin = time.monotonic()
    server.process.send_signal(signal.SIGTERM)
    body = reply.read().decode()
    assert server.process.wait(timeout=30) == 0
    assert 0.8 < time.monotonic() - begin < 10
    assert '"error"' in body or '"abort"' in body
    server.stop()


def test_sigterm_as_soon_as_it_is_ready_still_drains(tmp_path):
    server = start(tmp_path)
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
    connection.request("POST", "/generate", json.dumps(
        {"input_ids": prompt(16), "sampling_params": {"max_new_tokens": 200, "ignore_eos": True}}),
        {"Content-Type": "application/json"})
    time.sleep(0.002)
    server.process.send_signal(signal.SIGTERM)
    reply = connection.getresponse()
    answer = json.loads(reply.read())
    # Either it came before the drain began and is answered whole, or it was refused: never cut.
    assert (reply.status == 200 and answer["meta_info"]["completion_tokens"] == 200
            or reply.status == 503 and answer["error"]["code"] == "draining")
    assert server.process.wait(timeout=30) == 0
    server.stop()


def test_watchdog_ends_a_server_without_progress(tmp_path):
    # One step over 8,000 tokens takes longer than the watchdog allows.
    server = start(tmp_path, "--watchdog-timeout", "1", "--chunked-prefill-size", "-1")
    ids = prompt(8000)

    def ask():
        try:
            generate(server, ids, 1)
        except OSError:
            pass

    thread = threading.Thread(target=ask)
    thread.start()
    assert server.process.wait(timeout=60) == 4
    thread.join()
    server.stop()


def test_a_deterministic_request_does_not_depend_on_how_prompts_are_cut(tmp_path):
    model = GOLDEN / "models" / "deepseek-v2"
    ids = [5 + i * 7 % 200 for i in range(40)]

    def logprobs(server, chunk_first, **fields):
        if chunk_first:   # leaves a prefix in the cache
            generate(server, ids[:24], 1)
        body = {"input_ids": ids, "return_logprob": True, "sampling_params": {"temperature": 0, "max_new_tokens": 4, "ignore_eos": True}}
        reply = server.post("/generate", {**body, **fields})
        assert reply.status == 200, reply.body
        meta = reply.json()["meta_info"]
        return meta["output_token_logprobs"], meta["cached_tokens"]

    flags = ["--dtype", "float32", "--tokenizer-path", TINY, "--max-total-tokens", "4096", "--mla-prefill", "auto"]
    with Server(model, *flags, log=tmp_path / "log") as server:
        cold, none = logprobs(server, False, deterministic=True)
        assert none == 0
        cached, some = logprobs(server, True, deterministic=True)
        assert some > 0 and cached == cold
        other, shared = logprobs(server, True, deterministic=True, cache_salt="another")
        assert shared == 0 and other == cold
        reply = server.post("/generate", {"input_ids": ids, "deterministic": "yes"})
        assert reply.status == 400 and reply.error["param"] == "deterministic"
    with Server(model, *flags[:-2], log=tmp_path / "log") as server:
        assert logprobs(server, False)[0] == cold  # the result of --mla-prefill absorb, the default


def test_mla_prefill_auto_takes_other_methods(tmp_path):
    def methods(*flags):
        out = tmp_path / "dump.json"
        model = GOLDEN / "models" / "deepseek-v3"
        subprocess.run([binary(), "verify", "--model", model, "--golden", model / "golden.json", "--modes", "whole",
                        "--dump", out, *flags], check=True, capture_output=True)
        return out.read_text()

    def count(text, name):
        found = json.loads(text)["runs"][0]["attention_methods"]
        return dict(found if isinstance(found, dict) else {entry[0]: entry[1] for entry in found}).get(name, 0)

    absorbed, automatic = methods(), methods("--mla-prefill", "auto")
    assert count(absorbed, "mha_one_shot") == 0 and count(absorbed, "mla") > 0
    assert count(automatic, "mha_one_shot") > 0
