"""Every pair of what a request may ask for, with every method of drafts, under every way a server may run.

The answers are those of the same server without drafts: tokens, texts, and all bits of log-probabilities.
With SLUICE_TEST_DEVICE=cuda the servers run on a GPU, with --deterministic: elsewhere bits depend on the number of rows.
"""

import collections
import concurrent.futures
import http.client
import itertools
import json
import os
import shutil
from pathlib import Path

import pytest
from sluice_server import ROOT, TINY, Server

HEAD = Path(ROOT).parent / "shared" / "golden" / "speculation" / "sluice-tiny-eagle3"
ON_GPU = os.environ.get("SLUICE_TEST_DEVICE", "cpu").startswith("cuda")
SERVER = ("--served-model-name", "tiny", "--max-running-requests", "24")
FIXED = ("--speculative-adaptive=false",)
TREE = ("--speculative-eagle-topk", "3", "--speculative-num-steps", "3", "--speculative-num-draft-tokens", "12")

METHODS = {
    "ngram": ("--speculative-algorithm", "NGRAM", "--speculative-ngram-min-match-window-size", "1", *FIXED),
    "suffix": ("--speculative-algorithm", "SUFFIX", "--speculative-num-draft-tokens", "7", *FIXED),
    "layer": ("--speculative-algorithm", "NEXTN", "--speculative-num-steps", "3", *FIXED),
    "layer as pays": ("--speculative-algorithm", "NEXTN", "--speculative-num-steps", "3"),
    "layer's trees": ("--speculative-algorithm", "NEXTN", *TREE, *FIXED),
    "head": ("--speculative-algorithm", "EAGLE3", "--speculative-draft-model-path", HEAD, "--speculative-num-steps", "3", *FIXED),
    "head's trees": ("--speculative-algorithm", "EAGLE3", "--speculative-draft-model-path", HEAD, *TREE, *FIXED),
    "model": ("--speculative-algorithm", "STANDALONE", "--speculative-num-steps", "2", *FIXED),
    "forced": ("--draft-forced-tokens",),
    "forced and layer": ("--draft-forced-tokens", "--speculative-algorithm", "NEXTN", *FIXED),
}

# Together these rows have every two of their settings in one server, or one setting excludes the other.
ROOMY = ("--max-total-tokens", "65536")
LITTLE = ("--max-total-tokens", "512", "--context-length", "400", "--schedule-conservativeness", "0.01")
ROWS = {
    "as it comes": (*ROOMY,),
    "small chunks, little memory": (*LITTLE, "--chunked-prefill-size", "32"),
    "mixed steps, weights of eight bits": (*ROOMY, "--chunked-prefill-size", "48", "--enable-mixed-chunk", "--quantization", "int8"),
    "keys of eight bits, little memory": (*LITTLE, "--kv-cache-dtype", "fp8_e4m3", "--enable-mixed-chunk"),
    "float8, keys of eight bits, no cache": (*ROOMY, "--quantization", "fp8", "--kv-cache-dtype", "fp8_e4m3",
                                              "--disable-radix-cache", "--chunked-prefill-size", "40"),
    "one step in flight, float32": (*ROOMY, "--disable-overlap-schedule", "--dtype", "float32", "--chunked-prefill-size", "64"),
    "ranks": (*ROOMY, "--tp-size", "2", "--chunked-prefill-size", "64", "--dtype", "float32"),
}

SCHEMA = {"type": "object", "properties": {"name": {"type": "string", "maxLength": 9}, "size": {"enum": ["small", "large"]},
                                           "count": {"type": "integer", "minimum": 0, "maximum": 99}},
          "required": ["name", "size", "count"], "additionalProperties": False}
# Fields of a request, those of "sampling_params" beside the others.
ASKS = {
    "drawn": {"temperature": 0.9},
    "top_k": {"temperature": 1.1, "top_k": 8},
    "top_p": {"temperature": 1.2, "top_p": 0.8},
    "min_p": {"temperature": 1.3, "min_p": 0.05},
    "penalties": {"frequency_penalty": 0.4, "presence_penalty": 0.2, "repetition_penalty": 1.1},
    "bias": {"logit_bias": {"300": 4, "301": -100}},
    "logprobs": {"return_logprob": True, "top_logprobs_num": 3},
    "logprobs of the prompt": {"return_logprob": True, "logprob_start_len": 0},
    "choices": {"n": 3},
    "stop": {"stop": ["the", "."]},
    "minimum": {"min_new_tokens": 12},
    "schema": {"json_schema": json.dumps(SCHEMA)},
    "long prompt": {"repeat": 9},
    "cached prompt": {"repeat": 5, "again": True},
    "leaves": {"stream": True},
}
OUTSIDE = ("return_logprob", "top_logprobs_num", "logprob_start_len", "stream")
PAIRS = list(itertools.combinations(ASKS, 2))
# One server is asked a third of the pairs: each pair meets each method, and each row, in several servers.
PARTS = 3
ALONE = 5


def body_of(number, tokens):
    """The request of a pair."""
    pair = PAIRS[number]
    fields = {"temperature": 0, "max_new_tokens": tokens, "sampling_seed": number}
    for name in pair:
        fields |= ASKS[name]
    words = "Say it again, as it was said before: one two three four, one two three four. " * fields.pop("repeat", 1)
    again = fields.pop("again", False)
    body = {key: fields.pop(key) for key in OUTSIDE if key in fields}
    # Prompts of pairs differ from their first token on, but for those that begin as others did.
    return {"text": words if again else f"{number}. {words}", "sampling_params": fields, **body}


def first_of(server, body):
    """The status of a stream and how its first line begins; the client leaves then."""
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=120)
    connection.request("POST", "/generate", json.dumps(body), {"Content-Type": "application/json"})
    reply = connection.getresponse()
    line = reply.readline()
    connection.close()
    return reply.status, line[:6] if reply.status == 200 and b"error" not in line else line


def answer(server, body):
    if body.get("stream"):
        return first_of(server, body)
    reply = server.post("/generate", body)
    assert reply.status == 200, (body, reply.body)
    answers = reply.json()
    return [{"text": one["text"], "ids": one["output_ids"],
             **{key: one["meta_info"].get(key) for key in ("finish_reason", "prompt_tokens", "completion_tokens", "input_token_logprobs",
                                                           "output_token_logprobs", "output_top_logprobs")}}
            for one in (answers if isinstance(answers, list) else [answers])]


def answers_of(flags, log, numbers):
    """What the server answers to pairs of these numbers, 24 at once, behind some that are alone; and its counts."""
    with Server(TINY, *SERVER, *flags, *(["--deterministic"] if ON_GPU else []), log=log) as server:
        # Where memory is little, answers outgrow it.
        bodies = [body_of(number, 80 if "--schedule-conservativeness" in flags else 24) for number in numbers]
        alone = [answer(server, body) for body in bodies[:ALONE]]
        with concurrent.futures.ThreadPoolExecutor(24) as pool:
            found = list(pool.map(lambda body: answer(server, body), bodies))
        state = server.wait_until_idle()
    assert alone == found[:ALONE]
    return dict(zip(numbers, found)), state


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    """Answers without drafts, by row; each row is asked once."""
    known = {}

    def of(row):
        if row not in known:
            known[row] = answers_of(ROWS[row], tmp_path_factory.mktemp("plain") / "server.log", range(len(PAIRS)))[0]
        return known[row]

    return of


@pytest.fixture(scope="module")
def retracted():
    """Retractions beside drafts, by row: those of each method."""
    return collections.defaultdict(list)


@pytest.fixture(scope="module")
def copy(tmp_path_factory):
    """The bundled model in another directory drafts for itself: the directory itself is refused."""
    return shutil.copytree(TINY, tmp_path_factory.mktemp("draft") / "model")


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("row", ROWS)
def test_pairs_have_the_answers_of_plain_decoding(row, method, plain, copy, retracted, tmp_path):
    if method.startswith("head") and not HEAD.exists():
        pytest.skip(f"{HEAD} is not there")
    if row == "ranks" and ON_GPU:
        pytest.skip("test_rank_drafts.py runs on several GPUs")
    if method == "model" and ON_GPU and "fp8_e4m3" in ROWS[row]:
        pytest.skip("a GPU refuses a draft with latents beside keys of eight bits by name")
    draft = ("--speculative-draft-model-path", copy) if method == "model" else ()
    wanted = plain(row)
    part = (list(ROWS).index(row) + list(METHODS).index(method)) % PARTS
    found, state = answers_of((*ROWS[row], *METHODS[method], *draft), tmp_path / "server.log", range(part, len(PAIRS), PARTS))
    wrong = [(PAIRS[number], got, wanted[number]) for number, got in found.items() if got != wanted[number]]
    assert not wrong, f"{len(wrong)} pairs, as {wrong[0]}"
    assert all(got == (200, b"data: ") for number, got in found.items() if "leaves" in PAIRS[number])
    assert method == "layer as pays" or state["spec_draft_token_num"] > 10
    retracted[row].append(state["retracted"])


def test_little_memory_retracts_sequences_that_draft(retracted):
    """Where several processes share the tests, one may see few methods of a row, and no retraction."""
    assert retracted
    little = {row: counts for row, counts in retracted.items() if "--schedule-conservativeness" in ROWS[row]}
    assert all(sum(counts) for counts in little.values() if len(counts) > len(METHODS) // 2)
