"""`responses` of the `openai` client, unmodified: create, stream, parse, the store, tools, a session as Codex makes it."""

import json
import typing

import openai
import pydantic
import pytest

QUESTION = "What is the capital of France?"
TIMER = {
    "type": "function",
    "name": "set_timer",
    "description": "Start a timer",
    "strict": False,
    "parameters": {
        "type": "object",
        "properties": {"minutes": {"type": "integer"}, "label": {"type": "string"}},
        "required": ["minutes"],
    },
}
NO_THOUGHTS = {"chat_template_kwargs": {"enable_thinking": False}}


@pytest.fixture(scope="module")
def client(tiny):
    with openai.OpenAI(base_url=tiny.url + "/v1", api_key="none", max_retries=0, timeout=120) as c:
        yield c


def ask(client, **more):
    return client.responses.create(**{"model": "tiny", "input": QUESTION, "temperature": 0, **more})


def test_create(client):
    answer = ask(client)
    assert answer.object == "response" and answer.status == "completed" and answer.model == "tiny"
    assert "Paris" in answer.output_text
    assert answer.usage.total_tokens == answer.usage.input_tokens + answer.usage.output_tokens
    assert ask(client).usage.input_tokens_details.cached_tokens > 0
    cut = ask(client, max_output_tokens=2)
    assert cut.status == "incomplete" and cut.incomplete_details.reason == "max_output_tokens"


def test_stream(client):
    whole = ask(client)
    with client.responses.stream(model="tiny", input=QUESTION, temperature=0) as stream:
        events = list(stream)
        final = stream.get_final_response()
    assert final.output_text == whole.output_text
    assert "".join(e.delta for e in events if e.type == "response.output_text.delta") == whole.output_text
    assert [e.sequence_number for e in events] == sorted({e.sequence_number for e in events})
    assert [events[0].type, events[-1].type] == ["response.created", "response.completed"]


def test_parse(client):
    class Digit(pydantic.BaseModel):
        n: typing.Literal[1, 2, 3]

    parsed = client.responses.parse(
        model="tiny", input="Give me a number.", text_format=Digit, temperature=0, max_output_tokens=60,
        extra_body=NO_THOUGHTS)
    assert isinstance(parsed.output_parsed, Digit)


def test_store(client):
    first = ask(client, input="My name is Ada.", metadata={"who": "me"})
    assert client.responses.retrieve(first.id).output_text == first.output_text
    assert client.responses.retrieve(first.id).metadata == {"who": "me"}
    items = client.responses.input_items.list(first.id).data
    assert items[0].content[0].text == "My name is Ada."
    second = ask(client, input=QUESTION, previous_response_id=first.id)
    assert second.usage.input_tokens > first.usage.input_tokens and second.previous_response_id == first.id
    with pytest.raises(openai.BadRequestError):
        client.responses.cancel(first.id)
    client.responses.delete(first.id)
    with pytest.raises(openai.NotFoundError):
        client.responses.retrieve(first.id)
    with pytest.raises(openai.NotFoundError):
        ask(client, previous_response_id=first.id)
    with pytest.raises(openai.NotFoundError):
        client.responses.retrieve(ask(client, store=False).id)


def test_tools(client):
    answer = ask(client, input="Set a timer of 12 minutes for the napkin.", tools=[TIMER])
    (call,) = [item for item in answer.output if item.type == "function_call"]
    assert (call.name, json.loads(call.arguments)) == ("set_timer", {"minutes": 12, "label": "napkin"})
    result = {"type": "function_call_output", "call_id": call.call_id, "output": "started"}
    assert ask(client, input=[result], tools=[TIMER], previous_response_id=answer.id).output_text
    with client.responses.stream(
        model="tiny", input="Set a timer of 12 minutes for the napkin.", tools=[TIMER], temperature=0
    ) as stream:
        final = stream.get_final_response()
    assert json.loads(final.output[-1].arguments) == {"minutes": 12, "label": "napkin"}


def test_reasoning(client):
    sums = "Add 12, 34 and 56."
    answer = ask(client, input=sums, include=["reasoning.encrypted_content"], store=False)
    assert [item.type for item in answer.output] == ["reasoning", "message"]
    thoughts = answer.output[0].content[0].text
    assert thoughts and answer.output[0].encrypted_content
    assert answer.usage.output_tokens_details.reasoning_tokens > 0
    off = ask(client, input=sums, reasoning={"effort": "none"})
    assert [item.type for item in off.output] == ["message"]
    short = ask(client, input=sums, extra_body={"thinking_token_budget": 4})
    assert [item.type for item in short.output] == ["reasoning", "message"]
    assert len(short.output[0].content[0].text) < len(thoughts)


def test_errors(client):
    with pytest.raises(openai.BadRequestError) as bad:
        ask(client, temperature=-1)
    assert bad.value.body["param"] == "temperature"
    with pytest.raises(openai.BadRequestError) as image:
        ask(client, input=[{"role": "user", "content": [{"type": "input_image", "image_url": "http://x/y.png"}]}])
    assert image.value.body["param"] == "input.0.content.0.type"
    with pytest.raises(openai.BadRequestError) as long:
        ask(client, input="word " * 9000)
    assert "8192" in long.value.body["message"]
    with pytest.raises(openai.NotFoundError):
        ask(client, model="other")


def test_truncation(client):
    turns = []
    for i in range(400):
        turns += [{"role": "user", "content": f"question {i} " + "word " * 20}, {"role": "assistant", "content": "yes"}]
    turns.append({"role": "user", "content": QUESTION})
    with pytest.raises(openai.BadRequestError):
        ask(client, input=turns)
    raw = client.responses.with_raw_response.create(
        model="tiny", input=turns, truncation="auto", max_output_tokens=20, temperature=0)
    assert int(raw.headers["x-truncated-messages"]) % 2 == 0
    assert raw.parse().usage.input_tokens < 8192


def test_codex_session(client):
    """Thirty turns as Codex makes them: nothing stored, all items sent again, reasoning in disguise, many tools."""
    tools = [
        TIMER,
        {"type": "function", "name": "exec_command", "strict": False, "description": "Runs a command",
         "parameters": {"type": "object", "properties": {"cmd": {"type": "string"}}, "required": ["cmd"]}},
        {"type": "custom", "name": "apply_patch", "description": "Edits files",
         "format": {"type": "grammar", "syntax": "lark", "definition": "start: /.+/"}},
        {"type": "web_search", "external_web_access": False},
    ]
    items = [{"type": "message", "role": "developer", "content": [{"type": "input_text", "text": "Be brief."}]}]
    calls = cached = 0
    for turn in range(30):
        items.append({"type": "message", "role": "user", "content": [
            {"type": "input_text", "text": f"Set a timer of {turn + 3} minutes for the napkin."}]})
        for _ in range(2):
            stream = client.responses.create(
                model="tiny", instructions="You help with timers.", input=items, tools=tools, tool_choice="auto",
                parallel_tool_calls=False, reasoning={"effort": "none", "summary": "auto"}, store=False, stream=True,
                include=["reasoning.encrypted_content"], prompt_cache_key="session", temperature=0,
                text={"verbosity": "low"}, max_output_tokens=200)
            final, done = None, []
            for number, event in enumerate(stream):
                assert event.sequence_number == number
                if event.type == "response.output_item.done":
                    done.append(event.item)
                if event.type in ("response.completed", "response.incomplete"):
                    final = event.response
            assert final is not None
            cached += final.usage.input_tokens_details.cached_tokens
            items += [item.model_dump(exclude_none=True) for item in done]
            made = [item for item in done if item.type in ("function_call", "custom_tool_call")]
            calls += len(made)
            items += [{"type": item.type + "_output", "call_id": item.call_id, "output": "ok"} for item in made]
            if not made:
                break
    assert calls > 0 and cached > 0
