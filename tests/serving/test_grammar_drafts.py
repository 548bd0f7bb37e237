"""Tokens that a grammar forces, as drafts: the answers are those of a server without them, in fewer steps."""

import concurrent.futures
import copy
import http.client
import json
import re
import threading

import pytest
from sluice_server import TINY, Server, sluice, stream_events

FLAGS = ("--dtype", "float32", "--served-model-name", "tiny", "--max-total-tokens", "65536", "--device", "cpu",
         "--threads", "1")
FORCED = ("--draft-forced-tokens", "--speculative-adaptive=false")
SERVERS = {
    "forced": FORCED,
    "few": (*FORCED, "--speculative-num-draft-tokens", "3"),
    "with ngram": (*FORCED, "--speculative-algorithm", "NGRAM", "--speculative-ngram-min-match-window-size", "1"),
    "with nextn": (*FORCED, "--speculative-algorithm", "NEXTN"),
    "adaptive": FORCED[:1],
    "deterministic": (*FORCED, "--deterministic"),
    "ranks": FORCED,
    "stages": FORCED,
}
# Sums of two ranks have other bits than those of one.
RANKS = {"ranks": ("--tp-size", "2"), "stages": ("--pp-size", "2")}
CITY = {
    "type": "object",
    "properties": {
        "city_name": {"type": "string", "maxLength": 20},
        "population_of_the_city": {"type": "integer", "minimum": 0, "maximum": 99999999},
        "is_capital_of_its_country": {"type": "boolean"},
        "official_languages": {"type": "array", "items": {"enum": ["German", "French", "Italian"]}, "minItems": 1,
                               "maxItems": 3},
        "mayor": {"type": "object", "properties": {"given_name": {"type": "string", "maxLength": 9},
                                                   "family_name": {"type": "string", "maxLength": 9}},
                  "required": ["given_name", "family_name"], "additionalProperties": False},
    },
    "required": ["city_name", "population_of_the_city", "is_capital_of_its_country", "official_languages", "mayor"],
    "additionalProperties": False,
}
TOOLS = [{"type": "function", "function": {"name": "get_current_weather", "parameters": {
    "type": "object", "properties": {"location_of_interest": {"type": "string", "maxLength": 12},
                                     "temperature_unit": {"enum": ["celsius", "fahrenheit"]}},
    "required": ["location_of_interest", "temperature_unit"], "additionalProperties": False}}}]


def schema(value=CITY):
    return {"response_format": {"type": "json_schema", "json_schema": {"name": "n", "schema": value, "strict": True}}}


ASKS = {
    "greedy": {"temperature": 0, **schema()},
    "logprobs": {"temperature": 0, "logprobs": True, "top_logprobs": 4, **schema()},
    "drawn": {"temperature": 1, "seed": 5, "top_p": 0.95, "logprobs": True, **schema()},
    "hot": {"temperature": 3, "seed": 8, **schema()},
    "penalties": {"temperature": 0.7, "seed": 6, "frequency_penalty": 0.6, "presence_penalty": 0.3,
                  "repetition_penalty": 1.2, **schema()},
    "bias": {"temperature": 0, "logit_bias": {"300": 5, "34": -100, "400": 3}, **schema()},
    "minimum": {"temperature": 0.5, "seed": 1, "min_tokens": 30, **schema()},
    "choices": {"temperature": 1, "seed": 7, "n": 3, **schema()},
    "stop": {"temperature": 0, "stop": ["capital"], **schema()},
    "length": {"temperature": 0, "max_tokens": 17, **schema()},
    "compact": {"temperature": 1, "seed": 3, "structured_outputs": {"json": CITY, "disable_any_whitespace": True}},
    "regex": {"temperature": 1, "seed": 3, "guided_regex": "The answer to your question is: (yes|no)\\."},
    "choice": {"temperature": 1, "seed": 2, "guided_choice": ["international", "interplanetary", "internal"]},
    "required tool": {"temperature": 1, "seed": 4, "tools": TOOLS, "tool_choice": "required"},
    "free": {"temperature": 0},
}
ALONE = ("drawn", "required tool")  # a batch of one, as most that drafts are for


@pytest.fixture(scope="module")
def one_rank(tmp_path_factory):
    with Server(TINY, *FLAGS, log=tmp_path_factory.mktemp("plain") / "server.log") as server:
        yield server


@pytest.fixture(scope="module", params=SERVERS)
def drafting(request, tmp_path_factory):
    log = tmp_path_factory.mktemp("drafting") / "server.log"
    with Server(TINY, *FLAGS, *RANKS.get(request.param, ()), *SERVERS[request.param], log=log) as server:
        server.log, server.name = log, request.param
        yield server


@pytest.fixture(scope="module")
def plain(drafting, one_rank, tmp_path_factory):
    """As `drafting`, without drafts."""
    if drafting.name not in RANKS:
        yield one_rank
        return
    log = tmp_path_factory.mktemp("plain") / "server.log"
    with Server(TINY, *FLAGS, *RANKS[drafting.name], log=log) as server:
        yield server


def ask(fields, text="Tell me about the city of Bern."):
    return {"model": "tiny", "messages": [{"role": "user", "content": text}], "max_tokens": 300, **fields}


def post(server, fields, **more):
    reply = server.post("/v1/chat/completions", ask({**fields, **more}))
    assert reply.status == 200, reply.body
    return reply.json()


ANSWERS = {}


def known(server, name, **more):
    """post() of a server without drafts, asked once."""
    key = (server.url, name, *more.items())
    if key not in ANSWERS:
        ANSWERS[key] = post(server, ASKS[name], **more)
    return copy.deepcopy(ANSWERS[key])


@pytest.fixture(scope="module")
def answers(drafting, plain):
    """What both servers answer to each of ASKS, as futures: some alone, the others several at once."""
    with concurrent.futures.ThreadPoolExecutor(1) as one_at_a_time:
        alone = {name: one_at_a_time.submit(post, drafting, ASKS[name]) for name in ALONE}
    with concurrent.futures.ThreadPoolExecutor(6) as pool:
        return {name: (alone.get(name) or pool.submit(post, drafting, ASKS[name]), pool.submit(known, plain, name))
                for name in ASKS}


def bare(choices):
    """Choices without the random ids of calls."""
    for choice in choices:
        for call in choice["message"].get("tool_calls") or []:
            call.pop("id")
    return choices


@pytest.mark.parametrize("name", ASKS)
def test_answers_are_those_of_masked_decoding(drafting, answers, name):
    found, wanted = (answer.result() for answer in answers[name])
    assert bare(found["choices"]) == bare(wanted["choices"])
    details = found["usage"]["completion_tokens_details"]
    assert "accepted_prediction_tokens" not in wanted["usage"]["completion_tokens_details"]
    if name == "free" and not drafting.name.startswith("with"):
        assert details["accepted_prediction_tokens"] == details["rejected_prediction_tokens"] == 0
    if name == "greedy" and drafting.name != "adaptive":
        assert details["accepted_prediction_tokens"] > 20, details
        json.loads(found["choices"][0]["message"]["content"])


def test_steps_are_fewer_and_counted(drafting):
    before = drafting.wait_until_idle()
    usage = post(drafting, ASKS["greedy"])["usage"]
    after = drafting.wait_until_idle()
    details = usage["completion_tokens_details"]
    rise = {key: after[key] - before[key] for key in ("spec_verify_ct", "spec_accept_token_num",
                                                      "spec_draft_token_num")}
    assert rise["spec_accept_token_num"] == details["accepted_prediction_tokens"]
    drafted = details["accepted_prediction_tokens"] + details["rejected_prediction_tokens"]
    assert rise["spec_draft_token_num"] == drafted
    assert 1 + rise["spec_verify_ct"] + rise["spec_accept_token_num"] == usage["completion_tokens"]
    text = drafting.get("/metrics").body.decode()
    assert re.search(r"^vllm:spec_decode_num_accepted_tokens_total\{.*\} [1-9]", text, re.M)
    assert "speculation: " in drafting.log.read_text() and "force" in drafting.log.read_text()


def test_many_at_once_get_the_answers_of_each_alone(drafting, plain):
    names = ["greedy", "drawn", "penalties", "free", "compact", "regex", "hot", "choice"]
    wanted = [bare(known(plain, name, seed=i)["choices"]) for i, name in enumerate(names)]
    found = [None] * len(names)

    def one(i):
        found[i] = bare(post(drafting, ASKS[names[i]], seed=i)["choices"])

    threads = [threading.Thread(target=one, args=(i,)) for i in range(len(names))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == wanted
    drafting.wait_until_idle()


def test_a_stream_brings_the_whole_text_and_each_token_once(drafting):
    whole = post(drafting, ASKS["drawn"])["choices"][0]
    connection = http.client.HTTPConnection("127.0.0.1", drafting.port, timeout=60)
    connection.request("POST", "/v1/chat/completions", json.dumps(ask({**ASKS["drawn"], "stream": True})),
                       {"Content-Type": "application/json"})
    choices = [e["choices"][0] for e in stream_events(connection.getresponse()) if e["choices"]]
    connection.close()
    assert "".join(c["delta"].get("content") or "" for c in choices) == whole["message"]["content"]
    tokens = [entry for c in choices for entry in (c.get("logprobs") or {}).get("content") or []]
    assert tokens == whole["logprobs"]["content"]


def test_clients_that_leave_free_their_pages(drafting):
    for size in (10, 200, 900):
        connection = http.client.HTTPConnection("127.0.0.1", drafting.port, timeout=60)
        connection.request("POST", "/v1/chat/completions", json.dumps(ask({**ASKS["hot"], "stream": True, "n": 2})),
                           {"Content-Type": "application/json"})
        connection.getresponse().read(size)
        connection.close()
    drafting.wait_until_idle()


def test_little_memory_sends_sequences_back(one_rank, tmp_path):
    names = ["drawn", "hot", "compact", "penalties"] * 3
    wanted = [bare(post(one_rank, ASKS[name], seed=i)["choices"]) for i, name in enumerate(names)]
    found = [None] * len(names)
    with Server(TINY, *FLAGS, *FORCED, "--max-total-tokens", "640", "--context-length", "600",
                "--schedule-conservativeness", "0.01", log=tmp_path / "server.log") as server:

        def one(i):
            found[i] = bare(post(server, ASKS[names[i]], seed=i)["choices"])

        threads = [threading.Thread(target=one, args=(i,)) for i in range(len(names))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        retracted = re.search(r"^sglang:num_retracted_requests_total(?:\{.*\})? (\S+)$",
                              server.get("/metrics").body.decode(), re.M)
        assert float(retracted[1]) > 0
    assert found == wanted


def test_errors_end_one_request(drafting):
    body = ask({"temperature": 0, "guided_regex": "abcdef", "min_tokens": 40})
    reply = drafting.post("/v1/chat/completions", body)
    assert reply.status == 400 and "grammar_is_over" in reply.body.decode()
    assert post(drafting, {"temperature": 0, "guided_regex": "abcdef"})["choices"][0]["message"]["content"] == "abcdef"


def test_what_cannot_be_drafted_for_is_refused():
    found = sluice("plan", TINY, *FORCED, "--rope-by-length")
    assert found.returncode == 2
    assert "--draft-forced-tokens and --rope-by-length exclude each other" in found.stderr


def test_off_unless_asked_for(one_rank):
    assert "spec_" not in one_rank.get("/metrics").body.decode()
