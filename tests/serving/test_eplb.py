"""Experts that move between ranks while a server serves (--enable-eplb): tokens, bits, metrics, faults and refusals."""

import json
import re
import signal
import threading
import time

import pytest
from sluice_server import GOLDEN, TINY, Server, generate, sluice
from test_ranks import end_in_the_middle

FLAGS = ("--dtype", "float32", "--max-total-tokens", "32768", "--device", "cpu")
MOVES = ("--ep-num-redundant-experts", "2", "--enable-eplb", "--eplb-rebalance-num-iterations", "3")
QUESTION = "What is the capital of France?"


@pytest.fixture(scope="module", params=[("--ep-size", "2"), ("--tp-size", "4", "--ep-size", "2"),
                                        ("--tp-size", "2", "--ep-size", "2", "--dp-size", "2", "--enable-dp-attention")],
                ids=["two", "four", "groups"])
def moving(tmp_path_factory, request):
    log = tmp_path_factory.mktemp("eplb") / "server.log"
    with Server(TINY, *FLAGS, *request.param, *MOVES, "--enable-expert-distribution-metrics", log=log) as server:
        yield server


def figures(server, name):
    """{labels: value} of a metric."""
    rows = re.findall(rf"^{re.escape(name)}(\{{.*\}})? (\S+)$", server.get("/metrics").body.decode(), re.MULTILINE)
    return {labels: float(value) for labels, value in rows}


def figure(server, name):
    values = figures(server, name)
    assert len(values) == 1, (name, values)
    return next(iter(values.values()))


def generate_body(i, tokens=32, **sampling):
    ids = [50 + (i * 7 + j * (1 + i % 3)) % 190 for j in range(20 + 37 * (i % 4))]
    return {"input_ids": ids, "sampling_params": {"temperature": 0, "max_new_tokens": tokens, "ignore_eos": True, **sampling}}


def all_at_once(server, bodies):
    results = [None] * len(bodies)

    def one(i):
        results[i] = server.post("/generate", bodies[i], timeout=600).json()

    threads = [threading.Thread(target=one, args=(i,)) for i in range(len(bodies))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results


def test_tokens_are_those_of_one_rank_while_experts_move(moving, tiny):
    before = figure(moving, "sluice:expert_moves_total")
    bodies = [generate_body(i) for i in range(12)]
    for body, result in zip(bodies, all_at_once(moving, bodies), strict=True):
        assert result["output_ids"] == tiny.post("/generate", body, timeout=600).json()["output_ids"]
    assert figure(moving, "sluice:expert_moves_total") > before
    assert figure(moving, "sluice:expert_rebalances_total") > 0
    assert figure(moving, "sluice:expert_moved_bytes_total") > 0


def test_choices_of_experts_are_those_of_requests(tiny):
    """Steps that the start runs, to warm up and to measure drafts, do not count."""
    with Server(TINY, *FLAGS, "--ep-size", "2", *MOVES, "--enable-expert-distribution-metrics",
                "--speculative-algorithm", "NEXTN") as server:
        assert set(figures(server, "sglang:eplb_gpu_physical_count_count").values()) == {0}
        bodies = [generate_body(i) for i in range(6)]
        for body, result in zip(bodies, all_at_once(server, bodies), strict=True):
            assert result["output_ids"] == tiny.post("/generate", body, timeout=600).json()["output_ids"]
        assert min(figures(server, "sglang:eplb_gpu_physical_count_count").values()) > 0
        assert figure(server, "sluice:expert_moves_total") > 0


def test_logits_have_the_same_bits_before_and_after_moves(moving):
    """The log-probabilities of a prompt, digit for digit, between loads that move experts."""
    body = {**generate_body(5, 16), "return_logprob": True, "logprob_start_len": 0}

    def logprobs():
        meta = moving.post("/generate", body).json()["meta_info"]
        return [meta["input_token_logprobs"], meta["output_token_logprobs"]]

    first = logprobs()
    for round in range(3):
        before = figure(moving, "sluice:expert_moves_total")
        all_at_once(moving, [generate_body(11 * round + i, 24) for i in range(4)])
        assert logprobs() == first, round
    assert figure(moving, "sluice:expert_moves_total") >= before


@pytest.mark.parametrize("fields", [
    {"response_format": {"type": "json_object"}, "temperature": 0},
    {"n": 3, "temperature": 0.8, "seed": 7},
    {"logprobs": True, "top_logprobs": 3, "temperature": 0},
    {"deterministic": True, "temperature": 0},
])
def test_features_of_requests_do_not_depend_on_places(moving, tiny, fields):
    body = {"messages": [{"role": "user", "content": QUESTION}], "max_tokens": 24, **fields}

    def choices(server):
        reply = server.post("/v1/chat/completions", {"model": server.get("/v1/models").json()["data"][0]["id"], **body})
        assert reply.status == 200, reply.body
        return [(c["message"]["content"], c["finish_reason"]) for c in reply.json()["choices"]]

    assert choices(moving) == choices(tiny)


def test_metrics_say_how_load_is_dealt(moving):
    all_at_once(moving, [generate_body(i, 40) for i in range(4)])
    assert 0.5 <= figure(moving, "sglang:eplb_balancedness") <= 1
    buckets = figures(moving, "sglang:eplb_gpu_physical_count_bucket")
    layers = {re.search(r'layer="(\d+)"', labels).group(1) for labels in buckets}
    assert len(layers) >= 1
    for layer in layers:
        counts = [value for labels, value in buckets.items() if f'layer="{layer}"' in labels]
        assert counts == sorted(counts) and len(counts) == 3  # two groups, and all
        assert counts[0] > 0 and counts[1] == counts[2] > counts[0]


# With quantised experts too, a move leaves no trace: the same tokens as where nothing moves within the time.
@pytest.mark.parametrize("model, flags", [
    ("sluice-tiny", ("--quantization", "int8")),
    ("sluice-tiny", ("--quantization", "int4")),
    ("sluice-tiny", ("--quantization", "fp8", "--dtype", "bfloat16")),
    ("sluice-tiny", ("--dtype", "bfloat16",)),
    ("sluice-tiny", ("--speculative-algorithm", "NGRAM", "--speculative-adaptive=false")),
    ("sluice-tiny", ("--speculative-algorithm", "NEXTN", "--speculative-adaptive=false")),
    ("sluice-tiny", ("--chunked-prefill-size", "9", "--eplb-rebalance-layers-per-chunk", "4")),
    ("qwen3-moe", ("--kv-cache-dtype", "int8")),
    ("qwen2-moe", ("--load-format", "dummy")),
])
def test_forms_of_experts_move_without_a_trace(model, flags):
    places = ("--ep-size", "2", "--ep-num-redundant-experts", "2", "--enable-eplb", "--eplb-rebalance-num-iterations")
    assert generate(model, *flags, *places, "1") == generate(model, *flags, *places, "1000000", threads=4)


def test_a_location_says_where_experts_begin(tmp_path):
    layers = json.loads((GOLDEN / "models" / "mixtral" / "config.json").read_text())["num_hidden_layers"]
    location = tmp_path / "places.json"
    one_rank = generate("mixtral")
    for value in ({"physical_to_logical_map": [[3, 0, 1, 2, 2, 3]] * layers},
                  {"logical_count": [[9, 1, 1, 5]] * layers}, {"logical_count": [[[9, 1, 1, 5]] * layers] * 2}):
        location.write_text(json.dumps(value))
        flags = ("--ep-size", "2", "--ep-num-redundant-experts", "2")
        assert generate("mixtral", *flags, "--init-expert-location", location) == one_rank
        assert generate("mixtral", *flags, "--init-expert-location", json.dumps(value)) == one_rank
    permuted = json.dumps({"physical_to_logical_map": [[2, 0, 3, 1]] * layers})
    assert generate("mixtral", "--ep-size", "2", "--init-expert-location", permuted) == one_rank


@pytest.mark.parametrize("flags, said", [
    (("--ep-num-redundant-experts", "2"), "give --ep-size or --enable-expert-parallel"),
    (("--ep-size", "2", "--ep-num-redundant-experts", "1"),
     "4 experts and 1 redundant ones cannot be dealt equally over 2 groups of ranks; --ep-num-redundant-experts 0 or 2"),
    (("--ep-size", "2", "--ep-num-redundant-experts", "6"),
     "2 groups have room for 4 beyond one of each; --ep-num-redundant-experts 4 would do"),
    (("--ep-size", "2", "--enable-eplb"), "and there are none; --ep-num-redundant-experts 2 would do"),
    (("--ep-size", "2", "--eplb-min-rebalancing-utilization-threshold", "0.5", "--ep-num-redundant-experts", "2"),
     "needs --enable-eplb"),
    (("--ep-size", "2", "--pp-size", "2", "--ep-num-redundant-experts", "2"), "--pp-size 2 exclude each other"),
    (("--ep-size", "2", "--init-expert-location", "/no/such.json"), "/no/such.json"),
    (("--ep-size", "2", "--init-expert-location", "places.pt"), "files of torch are not read"),
    (("--ep-size", "2", "--init-expert-location", "{"), "--init-expert-location"),
    (("--ep-size", "2", "--init-expert-location", '{"map": []}'), "physical_to_logical_map or logical_count"),
    (("--ep-size", "2", "--init-expert-location", '{"physical_to_logical_map": [[0, 1, 2, 3]]}'),
     "a row for each of 2 layers wanted, and there are 1"),
    (("--ep-size", "2", "--init-expert-location", '{"physical_to_logical_map": [[0, 1, 2, 3], [0, 1, 3]]}'),
     "layer 1: 4 numbers are wanted, and there are 3"),
    (("--ep-size", "2", "--init-expert-location", '{"physical_to_logical_map": [[0, 1, 2, 3], [0, 1, 3, 3]]}'),
     "layer 1: no place has expert 2"),
    (("--ep-size", "2", "--init-expert-location", '{"physical_to_logical_map": [[0, 1, 2, 4], [0, 1, 2, 3]]}'),
     "layer 0: 4 is no number from 0 to 3"),
    (("--ep-size", "2", "--init-expert-location", '{"logical_count": [[0, 1, 2, -4], [0, 1, 2, 3]]}'),
     "layer 0: -4 is no number from 0"),
    (("--ep-size", "2", "--elastic-ep-backend", "mooncake"), "give --elastic-ep-backend shared-memory"),
    (("--ep-size", "2", "--elastic-ep-backend", "shared-memory"), "give --tp-size 2 --dp-size 2 --enable-dp-attention"),
    (("--ep-size", "2", "--eplb-algorithm", "elasticity_aware"), "--eplb-algorithm"),
    (("--ep-size", "2", "--ep-dispatch-algorithm", "fake"), "--ep-dispatch-algorithm"),
])
def test_what_cannot_be_placed_is_refused_in_seconds(flags, said):
    begin = time.monotonic()
    done = sluice("generate", "--model", GOLDEN / "models" / "mixtral", "--input-ids", "1,2", "--device", "cpu", *flags)
    assert done.returncode == 2, done.stderr
    assert said in done.stderr, done.stderr
    assert time.monotonic() - begin < 5


def test_a_dense_model_has_no_experts_to_place():
    done = sluice("generate", "--model", GOLDEN / "models" / "qwen3", "--input-ids", "1,2", "--device", "cpu",
                  "--tp-size", "2", "--enable-eplb")
    assert done.returncode == 2
    assert "--enable-eplb is refused: Qwen3ForCausalLM has no experts; leave it out" in done.stderr, done.stderr


@pytest.mark.parametrize("sign, limit", [(signal.SIGKILL, 10), (signal.SIGSTOP, 20)], ids=["killed", "stopped"])
def test_a_rank_lost_while_experts_move_ends_the_server(tmp_path, sign, limit):
    flags = ("--ep-size", "2", "--ep-num-redundant-experts", "2", "--enable-eplb", "--eplb-rebalance-num-iterations", "1")
    ends, seconds = end_in_the_middle(tmp_path, sign, flags)
    assert seconds < limit
    for _, text in ends:
        assert b"error" in text, text
