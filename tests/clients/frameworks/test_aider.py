"""aider, which edits files in a repository of git."""

import os
import re
import subprocess

import pytest

FLAGS = ["--model", "openai/sluice-tiny", "--yes-always", "--no-show-model-warnings", "--no-check-update", "--analytics-disable",
         "--no-show-release-notes", "--no-pretty", "--map-tokens", "0", "--message"]


@pytest.fixture
def aider(command, server):
    return lambda *args: command("aider", *args, env={**os.environ, "OPENAI_API_BASE": server.url + "/v1"})


def sent_and_received(text):
    """From aider's line `Tokens: 1.2k sent, 64 cache hit, 13 received.`"""
    answer, *numbers = re.search(r"\n(.+)\n+Tokens: ([\d.]+k?) sent,(?: .* cache hit,)? ([\d.]+k?) received", text).groups()
    assert answer.strip() and "litellm." not in text        # errors of the server begin so
    return [float(number.rstrip("k")) * (1000 if number.endswith("k") else 1) for number in numbers]


@pytest.mark.parametrize("stream", ["--stream", "--no-stream"])
def test_ask(aider, counts, stream):
    text = aider(stream, "--no-git", "--edit-format", "ask", *FLAGS, "What is the capital of France?")
    sent, received = sent_and_received(text)
    if stream == "--no-stream":
        assert (sent, received) == (counts["prompt_tokens"], counts["generated_tokens"])
    else:                                  # aider asks a stream for no usage and guesses with a tokenizer of its own
        assert 0.5 < sent / counts["prompt_tokens"] < 2 and received > 0
    assert counts["requests"] == 1


def test_files_in_a_repository(aider, counts, tmp_path):
    """The whole way of an edit: the file goes into the prompt, the answer is searched for edits. The bundled model
    writes none, so the file stays as it is."""
    (tmp_path / "a.py").write_text("def f():\n    return 1\n")
    for words in (["init", "-q"], ["add", "a.py"], ["-c", "user.name=a", "-c", "user.email=a@b", "commit", "-qm", "first"]):
        subprocess.run(["git", *words], cwd=tmp_path, check=True)
    text = aider("--no-auto-commits", "--no-gitignore", "--edit-format", "whole", *FLAGS, "What is the capital of France?", "a.py")
    assert sent_and_received(text)[0] > 0 and counts["requests"] >= 1
    assert (tmp_path / "a.py").read_text() == "def f():\n    return 1\n"
