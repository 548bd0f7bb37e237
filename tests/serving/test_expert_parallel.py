"""Ranks with whole experts (--ep-size): the tokens of one rank, over HTTP and with each feature, and what is refused."""

import threading
import time

import pytest
from sluice_server import GOLDEN, TINY, Server, generate, sluice
from test_ranks import ranks_of

FLAGS = ("--dtype", "float32", "--max-total-tokens", "32768", "--device", "cpu")
QUESTION = "What is the capital of France?"


@pytest.fixture(scope="module")
def dealt(tmp_path_factory):
    """Four ranks in two groups; each group has eight of sixteen experts."""
    log = tmp_path_factory.mktemp("experts") / "server.log"
    with Server(TINY, *FLAGS, "--tp-size", "4", "--ep-size", "2", log=log) as server:
        yield server


def chat(server, fields):
    name = server.get("/v1/models").json()["data"][0]["id"]
    body = {"model": name, "messages": [{"role": "user", "content": QUESTION}], "max_tokens": 24, **fields}
    reply = server.post("/v1/chat/completions", body)
    assert reply.status == 200, reply.body
    return [(choice["message"]["content"], choice["finish_reason"]) for choice in reply.json()["choices"]]


@pytest.mark.parametrize("fields", [
    {"temperature": 0},
    {"response_format": {"type": "json_object"}, "temperature": 0},
    {"n": 3, "temperature": 0.8, "seed": 7},
    {"temperature": 1.2, "seed": 11, "presence_penalty": 0.5, "logit_bias": {"17": 3}},
])
def test_requests_get_the_tokens_of_one_rank(dealt, tiny, fields):
    assert len(ranks_of(dealt)) == 3
    assert chat(dealt, fields) == chat(tiny, fields)


def test_a_batch_with_a_common_prefix_gets_the_tokens_of_one_rank(dealt, tiny):
    """Prompts of very different lengths at once: steps of few rows and of many, from the cache and not."""
    common = [50 + i % 7 for i in range(150)]
    bodies = [{"input_ids": common[:140 - 20 * (i % 3)] + [60 + i] * (1 + 40 * (i % 2)),
               "sampling_params": {"temperature": 0, "max_new_tokens": 24, "ignore_eos": True}} for i in range(12)]
    results = [None] * len(bodies)

    def one(i):
        results[i] = dealt.post("/generate", bodies[i], timeout=600).json()

    threads = [threading.Thread(target=one, args=(i,)) for i in range(len(bodies))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for body, result in zip(bodies, results, strict=True):
        assert result["output_ids"] == tiny.post("/generate", body, timeout=600).json()["output_ids"]
    assert sum(result["meta_info"]["cached_tokens"] for result in results) > 0


# The last column: whether tokens are those of one rank. Where products are rounded, sums of two parts round differently.
@pytest.mark.parametrize("model, flags, equal", [
    ("sluice-tiny", ("--speculative-algorithm", "NGRAM", "--speculative-adaptive=false"), True),
    ("sluice-tiny", ("--speculative-algorithm", "NEXTN", "--speculative-adaptive=false"), True),
    ("sluice-tiny", ("--speculative-algorithm", "NEXTN", "--speculative-eagle-topk", "4", "--speculative-adaptive=false"), True),
    ("sluice-tiny", ("--disable-radix-cache", "--chunked-prefill-size", "9"), True),
    ("sluice-tiny", ("--quantization", "int8"), False),
    ("sluice-tiny", ("--quantization", "int4"), False),
    ("sluice-tiny", ("--quantization", "fp8", "--dtype", "bfloat16"), False),
    ("qwen3-moe", ("--kv-cache-dtype", "int8"), False),
    ("qwen3-moe", ("--kv-cache-dtype", "fp8_e4m3"), False),
    ("qwen2-moe", ("--load-format", "dummy"), True),
    ("mixtral", ("--dtype", "bfloat16"), False),
])
def test_options_of_the_server_reach_every_rank(model, flags, equal):
    dealt = generate(model, *flags, "--ep-size", "2")
    assert generate(model, *flags, "--tp-size", "2", "--enable-expert-parallel", threads=4) == dealt
    if equal:
        assert generate(model, *flags) == dealt


def test_experts_whose_columns_cannot_be_shared_are_dealt():
    odd = ("--load-format", "dummy", "--random-seed", "5", "--json-model-override-args", '{"intermediate_size": 66}')
    done = sluice("generate", "--model", GOLDEN / "models" / "mixtral", "--input-ids", "1", "--device", "cpu", *odd,
                  "--tp-size", "4")
    assert done.returncode == 2
    assert "66 columns of an expert cannot be shared equally by 4 ranks" in done.stderr, done.stderr
    assert generate("mixtral", *odd, "--ep-size", "4") == generate("mixtral", *odd)
    assert generate("mixtral", *odd, "--tp-size", "4", "--ep-size", "2") == generate("mixtral", *odd)


@pytest.mark.parametrize("model, flags, said", [
    ("qwen3", ("--ep-size", "2"), "--ep-size 2 is refused: Qwen3ForCausalLM has no experts; leave it out"),
    ("qwen3", ("--enable-expert-parallel",), "--enable-expert-parallel is refused: Qwen3ForCausalLM has no experts"),
    ("mixtral", ("--tp-size", "4", "--ep-size", "3"), "4 ranks cannot form 3 groups of equal size; --ep-size 2, 4 would do"),
    ("mixtral", ("--tp-size", "2", "--ep-size", "4"), "2 ranks cannot form 4 groups of equal size; --ep-size 2 would do"),
    ("mixtral", ("--ep-size", "8"), "4 experts cannot be dealt over 8 groups of ranks; --ep-size 2, 4 would do"),
    ("mixtral", ("--tp-size", "4", "--ep-size", "2", "--enable-expert-parallel"), "leave one out"),
    ("mixtral", ("--ep-size", "0"), "--ep-size"),
    ("mixtral", ("--ep-size", "65"), "--ep-size"),
    ("mixtral", ("--ep-size", "two"), "--ep-size"),
])
def test_what_cannot_be_dealt_is_refused_in_seconds(model, flags, said):
    begin = time.monotonic()
    done = sluice("generate", "--model", GOLDEN / "models" / model, "--input-ids", "1,2", "--device", "cpu", *flags)
    assert done.returncode == 2
    assert said in done.stderr, done.stderr
    assert time.monotonic() - begin < 5
