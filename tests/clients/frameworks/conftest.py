import os
import pathlib
import sys

import pytest

# litellm would fetch its list of prices while it is imported.
os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"

sys.path.insert(0, str(pathlib.Path(__file__).parents[2] / "serving"))

from sluice_server import TINY, Server  # noqa: E402


@pytest.fixture(scope="session")
def server(tmp_path_factory):
    """The bundled model, with the name that it has by itself."""
    log = tmp_path_factory.mktemp("tiny") / "server.log"
    with Server(TINY, "--dtype", "float32", "--max-total-tokens", "65536", log=log) as running:
        yield running


@pytest.fixture(autouse=True)
def environment(monkeypatch, tmp_path_factory, server):
    """What clients read by themselves. Nothing may look for a service elsewhere."""
    monkeypatch.setenv("OPENAI_API_KEY", "none")
    monkeypatch.setenv("OPENAI_BASE_URL", server.url + "/v1")
    monkeypatch.setenv("ANTHROPIC_API_KEY", "none")
    monkeypatch.setenv("DO_NOT_TRACK", "1")
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setenv("OPENAI_AGENTS_DISABLE_TRACING", "1")
    monkeypatch.setenv("HAYSTACK_TELEMETRY_ENABLED", "False")
    monkeypatch.setenv("HOME", str(tmp_path_factory.mktemp("home")))
