"""Nothing of a prompt is dropped in silence: what does not fit is a 400 with both numbers, in every protocol."""

import pytest

from sluice_server import TINY, Server, sluice

CONTEXT = 256
LONG = "one two three four five six seven eight nine ten " * 60
TURNS = [{"role": "user", "content": LONG}]
TOO_LONG = [
    ("/v1/chat/completions", {"messages": TURNS}, ("error", "message")),
    ("/v1/chat/completions", {"messages": TURNS, "stream": True}, ("error", "message")),
    ("/v1/completions", {"prompt": LONG, "max_tokens": 4}, ("error", "message")),
    ("/v1/completions", {"prompt": ["short", [5] * 400], "max_tokens": 4}, ("error", "message")),
    ("/v1/responses", {"input": LONG}, ("error", "message")),
    ("/v1/responses", {"input": LONG, "truncation": "disabled", "stream": True}, ("error", "message")),
    ("/v1/messages", {"model": "tiny", "max_tokens": 4, "messages": TURNS}, ("error", "message")),
    ("/api/chat", {"model": "tiny", "messages": TURNS}, ("error",)),
    ("/api/generate", {"model": "tiny", "prompt": LONG}, ("error",)),
    ("/generate", {"text": LONG}, ("error", "message")),
    ("/generate", {"input_ids": [5] * 400}, ("error", "message")),
    ("/v1/embeddings", {"input": LONG}, ("error", "message")),
    ("/api/embed", {"model": "tiny", "input": LONG}, ("error",)),
    ("/pooling", {"input": LONG}, ("error", "message")),
]


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    log = tmp_path_factory.mktemp("small") / "server.log"
    with Server(TINY, "--served-model-name", "tiny", "--max-total-tokens", CONTEXT, log=log) as server:
        yield server


def test_the_context_is_what_fits_and_is_told(small):
    model = small.get("/v1/models").json()["data"][0]
    assert model["max_model_len"] == model["context_length"] == CONTEXT
    assert small.get("/get_model_info").json()["context_length"] == CONTEXT
    assert f"context {CONTEXT} tokens, which is what the KV cache holds, of the model's 8192" in small.log_path.read_text()


@pytest.mark.parametrize("path, body, where", TOO_LONG)
def test_what_does_not_fit_is_refused_with_both_numbers(small, path, body, where):
    reply = small.post(path, body)
    assert reply.status == 400, reply.body
    message = reply.json()
    for name in where:
        message = message[name]
    numbers = [int(word.strip(".,;`")) for word in message.split() if word.strip(".,;`").isdigit()]
    assert CONTEXT in numbers and any(number > CONTEXT for number in numbers), message
    if where == ("error", "message") and path != "/v1/messages":
        assert reply.error["code"] == "context_length_exceeded"


def test_an_answer_that_cannot_fit_is_refused_with_both_numbers(small):
    short = [{"role": "user", "content": "Hello"}]
    for path, body in [("/v1/chat/completions", {"messages": short, "max_tokens": 1000}),
                       ("/v1/completions", {"prompt": "Hello", "max_tokens": 1000}),
                       ("/generate", {"text": "Hello", "sampling_params": {"max_new_tokens": 1000}})]:
        reply = small.post(path, body)
        assert reply.status == 400 and "1000" in reply.error["message"] and str(CONTEXT) in reply.error["message"], (path, reply.body)


def test_truncation_says_what_it_dropped(small):
    turns = [{"role": "user", "content": "one two three four five " * 12}, {"role": "assistant", "content": "Yes."}] * 6
    turns.append({"role": "user", "content": "What is the capital of France?"})
    whole = small.post("/v1/responses", {"input": turns})
    assert whole.status == 400 and whole.error["code"] == "context_length_exceeded"
    cut = small.post("/v1/responses", {"input": turns, "truncation": "auto", "max_output_tokens": 16})
    assert cut.status == 200
    dropped = int(cut.headers["X-Truncated-Messages"])
    assert dropped == cut.json()["truncated_messages"] and 0 < dropped < len(turns)
    assert cut.json()["usage"]["input_tokens"] < CONTEXT
    # What fits is not cut, and then nothing is said.
    kept = small.post("/v1/responses", {"input": "Hello", "truncation": "auto", "max_output_tokens": 4})
    assert kept.status == 200 and "X-Truncated-Messages" not in kept.headers
    # One message that cannot fit stays refused.
    assert small.post("/v1/responses", {"input": LONG, "truncation": "auto"}).status == 400


def test_a_context_that_was_asked_for_must_fit():
    done = sluice("serve", TINY, "--context-length", "4096", "--max-total-tokens", "100")
    assert done.returncode == 3, done.stderr
    assert "--context-length is 4096, and the KV cache holds 128 tokens" in done.stderr
    assert "--max-total-tokens 4096" in done.stderr and "lower --context-length to 128" in done.stderr
