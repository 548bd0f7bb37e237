"""The Python client of the wheel: an engine in a process of its own."""

import gc
import os
import subprocess
import sys
import threading

import pytest
from sluice_server import GOLDEN, ROOT, TINY, binary

sys.path.insert(0, str(ROOT / "deploy" / "wheel"))

import sluice  # noqa: E402

QUESTION = "What is the capital of France?"


def start(model=TINY, **options):
    return sluice.Engine(model, program=binary(), dtype="float32", **options)


@pytest.fixture(scope="module")
def engine():
    with start(max_total_tokens=32768, served_model_name=["tiny", "other"]) as engine:
        yield engine


def test_generate(engine):
    one = engine.generate("The capital", max_new_tokens=8, temperature=0)
    assert one and engine.generate(["The capital", "Hello"], max_new_tokens=8, temperature=0)[0] == one
    ids = engine.tokenize("The capital")
    assert engine.generate(ids, max_new_tokens=8, temperature=0) == one and engine.detokenize(ids) == "The capital"
    pieces = list(engine.generate("The capital", stream=True, max_new_tokens=8, temperature=0))
    assert len(pieces) > 1 and "".join(pieces) == one


def test_chat(engine):
    message = engine.chat(QUESTION, temperature=0)
    assert "Paris" in message["content"] and message["role"] == "assistant"
    deltas = engine.chat([{"role": "user", "content": QUESTION}], temperature=0, stream=True, model="other")
    assert "".join(delta.get("content") or "" for delta in deltas) == message["content"]


def test_embed_and_get(engine):
    vector, other = engine.embed("a"), engine.embed(["a", "b"])
    assert vector == pytest.approx(other[0], abs=1e-5) and len(vector) == 256
    assert [model["id"] for model in engine.get("/v1/models")["data"]] == ["tiny", "other"]


def test_rerank():
    with start(GOLDEN / "embeddings" / "bert-reranker") as reranker:
        ranked = reranker.rerank("a", ["b", "c", "d"])
        assert sorted(index for index, _ in ranked) == [0, 1, 2]
        assert [score for _, score in ranked] == sorted((score for _, score in ranked), reverse=True)


def test_threads(engine):
    said = []
    ask = lambda: said.append(engine.chat(QUESTION, temperature=0)["content"])  # noqa: E731
    threads = [threading.Thread(target=ask) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(said) == 8 and len(set(said)) == 1


def test_faults(engine, tmp_path):
    with pytest.raises(sluice.EngineError) as bad:
        engine.generate("a", temperature=-1)
    assert bad.value.status == 400 and "temperature" in str(bad.value)
    with pytest.raises(sluice.EngineError) as missing:
        engine.chat(QUESTION, model="none")
    assert missing.value.status == 404 and missing.value.code
    with pytest.raises(sluice.EngineError) as stream:
        list(engine.chat(QUESTION, stream=True, temperature=-1))
    assert stream.value.status == 400
    with pytest.raises(sluice.EngineError) as unknown:
        start(no_such_option=1)
    assert "--no-such-option" in str(unknown.value) and unknown.value.status == 0
    with pytest.raises(sluice.EngineError):
        start(tmp_path / "none")
    with pytest.raises(TypeError):
        start(port=1)


def test_a_stream_that_is_dropped_ends_its_request(engine):
    pieces = engine.generate("a", stream=True, max_new_tokens=4000, ignore_eos=True)
    next(pieces)
    del pieces
    gc.collect()
    for _ in range(200):
        if engine.get("/get_server_info")["internal_states"][0]["num_running_reqs"] == 0:
            return
        threading.Event().wait(0.05)
    raise AssertionError("the request goes on")


def test_ends(tmp_path, monkeypatch):
    monkeypatch.setenv("SLUICE_ARG_PORT", "1")  # of the caller's, for a server of its own
    engine = start(max_total_tokens=4096, log=tmp_path / "log")
    process, folder = engine._process, os.path.dirname(engine.socket)
    engine.close()
    engine.close()
    assert process.returncode == 0 and not os.path.exists(folder) and "stopped" in (tmp_path / "log").read_text()
    with pytest.raises(sluice.EngineError, match="has ended"):
        engine.chat(QUESTION)
    # Neither a block nor close(): the interpreter's end is the engine's.
    script = ("import sluice, sys\n"
              "engine = sluice.Engine(sys.argv[1], program=sys.argv[2], log=sys.argv[3], max_total_tokens=4096)\n"
              "print(engine._process.pid)\n")
    words = [sys.executable, "-c", script, str(TINY), binary(), str(tmp_path / "log2")]
    done = subprocess.run(words, capture_output=True, text=True, timeout=120,
                          env={**os.environ, "PYTHONPATH": str(ROOT / "deploy" / "wheel")})
    assert done.returncode == 0, done.stderr
    assert not os.path.exists(f"/proc/{done.stdout.strip()}") and "stopped" in (tmp_path / "log2").read_text()
