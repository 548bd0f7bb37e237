"""The `anthropic` client, unmodified: whole and streamed, tools, thinking, counting, errors, a session of an agent."""

import asyncio

import anthropic
import pytest

QUESTION = [{"role": "user", "content": "What is the capital of France?"}]
TIMER = {
    "name": "set_timer",
    "description": "Start a timer",
    "input_schema": {
        "type": "object",
        "properties": {"minutes": {"type": "integer"}, "label": {"type": "string"}},
        "required": ["minutes"],
    },
}
TIMER_QUESTION = [{"role": "user", "content": "Set a timer of 12 minutes for the napkin."}]


@pytest.fixture(scope="module")
def client(tiny):
    with anthropic.Anthropic(base_url=tiny.url, api_key="none", max_retries=0, timeout=120) as c:
        yield c


GREEDY = {"temperature": 0}  # which newer versions of the client leave to the model


def ask(client, **more):
    return client.messages.create(
        **{"model": "tiny", "max_tokens": 64, "messages": QUESTION, "extra_body": GREEDY, **more})


def test_message(client):
    answer = ask(client)
    assert answer.type == "message" and answer.role == "assistant" and answer.model == "tiny"
    assert [block.type for block in answer.content] == ["text"]
    assert "Paris" in answer.content[0].text
    assert answer.stop_reason == "end_turn" and answer.stop_sequence is None
    usage = answer.usage
    assert usage.output_tokens > 0 and usage.input_tokens + usage.cache_read_input_tokens > 0
    again = ask(client).usage
    assert again.cache_read_input_tokens > 0
    assert again.input_tokens + again.cache_read_input_tokens == usage.input_tokens + usage.cache_read_input_tokens


def test_stream_equals_whole(client):
    whole = ask(client)
    with client.messages.stream(model="tiny", max_tokens=64, messages=QUESTION, extra_body=GREEDY) as stream:
        text = "".join(stream.text_stream)
        final = stream.get_final_message()
    assert text == whole.content[0].text == final.content[0].text
    assert final.stop_reason == whole.stop_reason
    assert final.usage.output_tokens == whole.usage.output_tokens
    events = [event.type for event in ask(client, stream=True)]
    assert events[0] == "message_start" and events[-2:] == ["message_delta", "message_stop"]
    assert events[-3] == "content_block_stop"


def test_async(tiny):
    async def run():
        async with anthropic.AsyncAnthropic(base_url=tiny.url, api_key="none", max_retries=0) as c:
            answers = await asyncio.gather(*[ask(c) for _ in range(8)])
        return {answer.content[0].text for answer in answers}

    assert len(asyncio.run(run())) == 1


def test_tools(client):
    answer = ask(client, messages=TIMER_QUESTION, tools=[TIMER])
    (call,) = [block for block in answer.content if block.type == "tool_use"]
    assert (call.name, call.input) == ("set_timer", {"minutes": 12, "label": "napkin"})
    assert answer.stop_reason == "tool_use" and call.id
    with client.messages.stream(
        model="tiny", max_tokens=64, messages=TIMER_QUESTION, tools=[TIMER], extra_body=GREEDY
    ) as stream:
        pieces = [e.partial_json for e in stream if e.type == "input_json"]
        final = stream.get_final_message()
    assert "".join(pieces) and final.content[-1].input == call.input
    assert final.stop_reason == "tool_use"
    history = TIMER_QUESTION + [
        {"role": "assistant", "content": answer.content},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": call.id, "content": "started"}]},
    ]
    after = ask(client, messages=history, tools=[TIMER])
    assert after.stop_reason == "end_turn" and after.content[0].text
    none = ask(client, messages=TIMER_QUESTION, tools=[TIMER], tool_choice={"type": "none"})
    assert all(block.type == "text" for block in none.content)


def test_thinking(client):
    sums = [{"role": "user", "content": "Add 12, 34 and 56."}]
    plain = ask(client, messages=sums, max_tokens=200)
    assert [block.type for block in plain.content] == ["text"]
    thought = ask(client, messages=sums, max_tokens=200, thinking={"type": "enabled", "budget_tokens": 150})
    assert [block.type for block in thought.content] == ["thinking", "text"]
    assert thought.content[0].thinking and thought.content[0].signature
    # The budget ends the thoughts early, with the model's own mark, and the answer follows.
    short = ask(client, messages=sums, max_tokens=200, thinking={"type": "enabled", "budget_tokens": 4})
    assert [block.type for block in short.content] == ["thinking", "text"]
    assert len(short.content[0].thinking) < len(thought.content[0].thinking)
    assert thought.content[0].thinking.startswith(short.content[0].thinking.rstrip())
    with client.messages.stream(
        model="tiny", max_tokens=200, messages=sums, extra_body=GREEDY, thinking={"type": "enabled", "budget_tokens": 150}
    ) as stream:
        final = stream.get_final_message()
    assert [block.model_dump() for block in final.content][0]["thinking"] == thought.content[0].thinking
    # Thoughts go back into the history.
    more = ask(
        client,
        messages=sums + [{"role": "assistant", "content": thought.content}, {"role": "user", "content": "Multiply 7 by 12."}],
    )
    assert "84" in more.content[0].text


def test_stops_and_prefill(client):
    answer = ask(client, stop_sequences=["Paris"])
    assert answer.stop_reason == "stop_sequence" and answer.stop_sequence == "Paris"
    assert ask(client, max_tokens=1).stop_reason == "max_tokens"
    prefix = "The capital of France is"
    more = ask(client, messages=QUESTION + [{"role": "assistant", "content": prefix}])
    assert "Paris" in more.content[0].text


def test_count_tokens(client):
    count = client.messages.count_tokens(model="tiny", messages=QUESTION, system="Be short.", tools=[TIMER])
    usage = ask(client, system="Be short.", tools=[TIMER]).usage
    assert count.input_tokens == usage.input_tokens + usage.cache_read_input_tokens


def test_models(client):
    assert [model.id for model in client.models.list().data] == ["tiny"]
    assert client.models.retrieve("tiny").id == "tiny"


def test_errors(client):
    with pytest.raises(anthropic.NotFoundError) as missing:
        ask(client, model="other")
    assert missing.value.body["error"]["type"] == "not_found_error"
    assert missing.value.request_id
    with pytest.raises(anthropic.BadRequestError) as bad:
        ask(client, extra_body={"temperature": -1})
    assert "temperature" in bad.value.body["error"]["message"]
    with pytest.raises(anthropic.BadRequestError) as image:
        ask(client, messages=[{"role": "user", "content": [
            {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AAAA"}}]}])
    assert "messages.0.content.0.type" in image.value.body["error"]["message"]
    # Nothing of a prompt is dropped: what does not fit is refused with both numbers.
    with pytest.raises(anthropic.BadRequestError) as long:
        ask(client, messages=[{"role": "user", "content": "word " * 9000}])
    assert "8192" in long.value.body["error"]["message"]
    # An answer's limit beyond the context is no fault: the answer ends where the context does.
    assert ask(client, max_tokens=32000).stop_reason == "end_turn"


def test_agent_session(client):
    """Thirty turns as Claude Code makes them: a large system prompt with cache marks, several tools, streams, edits."""
    system = [{"type": "text", "text": "You help with timers. " * 20, "cache_control": {"type": "ephemeral"}}]
    tools = [TIMER, {"name": "read_file", "description": "Read a file", "input_schema": {
        "type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]}},
        {"name": "search_web", "defer_loading": True, "input_schema": {"type": "object"}}]
    more = {**GREEDY, "context_management": {"edits": [{"type": "clear_thinking_20251015", "keep": "all"}]},
            "output_config": {"effort": "low"}}
    messages, calls, cached = [], 0, 0

    def ask_for_more():
        with client.messages.stream(
            model="tiny", max_tokens=32000, system=system, tools=tools, messages=messages, extra_body=more,
            extra_query={"beta": "true"}, metadata={"user_id": "agent"},
            extra_headers={"anthropic-beta": "interleaved-thinking-2025-05-14,context-management-2025-06-27"},
        ) as stream:
            final = stream.get_final_message()
        messages.append({"role": "assistant", "content": [b.model_dump(exclude_none=True) for b in final.content]})
        used = [block for block in final.content if block.type == "tool_use"]
        assert (final.stop_reason == "tool_use") == bool(used) and final.content
        return used, final.usage.cache_read_input_tokens

    for turn in range(30):
        text = f"Set a timer of {turn + 3} minutes for the napkin."
        messages.append({"role": "user", "content": [
            {"type": "text", "text": text, "cache_control": {"type": "ephemeral"}}]})
        if turn == 0:
            messages.append({"role": "system", "content": [{"type": "text", "text": "Today is Friday."}]})
        used, hits = ask_for_more()
        calls, cached = calls + len(used), cached + hits
        while used:
            messages.append({"role": "user", "content": [
                {"type": "tool_result", "tool_use_id": block.id, "content": [{"type": "text", "text": "ok"}]}
                for block in used]})
            used, hits = ask_for_more()
            calls, cached = calls + len(used), cached + hits
    assert calls > 0 and cached > 0
