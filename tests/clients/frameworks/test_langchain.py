"""LangChain with its packages for OpenAI, Anthropic and Ollama: chat, streams, tools, agents, structured output."""

import pytest

pytest.importorskip("langchain_core")
pydantic = pytest.importorskip("pydantic")

ASK = "What is the capital of France?"
TIMER = "Set a timer of 12 minutes for the napkin."


class City(pydantic.BaseModel):
    """A city."""
    city: str


def set_timer(minutes: int, label: str) -> str:
    """Start a timer"""
    return f"{label}: {minutes} minutes"


@pytest.fixture
def openai(server):
    module = pytest.importorskip("langchain_openai")
    return module.ChatOpenAI(model="sluice-tiny", base_url=server.url + "/v1", api_key="none", temperature=0)


@pytest.fixture(params=["openai", "responses", "anthropic", "ollama"])
def chat(request, server):
    if request.param in ("openai", "responses"):
        module = pytest.importorskip("langchain_openai")
        return module.ChatOpenAI(model="sluice-tiny", base_url=server.url + "/v1", api_key="none", temperature=0,
                                 use_responses_api=request.param == "responses")
    if request.param == "anthropic":
        module = pytest.importorskip("langchain_anthropic")
        return module.ChatAnthropic(model="sluice-tiny", base_url=server.url, api_key="none", temperature=0, max_tokens=64)
    module = pytest.importorskip("langchain_ollama")
    return module.ChatOllama(model="sluice-tiny", base_url=server.url, temperature=0)


def test_invoke(chat):
    answer = chat.invoke(ASK)
    assert "Paris" in str(answer.text) and answer.usage_metadata["output_tokens"] > 0


def test_stream_and_batch(chat):
    assert "Paris" in "".join(str(part.text) for part in chat.stream(ASK))
    assert all("Paris" in str(answer.text) for answer in chat.batch([ASK, ASK]))


def test_tools(chat):
    (call,) = chat.bind_tools([set_timer]).invoke(TIMER).tool_calls
    assert call["name"] == "set_timer" and call["args"] == {"minutes": 12, "label": "napkin"}


def test_agent(chat):
    agents = pytest.importorskip("langchain.agents")
    agent = agents.create_agent(chat, [set_timer])
    kinds = [message.type for message in agent.invoke({"messages": [("user", TIMER)]})["messages"]]
    assert kinds[:3] == ["human", "ai", "tool"] and kinds[-1] == "ai"


@pytest.mark.parametrize("method", ["json_schema", "function_calling", "json_mode"])
def test_structured(openai, method):
    schema = City if method != "json_mode" else None
    if method == "json_mode":
        answer = openai.bind(response_format={"type": "json_object"}, max_tokens=60).invoke(ASK + " Answer as JSON.")
        assert str(answer.text).lstrip().startswith("{")
        return
    assert isinstance(openai.with_structured_output(schema, method=method).invoke(ASK), City)


def test_forced_and_strict_tools(openai):
    for options in ({"tool_choice": "any"}, {"tool_choice": "set_timer"}, {"strict": True}):
        (call,) = openai.bind_tools([set_timer], **options).invoke(TIMER).tool_calls
        assert call["name"] == "set_timer"
