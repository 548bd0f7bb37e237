"""Calls that a request asks for: tool_choice, strict tools, and the `openai` client's helpers."""

import json

import openai
import pydantic
import pytest

from sluice_server import TINY, stream_events

ASK = [{"role": "user", "content": "What is the capital of France?"}]


def tool(name, properties, required=(), **more):
    parameters = {"type": "object", "properties": properties, "required": list(required), "additionalProperties": False}
    return {"type": "function", "function": {"name": name, "description": name, "parameters": parameters, **more}}


WEATHER = tool(
    "get_weather",
    {"city": {"type": "string", "maxLength": 12}, "days": {"type": "integer", "minimum": 1, "maximum": 7}},
    ["city", "days"],
)
LABEL = tool("set_label", {"text": {"enum": ["red", "green"]}, "count": {"type": "number"}}, ["text"])
TOOLS = [WEATHER, LABEL]


@pytest.fixture(scope="module")
def client(tiny):
    with openai.OpenAI(base_url=tiny.url + "/v1", api_key="none", max_retries=0, timeout=120) as c:
        yield c


def ask(client, **more):
    body = {"model": "tiny", "messages": ASK, "tools": TOOLS, "max_tokens": 300, "temperature": 1.2, **more}
    return client.chat.completions.create(**body).choices[0]


def check(call):
    arguments = json.loads(call.function.arguments)
    if call.function.name == "get_weather":
        assert set(arguments) == {"city", "days"}
        assert isinstance(arguments["city"], str) and len(arguments["city"]) <= 12
        assert isinstance(arguments["days"], int) and 1 <= arguments["days"] <= 7
    else:
        assert call.function.name == "set_label"
        assert arguments["text"] in ("red", "green") and set(arguments) <= {"text", "count"}
        assert isinstance(arguments.get("count", 1), (int, float))


@pytest.mark.parametrize("seed", range(8))
def test_required(client, seed):
    choice = ask(client, tool_choice="required", seed=seed)
    assert choice.finish_reason == "tool_calls"
    assert not choice.message.content
    for call in choice.message.tool_calls:
        check(call)


@pytest.mark.parametrize("name", ["get_weather", "set_label"])
def test_named(client, name):
    for seed in range(4):
        choice = ask(client, tool_choice={"type": "function", "function": {"name": name}}, seed=seed)
        (call,) = choice.message.tool_calls
        assert call.function.name == name
        check(call)


def test_allowed_tools(client):
    function = {"type": "function", "function": {"name": "set_label"}}
    for seed in range(4):
        wanted = {"type": "allowed_tools", "allowed_tools": {"mode": "required", "tools": [function]}}
        choice = ask(client, tool_choice=wanted, seed=seed)
        assert {call.function.name for call in choice.message.tool_calls} == {"set_label"}
    free = {"type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": [function]}}
    choice = ask(client, tool_choice=free, temperature=0, max_tokens=64)
    assert choice.message.content or choice.message.tool_calls


def test_parallel_calls(client):
    """A bias against the ends of an answer makes the model go on with further calls."""
    ends = json.loads((TINY / "generation_config.json").read_text())["eos_token_id"]
    bias = {str(token): -30 for token in ends}
    most = 0
    for seed in range(4):
        choice = ask(client, tool_choice="required", seed=seed, logit_bias=bias, max_tokens=200)
        calls = choice.message.tool_calls
        for call in calls if choice.finish_reason == "tool_calls" else calls[:-1]:
            check(call)
        assert len({call.id for call in calls}) == len(calls)
        most = max(most, len(calls))
    assert most > 1


def test_one_call_without_parallel_calls(client):
    for seed in range(4):
        choice = ask(client, tool_choice="required", parallel_tool_calls=False, seed=seed)
        assert len(choice.message.tool_calls) == 1


def test_several_choices_and_logprobs(client):
    body = {"model": "tiny", "messages": ASK, "tools": TOOLS, "tool_choice": "required", "n": 3, "logprobs": True}
    answer = client.chat.completions.create(**body, max_tokens=300, temperature=1, seed=3)
    for choice in answer.choices:
        for call in choice.message.tool_calls:
            check(call)


def test_stream_equals_whole(client, tiny):
    body = {"model": "tiny", "messages": ASK, "tools": TOOLS, "tool_choice": "required", "temperature": 0}
    whole = client.chat.completions.create(**body, max_tokens=300).choices[0].message.tool_calls
    pieces = {}
    for chunk in client.chat.completions.create(**body, max_tokens=300, stream=True):
        for piece in chunk.choices[0].delta.tool_calls or [] if chunk.choices else []:
            name, arguments = pieces.get(piece.index, ("", ""))
            pieces[piece.index] = (name + (piece.function.name or ""), arguments + (piece.function.arguments or ""))
    assert list(pieces.values()) == [(call.function.name, call.function.arguments) for call in whole]


def test_streaming_helper(client):
    with client.chat.completions.stream(
        model="tiny", messages=ASK, tools=TOOLS, tool_choice="required", max_tokens=300, temperature=1, seed=2
    ) as stream:
        final = stream.get_final_completion()
    for call in final.choices[0].message.tool_calls:
        check(call)


class Person(pydantic.BaseModel):
    name: str = pydantic.Field(max_length=12)
    age: int = pydantic.Field(ge=0, le=120)
    is_mayor: bool


def test_parse_with_a_class(client):
    for seed in range(4):
        answer = client.chat.completions.parse(
            model="tiny", messages=ASK, response_format=Person, max_tokens=400, temperature=0.5, seed=seed
        )
        assert isinstance(answer.choices[0].message.parsed, Person)


class GetWeather(pydantic.BaseModel):
    city: str = pydantic.Field(max_length=12)
    days: int


def test_parse_with_a_function_of_a_class(client):
    function = openai.pydantic_function_tool(GetWeather)
    assert function["function"]["strict"] is True
    answer = client.chat.completions.parse(
        model="tiny", messages=ASK, tools=[function], tool_choice="required", max_tokens=2000, temperature=0.3, seed=4
    )
    assert answer.choices[0].finish_reason == "tool_calls"
    for call in answer.choices[0].message.tool_calls:
        assert isinstance(call.function.parsed_arguments, GetWeather)


def test_strict_tools_bind_a_free_choice(client):
    strict = [tool("get_weather", WEATHER["function"]["parameters"]["properties"], ["city", "days"], strict=True)]
    question = [{"role": "user", "content": "Set a timer of 12 minutes for the napkin."}]
    for seed in range(6):
        choice = ask(client, messages=question, tools=strict, temperature=0.8, seed=seed)
        for call in choice.message.tool_calls or []:
            check(call)


def test_faults(client):
    nothing = {"type": "object", "properties": {"a": {"$ref": "http://127.0.0.1:9/x"}}}
    broken = [{"type": "function", "function": {"name": "f", "parameters": nothing, "strict": True}}]
    with pytest.raises(openai.BadRequestError) as caught:
        ask(client, tools=broken)
    assert caught.value.code == "unsupported_json_schema"
    with pytest.raises(openai.BadRequestError) as caught:
        ask(client, tool_choice={"type": "function", "function": {"name": "other"}})
    assert "other" in caught.value.body["message"]


def test_what_is_not_enforced_is_told(tiny):
    nothing = {"type": "object", "properties": {"a": {"$ref": "http://127.0.0.1:9/x"}}}
    loose = [{"type": "function", "function": {"name": "f", "parameters": nothing}}]
    reply = tiny.post(
        "/v1/chat/completions", {"model": "tiny", "messages": ASK, "tools": loose, "tool_choice": "required", "max_tokens": 64}
    )
    assert reply.status == 200, reply.body
    assert "tools.f.function.parameters" in reply.headers["X-Ignored-Fields"]


def test_a_required_call_leaves_other_grammars_and_their_captures_out(tiny):
    tools = [{"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": {}}}}]
    body = {"model": "tiny", "messages": ASK, "tools": tools, "tool_choice": "required", "max_tokens": 64,
            "regex": "(?P<word>[a-z]+)", "return_captures": True}
    reply = tiny.post("/v1/chat/completions", body)
    assert reply.status == 200, reply.body
    assert {"regex", "return_captures"} <= set(reply.headers["X-Ignored-Fields"].split(", "))
    choice = reply.json()["choices"][0]
    assert "captures" not in choice and choice["message"]["tool_calls"]
    free = tiny.post("/v1/chat/completions", {**body, "tools": None, "tool_choice": None}).json()["choices"][0]
    assert free["captures"][0]["name"] == "word"


def test_schema_keywords_without_effect_are_told(tiny):
    body = {"model": "tiny", "messages": ASK, "max_tokens": 4, "guided_json": {"type": "integer", "maxLenght": 5}}
    reply = tiny.post("/v1/chat/completions", body)
    assert reply.status == 200, reply.body
    assert "guided_json#/maxLenght" in reply.headers["X-Ignored-Fields"]
