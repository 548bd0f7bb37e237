"""Speculation over HTTP: the answers are those of a server without it, and the counts add up."""

import concurrent.futures
import http.client
import json
import re
from pathlib import Path

import pytest

from sluice_server import ROOT, TINY, Server, sluice, stream_events
from test_bad_models import tensors_of, write_tensors

MODELS = Path(ROOT) / "tests" / "golden" / "models"
# Reference drafts that lie beside the repository on machines of developers.
RECORDED = Path(ROOT).parent / "shared" / "golden" / "speculation" / "mtp-sluice-tiny.json"
SERVERS = {
    "ngram": ("--speculative-algorithm", "NGRAM", "--speculative-num-draft-tokens", "5",
              "--speculative-ngram-min-match-window-size", "1", "--speculative-adaptive=false"),
    "suffix": ("--speculative-config", '{"method": "suffix", "num_speculative_tokens": 6}',
               "--speculative-adaptive=false"),
    "nextn": ("--speculative-algorithm", "NEXTN", "--speculative-num-steps", "3", "--speculative-adaptive=false"),
    "vllm": ("--speculative-config", '{"method": "mtp", "num_speculative_tokens": 2}', "--speculative-adaptive=false"),
    "trees": ("--speculative-algorithm", "NEXTN", "--speculative-num-steps", "3", "--speculative-eagle-topk", "4",
              "--speculative-num-draft-tokens", "16", "--speculative-adaptive=false"),
    # As many drafts as pay on this machine, which may be none.
    "adaptive": ("--speculative-algorithm", "NEXTN", "--speculative-num-steps", "3"),
    "adaptive trees": ("--speculative-algorithm", "NEXTN", "--speculative-num-steps", "3", "--speculative-eagle-topk", "4"),
}
REPEAT = "Say it again: one two three four five, one two three four five, one two three"
TEXTS = (REPEAT, "What is the capital of France?")
SCHEMA = {"type": "object", "properties": {"name": {"type": "string"}, "age": {"type": "integer"}},
          "required": ["name", "age"], "additionalProperties": False}
CHATS = {
    "greedy": {"temperature": 0},
    "logprobs": {"temperature": 0, "logprobs": True, "top_logprobs": 3},
    "drawn": {"temperature": 0.8, "seed": 5, "top_p": 0.9},
    "penalties": {"temperature": 0.5, "seed": 6, "frequency_penalty": 0.4, "presence_penalty": 0.1},
    "choices": {"temperature": 0.7, "seed": 7, "n": 3},
    "stop": {"temperature": 0, "stop": ["three", "a"]},
    "bias": {"temperature": 0, "logit_bias": {"300": 5, "400": -100}},
    "minimum": {"temperature": 0, "min_tokens": 25},
    "schema": {"temperature": 0, "response_format": {"type": "json_schema",
                                                     "json_schema": {"name": "person", "schema": SCHEMA}}},
}
ALONE = {"drawn", "schema"}  # a batch of one, as most that drafts are for


@pytest.fixture(scope="module", params=SERVERS)
def drafting(request, tmp_path_factory):
    log = tmp_path_factory.mktemp("drafting") / "server.log"
    with Server(TINY, "--dtype", "float32", "--served-model-name", "tiny", "--max-total-tokens", "65536",
                *SERVERS[request.param], log=log) as server:
        server.log = log
        server.max_drafts = {"ngram": 4, "suffix": 6, "vllm": 2, "trees": 15, "adaptive trees": 15}.get(request.param, 3)
        server.least_drafts = 0 if request.param.startswith("adaptive") else 1
        yield server


@pytest.fixture(scope="module")
def answers(drafting):
    """What the server answers to each of CHATS about each of TEXTS, some alone and the others several at once."""
    return all_answers(drafting)


@pytest.fixture(scope="module")
def plain_answers(tiny):
    return all_answers(tiny)


def all_answers(server):
    asks = [(name, text) for name in CHATS for text in TEXTS]

    def answer(ask):
        reply = server.post("/v1/chat/completions", chat(CHATS[ask[0]], ask[1]))
        return reply.json() if reply.status == 200 else {"error": reply.body}

    alone = {ask: answer(ask) for ask in asks if ask[0] in ALONE}
    with concurrent.futures.ThreadPoolExecutor(6) as pool:
        others = [ask for ask in asks if ask not in alone]
        return alone | dict(zip(others, pool.map(answer, others)))


def chat(fields, text=REPEAT):
    return {"model": "tiny", "messages": [{"role": "user", "content": text}], "max_tokens": 60, **fields}


@pytest.mark.parametrize("name", CHATS)
def test_answers_are_those_of_plain_decoding(drafting, answers, plain_answers, name):
    for text in TEXTS:
        found, wanted = answers[name, text], plain_answers[name, text]
        assert "error" not in found, found
        assert found["choices"] == wanted["choices"]
        details = found["usage"]["completion_tokens_details"]
        assert details["accepted_prediction_tokens"] >= 0 and details["rejected_prediction_tokens"] >= 0
        assert "accepted_prediction_tokens" not in wanted["usage"]["completion_tokens_details"]
    assert drafting.wait_until_idle()["spec_draft_token_num"] >= drafting.least_drafts


def test_streams_bring_the_same_text(drafting, tiny):
    texts = []
    for server in (drafting, tiny):
        connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
        connection.request("POST", "/v1/chat/completions", json.dumps(chat({"temperature": 0, "stream": True})),
                           {"Content-Type": "application/json"})
        events = list(stream_events(connection.getresponse()))
        texts.append("".join(e["choices"][0]["delta"].get("content") or "" for e in events if e["choices"]))
        connection.close()
    assert texts[0] == texts[1] and texts[0]


def test_a_client_that_leaves_frees_its_pages(drafting):
    for _ in range(5):
        connection = http.client.HTTPConnection("127.0.0.1", drafting.port, timeout=60)
        body = {"text": REPEAT, "stream": True,
                "sampling_params": {"max_new_tokens": 2000, "ignore_eos": True, "temperature": 0}}
        connection.request("POST", "/generate", json.dumps(body), {"Content-Type": "application/json"})
        connection.getresponse().read(200)
        connection.close()
    drafting.wait_until_idle()


def test_counts_are_said_and_add_up(drafting):
    def metrics():
        text = drafting.get("/metrics").body.decode()
        return {name: sum(map(float, re.findall(rf"^{re.escape(name)}(?:{{.*}})? (\S+)$", text, re.M)))
                for name in ("vllm:spec_decode_num_drafts_total", "vllm:spec_decode_num_draft_tokens_total",
                             "vllm:spec_decode_num_accepted_tokens_total", "sluice:verifications_total",
                             "vllm:spec_decode_num_accepted_tokens_per_pos_total",
                             "sluice:speculative_steps_total")}, text

    before, _ = metrics()
    body = {"text": REPEAT, "sampling_params": {"max_new_tokens": 80, "ignore_eos": True, "temperature": 0}}
    meta = drafting.post("/generate", body).json()["meta_info"]
    after, text = metrics()
    rise = {name: after[name] - before[name] for name in after}
    assert 1 + meta["spec_verify_ct"] + meta["spec_accept_token_num"] == meta["completion_tokens"] == 80
    assert meta["spec_accept_length"] == pytest.approx(80 / meta["spec_verify_ct"])
    if meta["spec_draft_token_num"]:
        assert meta["spec_accept_rate"] == pytest.approx(meta["spec_accept_token_num"] / meta["spec_draft_token_num"])
    assert rise["sluice:verifications_total"] == meta["spec_verify_ct"]
    assert rise["vllm:spec_decode_num_draft_tokens_total"] == meta["spec_draft_token_num"]
    assert rise["vllm:spec_decode_num_accepted_tokens_total"] == meta["spec_accept_token_num"]
    assert rise["vllm:spec_decode_num_accepted_tokens_per_pos_total"] == meta["spec_accept_token_num"]
    assert drafting.least_drafts <= rise["vllm:spec_decode_num_drafts_total"] <= meta["spec_verify_ct"]
    assert rise["sluice:speculative_steps_total"] == meta["spec_verify_ct"], "one sequence: a row is a step"
    numbers = re.findall(r'sluice:speculative_steps_total\{.*drafts="(\d+)"', text)
    assert sorted(map(int, numbers)) == list(range(drafting.max_drafts + 1))
    positions = re.findall(r'spec_decode_num_accepted_tokens_per_pos_total\{.*position="(\d+)"', text)
    assert sorted(map(int, positions)) == list(range(drafting.max_drafts))
    for name in ("sglang:spec_accept_length", "sglang:spec_accept_rate"):
        assert re.search(rf"^{name}(?:{{.*}})? [\d.]+$", text, re.M)
    log = drafting.log.read_text()
    assert re.search(r"speculation: (N|SUFFIX)", log)
    measured = re.search(r"measure drafts: .* ms of a step by sequences: 1: .*; drafts of one sequence: (.*)", log)
    assert bool(measured) == (drafting.least_drafts == 0)
    if measured:
        choices = [int(n) for n in re.findall(r"(\d+) where", measured[1])]
        assert len(choices) == 4 and choices == sorted(choices) and max(choices) <= 3


def test_a_server_without_speculation_says_nothing_of_it(tiny):
    meta = tiny.post("/generate", {"text": "A", "sampling_params": {"max_new_tokens": 3}}).json()["meta_info"]
    assert "spec_verify_ct" not in meta
    assert "spec_" not in tiny.get("/metrics").body.decode()


def test_generate_says_the_counts():
    flags = ("generate", "--model", TINY, "--prompt", REPEAT, "--max-new-tokens", "30", "--temperature", "0", "--json",
             "--ignore-eos")
    plain = json.loads(sluice(*flags).stdout)
    drafted = json.loads(sluice(*flags, "--speculative-algorithm", "NEXTN").stdout)
    assert drafted["output_ids"] == plain["output_ids"]
    meta = drafted["meta_info"]
    assert 1 + meta["spec_verify_ct"] + meta["spec_accept_token_num"] == 30
    assert "spec_verify_ct" not in plain["meta_info"]


@pytest.mark.parametrize("drafts", [1, 2, 3])
def test_recorded_chats_accept_as_many_drafts(drafts):
    """Greedy runs over recorded chats take the recorded number of verifications, within 1 %.

    Without the prefix cache, whose last draft key is of another request's next token (docs/speculation.md)."""
    if not RECORDED.exists():
        pytest.skip(f"{RECORDED} is not there")
    chats = json.loads(RECORDED.read_text())["prompts"]
    steps = emitted = 0
    with Server(TINY, "--dtype", "float32", "--speculative-algorithm", "NEXTN", "--disable-radix-cache",
                "--speculative-num-draft-tokens", str(drafts + 1), "--speculative-adaptive=false") as server:
        for recorded in chats:
            body = {"input_ids": recorded["prompt_ids"],
                    "sampling_params": {"max_new_tokens": len(recorded["output_ids"]), "temperature": 0,
                                        "ignore_eos": True}}
            reply = server.post("/generate", body).json()
            assert reply["output_ids"] == recorded["output_ids"], recorded["record"]
            steps += reply["meta_info"]["spec_verify_ct"]
            emitted += reply["meta_info"]["completion_tokens"] - 1
    wanted = [recorded["accept"][str(drafts)] for recorded in chats]
    assert emitted == sum(w["emitted"] for w in wanted)
    assert steps == pytest.approx(sum(w["steps"] for w in wanted), rel=0.01)


def test_a_trained_head_accepts_as_many_drafts_of_chains():
    """A trained head over recorded chats: tokens for each verification of three drafts, within 2 %."""
    head = RECORDED.parent / "sluice-tiny-eagle3"
    if not head.exists():
        pytest.skip(f"{head} is not there")
    chats = json.loads(RECORDED.read_text())["prompts"]
    wanted = json.loads((head / "golden.json").read_text())["acceptance"]["chain_k3"]
    steps = emitted = 0
    with Server(TINY, "--dtype", "float32", "--speculative-algorithm", "EAGLE3", "--disable-radix-cache",
                "--speculative-draft-model-path", str(head), "--speculative-num-steps", "3",
                "--speculative-adaptive=false") as server:
        for recorded in chats:
            body = {"input_ids": recorded["prompt_ids"],
                    "sampling_params": {"max_new_tokens": len(recorded["output_ids"]), "temperature": 0,
                                        "ignore_eos": True}}
            reply = server.post("/generate", body).json()
            assert reply["output_ids"] == recorded["output_ids"], recorded["record"]
            steps += reply["meta_info"]["spec_verify_ct"]
            emitted += reply["meta_info"]["completion_tokens"] - 1
    assert emitted == wanted["emitted"]
    assert emitted / steps == pytest.approx(wanted["mean_accept_length"], rel=0.02)


TREES = ("--speculative-num-steps", "3", "--speculative-eagle-topk", "4", "--speculative-num-draft-tokens", "16",
         "--speculative-adaptive=false")
# Keys of every kind: latents, index keys, windows, eight bits; layers, heads and models that draft.
GROWN = {
    "layer latents": ("deepseek-v3", "NEXTN"),
    "layer index": ("deepseek-v32", "NEXTN"),
    "layer pattern": ("glm-moe-dsa", "NEXTN"),
    "layer windows": ("mimo", "NEXTN"),
    "tiny": (TINY.name, "NEXTN"),
    "tiny in eight bits": (TINY.name, "NEXTN", "--dtype", "bfloat16", "--kv-cache-dtype", "fp8_e4m3"),
    "index in eight bits": ("deepseek-v32", "NEXTN", "--dtype", "bfloat16"),
    "small model": ("qwen3-moe", "STANDALONE", "--speculative-draft-model-path", MODELS / "llama-llama3-tied"),
    "small latents": ("mistral-swa", "STANDALONE", "--speculative-draft-model-path", MODELS / "deepseek-v2-lite"),
    "head": (RECORDED.parents[1] / "models" / "gpt-oss", "EAGLE3", "--speculative-draft-model-path", RECORDED.parent / "families" / "eagle3-gpt-oss"),
    "head of latents": ("glm-moe-dsa-pattern", "EAGLE3", "--speculative-draft-model-path",
                        RECORDED.parent / "families" / "eagle3-mla"),
    "older head": ("llama-plain", "EAGLE", "--speculative-draft-model-path",
                   RECORDED.parent / "families" / "eagle-llama"),
}


@pytest.mark.parametrize("name", GROWN)
def test_trees_of_every_kind_of_keys_change_nothing(name):
    """On a GPU with SLUICE_TEST_FLAGS=--deterministic: elsewhere bits depend on the number of rows."""
    model, method, *more = GROWN[name]
    if method.startswith("EAGLE") and not more[-1].exists():
        pytest.skip(f"{more[-1]} is not there")
    directory = TINY if model == TINY.name else MODELS / model
    flags = ["--max-total-tokens", "16384", *([] if directory == TINY else ["--tokenizer-path", TINY])]
    types, draft = (more, []) if "--dtype" in more else (["--dtype", "float32"], more)
    bodies = [{"input_ids": [50 + i % 7 + n for i in range(20 + 30 * n)],
               "sampling_params": {"max_new_tokens": 100, "temperature": 0.9 * (n % 2), "sampling_seed": n,
                                   "ignore_eos": True}} for n in range(6)]

    def answers(*given):
        with Server(directory, *flags, *types, *given) as server:
            with concurrent.futures.ThreadPoolExecutor(len(bodies)) as pool:
                replies = list(pool.map(lambda body: server.post("/generate", body, timeout=120).json(), bodies))
            server.wait_until_idle()
        return [reply["output_ids"] for reply in replies], replies

    plain, _ = answers()
    found, replies = answers("--speculative-algorithm", method, *draft, *TREES)
    assert found == plain
    assert sum(reply["meta_info"]["spec_draft_token_num"] for reply in replies) > 1000


def test_finished_answers_draft_for_their_own_salt_alone():
    with Server(TINY, "--dtype", "float32", "--speculative-algorithm", "SUFFIX", "--speculative-adaptive=false") as server:
        def verifications(salt):
            body = {"input_ids": list(range(40, 60)), "cache_salt": salt,
                    "sampling_params": {"max_new_tokens": 60, "temperature": 1.2, "sampling_seed": 4, "ignore_eos": True}}
            reply = server.post("/generate", body).json()
            return reply["output_ids"], reply["meta_info"]["spec_verify_ct"]

        first, alone = verifications("one")
        second, again = verifications("one")
        other, apart = verifications("two")
        assert first == second == other
        assert again < alone / 2
        assert apart == alone


def test_recorded_chats_accept_as_many_drafts_of_trees():
    """A trained head with trees over recorded chats: tokens for each verification, within 2 %."""
    head = RECORDED.parent / "sluice-tiny-eagle3"
    if not head.exists():
        pytest.skip(f"{head} is not there")
    chats = json.loads(RECORDED.read_text())["prompts"]
    wanted = json.loads((head / "golden.json").read_text())["acceptance"]["tree_steps3_topk4_16"]
    steps = emitted = 0
    with Server(TINY, "--dtype", "float32", "--speculative-algorithm", "EAGLE3", "--disable-radix-cache",
                "--speculative-draft-model-path", str(head), "--speculative-num-steps", "3",
                "--speculative-eagle-topk", "4", "--speculative-num-draft-tokens", "16",
                "--speculative-adaptive=false") as server:
        for recorded in chats:
            body = {"input_ids": recorded["prompt_ids"],
                    "sampling_params": {"max_new_tokens": len(recorded["output_ids"]), "temperature": 0,
                                        "ignore_eos": True}}
            reply = server.post("/generate", body).json()
            assert reply["output_ids"] == recorded["output_ids"], recorded["record"]
            meta = reply["meta_info"]
            verifications = meta["spec_verify_ct"]
            if verifications:
                assert meta["spec_accept_length"] == pytest.approx(meta["completion_tokens"] / verifications)
            steps += verifications
            emitted += meta["completion_tokens"] - 1
    assert emitted == wanted["emitted"]
    assert emitted / steps == pytest.approx(wanted["mean_accept_length"], rel=0.02)


def test_a_head_of_some_tokens_without_its_matrix(tmp_path):
    source = RECORDED.parent / "sluice-tiny-eagle3"
    if not source.exists():
        pytest.skip(f"{source} is not there")
    head = tmp_path / "head"
    head.mkdir()
    for name in ("config.json", "model.safetensors"):
        (head / name).write_bytes((source / name).read_bytes())
    tensors, data = tensors_of(head)
    tensors["unrelated"] = tensors.pop("lm_head.weight")
    write_tensors(head, tensors, data)
    done = sluice("serve", "--model", TINY, "--speculative-algorithm", "EAGLE3", "--speculative-draft-model-path", head)
    assert done.returncode == 2
    assert "d2t, a head of some of the target's tokens, and no lm_head.weight" in done.stderr
