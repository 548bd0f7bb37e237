"""Metrics with a rival's name have the rival's meaning: arithmetic on known loads, over HTTP.

Definitions are those of vLLM 0.33 (v1/metrics/stats.py, loggers.py) and SGLang 0.5.23 (observability/
metrics_collector.py, managers/tokenizer_manager.py). Both run each choice of `n`, and each prompt of a batch, as a
request of its own.
"""

import collections
import http.client
import json
import re
import threading
import time

import pytest

from sluice_server import TINY, Server

LINE = re.compile(r"^([a-zA-Z_:][\w:]*)(?:\{(.*)\})? ([^ ]+)$")
CHAT = {"messages": [{"role": "user", "content": "What is the capital of France?"}], "temperature": 0}


def scrape(server):
    """{name: value} summed over model labels; the labels that divide a figure are part of the name."""
    values = collections.Counter()
    for line in server.get("/metrics").body.decode().splitlines():
        match = LINE.match(line)
        if not match:
            continue
        name, labels, value = match.groups()
        kept = [pair for pair in re.findall(r'(\w+)="([^"]*)"', labels or "")
                if pair[0] in ("finished_reason", "source", "le", "reason", "status", "handler", "method")]
        key = name + "".join(f"[{text}]" for label, text in kept)
        values[key] += float(value)
    return values


class Load:
    """What the counters did while the block ran."""

    def __init__(self, server):
        self.server = server

    def __enter__(self):
        self.server.wait_until_idle()
        self.before = scrape(self.server)
        return self

    def __exit__(self, *exc):
        self.server.wait_until_idle()
        self.after = scrape(self.server)
        self.more = self.after - collections.Counter()
        self.more.subtract(self.before)

    def __getitem__(self, name):
        assert name in self.after, name
        return self.more[name]


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    log = tmp_path_factory.mktemp("metrics") / "server.log"
    with Server(TINY, "--dtype", "float32", "--served-model-name", "tiny", "--chunked-prefill-size", "64",
                "--max-total-tokens", "16384", "--threads", "1", log=log) as running:
        yield running


def check(load, *, prompts, prompt, generated, cached=None, choices=None, longest=None, reasons=None, n=None):
    """`choices` requests of the rivals with `prompt` prompt and `generated` tokens in all, from `prompts` prompts."""
    choices = choices or prompts
    for name in ("vllm:e2e_request_latency_seconds", "vllm:time_to_first_token_seconds", "vllm:request_prompt_tokens",
                 "vllm:request_generation_tokens", "vllm:request_queue_time_seconds", "vllm:request_prefill_time_seconds",
                 "vllm:request_decode_time_seconds", "vllm:request_inference_time_seconds",
                 "vllm:request_time_per_output_token_seconds", "vllm:request_prefill_kv_computed_tokens",
                 "vllm:request_params_max_tokens", "sglang:e2e_request_latency_seconds",
                 "sglang:time_to_first_token_seconds", "sglang:queue_time_seconds", "sglang:prompt_tokens_histogram",
                 "sglang:generation_tokens_histogram"):
        assert load[name + "_count"] == choices, name
        assert load[name + "_bucket[+Inf]"] == choices, name
    for name in ("vllm:prompt_tokens_total", "vllm:request_prompt_tokens_sum", "sglang:prompt_tokens_total",
                 "sglang:prompt_tokens_histogram_sum", "vllm:prefix_cache_queries_total"):
        assert load[name] == prompt, name
    for name in ("vllm:generation_tokens_total", "vllm:request_generation_tokens_sum", "sglang:generation_tokens_total",
                 "sglang:generation_tokens_histogram_sum"):
        assert load[name] == generated, name
    for name in ("vllm:inter_token_latency_seconds_count", "sglang:inter_token_latency_seconds_count"):
        assert load[name] == generated - choices, name
    assert load["vllm:request_params_n_count"] == load["vllm:request_max_num_generation_tokens_count"] == prompts
    assert load["vllm:request_params_n_sum"] == (n or choices)
    if longest is not None:
        assert load["vllm:request_max_num_generation_tokens_sum"] == longest
    assert load["sglang:num_requests_total"] == choices
    seen = {reason: load[f"vllm:request_success_total[{reason}]"] for reason in ("stop", "length", "abort", "error")}
    assert sum(seen.values()) == choices
    if reasons:
        assert {reason: count for reason, count in seen.items() if count} == reasons
    # Tokens that were not computed, under their four names.
    reused = load["vllm:prompt_tokens_cached_total"]
    if cached is not None:
        assert reused == cached
    assert load["vllm:prefix_cache_hits_total"] == load["sglang:cached_tokens_total"] == reused
    assert load["vllm:prompt_tokens_by_source_total[local_cache_hit]"] == reused
    assert load["vllm:prompt_tokens_by_source_total[local_compute]"] == prompt - reused
    assert load["vllm:request_prefill_kv_computed_tokens_sum"] == prompt - reused
    # Times: a choice's tokens follow its first one, which follows the queue.
    first, total = load["vllm:time_to_first_token_seconds_sum"], load["vllm:e2e_request_latency_seconds_sum"]
    gaps, decode = load["vllm:inter_token_latency_seconds_sum"], load["vllm:request_decode_time_seconds_sum"]
    prefill, inference = load["vllm:request_prefill_time_seconds_sum"], load["vllm:request_inference_time_seconds_sum"]
    queue = load["vllm:request_queue_time_seconds_sum"]
    assert 0 < first <= total
    assert gaps == pytest.approx(decode, abs=2e-3 * choices)
    assert first + decode <= total + 1e-6 * choices
    assert prefill + decode == pytest.approx(inference, abs=1e-3 * choices)
    assert queue + inference <= total + 1e-3 * choices
    for rival in ("time_to_first_token_seconds_sum", "e2e_request_latency_seconds_sum", "inter_token_latency_seconds_sum"):
        assert load["sglang:" + rival] == pytest.approx(load["vllm:" + rival], rel=1e-6)
    for name in ("vllm:num_requests_running", "vllm:num_requests_waiting", "sglang:num_running_reqs",
                 "sglang:num_queue_reqs", "vllm:kv_cache_usage_perc", "sglang:num_used_tokens", "sglang:kv_used_tokens",
                 "vllm:num_requests_waiting_by_reason[capacity]", "vllm:num_requests_waiting_by_reason[deferred]"):
        assert load.after[name] == 0, name


def usage_of(reply):
    assert reply.status == 200, reply.body
    usage = reply.json()["usage"]
    return usage["prompt_tokens"], usage["completion_tokens"], usage["prompt_tokens_details"]["cached_tokens"]


def fresh(text):
    """A prompt whose first token no other test has cached."""
    fresh.count += 1
    return f"{fresh.count} {text}"


fresh.count = 0


def test_one_request_and_the_same_again(server):
    ask = {**CHAT, "messages": [{"role": "user", "content": fresh("What is the capital of France? " * 8)}],
           "max_tokens": 8, "ignore_eos": True, "cache_salt": "one"}
    with Load(server) as load:
        prompt, generated, cached = usage_of(server.post("/v1/chat/completions", ask))
    assert (generated, cached) == (8, 0)
    check(load, prompts=1, prompt=prompt, generated=8, cached=0, longest=8, reasons={"length": 1})
    assert load["vllm:request_params_max_tokens_sum"] == 8
    with Load(server) as load:
        again, generated, cached = usage_of(server.post("/v1/chat/completions", ask))
    assert again == prompt and cached > 0
    # Found tokens are prompt tokens, too.
    check(load, prompts=1, prompt=prompt, generated=8, cached=cached, longest=8, reasons={"length": 1})


def test_choices_are_requests(server):
    ask = {**CHAT, "messages": [{"role": "user", "content": fresh("Tell me a story.")}], "n": 3, "max_tokens": 6,
           "temperature": 1, "ignore_eos": True}
    with Load(server) as load:
        prompt, generated, cached = usage_of(server.post("/v1/chat/completions", ask))
    assert (generated, cached) == (18, 0)
    # Choices behind the first share all but the prompt's last token.
    check(load, prompts=1, prompt=3 * prompt, generated=18, cached=2 * (prompt - 1), choices=3, longest=6,
          reasons={"length": 3})


def test_prompts_of_a_batch_are_requests(server):
    ask = {"prompt": [fresh("one"), fresh("two and more"), fresh("three")], "n": 2, "max_tokens": 5, "temperature": 1,
           "ignore_eos": True, "stream": False}
    with Load(server) as load:
        prompt, generated, cached = usage_of(server.post("/v1/completions", ask))
    assert generated == 30
    check(load, prompts=3, prompt=2 * prompt, generated=30, choices=6, longest=15, reasons={"length": 6}, n=6)


def test_chunks_count_once(server):
    ids = [5 + i % 300 for i in range(700)]
    with Load(server) as load:
        prompt, generated, cached = usage_of(server.post(
            "/v1/completions", {"prompt": ids, "max_tokens": 4, "ignore_eos": True, "cache_salt": "chunks"}))
    assert (prompt, generated, cached) == (700, 4, 0)
    check(load, prompts=1, prompt=700, generated=4, cached=0, reasons={"length": 1})
    # Eleven chunks of at most 64; the last brings the first token, three steps follow.
    assert load["vllm:iteration_tokens_total_count"] == 14
    assert load["vllm:iteration_tokens_total_sum"] == 704


def test_an_end_is_told_by_its_reason(server):
    asks = [{**CHAT, "max_tokens": 40}, {**CHAT, "max_tokens": 40, "stop": ["is"]},
            {**CHAT, "max_tokens": 1}]
    reasons = collections.Counter()
    prompt = generated = 0
    with Load(server) as load:
        for ask in asks:
            reply = server.post("/v1/chat/completions", ask)
            reasons[reply.json()["choices"][0]["finish_reason"]] += 1
            used = usage_of(reply)
            prompt, generated = prompt + used[0], generated + used[1]
    assert set(reasons) == {"stop", "length"}
    check(load, prompts=3, prompt=prompt, generated=generated, reasons=dict(reasons))
    assert load["sglang:num_aborted_requests_total"] == 0


def leave(server, ask, after):
    """Streams `ask` and goes after `after` events."""
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
    connection.request("POST", "/v1/completions", json.dumps(ask), {"Content-Type": "application/json"})
    reply = connection.getresponse()
    for _ in range(after):
        reply.readline(), reply.readline()
    connection.close()


def test_aborts_are_counted_once_a_request(server):
    ask = {"prompt": fresh("go on"), "max_tokens": 4000, "ignore_eos": True, "stream": True}
    with Load(server) as load:
        leave(server, ask, 3)
        leave(server, {**ask, "n": 3}, 5)
    assert load["vllm:request_success_total[abort]"] == 4
    assert load["sglang:num_requests_total"] == load["vllm:e2e_request_latency_seconds_count"] == 4
    assert load["sglang:num_aborted_requests_total"] == 4
    assert load["vllm:request_success_total[stop]"] == load["vllm:request_success_total[length]"] == 0
    assert load["vllm:request_params_n_count"] == 2 and load["vllm:request_params_n_sum"] == 4
    assert load["http_requests_total[/v1/completions][POST][4xx]"] == 2
    assert load["sluice:http_requests_total[/v1/completions][POST][499]"] == 2

    with Load(server) as load:
        thread = threading.Thread(target=server.post, args=("/generate", {
            "text": "abc", "rid": "mine", "sampling_params": {"max_new_tokens": 4000, "ignore_eos": True}}))
        thread.start()
        while server.post("/abort_request", {"rid": "mine"}).json()["aborted"] == 0:
            time.sleep(0.01)
        thread.join()
    assert load["sglang:num_aborted_requests_total"] == 1
    assert load["vllm:request_success_total[abort]"] == 1
    assert load["sglang:num_requests_total"] == 1


def test_refused_requests_are_no_requests_of_the_engine(server):
    with Load(server) as load:
        assert server.post("/v1/completions", {"prompt": "a", "temperature": -1}).status == 400
        assert server.post("/v1/completions", {"prompt": "a" * 10**6}).status == 400
        assert server.get("/nothing").status == 404
    assert load["sglang:num_requests_total"] == load["vllm:request_params_n_count"] == 0
    assert load["vllm:prompt_tokens_total"] == 0
    assert load["http_requests_total[/v1/completions][POST][4xx]"] == 2
    assert load["sluice:http_requests_total[other][GET][404]"] == 1


def test_retractions_do_not_count_a_prompt_twice(tmp_path):
    with Server(TINY, "--threads", "1", "--dtype", "float32", "--max-total-tokens", "512", "--context-length", "512",
                "--allow-longer", "--schedule-conservativeness", "0.01", log=tmp_path / "log") as server:
        asks = [{"prompt": f"{i} begin", "max_tokens": 250, "ignore_eos": True, "temperature": 0} for i in range(8)]
        usages, threads = [], []
        with Load(server) as load:
            for ask in asks:
                threads.append(threading.Thread(target=lambda ask=ask: usages.append(
                    usage_of(server.post("/v1/completions", ask)))))
                threads[-1].start()
            for thread in threads:
                thread.join()
        assert load["vllm:num_preemptions_total"] > 0
        assert load["vllm:num_preemptions_total"] == load["sglang:num_retracted_requests_total"]
        assert load["vllm:request_num_preemptions_sum"] == load["vllm:num_preemptions_total"]
        assert load["vllm:request_num_preemptions_count"] == sum(
            load[f"vllm:request_success_total[{reason}]"] for reason in ("stop", "length", "abort", "error"))
        assert 0 < load.after["sglang:new_token_ratio"] <= 1
        assert load.after["sglang:is_cuda_graph"] == 0
        check(load, prompts=8, prompt=sum(u[0] for u in usages), generated=2000, reasons={"length": 8})


def test_running_and_waiting_are_seen(tmp_path):
    with Server(TINY, "--threads", "1", "--max-running-requests", "2", log=tmp_path / "log") as server:
        ask = {"prompt": "a", "max_tokens": 400, "ignore_eos": True}
        threads = [threading.Thread(target=server.post, args=("/v1/completions", ask)) for _ in range(5)]
        for thread in threads:
            thread.start()
        deadline, seen = time.monotonic() + 30, set()
        while (2.0, 3.0) not in seen and time.monotonic() < deadline:
            now = scrape(server)
            assert now["vllm:num_requests_running"] == now["sglang:num_running_reqs"]
            assert now["vllm:num_requests_waiting"] == now["sglang:num_queue_reqs"]
            assert now["vllm:num_requests_waiting"] == now["vllm:num_requests_waiting_by_reason[capacity]"]
            assert now["sglang:kv_used_tokens"] + now["sglang:kv_evictable_tokens"] + now["sglang:kv_available_tokens"] == (
                now["sglang:max_total_num_tokens"])
            seen.add((now["vllm:num_requests_running"], now["vllm:num_requests_waiting"]))
        assert (2.0, 3.0) in seen
        for thread in threads:
            thread.join()


@pytest.mark.parametrize("compat,named,absent", [("vllm", "vllm:", "sglang:"), ("sglang", "sglang:", "vllm:"),
                                                 ("none", "sluice:", "vllm:")])
def test_names_of_one_rival_alone(tmp_path, compat, named, absent):
    with Server(TINY, "--metrics-compat", compat, log=tmp_path / "log") as server:
        usage_of(server.post("/v1/chat/completions", {**CHAT, "max_tokens": 2}))
        text = server.get("/metrics").body.decode()
        assert named in text and absent not in text
