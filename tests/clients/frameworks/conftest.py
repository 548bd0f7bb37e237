import os
import pathlib
import re
import subprocess
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


class Counts:
    """What the server counted since this object was made."""

    NAMES = {"requests": "vllm:request_success_total", "prompt_tokens": "vllm:prompt_tokens_total",
             "cached_tokens": "vllm:prefix_cache_hits_total", "generated_tokens": "vllm:generation_tokens_total"}

    def __init__(self, server):
        self.server = server
        self.before = self.read()

    def read(self):
        text = self.server.get("/metrics").body.decode()
        return {key: sum(float(value) for value in re.findall(rf"^{name}{{[^}}]*}} (\S+)$", text, re.MULTILINE))
                for key, name in self.NAMES.items()}

    def __getitem__(self, key):
        self.server.wait_until_idle()
        return self.read()[key] - self.before[key]


@pytest.fixture
def counts(server):
    return Counts(server)


@pytest.fixture
def command(tmp_path):
    """Runs a program of this environment in an empty folder, and returns its output. A failure shows it."""

    def run(name, *args, env=None, cwd=tmp_path, timeout=500):
        variables = {key: value for key, value in {**os.environ, **(env or {})}.items() if value is not None}
        done = subprocess.run([pathlib.Path(sys.executable).with_name(name), *map(str, args)], cwd=cwd, env=variables,
                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                              timeout=timeout)
        assert done.returncode == 0, done.stdout[-4000:]
        return done.stdout

    return run
