"""LlamaIndex over OpenAI's protocol and over Ollama's."""

import asyncio

import pytest

ASK = "What is the capital of France?"


@pytest.fixture(params=["openai", "ollama"])
def model(request, server):
    if request.param == "openai":
        module = pytest.importorskip("llama_index.llms.openai_like")
        return module.OpenAILike(model="sluice-tiny", api_base=server.url + "/v1", api_key="none", temperature=0,
                                 is_chat_model=True, is_function_calling_model=True)
    module = pytest.importorskip("llama_index.llms.ollama")
    return module.Ollama(model="sluice-tiny", base_url=server.url, temperature=0, request_timeout=60)


def test_chat_complete_stream(model):
    from llama_index.core.llms import ChatMessage

    assert "Paris" in str(model.complete(ASK))
    assert "Paris" in str(model.chat([ChatMessage(role="user", content=ASK)]))
    assert "Paris" in "".join(part.delta or "" for part in model.stream_chat([ChatMessage(role="user", content=ASK)]))


def test_tools(model):
    from llama_index.core.tools import FunctionTool

    def set_timer(minutes: int, label: str) -> str:
        """Start a timer"""
        return "started"

    tools = [FunctionTool.from_defaults(set_timer)]
    answer = model.chat_with_tools(tools, user_msg="Set a timer of 12 minutes for the napkin.")
    (call,) = model.get_tool_calls_from_response(answer)
    assert call.tool_name == "set_timer" and call.tool_kwargs == {"minutes": 12, "label": "napkin"}


def test_agent(model):
    workflow = pytest.importorskip("llama_index.core.agent.workflow")

    def set_timer(minutes: int, label: str) -> str:
        """Start a timer"""
        return "started"

    async def run():
        return await workflow.FunctionAgent(tools=[set_timer], llm=model).run("Set a timer of 12 minutes for the napkin.")

    assert str(asyncio.run(run()))


def test_structured(model):
    import pydantic

    class City(pydantic.BaseModel):
        city: str

    from llama_index.core.llms import ChatMessage
    answer = model.as_structured_llm(City).chat([ChatMessage(role="user", content=ASK)])
    assert isinstance(answer.raw, City)
