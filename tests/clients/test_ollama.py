"""The `ollama` client, unmodified: chat, generate, streams, tools, thinking, formats, what the model is, errors."""

import asyncio
import json

import ollama
import pytest

QUESTION = [{"role": "user", "content": "What is the capital of France?"}]
GREEDY = {"temperature": 0, "num_predict": 64}
TIMER = {
    "type": "function",
    "function": {
        "name": "set_timer",
        "description": "Start a timer",
        "parameters": {
            "type": "object",
            "properties": {"minutes": {"type": "integer"}, "label": {"type": "string"}},
            "required": ["minutes"],
        },
    },
}


@pytest.fixture(scope="module")
def client(tiny):
    return ollama.Client(host=tiny.url)


def ask(client, **more):
    return client.chat(**{"model": "tiny", "messages": QUESTION, "options": GREEDY, **more})


def test_chat(client):
    answer = ask(client)
    assert "Paris" in answer.message.content and answer.message.role == "assistant"
    assert answer.done and answer.done_reason == "stop" and answer.model == "tiny"
    assert answer.eval_count > 0 and answer.prompt_eval_count > 0
    assert answer.total_duration >= answer.eval_duration + answer.prompt_eval_duration > 0


def test_stream_equals_whole(client):
    whole = ask(client)
    parts = list(ask(client, stream=True))
    assert "".join(part.message.content for part in parts) == whole.message.content
    assert [part.done for part in parts] == [False] * (len(parts) - 1) + [True]
    assert parts[-1].eval_count == whole.eval_count
    assert ask(client, model="tiny:latest").message.content == whole.message.content


def test_async(tiny):
    async def run():
        client = ollama.AsyncClient(host=tiny.url)
        answers = await asyncio.gather(*[ask(client) for _ in range(8)])
        return {answer.message.content for answer in answers}

    assert len(asyncio.run(run())) == 1


def test_generate(client):
    answer = client.generate("tiny", "What is the capital of France?", options=GREEDY)
    assert "Paris" in answer.response and answer.done
    streamed = client.generate("tiny", "What is the capital of France?", options=GREEDY, stream=True)
    assert "".join(part.response for part in streamed) == answer.response
    raw = client.generate("tiny", "<|user|>\nWhat is the capital of France?<|assistant|>\n<think></think>\n",
                          raw=True, options=GREEDY)
    assert raw.response
    assert client.generate("tiny").done_reason == "load"


def test_tools(client):
    messages = [{"role": "user", "content": "Set a timer of 12 minutes for the napkin."}]
    answer = ask(client, messages=messages, tools=[TIMER])
    (call,) = answer.message.tool_calls
    assert (call.function.name, dict(call.function.arguments)) == ("set_timer", {"minutes": 12, "label": "napkin"})
    streamed = [c for part in ask(client, messages=messages, tools=[TIMER], stream=True)
                for c in part.message.tool_calls or []]
    assert [c.function.arguments for c in streamed] == [call.function.arguments]
    messages += [answer.message, {"role": "tool", "tool_name": "set_timer", "content": "started"}]
    assert ask(client, messages=messages, tools=[TIMER]).message.content

    def set_timer(minutes: int, label: str) -> str:
        """Start a timer

        Args:
            minutes: how long
            label: its name
        """

    assert ask(client, messages=messages[:1], tools=[set_timer]).message is not None


def test_thinking(client):
    sums = [{"role": "user", "content": "Add 12, 34 and 56."}]
    options = {"temperature": 0, "num_predict": 200}
    thought = ask(client, messages=sums, think=True, options=options)
    assert thought.message.thinking and "102" in thought.message.content
    plain = ask(client, messages=sums, think=False, options=options)
    assert not plain.message.thinking
    parts = list(ask(client, messages=sums, think=True, options=options, stream=True))
    assert "".join(part.message.thinking or "" for part in parts) == thought.message.thinking


def test_formats(client):
    answer = ask(client, format="json", think=False, options={"temperature": 0, "num_predict": 200, "stop": ["\n\n\n"]})
    assert answer.message.content.startswith("{")
    schema = {"type": "object", "properties": {"n": {"type": "integer", "minimum": 1, "maximum": 9}},
              "required": ["n"], "additionalProperties": False}
    value = json.loads(ask(client, format=schema, think=False).message.content)
    assert 1 <= value["n"] <= 9


def test_what_the_model_is(client):
    assert [model.model for model in client.list().models] == ["tiny"]
    (running,) = client.ps().models
    assert running.model == "tiny" and running.context_length == 8192
    show = client.show("tiny")
    assert {"completion", "tools", "thinking"} <= set(show.capabilities)
    assert any(key.endswith(".context_length") and value == 8192 for key, value in show.modelinfo.items())
    assert "<|user|>" in show.template


def test_embed(client):
    both = client.embed("tiny", ["one text", "another"])
    assert len(both.embeddings) == 2 and both.prompt_eval_count > 0 and both.total_duration > 0
    assert abs(sum(x * x for x in both.embeddings[0]) - 1) < 1e-5
    assert client.embed("tiny", "another").embeddings[0] == both.embeddings[1]
    assert client.embeddings("tiny", "another").embedding == both.embeddings[1]
    assert len(client.embed("tiny", "another", dimensions=8).embeddings[0]) == 8


def test_errors(client):
    for call, status, word in (
        (lambda: ask(client, model="other"), 404, "other"),
        (lambda: client.show("other"), 404, "other"),
        (lambda: ask(client, options={"temperature": -1}), 400, "options.temperature"),
        (lambda: ask(client, messages=[{"role": "user", "content": "a", "images": ["QUFBQQ=="]}]), 400, "images"),
        (lambda: ask(client, messages=[{"role": "user", "content": "word " * 9000}]), 400, "8192"),
        (lambda: client.embed("other", "a"), 404, "other"),
        (lambda: client.embed("tiny", "word " * 9000), 400, "8192"),
        (lambda: client.pull("other"), 404, "sluice pull"),
        (lambda: list(ask(client, options={"mirostat": 2}, stream=True)), 400, "mirostat"),
    ):
        with pytest.raises(ollama.ResponseError) as error:
            call()
        assert error.value.status_code == status and word in error.value.error
