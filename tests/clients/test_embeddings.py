"""The `openai` client's embeddings, unmodified: it asks for base64 unless it is told otherwise."""

import asyncio

import openai
import pytest

TEXTS = ["What is the capital of France?", "Paris.", "x"]


@pytest.fixture(scope="module")
def client(tiny):
    return openai.OpenAI(base_url=f"{tiny.url}/v1", api_key="-", max_retries=0)


def test_both_formats(client):
    plain = client.embeddings.create(model="tiny", input=TEXTS, encoding_format="float")
    packed = client.embeddings.create(model="tiny", input=TEXTS)
    assert len(plain.data) == 3 and [one.index for one in packed.data] == [0, 1, 2]
    for one, other in zip(plain.data, packed.data):
        assert all(abs(x - y) < 1e-7 for x, y in zip(one.embedding, other.embedding))
    assert packed.usage.prompt_tokens == packed.usage.total_tokens > 0 and packed.model == "tiny"


def test_shapes_of_input(client):
    one = client.embeddings.create(model="tiny", input=TEXTS[0]).data[0].embedding
    assert len(client.embeddings.create(model="tiny", input=TEXTS[0], dimensions=16).data[0].embedding) == 16
    ids = [client.embeddings.create(model="tiny", input=[[5, 6, 7], [8]]).data,
           client.embeddings.create(model="tiny", input=[5, 6, 7]).data]
    assert len(ids[0]) == 2 and ids[0][0].embedding == ids[1][0].embedding and len(one) == len(ids[1][0].embedding)


def test_many_at_once(tiny):
    async def run():
        client = openai.AsyncOpenAI(base_url=f"{tiny.url}/v1", api_key="-", max_retries=0)
        answers = await asyncio.gather(*[client.embeddings.create(model="tiny", input=TEXTS[i % 3]) for i in range(60)])
        await client.close()
        return [answer.data[0].embedding for answer in answers]

    vectors = asyncio.run(run())
    assert all(vectors[i] == vectors[i % 3] for i in range(60))


def test_errors(client):
    for more, status in (({"input": []}, 400), ({"input": "a", "dimensions": 10**5}, 400),
                         ({"input": "a", "model": "other"}, 404), ({"input": "word " * 9000}, 400)):
        with pytest.raises(openai.APIStatusError) as error:
            client.embeddings.create(**{"model": "tiny", **more})
        assert error.value.status_code == status
    assert "8192" in str(error.value)
