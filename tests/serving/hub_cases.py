"""Common parts of the tests of hub models: small repositories, and `sluice pull` from the scripted
hub."""

import json
import os
import random
import subprocess
import sys

import pytest

from hub_server import Hub, Repo
from sluice_server import GOLDEN, TINY, sluice

CONFIG = (GOLDEN / "models" / "llama-plain" / "config.json").read_bytes()
PARIS = {"messages": [{"role": "user", "content": "What is the capital of France?"}], "temperature": 0, "max_tokens": 20}


def noise(size, seed=1):
    return random.Random(seed).randbytes(size)


def tiny_files():
    return {path.name: path.read_bytes() for path in TINY.iterdir()}


def small_files(weights=3 << 20):
    return {"config.json": CONFIG, "tokenizer_config.json": b"{}", "model.safetensors": noise(weights), "README.md": b"# A model\n"}


@pytest.fixture
def hub():
    with Hub(org__tiny=Repo(tiny_files()), org__small=Repo(small_files())) as hub:
        yield hub


@pytest.fixture
def cache(tmp_path):
    return tmp_path / "cache"


def pull(hub, cache, *args, env=None, timeout=60):
    return sluice("pull", *args, env=hub.environment(cache, **(env or {})), timeout=timeout)


def folder(cache, name="small"):
    return cache / f"models--org--{name}"


def blobs(cache, name="small"):
    return sorted(path.name for path in (folder(cache, name) / "blobs").iterdir())


def python(code, env, timeout=60):
    """Runs a piece of Python in the tests' environment, in a process without earlier imports of
    huggingface_hub."""
    done = subprocess.run([sys.executable, "-c", code], env={**os.environ, **env}, capture_output=True, text=True, timeout=timeout)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])
