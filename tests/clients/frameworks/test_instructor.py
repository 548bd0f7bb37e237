"""instructor: its modes over chat completions."""

import pytest

pydantic = pytest.importorskip("pydantic")


class City(pydantic.BaseModel):
    city: str


@pytest.mark.parametrize("mode", ["TOOLS", "JSON", "JSON_SCHEMA", "TOOLS_STRICT"])
def test_modes(server, mode):
    instructor = pytest.importorskip("instructor")
    openai = pytest.importorskip("openai")
    client = instructor.from_openai(openai.OpenAI(base_url=server.url + "/v1", api_key="none"),
                                    mode=getattr(instructor.Mode, mode))
    question = [{"role": "user", "content": "What is the capital of France?"}]
    answer = client.chat.completions.create(model="sluice-tiny", response_model=City, temperature=0, max_retries=0,
                                            messages=question)
    assert isinstance(answer, City)
