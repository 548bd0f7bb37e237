"""Vectors over HTTP: against sentence-transformers, in company of other work, and with bad input."""

import base64
import concurrent.futures
import json
import math
import socket
import struct
import time

import pytest
from sluice_server import GOLDEN, Server, sluice

DECODERS = ["qwen3-last", "llama-mean", "qwen2-weighted", "qwen3-dense"]
TEXTS = ["The cat sat on the mat.", "Paris is the capital of France.", "x", "hydrogen helium lithium " * 40]


def numbers(text):
    data = base64.b64decode(text)
    return list(struct.unpack(f"<{len(data) // 4}f", data))


def cosine(a, b):
    assert len(a) == len(b)
    return sum(x * y for x, y in zip(a, b)) / math.sqrt(sum(x * x for x in a) * sum(y * y for y in b))


def golden(name):
    record = json.loads((GOLDEN / "embeddings" / name / "embeddings.json").read_text())
    width = record.get("dimension", 0)

    def rows(text):
        flat = numbers(text)
        return [flat[i:i + width] for i in range(0, len(flat), width)]

    if width:
        record["vectors"] = rows(record["vectors"])
        record["prompts"] = {name: rows(text) for name, text in record["prompts"].items()}
    return record


def embed(server, texts, **more):
    reply = server.post("/v1/embeddings", {"input": texts, **more})
    assert reply.status == 200, reply.body
    data = reply.json()["data"]
    assert [one["index"] for one in data] == list(range(len(data)))
    return [one["embedding"] for one in data]


def assert_near(vectors, wanted):
    """float32 on both sides: cosine as promised, and numbers within the rounding of three layers."""
    assert len(vectors) == len(wanted)
    for mine, theirs in zip(vectors, wanted):
        assert cosine(mine, theirs) >= 0.9999
        size = max(map(abs, theirs))
        assert max(abs(x - y) for x, y in zip(mine, theirs)) <= 1e-4 * size


@pytest.mark.parametrize("name", DECODERS)
def test_as_sentence_transformers(name, tmp_path):
    record = golden(name)
    # The reference's texts without tokens have no vector here.
    kept = [i for i, ids in enumerate(record["ids"]) if ids]
    texts = [record["texts"][i] for i in kept]
    with Server(GOLDEN / "embeddings" / name, "--dtype", "float32", log=tmp_path / "log") as server:
        assert_near(embed(server, texts), [record["vectors"][i] for i in kept])
        for prompt, wanted in record["prompts"].items():
            assert_near(embed(server, texts, prompt_name=prompt), [wanted[i] for i in kept])
        # Token ids have no prompt: they are what the model sees.
        if name == "qwen3-last":
            ids = [record["ids"][i] for i in kept]
            assert embed(server, ids) == embed(server, texts)
            assert embed(server, ids[0]) == embed(server, texts[0])
        # Chunks of one token change no bit.
        whole = embed(server, texts)
    with Server(GOLDEN / "embeddings" / name, "--dtype", "float32", "--chunked-prefill-size", "7",
                log=tmp_path / "log2") as server:
        assert embed(server, texts) == whole


def test_shapes(tiny):
    whole = tiny.post("/v1/embeddings", {"input": TEXTS[0], "model": "tiny", "user": "me"})
    body = whole.json()
    assert whole.status == 200 and body["object"] == "list" and body["model"] == "tiny"
    assert body["data"][0]["object"] == "embedding"
    assert body["usage"]["prompt_tokens"] == body["usage"]["total_tokens"] > 0
    assert whole.headers["X-Ignored-Fields"] == "user"
    vector = body["data"][0]["embedding"]
    assert abs(sum(x * x for x in vector) - 1) < 1e-5  # a decoder without files: last token, normalised
    text = tiny.post("/v1/embeddings", {"input": TEXTS[0], "encoding_format": "base64"}).json()["data"][0]["embedding"]
    assert numbers(text) == [struct.unpack("<f", struct.pack("<f", x))[0] for x in vector]
    half = embed(tiny, TEXTS[0], dimensions=len(vector) // 2)[0]
    assert len(half) == len(vector) // 2 and abs(sum(x * x for x in half) - 1) < 1e-5
    assert cosine(half, vector[: len(half)]) > 0.999999
    raw = embed(tiny, TEXTS[0], normalize=False)[0]
    assert cosine(raw, vector) > 0.999999 and abs(sum(x * x for x in raw) - 1) > 1e-3
    pooled = tiny.post("/pooling", {"input": TEXTS[0], "model": "tiny"}).json()
    assert pooled["data"][0] == {"index": 0, "object": "pooling", "data": vector}
    states = tiny.post("/pooling", {"input": TEXTS[0], "task": "token_embed"}).json()["data"][0]["data"]
    assert len(states) == body["usage"]["prompt_tokens"] and states[-1] == raw
    models = tiny.get("/v1/models").json()["data"][0]
    assert {"completion", "embedding"} <= set(models["capabilities"])


def test_ollama(tiny):
    vectors = embed(tiny, TEXTS[:2])
    reply = tiny.post("/api/embed", {"model": "tiny", "input": TEXTS[:2], "keep_alive": "5m"}).json()
    assert reply["embeddings"] == vectors and reply["model"] == "tiny" and reply["prompt_eval_count"] > 0
    assert tiny.post("/api/embeddings", {"model": "tiny:latest", "prompt": TEXTS[0]}).json() == {"embedding": vectors[0]}
    assert tiny.post("/api/embed", {"model": "tiny"}).json()["embeddings"] == []
    refused = tiny.post("/api/embed", {"model": "tiny", "input": [1, 2]})
    assert refused.status == 400 and isinstance(refused.json()["error"], str)


def test_bits_do_not_depend_on_company(tiny):
    """The same bits alone, among others, from the cache, and beside generation."""
    alone = [embed(tiny, text)[0] for text in TEXTS]
    assert embed(tiny, TEXTS) == alone
    assert embed(tiny, TEXTS[::-1]) == alone[::-1]
    cached = tiny.post("/v1/embeddings", {"input": TEXTS[3]}).json()["usage"]["prompt_tokens_details"]
    assert cached["cached_tokens"] > 0
    ask = {"prompt": "Once upon a time", "max_tokens": 60, "temperature": 0, "ignore_eos": True}
    answer = tiny.post("/v1/completions", ask).json()["choices"][0]["text"]
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        answers = [pool.submit(tiny.post, "/v1/completions", ask) for _ in range(4)]
        vectors = [pool.submit(embed, tiny, TEXTS) for _ in range(6)]
        assert all(one.result() == alone for one in vectors)
        assert all(one.result().json()["choices"][0]["text"] == answer for one in answers)


def test_many_texts(tiny):
    """More than the queue may hold of one list; the order is kept."""
    texts = [f"number {i}" for i in range(600)]
    vectors = embed(tiny, texts, encoding_format="base64")
    assert len(set(vectors)) == 600
    assert vectors[577] == embed(tiny, "number 577", encoding_format="base64")[0]
    tiny.wait_until_idle()
    refused = tiny.post("/v1/embeddings", {"input": ["a"] * 2049})
    assert refused.status == 400 and "2049" in refused.error["message"] and "2048" in refused.error["message"]


def test_client_leaves(tiny):
    """What is in the engine ends with the client."""
    body = json.dumps({"input": [f"text {i} " * 200 for i in range(400)]}).encode()
    head = f"POST /v1/embeddings HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    with socket.create_connection(("127.0.0.1", tiny.port)) as s:
        s.sendall(head.encode() + body)
        end = time.monotonic() + 20
        while tiny.state()["num_running_reqs"] == 0 and time.monotonic() < end:
            time.sleep(0.01)
    start = time.monotonic()
    tiny.wait_until_idle()
    assert time.monotonic() - start < 10


@pytest.mark.parametrize("body,param,words", [
    ({}, "input", ["required"]),
    ({"input": []}, "input", ["empty"]),
    ({"input": [[]]}, "input.0", ["no tokens"]),
    ({"input": ["a", 3]}, "input.1", []),
    ({"input": ["a", [3]]}, None, None),
    ({"input": 3}, "input", []),
    ({"input": {"a": 1}}, "input", []),
    ({"input": [1, -1]}, "input", ["-1"]),
    ({"input": [10**9]}, "input", ["1000000000"]),
    ({"input": "a", "dimensions": 0}, "dimensions", ["0"]),
    ({"input": "a", "dimensions": 10**6}, "dimensions", ["1000000"]),
    ({"input": "a", "dimensions": 1.5}, "dimensions", []),
    ({"input": "a", "encoding_format": "hex"}, "encoding_format", ["base64"]),
    ({"input": "a", "prompt_name": "query"}, "prompt_name", ["none"]),
    ({"input": "a", "truncate_prompt_tokens": 0}, "truncate_prompt_tokens", []),
    ({"input": "a", "truncate_prompt_tokens": 10**7}, "truncate_prompt_tokens", ["10000000"]),
    ({"messages": [{"role": "user", "content": "a"}]}, "messages", ["input"]),
    ({"input": "a", "input_type": "query"}, "input_type", ["prompt_name"]),
    ({"input": "a", "normalize": "yes"}, "normalize", []),
    ({"input": "a", "task": "classify"}, "task", ["embed"]),
])
def test_bad_input(tiny, body, param, words):
    reply = tiny.post("/v1/embeddings", body)
    if words is None:
        assert reply.status == 200
        return
    assert reply.status == 400, reply.body
    assert reply.error["param"] == param
    for word in words:
        assert word in reply.error["message"], reply.error


def test_wrong_model(tiny):
    assert tiny.post("/v1/embeddings", {"input": "a", "model": "other"}).status == 404


def test_long_and_empty_texts(tmp_path):
    folder = GOLDEN / "embeddings" / "qwen3-last"
    with Server(folder, "--dtype", "float32", log=tmp_path / "log") as server:
        long = "word " * 400
        refused = server.post("/v1/embeddings", {"input": ["a", long]})
        assert refused.status == 400 and refused.error["code"] == "context_length_exceeded"
        assert refused.error["param"] == "input.1" and "128" in refused.error["message"]
        cut = server.post("/v1/embeddings", {"input": long, "truncate_prompt_tokens": -1})
        assert cut.status == 200 and cut.json()["usage"]["prompt_tokens"] == 128
        assert int(cut.headers["X-Truncated-Tokens"]) > 0
        fewer = server.post("/v1/embeddings", {"input": long, "truncate_prompt_tokens": 20}).json()
        assert fewer["usage"]["prompt_tokens"] == 20
        # The token that ends every text stays, so the cut text is a text of its own.
        ids = server.post("/tokenize", {"prompt": long}).json()["tokens"][:19] + [0]
        assert embed(server, ids)[0] == fewer["data"][0]["embedding"]
        refused = server.post("/api/embed", {"model": "qwen3-last", "input": long})
        assert refused.status == 400 and "128" in refused.json()["error"]
        assert server.post("/api/embed", {"model": "qwen3-last", "input": long, "truncate": True}).status == 200
        # An empty text is its end token here.
        assert embed(server, "") == embed(server, [0])
        assert embed(server, ["", "<|endoftext|>"])[1] == embed(server, [0, 0])[0]
        bare = server.post("/v1/embeddings", {"input": "", "add_special_tokens": False})
        assert bare.status == 400 and bare.error["code"] == "empty_prompt"


def test_runners(tmp_path):
    folder = GOLDEN / "embeddings" / "llama-mean"
    ask = {"prompt": "a", "max_tokens": 1}
    with Server(folder, "--is-embedding", "--dtype", "float32", log=tmp_path / "log") as server:
        reply = server.post("/v1/completions", ask)
        assert reply.status == 400 and reply.error["code"] == "unsupported_task"
        assert "error" in server.post("/api/chat", {"model": "llama-mean", "messages": []}).json()
        assert server.get("/get_model_info").json()["is_generation"] is False
        assert server.get("/v1/models").json()["data"][0]["capabilities"] == ["embedding"]
        assert len(embed(server, "a")[0]) == 48
    with Server(folder, "--runner", "generate", log=tmp_path / "log2") as server:
        reply = server.post("/v1/embeddings", {"input": "a"})
        assert reply.status == 400 and "--runner generate" in reply.error["message"]


def test_pooling_option_and_broken_files(tmp_path):
    import shutil

    folder = GOLDEN / "embeddings" / "llama-mean"
    with Server(folder, "--pooling", "last", "--dtype", "float32", log=tmp_path / "log") as server:
        states = server.post("/pooling", {"input": [5, 6, 7], "task": "token_embed"}).json()["data"][0]["data"]
        assert embed(server, [5, 6, 7], normalize=False)[0] == states[-1]
    broken = tmp_path / "broken"
    shutil.copytree(folder, broken)
    (broken / "1_Pooling" / "config.json").write_text('{"pooling_mode": "magic"}')
    with Server(broken, "--dtype", "float32", log=tmp_path / "log2") as server:
        reply = server.post("/v1/embeddings", {"input": "a"})
        assert reply.status == 400 and "magic" in reply.error["message"]
        assert server.post("/v1/completions", {"prompt": "a", "max_tokens": 1}).status == 200
    ended = sluice("serve", "--model", broken, "--runner", "pooling")
    assert ended.returncode == 2 and "magic" in ended.stderr
