"""Calls that nobody asked for, which `tool_choice: auto` binds to the tools: a scripted model says what it likes."""

import json

import pytest
import scripted_model
from scripted_model import END, chat
from sluice_server import Server
from test_calls import CHAT, PING, ROME, SERVERS, TOOLS, check, coder, events, hermes, joined, row

SPECIAL = ["<tool_call>", "</tool_call>", "<think>", "</think>"]
LABEL = {
    "type": "function",
    "function": {
        "name": "label",
        "parameters": {
            "type": "object",
            "properties": {"first": {"type": "integer"}, "second": {"enum": ["on", "off"]}},
            "required": ["first", "second"],
            "additionalProperties": False,
        },
    },
}
BOTH = '{"second": "on", "first": 3}'
RIGHT = [
    row("The weather is fine.", content="The weather is fine."),
    row(hermes(), [ROME]),
    row("Ok.\n" + hermes() + "\n" + hermes("{}", "ping") + "\nBye.", [ROME, PING], "Ok.\n\nBye."),
    row("<think>a</think>" + hermes(), [ROME], reasoning="a"),
    row("<think>\nI should call\n" + hermes("{}", "ping"), [PING], reasoning="I should call"),
    row("<think>\nOnly thoughts", reasoning="Only thoughts"),
    row(hermes() + hermes(), [ROME], parallel_tool_calls=False),
    row(hermes(), [ROME], stop=["</tool_call>"]),
    row(hermes(), [("get_weather", None)], finish="length", max_tokens=50),
    row(hermes(), [("get_weather", None)], finish="stop", stop=["ome"]),
    row(hermes(BOTH, "label"), [("label", BOTH)]),  # in the order of the model
]
STEERED = [
    hermes("{}", "pong"),  # becomes ping: the only way on behind its p
    hermes('{"first": 3, "second": "ob"}', "label"),
    hermes('{"first": true, "second": "on"}', "label"),
    "<tool_call>There is no call here.",
]


@pytest.fixture(scope="module")
def bound(tmp_path_factory):
    folder = tmp_path_factory.mktemp("bound")
    scripts = [one["text"] + END for one in RIGHT] + [text + END for text in STEERED]
    scripted_model.write(folder, scripts, SPECIAL)
    flags = ["--dtype", "float32", "--served-model-name", "scripted", "--max-total-tokens", "32768"]
    with Server(folder, *flags, *SERVERS["hermes"]["flags"], log=folder / "log") as server:
        yield server


def both_ways(server, number, **more):
    """The choice of an answer, after a check that a stream brings the same."""
    body = chat(number, SPECIAL, tools=[*TOOLS, LABEL], **more)
    reply = server.post(CHAT, body)
    assert reply.status == 200, reply.body
    choice = reply.json()["choices"][0]
    message, finish = joined(events(server.post(CHAT, {**body, "stream": True}).body))
    assert finish == choice["finish_reason"]
    sent = [c["function"] for c in choice["message"].get("tool_calls") or []]
    assert [c["function"] for c in message["tool_calls"]] == sent
    assert message["content"] == (choice["message"]["content"] or "")
    return reply, choice


@pytest.mark.parametrize("number", range(len(RIGHT)))
def test_what_is_right_stays_as_it_was_said(bound, number):
    wanted = RIGHT[number]
    reply, choice = both_ways(bound, number + 1, **wanted["request"])
    check(wanted, choice["message"], choice["finish_reason"])
    assert "X-Ignored-Fields" not in reply.headers


@pytest.mark.parametrize("number", range(len(STEERED)))
def test_what_is_wrong_becomes_a_call_of_a_tool(bound, number):
    _, choice = both_ways(bound, len(RIGHT) + 1 + number, max_tokens=400)
    calls = [call["function"] for call in choice["message"].get("tool_calls") or []]
    assert choice["finish_reason"] in ("tool_calls", "length")
    assert {call["name"] for call in calls} <= {"get_weather", "ping", "label"}
    if choice["finish_reason"] == "tool_calls":
        assert calls and all(isinstance(json.loads(call["arguments"]), dict) for call in calls)
    if number == 0:
        assert calls[0]["name"] == "ping" and json.loads(calls[0]["arguments"]) == {}
    for call in calls[:-1]:
        arguments = json.loads(call["arguments"])
        if call["name"] == "label":
            assert isinstance(arguments["first"], int) and arguments["second"] in ("on", "off")


def test_a_schema_that_is_not_enforced_is_told(bound):
    odd = {"type": "function", "function": {"name": "ping", "parameters": {"$ref": "http://127.0.0.1:9/x"}}}
    reply = bound.post(CHAT, chat(2, SPECIAL, tools=[TOOLS[0], odd]))
    assert reply.status == 200 and reply.json()["choices"][0]["finish_reason"] == "tool_calls"
    assert reply.headers["X-Ignored-Fields"] == "tools.ping.function.parameters"


@pytest.mark.parametrize("more", [{"ignore_eos": True}, {"min_tokens": 300}])
def test_an_answer_that_must_not_end_is_free(bound, more):
    body = chat(2, SPECIAL, tools=TOOLS, max_tokens=320, **more)
    choice = bound.post(CHAT, body).json()["choices"][0]
    assert choice["message"]["tool_calls"][0]["function"]["name"] == "get_weather"
    assert choice["finish_reason"] in ("length", "tool_calls")


def test_tags_bind_their_values_to_the_schema(tmp_path):
    said = [coder(city="Rome", days=3), coder(city="Rome", days="soon")]
    scripted_model.write(tmp_path / "model", [text + END for text in said], SPECIAL[:2])
    flags = ["--dtype", "float32", "--served-model-name", "scripted", "--tool-call-parser", "qwen3_coder"]
    with Server(tmp_path / "model", *flags, log=tmp_path / "log") as server:
        right = server.post(CHAT, chat(1, SPECIAL[:2], tools=TOOLS)).json()["choices"][0]
        check(row(said[0], [("get_weather", {"city": "Rome", "days": 3})]), right["message"], right["finish_reason"])
        wrong = server.post(CHAT, chat(2, SPECIAL[:2], tools=TOOLS, max_tokens=400)).json()["choices"][0]
        for call in wrong["message"].get("tool_calls") or []:
            assert "soon" not in call["function"]["arguments"]
