import pathlib
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).parent))

from sluice_server import TINY, Server  # noqa: E402


@pytest.fixture(scope="session")
def tiny(tmp_path_factory):
    """The bundled model in float32, so that recorded tokens are exact."""
    log = tmp_path_factory.mktemp("tiny") / "server.log"
    with Server(TINY, "--dtype", "float32", "--served-model-name", "tiny", "--max-total-tokens", "65536", log=log) as s:
        yield s


@pytest.fixture
def canary(tiny):
    """Before and after the test: the same answer to a fixed request, health, and no page held."""
    ask = {
        "model": "tiny",
        "messages": [{"role": "user", "content": "What is the capital of France?"}],
        "temperature": 0,
        "max_tokens": 20,
    }

    def answer():
        reply = tiny.post("/v1/chat/completions", ask)
        assert reply.status == 200, reply.body
        return reply.json()["choices"]

    before = answer()
    yield tiny
    health = tiny.get("/health", timeout=1)
    assert health.status == 200
    assert tiny.process.poll() is None
    tiny.wait_until_idle()
    assert answer() == before
