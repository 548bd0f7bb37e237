"""Numbers of tools, histories and template variables reach the prompt with the digits that Python's json prints."""

import json

import pytest

# As a client writes it, and as json.dumps(json.loads(...)) prints it.
NUMBERS = [
    ("12345678901234567890123456789", "12345678901234567890123456789"),
    ("-18446744073709551617", "-18446744073709551617"),
    ("18446744073709551616", "18446744073709551616"),
    ("9007199254740993", "9007199254740993"),
    ("1.0", "1.0"),
    ("1", "1"),
    ("-0", "0"),
    ("-0.0", "-0.0"),
    ("1e400", "Infinity"),
    ("1E5", "100000.0"),
    ("1.50", "1.5"),
    ("1e16", "1e+16"),
    ("0.1", "0.1"),
]


def prompt_of(tiny, messages, **more):
    """The prompt of a chat whose members are JSON texts."""
    members = {"model": '"tiny"', "messages": messages, **more}
    body = "{" + ", ".join(f'"{key}": {value}' for key, value in members.items()) + "}"
    reply = tiny.post("/tokenize", body.encode())
    assert reply.status == 200, reply.body
    text = tiny.post("/detokenize", {"tokens": reply.json()["tokens"]})
    assert text.status == 200, text.body
    return text.json()["prompt"]


USER = '{"role": "user", "content": "q"}'


def history(arguments):
    call = f'{{"id": "a", "type": "function", "function": {{"name": "f", "arguments": {arguments}}}}}'
    return f'[{USER}, {{"role": "assistant", "content": null, "tool_calls": [{call}]}}, {USER}]'


@pytest.mark.parametrize(("number", "shown"), NUMBERS)
def test_numbers_keep_their_digits(tiny, number, shown):
    tool = f'{{"type": "function", "function": {{"name": "f", "parameters": {{"type": "object", "const": {number}}}}}}}'
    assert f'"const": {shown}' in prompt_of(tiny, f"[{USER}]", tools=f"[{tool}]")
    value = f"<arg_key>x</arg_key>\n<arg_value>{shown}</arg_value>"
    assert value in prompt_of(tiny, history(f'{{"x": {number}}}'))
    assert value in prompt_of(tiny, history(json.dumps(f'{{"x": {number}}}')))
    assert f"[{shown}, [{shown}]]" in prompt_of(tiny, history(json.dumps(f'{{"x": [{number}, [{number}]]}}')))


def test_the_last_of_equal_keys_in_arguments_counts(tiny):
    prompt = prompt_of(tiny, history(json.dumps('{"x": 1, "y": 2, "x": 3}')))
    assert "<arg_value>3</arg_value>" in prompt and "<arg_value>1</arg_value>" not in prompt


@pytest.mark.parametrize("field", ["max_tokens", "temperature", "seed", "top_p"])
def test_large_numbers_in_fields_are_out_of_range(tiny, field):
    for number in ("12345678901234567890123456789", "-12345678901234567890123456789"):
        body = f'{{"model": "tiny", "messages": [{USER}], "{field}": {number}}}'
        reply = tiny.post("/v1/chat/completions", body.encode())
        error = reply.json()["error"]
        assert reply.status == 400 and error["param"] == field and number in error["message"]


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/completions", "/generate"])
def test_infinite_numbers_in_fields_are_out_of_range(tiny, path):
    asks = {"/generate": '"text": "a", "sampling_params": {"temperature": 1e999}', "/v1/completions": '"prompt": "a", "temperature": -1e999'}
    body = "{" + asks.get(path, f'"messages": [{USER}], "temperature": 1e999') + "}"
    reply = tiny.post(path, body.encode())
    error = reply.json()["error"]
    assert reply.status == 400 and error["param"].endswith("temperature") and "1e999" in error["message"]


def test_more_digits_than_python_reads_are_refused(tiny):
    body = f'{{"model": "tiny", "messages": [{USER}], "chat_template_kwargs": {{"x": {"9" * 5000}}}}}'
    reply = tiny.post("/v1/chat/completions", body.encode())
    assert reply.status == 400 and "5000 digits" in reply.json()["error"]["message"]
