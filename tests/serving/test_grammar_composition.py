"""Grammars with everything else that acts on tokens: what each of them promises holds with the others."""

import concurrent.futures
import http.client
import json
import re

import pytest
from sluice_server import TINY, Server

FLAGS = ("--dtype", "float32", "--served-model-name", "tiny", "--device", "cpu", "--threads", "1")
ROOMY = ("--max-total-tokens", "65536")
SERVERS = {
    "deterministic": (*ROOMY, "--deterministic"),
    "small chunks": (*ROOMY, "--chunked-prefill-size", "16"),
    "no cache": (*ROOMY, "--disable-radix-cache"),
    "little memory": ("--max-total-tokens", "640", "--context-length", "600", "--schedule-conservativeness", "0.01"),
    "few at once": (*ROOMY, "--max-running-requests", "3", "--schedule-policy", "lpm"),
    "ranks": (*ROOMY, "--tp-size", "2"),
    "stages": (*ROOMY, "--pp-size", "2"),
    "groups": (*ROOMY, "--tp-size", "2", "--dp-size", "2", "--enable-dp-attention"),
    "drafts of n-grams": (*ROOMY, "--speculative-algorithm", "NGRAM", "--speculative-ngram-min-match-window-size", "1",
                          "--speculative-adaptive=false"),
    "drafts of a layer": (*ROOMY, "--speculative-algorithm", "NEXTN", "--speculative-adaptive=false"),
    "trees of drafts": (*ROOMY, "--speculative-algorithm", "NEXTN", "--speculative-eagle-topk", "3",
                        "--draft-forced-tokens"),
}
RECORD = {"type": "object", "properties": {"title": {"type": "string", "maxLength": 15},
                                           "stars": {"enum": [1, 2, 3, 4, 5]},
                                           "tags": {"type": "array", "items": {"enum": ["new", "old", "red"]},
                                                    "minItems": 2, "maxItems": 4}},
          "required": ["title", "stars", "tags"], "additionalProperties": False}
SCHEMA = {"response_format": {"type": "json_schema", "json_schema": {"name": "r", "schema": RECORD, "strict": True}}}
ASKS = [
    {"temperature": 0, **SCHEMA},
    {"temperature": 1, **SCHEMA},
    {"temperature": 1.5, "top_p": 0.9, "frequency_penalty": 0.5, "presence_penalty": 0.5, **SCHEMA},
    {"temperature": 0.8, "n": 3, **SCHEMA},
    {"temperature": 1, "repetition_penalty": 1.3, "min_tokens": 20, **SCHEMA},
    {"temperature": 1, "logit_bias": {"300": 4, "301": -100}, "stop": ["tags"], **SCHEMA},
    {"temperature": 2, "guided_regex": "[a-z]{3,8}(, [a-z]{3,8}){2,4}\\."},
    {"temperature": 1, "guided_choice": ["first of all", "first of May", "second"]},
    {"temperature": 0.5},
]


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    with Server(TINY, *FLAGS, *ROOMY, log=tmp_path_factory.mktemp("alone") / "server.log") as server:
        yield server


def body_of(i, **more):
    text = f"Write a record of number {i}. " + "It should be short. " * (i % 5)
    return {"model": "tiny", "messages": [{"role": "user", "content": text}], "max_tokens": 200, "seed": i,
            **ASKS[i % len(ASKS)], **more}


def chat(server, body):
    reply = server.post("/v1/chat/completions", body)
    assert reply.status == 200, reply.body
    return reply.json()


def check(body, choice):
    text = choice["message"]["content"]
    if choice["finish_reason"] == "length" or "stop" in body:
        return
    if "response_format" in body:
        record = json.loads(text)
        assert list(record) == ["title", "stars", "tags"] and len(record["title"]) <= 15
        assert record["stars"] in range(1, 6) and 2 <= len(record["tags"]) <= 4
    elif "guided_regex" in body:
        assert re.fullmatch(body["guided_regex"], text)
    elif "guided_choice" in body:
        assert text in body["guided_choice"]


@pytest.mark.parametrize("name", SERVERS)
def test_answers_together_are_those_of_each_alone(tiny, name, tmp_path):
    bodies = [body_of(i, logprobs=name not in ("ranks", "groups")) for i in range(18)]
    wanted = [chat(tiny, body)["choices"] for body in bodies]
    with Server(TINY, *FLAGS, *SERVERS[name], log=tmp_path / "server.log") as server:
        with concurrent.futures.ThreadPoolExecutor(len(bodies)) as pool:
            found = list(pool.map(lambda body: chat(server, body)["choices"], bodies))
        server.wait_until_idle()
        metrics = server.get("/metrics").body.decode()
    for body, choices in zip(bodies, found):
        for choice in choices:
            check(body, choice)
    assert found == wanted
    if name == "little memory":
        assert float(re.search(r"^sglang:num_retracted_requests_total(?:\{.*\})? (\S+)$", metrics, re.M)[1]) > 0


def generate(server, **fields):
    reply = server.post("/generate", fields)
    assert reply.status == 200, reply.body
    return reply.json()


def test_log_probabilities_are_those_of_the_model(tiny):
    """Those of the sampled tokens equal those of the same tokens in a prompt, which no grammar binds."""
    ids = [5, 90, 200, 17, 300]
    made = generate(tiny, input_ids=ids, return_logprob=True,
                    sampling_params={"temperature": 1, "sampling_seed": 3, "max_new_tokens": 60,
                                     "regex": "[A-Z][a-z]{2,9} is [0-9]{1,4} years old\\."})
    output = made["output_ids"]
    read = generate(tiny, input_ids=ids + output, return_logprob=True, logprob_start_len=0,
                    sampling_params={"temperature": 0, "max_new_tokens": 1})
    found = [row[0] for row in made["meta_info"]["output_token_logprobs"]]
    wanted = [row[0] for row in read["meta_info"]["input_token_logprobs"]][len(ids):]
    assert len(found) == len(output) > 5
    assert found == wanted


LETTERS = "[ab]( [ab]){19}"


def letters(tiny, **fields):
    body = {"model": "tiny", "prompt": "Letters: ", "max_tokens": 90, "temperature": 0, "guided_regex": LETTERS}
    reply = tiny.post("/v1/completions", {**body, **fields})
    assert reply.status == 200, reply.body
    text = reply.json()["choices"][0]["text"]
    assert re.fullmatch(LETTERS, text)
    return text


def test_bias_and_penalties_choose_among_what_the_mask_leaves(tiny):
    ids = {letter: [tiny.post("/tokenize", {"model": "tiny", "prompt": text, "add_special_tokens": False}).json()["tokens"]
                    for text in (letter, " " + letter)] for letter in "ab"}
    single = {letter: {str(tokens[-1]): 100 for tokens in lists} for letter, lists in ids.items()}
    assert set(letters(tiny, logit_bias=single["a"])) <= set("a ")
    assert set(letters(tiny, logit_bias=single["b"])) <= set("b ")
    # A bias outside the mask changes nothing.
    other = str(tiny.post("/tokenize", {"model": "tiny", "prompt": "Q", "add_special_tokens": False}).json()["tokens"][-1])
    assert letters(tiny, logit_bias={other: 100}) == letters(tiny)
    punished = letters(tiny, frequency_penalty=2)
    assert abs(punished.count("a") - punished.count("b")) <= 6, "each letter makes the other more likely"


@pytest.mark.parametrize("count", [5, 12, 30])
def test_min_tokens_keeps_the_end_away(tiny, count):
    reply = tiny.post("/v1/completions", {"model": "tiny", "prompt": "x", "max_tokens": 80, "min_tokens": count,
                                          "temperature": 1, "seed": 2, "guided_regex": "([a-z] ){1,60}"})
    assert reply.status == 200, reply.body
    choice, usage = reply.json()["choices"][0], reply.json()["usage"]
    assert choice["finish_reason"] in ("stop", "length") and usage["completion_tokens"] >= count


def test_a_cached_prefix_brings_the_same_answer(tiny):
    body = body_of(0, messages=[{"role": "user", "content": "A prompt of several pages. " * 40}])
    first = chat(tiny, body)
    again = chat(tiny, body)
    assert again["usage"]["prompt_tokens_details"]["cached_tokens"] > 0
    assert again["choices"] == first["choices"]
    # The same tokens under another grammar, and under none.
    free = chat(tiny, {**body, "response_format": {"type": "text"}})
    assert free["choices"][0]["message"]["content"] != first["choices"][0]["message"]["content"]
    check(body, chat(tiny, body)["choices"][0])


def test_seeds_and_choices_are_of_their_own(tiny):
    body = body_of(3)
    first, again = chat(tiny, body)["choices"], chat(tiny, body)["choices"]
    assert first == again
    other = chat(tiny, {**body, "seed": 1234})["choices"]
    assert [c["message"]["content"] for c in other] != [c["message"]["content"] for c in first]
    alone = chat(tiny, {**body, "n": 1})["choices"][0]
    assert alone["message"] == first[0]["message"], "the first choice keeps the seed"


def test_requests_that_leave_change_nothing_for_others(tiny):
    wanted = chat(tiny, body_of(1))["choices"]
    for size in (1, 100, 400):
        connection = http.client.HTTPConnection("127.0.0.1", tiny.port, timeout=60)
        connection.request("POST", "/v1/chat/completions", json.dumps(body_of(3, stream=True)),
                           {"Content-Type": "application/json"})
        connection.getresponse().read(size)
        connection.close()
        assert chat(tiny, body_of(1))["choices"] == wanted
    tiny.wait_until_idle()
