"""Captures of constrained answers: which part of the text each named part of the grammar is."""

import http.client
import json
import re

import pytest
from sluice_server import TINY, Server, stream_events

PATTERN = r"(?P<day>[1-9]\d?)\. (?P<month>May|June) (?P<year>\d{4})"
LARK = """start: pair ("," pair)~1..2
pair[capture]: key "=" value
key[capture="k"]: /[a-z]{2,5}/
value[capture]: NUMBER
NUMBER: /[0-9]{1,3}/
%ignore " "
"""
TAG = {"type": "structural_tag", "format": {"type": "sequence", "elements": [
    {"type": "const_string", "value": "<a>"},
    {"type": "regex", "pattern": "(?P<word>[a-zäö]{3,9})"},
    {"type": "tag", "begin": "<b>", "content": {"type": "json_schema", "json_schema": {"enum": ["äx", "y"]}},
     "end": "</b>", "capture": "inside"}]}}


def post(server, path, fields):
    reply = server.post(path, {"model": "tiny", "return_captures": True, **fields})
    assert reply.status == 200, reply.body
    return reply.json()


def events_of(server, path, fields):
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
    body = {"model": "tiny", "return_captures": True, "stream": True, **fields}
    connection.request("POST", path, json.dumps(body), {"Content-Type": "application/json"})
    return list(stream_events(connection.getresponse()))


def chat(**fields):
    return {"messages": [{"role": "user", "content": "When?"}], "max_tokens": 200, "temperature": 1, "seed": 3, **fields}


def check_spans(text, captures):
    for one in captures:
        assert set(one) == {"name", "text", "start", "end"}
        assert text[one["start"]:one["end"]] == one["text"]


@pytest.mark.parametrize("seed", range(4))
def test_named_groups(tiny, seed):
    choice = post(tiny, "/v1/chat/completions", chat(guided_regex=PATTERN, seed=seed))["choices"][0]
    text = choice["message"]["content"]
    check_spans(text, choice["captures"])
    assert {c["name"]: c["text"] for c in choice["captures"]} == re.fullmatch(PATTERN, text).groupdict()


def test_rules(tiny):
    choice = post(tiny, "/v1/completions", {"prompt": "x", "guided_grammar": LARK, "max_tokens": 80, "temperature": 1,
                                            "seed": 1})["choices"][0]
    assert choice["finish_reason"] == "stop"
    check_spans(choice["text"], choice["captures"])
    pairs = re.findall(r"([a-z]+) *= *([0-9]+)", choice["text"])
    assert [c["text"] for c in choice["captures"] if c["name"] == "k"] == [key for key, _ in pairs]
    assert [c["text"] for c in choice["captures"] if c["name"] == "value"] == [value for _, value in pairs]
    assert [c["name"] for c in choice["captures"]] == ["k", "value", "pair"] * len(pairs)


def test_structural_tags(tiny):
    fields = {"text": "x", "sampling_params": {"structural_tag": json.dumps(TAG), "max_new_tokens": 90, "temperature": 1,
                                               "sampling_seed": 2}}
    reply = post(tiny, "/generate", fields)
    found = reply["meta_info"]["captures"]
    check_spans(reply["text"], found)
    assert [c["name"] for c in found] == ["word", "inside"]
    assert json.loads(found[1]["text"]) in ("äx", "y")


def test_a_stream_brings_them_at_the_end(tiny):
    fields = chat(guided_regex=PATTERN, n=2)
    whole = post(tiny, "/v1/chat/completions", fields)["choices"]
    choices = [event["choices"][0] for event in events_of(tiny, "/v1/chat/completions", fields)]
    ends = [choice for choice in choices if "captures" in choice]
    assert all(choice["finish_reason"] == "stop" for choice in ends)
    found = {choice["index"]: choice["captures"] for choice in ends}
    assert [found[i] for i in range(2)] == [choice["captures"] for choice in whole]
    assert whole[0]["captures"] != whole[1]["captures"]


def test_generate_streams_them_with_the_last_event(tiny):
    fields = {"text": "x", "sampling_params": {"regex": PATTERN, "max_new_tokens": 60, "temperature": 1}}
    events = events_of(tiny, "/generate", fields)
    assert all("captures" not in event["meta_info"] for event in events[:-1])
    assert [c["name"] for c in events[-1]["meta_info"]["captures"]] == ["day", "month", "year"]


def test_a_cut_answer_has_those_that_are_certain(tiny):
    fields = chat(guided_regex=r"(?P<a>[a-z]{4}) (?P<b>[a-z]{200,})", max_tokens=30)
    choice = post(tiny, "/v1/chat/completions", fields)["choices"][0]
    assert choice["finish_reason"] == "length"
    assert [(c["name"], c["text"]) for c in choice["captures"]] == [("a", choice["message"]["content"][:4])]


def test_a_stop_string_leaves_what_is_shown(tiny):
    fields = chat(guided_regex=r"(?P<a>\d{3})-(?P<b>\d{3})-(?P<c>\d{3})", stop=["-"])
    choice = post(tiny, "/v1/chat/completions", fields)["choices"][0]
    assert choice["matched_stop"] == "-"
    assert [(c["name"], c["text"]) for c in choice["captures"]] == [("a", choice["message"]["content"])]


def test_only_where_asked_for(tiny):
    reply = tiny.post("/v1/chat/completions", {"model": "tiny", **chat(guided_regex=PATTERN)})
    assert "captures" not in reply.json()["choices"][0]


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/completions", "/generate"])
def test_faults(tiny, path):
    def refused(field, value, param, words):
        asked = {"prompt": "x", "messages": [{"role": "user", "content": "x"}], "text": "x", "return_captures": True}
        keep = {"/generate": ("text",), "/v1/completions": ("prompt",)}.get(path, ("messages",))
        body = {key: asked[key] for key in (*keep, "return_captures")}
        if path == "/generate":
            body["sampling_params"] = {field: value} if field else {}
        else:
            body |= {"model": "tiny", **({field: value} if field else {})}
        reply = tiny.post(path, body)
        assert reply.status == 400, reply.body
        assert words in reply.body.decode(), reply.body
        if path != "/generate":
            assert reply.error["param"] == param
    refused(None, None, "return_captures", "needs a grammar")
    refused("regex", "[a-z]+", "return_captures", "names no part")
    refused("regex", r"(?P<a>[a-z]+)\b.", "return_captures", "a word boundary")
    refused("ebnf", "start: a\na[capture]: a \"x\" | \"y\"\n", "return_captures", "cannot be captured")
    refused("ebnf", "start[max_tokens=3]: \"x\"\n", "ebnf", "the attribute 'max_tokens'")


def test_with_drafts(tiny, tmp_path):
    """Drafts that a grammar refuses are taken back, and leave no captures."""
    bodies = [chat(guided_regex=PATTERN, seed=seed) for seed in range(6)]
    wanted = [post(tiny, "/v1/chat/completions", body)["choices"] for body in bodies]
    with Server(TINY, "--dtype", "float32", "--served-model-name", "tiny", "--max-total-tokens", "65536",
                "--draft-forced-tokens", "--speculative-algorithm", "NGRAM", "--speculative-adaptive=false",
                log=tmp_path / "server.log") as server:
        assert [post(server, "/v1/chat/completions", body)["choices"] for body in bodies] == wanted
