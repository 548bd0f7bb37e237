"""llmperf, whose package cannot be installed: its documented requests, read as its client reads the answers."""

import concurrent.futures
import http.client
import json
import time


def llmperf_request(server, prompt, max_tokens):
    """One streamed chat request. llmperf reads lines, strips `data: `, and takes `choices[0].delta` of every event."""
    body = {"model": "tiny", "messages": [{"role": "system", "content": ""}, {"role": "user", "content": prompt}], "stream": True,
            "max_tokens": max_tokens}
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=120)
    connection.request("POST", "/v1/chat/completions", json.dumps(body), {"Authorization": "Bearer secret", "Content-Type": "application/json"})
    start = last = time.monotonic()
    response = connection.getresponse()
    assert response.status == 200
    text, times = "", []
    for line in response:
        line = line.strip()
        if not line:
            continue
        event = line[len(b"data: "):]
        if event == b"[DONE]":
            continue
        data = json.loads(event)
        assert "error" not in data
        delta = data["choices"][0]["delta"]
        if delta.get("content"):
            now = time.monotonic()
            times.append(now - (last if times else start))
            last, text = now, text + delta["content"]
    connection.close()
    return text, times


def test_token_benchmark(tiny):
    """token_benchmark_ray.py: requests of some prompt lengths, two at a time; each has a time to the first token."""
    prompts = [f"What is the capital of {land}?" for land in ("France", "Norway", "Poland", "Spain", "Germany", "Finland")]
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        answers = list(pool.map(lambda prompt: llmperf_request(tiny, prompt, 64), prompts))
    assert sum("capital of" in text for text, _ in answers) == 6
    assert all(times and min(times) >= 0 for _, times in answers)


def test_correctness(tiny):
    """llm_correctness.py: a number in words, which the answer must hold in figures. Here only the protocol counts."""
    text, times = llmperf_request(tiny, "Convert the following sequence of words into a number: two hundred and five. Output just your "
                                        "final answer.", 32)
    assert isinstance(text, str) and len(times) <= 32
