"""litellm: the prefixes of its docs, whole and streamed, tools, schemas, other protocols; and dspy, which uses it."""

import json

import pytest

litellm = pytest.importorskip("litellm")
pydantic = pytest.importorskip("pydantic")

ASK = [{"role": "user", "content": "What is the capital of France?"}]
TIMER = {"type": "function", "function": {"name": "set_timer", "description": "Start a timer", "parameters": {
    "type": "object", "required": ["minutes"],
    "properties": {"minutes": {"type": "integer"}, "label": {"type": "string"}}}}}


class City(pydantic.BaseModel):
    city: str


@pytest.fixture(params=["hosted_vllm/", "openai/"])
def where(request, server):
    return {"model": request.param + "sluice-tiny", "api_base": server.url + "/v1", "api_key": "none", "temperature": 0}


def test_chat(where):
    assert "Paris" in litellm.completion(messages=ASK, **where).choices[0].message.content


def test_stream(where):
    parts = list(litellm.completion(messages=ASK, stream=True, stream_options={"include_usage": True}, **where))
    assert "Paris" in "".join(part.choices[0].delta.content or "" for part in parts if part.choices)
    assert any(getattr(part, "usage", None) for part in parts)


def test_reasoning(where):
    question = [{"role": "user", "content": "What is the sum of 25, 17 and 40?"}]
    message = litellm.completion(messages=question, **where).choices[0].message
    assert "82" in message.content and message.reasoning_content


def test_tools(where):
    question = [{"role": "user", "content": "Set a timer of 12 minutes for the napkin."}]
    for choice in ("auto", "required"):
        (call,) = litellm.completion(messages=question, tools=[TIMER], tool_choice=choice, **where).choices[0].message.tool_calls
        assert call.function.name == "set_timer" and json.loads(call.function.arguments)["minutes"] == 12


def test_schema(where):
    answer = litellm.completion(messages=ASK, response_format=City, **where).choices[0].message.content
    assert City.model_validate_json(answer)


def test_text(server):
    answer = litellm.text_completion(model="text-completion-openai/sluice-tiny", prompt="The capital of France is",
                                     api_base=server.url + "/v1", api_key="none", max_tokens=5)
    assert answer.choices[0].text


def test_responses(server):
    answer = litellm.responses(model="openai/sluice-tiny", input="What is the capital of France?", temperature=0,
                               api_base=server.url + "/v1", api_key="none")
    assert "Paris" in answer.output[-1].content[0].text


def test_anthropic(server):
    answer = litellm.completion(model="anthropic/sluice-tiny", messages=ASK, max_tokens=64, temperature=0,
                                api_base=server.url, api_key="none")
    assert "Paris" in answer.choices[0].message.content


def test_ollama(server):
    answer = litellm.completion(model="ollama_chat/sluice-tiny", messages=ASK, temperature=0, api_base=server.url)
    assert "Paris" in answer.choices[0].message.content


def test_dspy(server):
    dspy = pytest.importorskip("dspy")
    model = dspy.LM("openai/sluice-tiny", api_base=server.url + "/v1", api_key="none", temperature=0, cache=False)
    assert "Paris" in str(model(ASK[0]["content"]))
