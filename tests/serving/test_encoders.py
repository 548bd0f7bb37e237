"""Encoders over HTTP: vectors and scores against sentence-transformers, batches, bad input."""

import concurrent.futures
import json
import math
import shutil
import socket
import time

import pytest
from sluice_server import GOLDEN, Server, sluice
from test_embeddings import assert_near, cosine, embed, golden

FOLDER = GOLDEN / "embeddings"
EMBEDDERS = ["bert-mean", "bert-cls", "bert-max", "roberta-mean", "xlmr-cls", "modernbert-mean", "bert-dense",
             "bert-dense-gelu", "eurobert-mean", "nomic-mean", "nomic-cls", "gemma3-dense", "roberta-lower"]
RERANKERS = ["bert-reranker", "bert-types", "xlmr-reranker", "modernbert-reranker", "eurobert-reranker"]


@pytest.fixture(scope="module")
def bert(tmp_path_factory):
    log = tmp_path_factory.mktemp("bert") / "log"
    with Server(FOLDER / "bert-mean", "--dtype", "float32", log=log) as server:
        yield server


@pytest.fixture(scope="module")
def reranker(tmp_path_factory):
    log = tmp_path_factory.mktemp("reranker") / "log"
    with Server(FOLDER / "bert-reranker", "--dtype", "float32", log=log) as server:
        yield server


@pytest.mark.parametrize("name", EMBEDDERS)
def test_as_sentence_transformers(name, tmp_path):
    record = golden(name)
    with Server(FOLDER / name, "--dtype", "float32", log=tmp_path / "log") as server:
        for text, ids in zip(record["texts"], record["ids"]):
            assert server.post("/tokenize", {"prompt": text}).json()["tokens"] == ids
        assert_near(embed(server, record["texts"]), record["vectors"])
        for prompt, wanted in record["prompts"].items():
            assert_near(embed(server, record["texts"], prompt_name=prompt), wanted)


@pytest.mark.parametrize("name", ["bert-mean", "modernbert-mean"])
def test_bfloat16(name, tmp_path):
    """bfloat16 rounds the inputs of 18 products by 2^-9 each."""
    record = golden(name)
    with Server(FOLDER / name, "--dtype", "bfloat16", log=tmp_path / "log") as server:
        for mine, theirs in zip(embed(server, record["texts"]), record["vectors"]):
            assert cosine(mine, theirs) > 0.998


@pytest.mark.parametrize("name", RERANKERS)
def test_scores_as_cross_encoder(name, tmp_path):
    record = golden(name)
    with Server(FOLDER / name, "--dtype", "float32", log=tmp_path / "log") as server:
        by_query = {}
        for (query, document), score in zip(record["pairs"], record["scores"]):
            by_query.setdefault(query, []).append((document, score))
        for query, answers in by_query.items():
            documents = [document for document, _ in answers]
            scored = server.post("/v1/score", {"text_1": query, "text_2": documents}).json()["data"]
            for one, (_, wanted) in zip(scored, answers):
                assert abs(one["score"] - wanted) < 2e-5
            ranked = server.post("/v1/rerank", {"query": query, "documents": documents}).json()["results"]
            order = sorted(range(len(documents)), key=lambda i: -answers[i][1])
            assert [one["index"] for one in ranked] == order
            assert all(one["document"]["text"] == documents[one["index"]] for one in ranked)
        raw = server.post("/score", {"text_1": [a for a, _ in record["pairs"]],
                                     "text_2": [b for _, b in record["pairs"]], "use_activation": False}).json()
        assert all(abs(one["score"] - wanted) < 1e-4 for one, wanted in zip(raw["data"], record["raw_scores"]))
        assert raw["usage"]["prompt_tokens"] == record["num_tokens"]
        named = server.post("/v1/rerank", {"query": "a", "documents": [{"text": "b", "language": "en"}]})
        assert named.headers["X-Ignored-Fields"] == "documents.language"


def test_scores_by_two_tokens(tmp_path):
    """A decoder that answers yes or no behind its own template."""
    record = golden("qwen3-reranker")
    with Server(FOLDER / "qwen3-reranker", "--dtype", "float32", log=tmp_path / "log") as server:
        ask = {"text_1": [a for a, _ in record["pairs"]], "text_2": [b for _, b in record["pairs"]]}
        scores = server.post("/score", ask).json()["data"]
        raw = server.post("/score", {**ask, "use_activation": False}).json()["data"]
        for one, other, wanted, odds in zip(scores, raw, record["scores"], record["raw_scores"]):
            assert abs(other["score"] - odds) < 1e-3 and abs(one["score"] - wanted) < 1e-4
        assert server.post("/v1/completions", {"prompt": "a", "max_tokens": 1}).status == 200
        refused = server.post("/v1/embeddings", {"input": "a"})
        assert refused.status == 400 and "rerank" in refused.error["message"]
        long = server.post("/rerank", {"query": "a", "documents": ["word " * 400]})
        assert long.status == 400 and "256" in long.error["message"] or "255" in long.error["message"]


@pytest.mark.parametrize("name", ["bert-classifier", "eurobert-classifier"])
def test_classify(name, tmp_path):
    record = golden(name)
    with Server(FOLDER / name, "--dtype", "float32", log=tmp_path / "log") as server:
        data = server.post("/classify", {"input": record["texts"]}).json()["data"]
        for one, logits in zip(data, record["logits"]):
            total = sum(map(math.exp, logits))
            assert one["num_classes"] == 3 and one["label"] == f"LABEL_{logits.index(max(logits))}"
            assert all(abs(p - math.exp(x) / total) < 1e-5 for p, x in zip(one["probs"], logits))
        refused = server.post("/rerank", {"query": "a", "documents": ["b"]})
        assert refused.status == 400 and "3 labels" in refused.error["message"]
        refused = server.post("/v1/embeddings", {"input": "a"})
        assert refused.status == 400 and refused.error["code"] == "unsupported_task"


def test_dense_modules(tmp_path):
    """Vectors have the last module's width, states of tokens have the model's."""
    with Server(FOLDER / "bert-dense", "--dtype", "float32", log=tmp_path / "log") as server:
        texts = [f"text number {i} " * (i % 7) for i in range(40)]
        together = embed(server, texts)
        assert {len(vector) for vector in together} == {40}
        assert [embed(server, text)[0] for text in texts[:20]] == together[:20]
        assert all(abs(math.hypot(*vector) - 1) < 1e-5 for vector in embed(server, texts[1], dimensions=8))
        states = server.post("/pooling", {"input": "a b", "task": "token_embed"}).json()["data"][0]["data"]
        assert {len(state) for state in states} == {48}
        refused = server.post("/v1/embeddings", {"input": "a", "dimensions": 48})
        assert refused.status == 400 and "40" in refused.error["message"]
        scores = server.post("/score", {"text_1": texts[1], "text_2": texts[2:5]}).json()["data"]
        assert all(abs(one["score"] - cosine(together[1], vector)) < 1e-6 for one, vector in zip(scores, together[2:5]))


def change(path, **keys):
    path.write_text(json.dumps({**json.loads(path.read_text()), **keys}))


@pytest.mark.parametrize("damage,word", [
    (lambda folder: change(folder / "2_Dense/config.json", in_features=47), "in_features"),
    (lambda folder: change(folder / "2_Dense/config.json", out_features=41), "linear.weight"),
    (lambda folder: change(folder / "2_Dense/config.json", out_features="many"), "out_features"),
    (lambda folder: change(folder / "2_Dense/config.json", activation_function="os.system"), "os.system"),
    (lambda folder: change(folder / "2_Dense/config.json", activation_function="torch.nn.Softmin"), "Softmin"),
    (lambda folder: change(folder / "2_Dense/config.json", module_input_name="token_embeddings"), "token_embeddings"),
    (lambda folder: change(folder / "2_Dense/config.json", use_residual=True), "residual.weight"),
    (lambda folder: (folder / "2_Dense/config.json").unlink(), "2_Dense/config.json"),
    (lambda folder: (folder / "2_Dense/model.safetensors").unlink(), "2_Dense"),
    (lambda folder: (folder / "2_Dense/model.safetensors").write_bytes(b"x" * 30), "2_Dense"),
    (lambda folder: (folder / "modules.json").write_text(json.dumps(
        [one for one in json.loads((folder / "modules.json").read_text()) if "Pooling" not in one["type"]])), "Pooling"),
])
def test_broken_dense_modules(damage, word, tmp_path):
    broken = tmp_path / "broken"
    shutil.copytree(FOLDER / "bert-dense", broken)
    damage(broken)
    ended = sluice("serve", "--model", broken)
    assert ended.returncode == 2 and word in ended.stderr, ended.stderr


@pytest.mark.parametrize("name,change,word", [
    ("nomic-mean", {"num_experts": 8}, "num_experts"), ("nomic-mean", {"prenorm": True}, "prenorm"),
    ("nomic-mean", {"activation_function": "relu"}, "activation_function"),
    ("nomic-mean", {"rotary_emb_fraction": 0.5}, "rotary_emb_fraction"),
    ("eurobert-mean", {"num_key_value_heads": 3}, "heads"), ("eurobert-mean", {"head_dim": 13}, "rotated"),
    ("eurobert-mean", {"rope_parameters": {"rope_type": "yarn"}}, "rope_type"),
    ("eurobert-reranker", {"classifier_pooling": "max"}, "classifier_pooling"),
    ("gemma3-dense", {"attn_logit_softcapping": 30.0}, "softcapping"),
    ("gemma3-dense", {"layer_types": ["full_attention"]}, "layer_types"),
])
def test_refused_configurations(name, change, word):
    ended = sluice("serve", "--model", FOLDER / name, "--json-model-override-args", json.dumps(change))
    assert ended.returncode == 2 and word in ended.stderr, ended.stderr


def test_rerank_fields(reranker):
    ask = {"query": "a", "documents": ["b", {"text": "c d e"}, "f"], "model": "bert-reranker"}
    whole = reranker.post("/rerank", ask).json()
    assert len(whole["results"]) == 3 and whole["model"] == "bert-reranker" and whole["id"].startswith("rerank-")
    two = reranker.post("/v2/rerank", {**ask, "top_n": 2, "return_documents": False}).json()["results"]
    assert [one["index"] for one in two] == [one["index"] for one in whole["results"][:2]]
    assert all("document" not in one for one in two)
    raw = reranker.post("/rerank", {**ask, "raw_scores": True}).json()["results"]
    for one, other in zip(raw, whole["results"]):
        assert abs(1 / (1 + math.exp(-one["relevance_score"])) - other["relevance_score"]) < 1e-9
    for body, param in (({"documents": ["a"]}, "query"), ({"query": "a"}, "documents"),
                        ({"query": "a", "documents": []}, "documents"), ({"query": "a", "documents": "b"}, "documents"),
                        ({"query": "a", "documents": [3]}, "documents.0"), ({"query": ["a"], "documents": ["b"]}, "query"),
                        ({"query": "a", "documents": ["b"], "top_n": -1}, "top_n"),
                        ({"query": "a", "documents": ["b"], "max_tokens_per_doc": 3}, "max_tokens_per_doc")):
        reply = reranker.post("/v1/rerank", body)
        assert reply.status == 400 and reply.error["param"] == param, reply.body
    assert reranker.post("/v1/score", {"text_1": ["a", "b"], "text_2": ["a", "b", "c"]}).status == 400
    assert reranker.post("/v1/score", {"query": "a", "items": ["b"], "label_token_ids": [1]}).status == 400
    long = reranker.post("/rerank", {"query": "a", "documents": ["b", "word " * 400]})
    assert long.status == 400 and "128" in long.error["message"]
    cut = reranker.post("/rerank", {"query": "a", "documents": ["word " * 400], "truncate_prompt_tokens": -1})
    assert cut.status == 200 and cut.json()["usage"]["prompt_tokens"] == 128


def test_scores_of_vectors(bert):
    """A model of vectors scores by their cosine, with its own prompts on both sides."""
    record = golden("bert-mean")
    query, documents = record["texts"][0], record["texts"][1:5]
    scores = bert.post("/score", {"text_1": query, "text_2": documents}).json()["data"]
    first = embed(bert, query, prompt_name="query")[0]
    second = embed(bert, documents, prompt_name="document")
    assert all(abs(one["score"] - cosine(first, vector)) < 1e-6 for one, vector in zip(scores, second))


def test_bits_do_not_depend_on_company(bert):
    texts = golden("bert-mean")["texts"] + [f"text {i} " * (i % 20) for i in range(150)]
    alone = [embed(bert, text)[0] for text in texts[:30]]
    together = embed(bert, texts)
    assert together[:30] == alone
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        assert all(one.result() == together for one in [pool.submit(embed, bert, texts) for _ in range(8)])


def test_long_texts_and_leaving(bert):
    refused = bert.post("/v1/embeddings", {"input": "word " * 300})
    assert refused.status == 400 and "128" in refused.error["message"]
    cut = bert.post("/v1/embeddings", {"input": "word " * 300, "truncate_prompt_tokens": -1})
    assert cut.status == 200 and cut.json()["usage"]["prompt_tokens"] == 128
    ids = bert.post("/tokenize", {"prompt": "word " * 300}).json()["tokens"]
    assert embed(bert, ids[:127] + ids[-1:])[0] == cut.json()["data"][0]["embedding"]
    body = json.dumps({"input": ["word " * 100] * 2000}).encode()
    head = f"POST /v1/embeddings HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    with socket.create_connection(("127.0.0.1", bert.port)) as s:
        s.sendall(head.encode() + body)
        time.sleep(0.3)
    bert.wait_until_idle()
    assert len(embed(bert, "a")[0]) == 48


def test_an_encoder_generates_nothing(bert):
    for path, body in (("/v1/completions", {"prompt": "a"}), ("/v1/chat/completions", {"messages": []}),
                       ("/generate", {"text": "a"}), ("/v1/responses", {"input": "a"}),
                       ("/v1/messages", {"messages": [], "max_tokens": 1}), ("/api/chat", {"model": "bert-mean"})):
        reply = bert.post(path, body)
        assert reply.status == 400 and "vectors" in reply.body.decode(), reply.body
    assert bert.get("/health").status == bert.get("/ready").status == bert.get("/health_generate").status == 200
    info = bert.get("/get_model_info").json()
    assert info["is_generation"] is False and info["architectures"] == ["BertModel"]
    assert bert.get("/v1/models").json()["data"][0]["max_model_len"] == 128
    assert b"sglang" in bert.get("/metrics").body
    assert bert.post("/flush_cache", {}).status == 200


@pytest.mark.parametrize("flags,word", [
    (["--runner", "generate"], "encoder"), (["--tp-size", "2"], "tp-size"), (["--quantization", "int8"], "quantis"),
    (["--context-length", "4096"], "128"), (["--json-model-override-args", '{"hidden_act": "magic"}'], "hidden_act"),
    (["--json-model-override-args", '{"num_attention_heads": 5}'], "heads"),
    (["--json-model-override-args", '{"intermediate_size": 97}'], "intermediate"),
])
def test_refused_at_the_start(flags, word):
    ended = sluice("serve", "--model", FOLDER / "bert-mean", *flags)
    assert ended.returncode == 2 and word in ended.stderr, ended.stderr
