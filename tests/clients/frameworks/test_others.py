"""haystack, pydantic-ai, huggingface_hub, and the command `llm`."""

import asyncio
import os
import pathlib
import subprocess
import sys

import pytest

ASK = "What is the capital of France?"


def test_haystack(server):
    pytest.importorskip("haystack")
    from haystack.components.generators.chat import OpenAIChatGenerator
    from haystack.dataclasses import ChatMessage
    from haystack.utils import Secret
    parts = []
    generator = OpenAIChatGenerator(api_key=Secret.from_token("none"), model="sluice-tiny", api_base_url=server.url + "/v1",
                                    generation_kwargs={"temperature": 0})
    assert "Paris" in generator.run([ChatMessage.from_user(ASK)])["replies"][0].text
    streamed = generator.run([ChatMessage.from_user(ASK)], streaming_callback=lambda part: parts.append(part.content))
    assert "Paris" in streamed["replies"][0].text and "Paris" in "".join(parts)


def test_llm(server, tmp_path):
    pytest.importorskip("llm")
    (tmp_path / "extra-openai-models.yaml").write_text(
        f"- model_id: tiny\n  model_name: sluice-tiny\n  api_base: {server.url}/v1\n  supports_tools: true\n  supports_schema: true\n")

    def run(*args):
        program = pathlib.Path(sys.executable).with_name("llm")
        done = subprocess.run([program, *args], capture_output=True, text=True, timeout=120, stdin=subprocess.DEVNULL,
                              env={**os.environ, "LLM_USER_PATH": str(tmp_path)})
        assert done.returncode == 0, done.stderr
        return done.stdout

    assert "Paris" in run("-m", "tiny", "-o", "temperature", "0", ASK)
    assert "Paris" in run("-m", "tiny", "--no-stream", "-o", "temperature", "0", ASK)
    assert run("-m", "tiny", "--schema", "city str", "-o", "temperature", "0", ASK).lstrip().startswith("{")
    assert run("-c", "-m", "tiny", "And of Italy?")


def test_huggingface_hub(server, monkeypatch):
    monkeypatch.delenv("HF_HUB_OFFLINE")
    hub = pytest.importorskip("huggingface_hub")
    client = hub.InferenceClient(base_url=server.url)  # sends the name `dummy`
    answer = client.chat_completion([{"role": "user", "content": ASK}], temperature=0.01, max_tokens=64)
    assert "Paris" in answer.choices[0].message.content


TIMER = "Set a timer of 12 minutes for the napkin."


def pydantic():
    return pytest.importorskip("pydantic")


def city():
    return pydantic().create_model("City", city=(str, ...))


class TestPydanticAi:
    @pytest.fixture(params=["openai", "anthropic"])
    def agent(self, request, server):
        ai = pytest.importorskip("pydantic_ai")
        if request.param == "openai":
            from pydantic_ai.models.openai import OpenAIChatModel
            from pydantic_ai.providers.openai import OpenAIProvider
            model = OpenAIChatModel("sluice-tiny", provider=OpenAIProvider(base_url=server.url + "/v1", api_key="none"))
        else:
            from pydantic_ai.models.anthropic import AnthropicModel
            from pydantic_ai.providers.anthropic import AnthropicProvider
            model = AnthropicModel("sluice-tiny", provider=AnthropicProvider(base_url=server.url, api_key="none"))
        return lambda **more: ai.Agent(model, model_settings={"temperature": 0, "max_tokens": 200}, **more)

    def test_run(self, agent):
        assert "Paris" in agent(instructions="Be brief.").run_sync(ASK).output

    def test_stream(self, agent):
        async def run():
            async with agent().run_stream(ASK) as result:
                return [text async for text in result.stream_text()][-1]

        assert "Paris" in asyncio.run(run())

    def test_tool(self, agent):
        called = []

        def set_timer(minutes: int, label: str) -> str:
            """Start a timer"""
            called.append((minutes, label))
            return "started"

        agent(tools=[set_timer]).run_sync(TIMER)
        assert called[0] == (12, "napkin")

    def test_native_output(self, agent, request):
        if "anthropic" in request.node.callspec.id:
            pytest.skip("pydantic-ai knows none for this model over Anthropic's protocol")
        from pydantic_ai import NativeOutput
        assert isinstance(agent(output_type=NativeOutput(city())).run_sync(ASK).output, pydantic().BaseModel)

    def test_tool_output(self, agent):
        assert isinstance(agent(output_type=city()).run_sync(ASK).output, pydantic().BaseModel)
