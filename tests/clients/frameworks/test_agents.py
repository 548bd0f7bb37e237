"""openai-agents and smolagents."""

import asyncio

import pytest

pydantic = pytest.importorskip("pydantic")

ASK = "What is the capital of France?"
TIMER = "Set a timer of 12 minutes for the napkin."


class City(pydantic.BaseModel):
    city: str


class TestOpenaiAgents:
    @pytest.fixture(params=["responses", "chat"])
    def make(self, request, server):
        agents = pytest.importorskip("agents")
        openai = pytest.importorskip("openai")
        client = openai.AsyncOpenAI(base_url=server.url + "/v1", api_key="none")
        kind = agents.OpenAIResponsesModel if request.param == "responses" else agents.OpenAIChatCompletionsModel
        return lambda **more: agents.Agent(name="A", model=kind(model="sluice-tiny", openai_client=client),
                                           model_settings=agents.ModelSettings(temperature=0), **more)

    def test_run(self, make):
        from agents import Runner
        assert "Paris" in Runner.run_sync(make(instructions="Be brief."), ASK).final_output

    def test_tool(self, make):
        from agents import Runner, function_tool
        called = []

        @function_tool
        def set_timer(minutes: int, label: str) -> str:
            """Start a timer"""
            called.append((minutes, label))
            return "started"

        Runner.run_sync(make(tools=[set_timer]), TIMER, max_turns=4)
        assert called[0] == (12, "napkin")

    def test_output_type(self, make):
        from agents import Runner
        assert isinstance(Runner.run_sync(make(output_type=City), ASK).final_output, City)

    def test_stream(self, make):
        from agents import Runner

        async def run():
            result = Runner.run_streamed(make(), ASK)
            kinds = [event.type async for event in result.stream_events()]
            return kinds, result.final_output

        kinds, output = asyncio.run(run())
        assert "raw_response_event" in kinds and "Paris" in output


class TestSmolagents:
    def test_model_and_stream(self, server):
        smolagents = pytest.importorskip("smolagents")
        model = smolagents.OpenAIModel("sluice-tiny", api_base=server.url + "/v1", api_key="none", temperature=0)
        messages = [{"role": "user", "content": [{"type": "text", "text": ASK}]}]
        assert "Paris" in model(messages).content
        assert "Paris" in "".join(part.content or "" for part in model.generate_stream(messages))

    def test_tool_calls(self, server):
        smolagents = pytest.importorskip("smolagents")

        @smolagents.tool
        def set_timer(minutes: int, label: str) -> str:
            """Start a timer

            Args:
                minutes: how long
                label: what for
            """
            return "started"

        model = smolagents.OpenAIModel("sluice-tiny", api_base=server.url + "/v1", api_key="none", temperature=0)
        answer = model([{"role": "user", "content": [{"type": "text", "text": TIMER}]}], tools_to_call_from=[set_timer])
        assert answer.tool_calls[0].function.name == "set_timer"
