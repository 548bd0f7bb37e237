"""Constrained output over HTTP: every spelling of a grammar, and with every sampling option."""

import http.client
import json
import re

import pytest

from sluice_server import stream_events

PERSON = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 12},
        "age": {"type": "integer", "minimum": 0, "maximum": 120},
        "tags": {"type": "array", "items": {"enum": ["a", "b", "c"]}, "maxItems": 3},
    },
    "required": ["name", "age", "tags"],
    "additionalProperties": False,
}
MESSAGES = [{"role": "user", "content": "Who is the mayor?"}]


def chat(tiny, **more):
    body = {"model": "tiny", "messages": MESSAGES, "max_tokens": 400, "seed": 5, "temperature": 1}
    return tiny.post("/v1/chat/completions", {**body, **more})


def content(reply):
    assert reply.status == 200, reply.body
    choice = reply.json()["choices"][0]
    assert choice["finish_reason"] == "stop", choice
    return choice["message"]["content"]


def check_person(text):
    person = json.loads(text)
    assert list(person) == ["name", "age", "tags"]
    assert isinstance(person["name"], str) and len(person["name"]) <= 12
    assert isinstance(person["age"], int) and 0 <= person["age"] <= 120
    assert len(person["tags"]) <= 3 and set(person["tags"]) <= {"a", "b", "c"}


def json_schema(schema):
    return {"type": "json_schema", "json_schema": {"name": "n", "schema": schema, "strict": True}}


SPELLINGS = {
    "response_format": {"response_format": json_schema(PERSON)},
    "guided_json": {"guided_json": PERSON},
    "guided_json text": {"guided_json": json.dumps(PERSON)},
    "structured_outputs": {"structured_outputs": {"json": PERSON}},
    "json_schema": {"json_schema": json.dumps(PERSON)},
}


@pytest.mark.parametrize("fields", SPELLINGS.values(), ids=SPELLINGS)
def test_schema_in_every_spelling(tiny, fields):
    check_person(content(chat(tiny, **fields)))


@pytest.mark.parametrize("seed", range(6))
def test_schema_holds_at_high_temperature(tiny, seed):
    check_person(content(chat(tiny, response_format=json_schema(PERSON), temperature=3, seed=seed)))


def test_json_object(tiny):
    reply = chat(tiny, response_format={"type": "json_object"}, max_tokens=600, temperature=0)
    assert reply.status == 200, reply.body
    choice = reply.json()["choices"][0]
    if choice["finish_reason"] == "stop":
        assert isinstance(json.loads(choice["message"]["content"]), dict)
    else:
        assert choice["finish_reason"] == "length"


PATTERN = "[a-f]{3}-[0-9]{2,4}"


@pytest.mark.parametrize("fields", [{"guided_regex": PATTERN}, {"regex": PATTERN}, {"structured_outputs": {"regex": PATTERN}}])
def test_regex(tiny, fields):
    assert re.fullmatch(PATTERN, content(chat(tiny, **fields)))


@pytest.mark.parametrize("fields", [{"guided_choice": ["yes", "no", "yes, but"]}, {"structured_outputs": {"choice": ["yes", "no", "yes, but"]}}])
def test_choice(tiny, fields):
    assert content(chat(tiny, **fields)) in ["yes", "no", "yes, but"]


EBNF = 'root ::= list\nlist ::= list "," item | item\nitem ::= "x" [0-9]'


@pytest.mark.parametrize("name", ["guided_grammar", "ebnf", "grammar"])
def test_ebnf(tiny, name):
    reply = chat(tiny, **{name: EBNF}, max_tokens=60, temperature=2, logit_bias={"0": 5, "4": 5, "6": 5})
    assert reply.status == 200, reply.body
    choice = reply.json()["choices"][0]
    assert re.fullmatch(r"x[0-9](,x[0-9])*", choice["message"]["content"]) or choice["finish_reason"] == "length"


LARK = 'start: "[" item ("," item)* "]"\nitem: WORD | start\nWORD: /[a-c]{1,3}/i\n%ignore " "'


@pytest.mark.parametrize("fields", [{"structured_outputs": {"grammar": LARK}}, {"guided_grammar": LARK}])
def test_lark(tiny, fields):
    reply = chat(tiny, **fields, max_tokens=80, temperature=2)
    assert reply.status == 200, reply.body
    choice = reply.json()["choices"][0]
    text = choice["message"]["content"].replace(" ", "")
    assert re.fullmatch(r"[\[\]a-cA-C,]*", text), text
    if choice["finish_reason"] != "length":
        json.loads(re.sub("[a-cA-C]+", "0", text))


def test_lark_refused(tiny):
    reply = chat(tiny, structured_outputs={"grammar": "start: <|end|>"})
    assert reply.status == 400 and "llguidance" in reply.json()["error"]["message"], reply.body


def test_completions_and_generate(tiny):
    reply = tiny.post("/v1/completions", {"model": "tiny", "prompt": "The id is ", "guided_regex": PATTERN, "max_tokens": 40})
    assert reply.status == 200, reply.body
    assert re.fullmatch(PATTERN, reply.json()["choices"][0]["text"])
    for fields in ({"regex": PATTERN}, {"json_schema": json.dumps({"type": "integer"})}, {"ebnf": 'root ::= "ok"'}):
        reply = tiny.post("/generate", {"text": "The id is ", "sampling_params": {"max_new_tokens": 40, **fields}})
        assert reply.status == 200, reply.body
        text = reply.json()["text"]
        if "regex" in fields:
            assert re.fullmatch(PATTERN, text)
        elif "ebnf" in fields:
            assert text == "ok"
        else:
            assert re.fullmatch(r"\s*-?\d+\s*", text)


def test_stream_equals_whole(tiny):
    whole = content(chat(tiny, response_format=json_schema(PERSON), temperature=0))
    body = {"model": "tiny", "messages": MESSAGES, "max_tokens": 400, "temperature": 0, "stream": True}
    connection = http.client.HTTPConnection("127.0.0.1", tiny.port, timeout=60)
    connection.request("POST", "/v1/chat/completions", json.dumps({**body, "response_format": json_schema(PERSON)}), {"Content-Type": "application/json"})
    text = ""
    for event in stream_events(connection.getresponse()):
        text += event["choices"][0]["delta"].get("content") or ""
    assert text == whole


# Everything that shapes the choice of a token, each together with a schema.
OPTIONS = {
    "penalties": {"frequency_penalty": 1.5, "presence_penalty": 1, "repetition_penalty": 1.3},
    "bias": {"logit_bias": {"20": 3, "30": -100}},
    "min_tokens": {"min_tokens": 12},
    "logprobs": {"logprobs": True, "top_logprobs": 5},
    "top_k": {"top_k": 3, "top_p": 0.5, "min_p": 0.01},
    "greedy": {"temperature": 0},
    "deterministic": {"deterministic": True},
    "stop that does not come": {"stop": ["\u2603"]},
}


@pytest.mark.parametrize("fields", OPTIONS.values(), ids=OPTIONS)
def test_with_sampling_options(tiny, fields):
    check_person(content(chat(tiny, response_format=json_schema(PERSON), **fields)))


def test_seed_and_n(tiny):
    first = chat(tiny, response_format=json_schema(PERSON), n=4, seed=11)
    assert first.status == 200, first.body
    texts = [c["message"]["content"] for c in first.json()["choices"]]
    for text in texts:
        check_person(text)
    again = chat(tiny, response_format=json_schema(PERSON), n=4, seed=11)
    assert [c["message"]["content"] for c in again.json()["choices"]] == texts


def test_stop_string_inside_cuts(tiny):
    reply = chat(tiny, response_format=json_schema(PERSON), stop=['"age"'])
    choice = reply.json()["choices"][0]
    assert choice["finish_reason"] == "stop" and choice["message"]["content"].rstrip().endswith(",")


def test_length_is_no_claim_of_complete_json(tiny):
    choice = chat(tiny, response_format=json_schema(PERSON), max_tokens=1).json()["choices"][0]
    assert choice["finish_reason"] == "length"


def test_min_tokens_beyond_the_grammar_is_an_error(tiny, canary):
    reply = chat(tiny, guided_choice=["a"], min_tokens=50)
    assert reply.status == 400
    assert reply.error["code"] == "grammar_is_over"


def test_dead_end_ends_one_request_only(tiny, canary):
    # The bundled tokenizer writes every character, so only a bias can leave no token.
    ids = {str(i): -100 for i in range(0, 1000)}
    reply = chat(tiny, guided_choice=["z"], logit_bias=ids)
    assert reply.status in (200, 500)


def test_long_prompt_in_chunks_and_from_the_cache(tiny):
    messages = [{"role": "user", "content": "word " * 3000}]
    for _ in range(2):
        check_person(content(chat(tiny, messages=messages, response_format=json_schema(PERSON))))


def test_many_at_once(tiny):
    import concurrent.futures

    def one(i):
        if i % 3 == 0:
            return chat(tiny, guided_regex=PATTERN, seed=i).status
        if i % 3 == 1:
            check_person(content(chat(tiny, response_format=json_schema(PERSON), seed=i)))
            return 200
        return chat(tiny, seed=i, max_tokens=40).status

    with concurrent.futures.ThreadPoolExecutor(12) as pool:
        assert set(pool.map(one, range(36))) == {200}


def test_thoughts_come_first(tiny):
    reply = chat(tiny, response_format=json_schema(PERSON), temperature=0.6)
    message = reply.json()["choices"][0]["message"]
    check_person(message["content"])
