"""The page's modules without a browser, under Node: Markdown, the tree of messages, metrics."""

import pathlib
import shutil
import subprocess

import pytest

HERE = pathlib.Path(__file__).parent


def test_modules():
    node = shutil.which("node")
    if not node:
        pytest.skip("no `node` here")
    done = subprocess.run([node, "--test", str(HERE / "modules.mjs")], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
