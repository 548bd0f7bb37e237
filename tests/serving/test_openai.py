"""The `openai` client, unmodified: sync, async, streaming, tools, logprobs, n, errors."""

import asyncio
import json
import math

import openai
import pytest

QUESTION = [{"role": "user", "content": "What is the capital of France?"}]
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
    with openai.OpenAI(base_url=tiny.url + "/v1", api_key="none", max_retries=0, timeout=120) as c:
        yield c


def ask(client, **more):
    arguments = {"model": "tiny", "messages": QUESTION, "temperature": 0, "max_tokens": 32}
    return client.chat.completions.create(**{**arguments, **more})


def test_models(client):
    models = client.models.list().data
    assert [m.id for m in models] == ["tiny"]
    assert client.models.retrieve("tiny").id == "tiny"
    with pytest.raises(openai.NotFoundError):
        client.models.retrieve("other")


def test_chat(client):
    answer = ask(client)
    assert answer.object == "chat.completion" and answer.model == "tiny"
    assert "Paris" in answer.choices[0].message.content
    assert answer.choices[0].message.role == "assistant"
    assert answer.choices[0].finish_reason == "stop"
    usage = answer.usage
    assert usage.total_tokens == usage.prompt_tokens + usage.completion_tokens


def test_stream_equals_whole(client):
    whole = ask(client)
    text, roles, finish, usage = "", [], [], None
    for chunk in ask(client, stream=True, stream_options={"include_usage": True}):
        assert chunk.object == "chat.completion.chunk"
        if not chunk.choices:
            usage = chunk.usage
            continue
        delta = chunk.choices[0].delta
        text += delta.content or ""
        roles += [delta.role] if delta.role else []
        finish += [chunk.choices[0].finish_reason] if chunk.choices[0].finish_reason else []
    assert text == whole.choices[0].message.content
    assert roles == ["assistant"]
    assert finish == ["stop"]
    assert usage.completion_tokens == whole.usage.completion_tokens


def test_stream_helper(client):
    with client.chat.completions.stream(model="tiny", messages=QUESTION, temperature=0, max_tokens=32) as stream:
        stream.until_done()
        final = stream.get_final_completion()
    assert "Paris" in final.choices[0].message.content


def test_async(tiny):
    async def many():
        async with openai.AsyncOpenAI(base_url=tiny.url + "/v1", api_key="none", max_retries=0, timeout=300) as c:
            questions = [f"What is {a} + {b}?" for a in range(8) for b in range(4)]

            async def one(q, stream):
                arguments = dict(model="tiny", messages=[{"role": "user", "content": q}], temperature=0, max_tokens=40)
                if not stream:
                    return (await c.chat.completions.create(**arguments)).choices[0].message.content
                text = ""
                async for chunk in await c.chat.completions.create(**arguments, stream=True):
                    text += chunk.choices[0].delta.content or ""
                return text

            together = await asyncio.gather(*(one(q, i % 2 == 0) for i, q in enumerate(questions)))
            alone = [await one(q, False) for q in questions]
            return together, alone

    together, alone = asyncio.run(many())
    assert together == alone, "a request's answer depends on what runs beside it"


def test_n_choices(client):
    answer = ask(client, n=4, temperature=1.0, seed=3)
    assert [c.index for c in answer.choices] == [0, 1, 2, 3]
    again = ask(client, n=4, temperature=1.0, seed=3)
    assert [c.message.content for c in answer.choices] == [c.message.content for c in again.choices]
    # Greedy choices are all the same, and the prompt is counted once.
    greedy = ask(client, n=3)
    assert len({c.message.content for c in greedy.choices}) == 1
    assert greedy.usage.prompt_tokens == answer.usage.prompt_tokens


def test_choices_differ(client):
    answer = client.completions.create(model="tiny", prompt="Once upon a time", n=6, temperature=1.5, seed=1, max_tokens=12)
    assert len({c.text for c in answer.choices}) > 1


def test_n_streamed(client):
    texts = {}
    for chunk in ask(client, n=3, temperature=1.0, seed=5, stream=True):
        for choice in chunk.choices:
            texts[choice.index] = texts.get(choice.index, "") + (choice.delta.content or "")
    whole = ask(client, n=3, temperature=1.0, seed=5)
    assert [texts[i] for i in range(3)] == [c.message.content or "" for c in whole.choices]


def test_seed_repeats(client):
    def text(seed):
        return client.completions.create(model="tiny", prompt="A story:", temperature=1.2, seed=seed, max_tokens=24).choices[0].text

    assert text(7) == text(7)
    assert len({text(s) for s in range(5)}) > 1


def test_logprobs(client):
    answer = ask(client, logprobs=True, top_logprobs=4, extra_body={"chat_template_kwargs": {"enable_thinking": False}})
    content = answer.choices[0].logprobs.content
    assert len(content) >= 5
    for entry in content:
        assert len(entry.top_logprobs) == 4
        assert entry.logprob <= 0
        assert bytes(entry.bytes) == entry.token.encode() or "\ufffd" in entry.token
        best = entry.top_logprobs[0]
        assert best.token == entry.token and best.logprob == entry.logprob, "greedy takes the best"
        values = [t.logprob for t in entry.top_logprobs]
        assert values == sorted(values, reverse=True)
        assert sum(math.exp(v) for v in values) <= 1 + 1e-5


def test_a_scored_prompt_may_fill_the_context(client):
    context = client.models.list().data[0].max_model_len
    prompt = [100 + i % 3000 for i in range(context)]
    answer = client.completions.create(model="tiny", prompt=prompt, max_tokens=0, echo=True, logprobs=1)
    scored = answer.choices[0].logprobs.token_logprobs
    assert len(scored) == context and all(value <= 0 for value in scored[1:])
    assert answer.usage.prompt_tokens == context and answer.usage.completion_tokens == 0


def test_completion_echo_and_logprobs(client):
    """As lm-eval does: scores a text."""
    prompt = "The capital of France is"
    answer = client.completions.create(model="tiny", prompt=prompt, max_tokens=1, echo=True, logprobs=2, temperature=0)
    choice = answer.choices[0]
    assert choice.text.startswith(prompt)
    assert choice.logprobs.token_logprobs[0] is None
    assert all(v is not None and v <= 0 for v in choice.logprobs.token_logprobs[1:])
    assert len(choice.logprobs.tokens) == answer.usage.prompt_tokens + 1
    assert "".join(choice.logprobs.tokens) == choice.text
    # The same cold and warm: the second time the prefix is cached.
    again = client.completions.create(model="tiny", prompt=prompt, max_tokens=1, echo=True, logprobs=2, temperature=0)
    assert again.choices[0].logprobs.token_logprobs == choice.logprobs.token_logprobs


def test_completion_prompts(client):
    """A list of texts, ids, and lists of ids."""
    one = client.completions.create(model="tiny", prompt="1, 2, 3,", max_tokens=6, temperature=0)
    two = client.completions.create(model="tiny", prompt=["1, 2, 3,", "A, B,"], max_tokens=6, temperature=0)
    assert [c.index for c in two.choices] == [0, 1]
    assert two.choices[0].text == one.choices[0].text
    ids = [[5, 6, 7], [8, 9]]
    by_id = client.completions.create(model="tiny", prompt=ids, max_tokens=3, temperature=0)
    assert by_id.usage.prompt_tokens == 5
    single = client.completions.create(model="tiny", prompt=ids[1], max_tokens=3, temperature=0)
    assert single.choices[0].text == by_id.choices[1].text


def test_stop_string(client):
    whole = client.completions.create(model="tiny", prompt="1, 2, 3, 4,", max_tokens=24, temperature=0).choices[0].text
    stop = whole[6:9]
    answer = client.completions.create(model="tiny", prompt="1, 2, 3, 4,", max_tokens=24, temperature=0, stop=[stop])
    assert answer.choices[0].text == whole[: whole.index(stop)]
    assert answer.choices[0].finish_reason == "stop"
    streamed = "".join(
        c.choices[0].text
        for c in client.completions.create(model="tiny", prompt="1, 2, 3, 4,", max_tokens=24, temperature=0, stop=[stop], stream=True)
        if c.choices
    )
    assert streamed == answer.choices[0].text


def test_max_tokens_is_a_length_finish(client):
    answer = client.completions.create(model="tiny", prompt="Once upon a time", max_tokens=3, temperature=0)
    assert answer.choices[0].finish_reason == "length"
    assert answer.usage.completion_tokens == 3


def test_min_tokens_and_bias(client):
    answer = client.completions.create(
        model="tiny", prompt="Hello", max_tokens=8, temperature=0, extra_body={"min_tokens": 8, "return_token_ids": True}
    )
    assert answer.usage.completion_tokens == 8
    biased = client.completions.create(
        model="tiny", prompt="Hello", max_tokens=4, temperature=0, logit_bias={"77": 100}, logprobs=0
    )
    assert len(set(biased.choices[0].logprobs.tokens)) == 1


def test_cached_tokens_are_reported(client):
    messages = [{"role": "user", "content": "Remember this list: " + ", ".join(str(i) for i in range(300))}]
    ask(client, messages=messages, max_tokens=2)
    second = ask(client, messages=messages, max_tokens=2)
    assert second.usage.prompt_tokens_details.cached_tokens >= second.usage.prompt_tokens - 64


def test_tools(client):
    messages = [{"role": "user", "content": "Set a timer of 12 minutes for the napkin."}]
    answer = ask(client, messages=messages, tools=[TIMER], max_tokens=64)
    (call,) = answer.choices[0].message.tool_calls
    assert call.type == "function" and call.id
    assert call.function.name == "set_timer"
    assert json.loads(call.function.arguments) == {"minutes": 12, "label": "napkin"}
    assert answer.choices[0].finish_reason == "tool_calls"
    # The answer of the tool goes back, and the model talks about it.
    reply = answer.choices[0].message.model_dump(exclude_none=True)
    messages += [reply, {"role": "tool", "tool_call_id": call.id, "content": '{"ok": true}'}]
    final = ask(client, messages=messages, tools=[TIMER], max_tokens=64)
    assert final.choices[0].message.content == "The napkin timer is set to 12 minutes."
    # Streamed: the same call in pieces.
    name, arguments, finish = "", "", None
    for chunk in ask(client, messages=messages[:1], tools=[TIMER], max_tokens=64, stream=True):
        choice = chunk.choices[0]
        finish = choice.finish_reason or finish
        for piece in choice.delta.tool_calls or []:
            assert piece.index == 0
            name += piece.function.name or ""
            arguments += piece.function.arguments or ""
    assert (name, json.loads(arguments), finish) == ("set_timer", {"minutes": 12, "label": "napkin"}, "tool_calls")
    # tool_choice none: nothing is parsed.
    none = ask(client, messages=messages[:1], tools=[TIMER], tool_choice="none", max_tokens=64)
    assert not none.choices[0].message.tool_calls


def test_errors_have_the_clients_types(client):
    cases = [
        (openai.BadRequestError, dict(temperature=-1), "temperature", None),
        (openai.BadRequestError, dict(top_p=2), "top_p", None),
        (openai.BadRequestError, dict(n=0), "n", None),
        (openai.BadRequestError, dict(max_tokens=10**7), None, None),
        (openai.BadRequestError, dict(response_format={"type": "json"}), "response_format.type", "invalid_value"),
        (openai.BadRequestError, dict(tool_choice="required"), "tool_choice", "invalid_value"),
        (openai.NotFoundError, dict(model="other"), "model", "model_not_found"),
        (openai.BadRequestError, dict(messages=[]), "messages", None),
    ]
    for kind, change, param, code in cases:
        with pytest.raises(kind) as caught:
            ask(client, **change)
        if param:
            assert caught.value.param == param, change
        if code:
            assert caught.value.code == code, change
        assert caught.value.body["message"]


def test_prompt_beyond_the_context(client):
    with pytest.raises(openai.BadRequestError) as caught:
        client.completions.create(model="tiny", prompt=[5] * 9000, max_tokens=1)
    assert caught.value.code == "context_length_exceeded"
    assert "8192" in caught.value.body["message"]
