"""The bundled model over the chat interface: the answers that transformers gave."""

import http.client
import json
import re

import pytest

from sluice_server import stream_events, tiny_records

END = re.compile(r"<\|(user|observation|endoftext)\|>$")
# The reference chose each token of these by a margin; see tests/golden/sluice-tiny.README.md.
RECORDS = [(i, r) for i, r in enumerate(tiny_records()) if r["min_margin"] > 0.05]
CHAT = [pytest.param(r, id=f"{i}-{r['kind']}") for i, r in RECORDS if r["messages"]]
RAW = [pytest.param(r, id=f"{i}-{r['kind']}") for i, r in RECORDS]


def chat_body(record, **more):
    body = {"model": "tiny", "messages": record["messages"], "temperature": 0, "max_tokens": len(record["output_ids"])}
    if record["tools"]:
        body["tools"] = record["tools"]
    if record["template_options"]:
        body["chat_template_kwargs"] = record["template_options"]
    return {**body, **more}


def expected_parts(record):
    """(reasoning, content, calls) of the recorded output, by plain text work."""
    text = END.sub("", record["output"])
    reasoning = ""
    if "</think>" in text:
        reasoning, text = text.split("</think>", 1)
        reasoning = reasoning.removeprefix("<think>").strip()
    calls = []
    for call in re.findall(r"<tool_call>(.*?)</tool_call>", text, re.S):
        name, _, rest = call.partition("\n")
        pairs = re.findall(r"<arg_key>(.*?)</arg_key>\s*<arg_value>(.*?)</arg_value>", rest, re.S)
        calls.append((name.strip(), dict(pairs)))
    content = re.sub(r"<tool_call>.*?</tool_call>", "", text, flags=re.S).strip()
    return reasoning, content, calls


def plain(value):
    return value if isinstance(value, str) else json.dumps(value)


def check_message(message, record):
    reasoning, content, calls = expected_parts(record)
    assert (message.get("content") or "").strip() == content
    assert (message.get("reasoning_content") or "").strip() == reasoning
    got = [(c["function"]["name"], json.loads(c["function"]["arguments"])) for c in message.get("tool_calls") or []]
    assert [(name, {k: plain(v) for k, v in arguments.items()}) for name, arguments in got] == calls


def finish_of(record):
    if "<tool_call>" in record["output"]:
        return "tool_calls"
    return record["finish_reason"]


def test_paris(tiny):
    reply = tiny.post(
        "/v1/chat/completions",
        {"model": "tiny", "messages": [{"role": "user", "content": "What is the capital of France?"}], "temperature": 0},
    )
    assert reply.status == 200
    assert "Paris" in reply.json()["choices"][0]["message"]["content"]


@pytest.mark.parametrize("record", RAW)
def test_tokens_and_logprobs(tiny, record):
    """Token ids in, token ids out."""
    reply = tiny.post(
        "/generate",
        {
            "input_ids": record["prompt_ids"],
            "sampling_params": {"temperature": 0, "max_new_tokens": len(record["output_ids"])},
            "return_logprob": True,
            "top_logprobs_num": 5,
        },
    )
    assert reply.status == 200, reply.body
    answer = reply.json()
    assert answer["output_ids"] == record["output_ids"]
    for step, row in enumerate(answer["meta_info"]["output_top_logprobs"]):
        tolerance = 0.02 if len(record["prompt_ids"]) + step > 256 else 2e-3
        ours = {entry[1]: entry[0] for entry in row}
        for token, reference in list(zip(record["top5_ids"][step], record["top5_logprobs"][step]))[:2]:
            assert abs(ours[token] - reference) <= tolerance, f"step {step} token {token}"
    if record["finish_reason"] == "stop":
        assert answer["meta_info"]["finish_reason"] == {"type": "stop", "matched": record["output_ids"][-1]}


@pytest.mark.parametrize("record", CHAT)
def test_chat(tiny, record):
    reply = tiny.post("/v1/chat/completions", chat_body(record))
    assert reply.status == 200, reply.body
    answer = reply.json()
    assert answer["usage"]["prompt_tokens"] == len(record["prompt_ids"]), "the template or the tokenizer differs"
    assert answer["usage"]["completion_tokens"] == len(record["output_ids"])
    check_message(answer["choices"][0]["message"], record)
    assert answer["choices"][0]["finish_reason"] == finish_of(record)


@pytest.mark.parametrize("record", CHAT)
def test_chat_streamed(tiny, record):
    """The concatenated deltas equal the message without streaming."""
    connection = http.client.HTTPConnection("127.0.0.1", tiny.port, timeout=120)
    body = json.dumps(chat_body(record, stream=True, stream_options={"include_usage": True}))
    connection.request("POST", "/v1/chat/completions", body, {"Content-Type": "application/json"})
    response = connection.getresponse()
    assert response.status == 200
    assert response.getheader("Content-Type").startswith("text/event-stream")
    events = list(stream_events(response))
    connection.close()
    message = {"content": "", "reasoning_content": "", "tool_calls": {}}
    finish = []
    for event in events[:-1]:
        assert event["object"] == "chat.completion.chunk" and event["id"] == events[0]["id"]
        (choice,) = event["choices"]
        delta = choice["delta"]
        message["content"] += delta.get("content") or ""
        message["reasoning_content"] += delta.get("reasoning_content") or ""
        for call in delta.get("tool_calls") or []:
            known = message["tool_calls"].setdefault(call["index"], {"function": {"name": "", "arguments": ""}})
            known["function"]["name"] += call["function"].get("name") or ""
            known["function"]["arguments"] += call["function"].get("arguments") or ""
        if choice["finish_reason"]:
            finish.append(choice["finish_reason"])
    assert events[0]["choices"][0]["delta"]["role"] == "assistant"
    assert finish == [finish_of(record)]
    assert events[-1]["choices"] == []
    assert events[-1]["usage"]["completion_tokens"] == len(record["output_ids"])
    message["tool_calls"] = list(message["tool_calls"].values())
    check_message(message, record)
