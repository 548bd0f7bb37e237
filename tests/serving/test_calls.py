"""Tool calls and reasoning over HTTP: a scripted model says what models say, right and wrong.

The calls are free, so that the parser gets them as they were said; test_constrained_calls.py has those that are bound.
"""

import json
import random

import pytest
import scripted_model
from scripted_model import END, chat
from sluice_server import Server

CHAT = "/v1/chat/completions"


def tool(name, **properties):
    return {"type": "function", "function": {"name": name, "parameters": {"type": "object", "properties": properties}}}


TOOLS = [tool("get_weather", city={"type": "string"}, days={"type": "integer"}), tool("ping")]
ROME = ("get_weather", {"city": "Rome"})
PING = ("ping", {})
CALLS, CALLS_END = "<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>"
CALL, CALL_END, SEP = "<｜tool▁call▁begin｜>", "<｜tool▁call▁end｜>", "<｜tool▁sep｜>"
THINK = ["<think>", "</think>"]


def hermes(arguments='{"city": "Rome"}', name="get_weather"):
    return f'<tool_call>\n{{"name": "{name}", "arguments": {arguments}}}\n</tool_call>'


def row(text, calls=(), content=None, reasoning=None, finish=None, **request):
    """What the model says, and what a client must get; `request`: members of the request."""
    finish = finish or ("tool_calls" if calls else "stop")
    return {"text": text, "calls": list(calls), "content": content, "reasoning": reasoning, "finish": finish, "request": request}


def same(text, **more):
    return row(text, content=text, **more)


GLM = "<tool_call>get_weather\n<arg_key>city</arg_key>\n<arg_value>Rome</arg_value>\n"
KIMI, KIMI_END = "<|tool_calls_section_begin|>", "<|tool_calls_section_end|>"
KIMI_CALL, KIMI_ARGUMENTS, KIMI_CALL_END = "<|tool_call_begin|>", "<|tool_call_argument_begin|>", "<|tool_call_end|>"
HARMONY = "<|channel|>commentary to=functions.{} <|constrain|>json<|message|>"


def coder(name="get_weather", **arguments):
    pairs = "".join(f"<parameter={key}>\n{value}\n</parameter>\n" for key, value in arguments.items())
    return f"<tool_call>\n<function={name}>\n{pairs}</function>\n</tool_call>"


BROKEN = '<tool_call>\n{"name": "get_weather", "arguments": {"city": }}\n</tool_call>'
SERVERS = {
    "hermes": {
        "flags": ["--tool-call-parser", "hermes", "--reasoning-parser", "qwen3"],
        "special": ["<tool_call>", "</tool_call>", *THINK],
        "rows": [
            row(hermes(), [ROME]),
            row("Ok.\n" + hermes() + "\n" + hermes("{}", "ping") + "\nBye.", [ROME, PING], "Ok.\n\nBye."),
            row('<tool_call>\n{"name": "get_weather", "arguments": {"city": "Rome"}\n</tool_call>', [ROME]),
            row(hermes('{"city": "Rome",}'), [ROME]),
            row(hermes("{'city': 'Rome'}"), [ROME]),
            row('<tool_call>\n{"name": "ping"}', [PING]),
            same(BROKEN + " So."),
            same(hermes("[1]")),
            same("Models write <tool_call> before a call."),
            row("<tool_call>", content=None, finish="length", max_tokens=1),
            row(hermes(), [("get_weather", None)], finish="length", max_tokens=50),
            same('<tool_call>\n{"name": "get_weather", "argum', stop=["ents"]),
            row(hermes(), [ROME], stop=["</tool_call>"]),
            row("<think>\nI should call\n" + hermes("{}", "ping"), [PING], reasoning="I should call"),
            row(f"<think>\nMaybe {hermes()} later.\n</think>\n\nWhich?", content="Which?", reasoning=f"Maybe {hermes()} later."),
            row("<think>a</think>" + hermes(), [ROME], reasoning="a"),
            row(" more</think>\n\nAnswer", content="Answer", reasoning="more", prefill="<think>half a"),
            row("deep</think>Answer", content="Answer", reasoning="deep", suffix="<think>\n"),
            row("\n</think>\n\nAnswer", content="Answer"),
            row(hermes('{"n": 12345678901234567890123, "f": 1.0, "e": 1e400}'), [("get_weather", '{"n": 12345678901234567890123, "f": 1.0, "e": 1e400}')]),
            row(hermes('{"city": "\\u00e9\\ud83d\\ude00"}'), [("get_weather", {"city": "é😀"})]),
            row(hermes() + hermes(), [ROME], parallel_tool_calls=False),
            row(hermes(json.dumps({"city": "日本 " * 50}, ensure_ascii=False)), [("get_weather", {"city": "日本 " * 50})]),
        ],
    },
    "glm45": {
        "flags": ["--tool-call-parser", "glm45", "--reasoning-parser", "glm45"],
        "special": ["<tool_call>", "</tool_call>", "<arg_key>", "</arg_key>", "<arg_value>", "</arg_value>", *THINK],
        "rows": [
            row(GLM + "</tool_call>", [ROME]),
            row(GLM, [ROME]),
            row(GLM + GLM + "</tool_call>", [ROME, ROME]),
            row(GLM, [("get_weather", None)], finish="length", max_tokens=23),
            row("<think>so\n" + GLM + "</tool_call>", [ROME], reasoning="so"),
            same("GLM writes <tool_call> and two words."),
        ],
    },
    "mistral": {
        "flags": ["--tool-call-parser", "mistral", "--reasoning-parser", "mistral"],
        "special": ["[TOOL_CALLS]", "[ARGS]", "[CALL_ID]", "[THINK]", "[/THINK]"],
        "rows": [
            row('[TOOL_CALLS]get_weather[CALL_ID]abcDEF123[ARGS]{"city": "Rome"}', [ROME]),
            row('[TOOL_CALLS] [{"name": "get_weather", "arguments": {"city": "Rome"}, "id": "abcDEF123"}]', [ROME]),
            row('[TOOL_CALLS]ping[ARGS]{}[TOOL_CALLS]get_weather[ARGS]{"city": "Rome"}', [PING, ROME]),
            row('[THINK]so[TOOL_CALLS]get_weather[ARGS]{"city": "Rome"}', [ROME], reasoning="so"),
            same("[TOOL_CALLS] is a mark { of Mistral."),
        ],
    },
    "deepseek": {
        "flags": ["--tool-call-parser", "deepseekv31", "--reasoning-parser", "deepseek-r1"],
        "special": [CALLS, CALLS_END, CALL, CALL_END, SEP, *THINK],
        "rows": [
            row(f"so</think>{CALLS}{CALL}ping{SEP}{CALL_END}{CALLS_END}", [PING], reasoning="so"),
            row(f'{CALLS}{CALL}get_weather{SEP}{{"city": "Rome"}}{CALL_END}{CALLS_END}', [ROME], suffix="<think></think>"),
            row(f'so {CALLS}{CALL}function{SEP}get_weather\n```json\n{{"city": "Rome"}}\n```{CALL_END}{CALLS_END}', [ROME], reasoning="so"),
            row("reason</think>answer", content="answer", reasoning="reason"),
        ],
    },
    "llama3": {
        "flags": ["--tool-call-parser", "llama3", "--reasoning-parser", "none"],
        "special": ["<|python_tag|>"],
        "rows": [
            row('{"name": "get_weather", "parameters": {"city": "Rome"}}', [ROME]),
            row('<|python_tag|>{"name": "ping", "parameters": {}}; {"name": "ping", "parameters": {}}', [PING, PING]),
            same('{"name": "ping", "age": 3}'),
            same('{"name": "Ann", "parameters": {}}'),
            same('The answer: {"name": "ping", "parameters": {}}'),
        ],
    },
    # Without a flag: the marks in the template choose the parsers.
    "qwen3_coder": {
        "template": "<tool_call> <function= <parameter= <think> </think>",
        "special": ["<tool_call>", "</tool_call>", *THINK],
        "rows": [
            row("so\n</think>\n\n" + coder(city="Rome"), [ROME], reasoning="so", suffix="<think>\n"),
            row("Ok.\n" + coder(city="Rome", days="2") + "\n" + coder("ping"), [("get_weather", '{"city": "Rome", "days": 2}'), PING], "Ok.\n", suffix="<think>\n\n</think>\n\n"),
            row(coder(city="0042\n"), [("get_weather", {"city": "0042\n"})], suffix="<think></think>"),
            row(coder("unknown", q="None"), [("unknown", {"q": None})], suffix="<think></think>"),
            same("Write <tool_call> and then a function.", suffix="<think></think>"),
        ],
    },
    "kimi_k2": {
        "template": "<|tool_calls_section_begin|> <|im_middle|> <think> </think>",
        "special": [KIMI, KIMI_END, KIMI_CALL, KIMI_ARGUMENTS, KIMI_CALL_END, *THINK],
        "ids": {1: ["functions.get_weather:4", "functions.ping:5"]},
        "rows": [
            row(f'<think>so</think>{KIMI}{KIMI_CALL}functions.get_weather:4{KIMI_ARGUMENTS}{{"city": "Rome"}}{KIMI_CALL_END}'
                f"{KIMI_CALL}functions.ping:5{KIMI_ARGUMENTS}{{}}{KIMI_CALL_END}{KIMI_END}", [ROME, PING], reasoning="so"),
            same("No call."),
            row(f"{KIMI}{KIMI_CALL}ping:0{KIMI_ARGUMENTS}{KIMI_CALL_END}{KIMI_END}Done.", [PING], "Done."),
        ],
    },
    "gemma4": {
        "template": "<|tool_call> <tool_call|> <|channel> <channel|>",
        "special": ["<|tool_call>", "<tool_call|>", '<|"|>', "<|channel>", "<channel|>"],
        "rows": [
            row('<|channel>thought\nso\n<channel|><|tool_call>call:get_weather{city:<|"|>Rome<|"|>}<tool_call|>', [ROME], reasoning="so"),
            row('<|tool_call>call:get_weather{city:<|"|>a "b" {c}<|"|>,days:3}<tool_call|><|tool_call>call:ping{}<tool_call|>', [("get_weather", {"city": 'a "b" {c}', "days": 3}), PING]),
            same("Plain."),
        ],
    },
    "openai": {
        "template": "<|start|> <|channel|> <|message|> functions.",
        "special": ["<|start|>", "<|channel|>", "<|message|>", "<|call|>", "<|constrain|>", "<|return|>"],
        "rows": [
            row(f'<|channel|>analysis<|message|>so<|start|>assistant{HARMONY.format("get_weather")}{{"city": "Rome"}}', [ROME], reasoning="so", suffix="<|start|>assistant"),
            row("<|channel|>analysis<|message|>hm<|start|>assistant<|channel|>final<|message|>Rome.", content="Rome.", reasoning="hm", suffix="<|start|>assistant"),
            row(f'<|channel|>commentary<|message|>I look.<|start|>assistant{HARMONY.format("ping")}{{}}', [PING], "I look.", suffix="<|start|>assistant"),
            row("half.", content="half.", prefill="<|start|>assistant<|channel|>final<|message|>A "),
        ],
    },
    "cohere": {
        "template": "<|START_THINKING|> <|START_ACTION|> <|START_RESPONSE|>",
        "special": ["<|START_THINKING|>", "<|END_THINKING|>", "<|START_ACTION|>", "<|END_ACTION|>", "<|START_RESPONSE|>", "<|END_RESPONSE|>"],
        "rows": [
            row('<|START_THINKING|>so<|END_THINKING|><|START_ACTION|>[\n    {"tool_call_id": "0", "tool_name": "get_weather", "parameters": {"city": "Rome"}}\n]<|END_ACTION|>', [ROME], reasoning="so"),
            row("<|START_THINKING|>hm<|END_THINKING|><|START_RESPONSE|>Rome.<|END_RESPONSE|>", content="Rome.", reasoning="hm"),
            row("<|START_RESPONSE|>Rome.<|END_RESPONSE|>", content="Rome."),
        ],
    },
    "pythonic": {
        "template": "Answer with [func_name1(params_name1=params_value1), func_name2(params)].",
        "special": [],
        "rows": [
            row("[get_weather(city='Rome'), ping()]", [ROME, PING]),
            same("[1, 2] is a list."),
            same("[open('x')]"),
            same("Call [ping()] yourself."),
        ],
    },
    "minimax_m2": {
        "template": "]~b]ai <minimax:tool_call> <invoke name= <think> </think>",
        "special": ["<minimax:tool_call>", "</minimax:tool_call>", *THINK],
        "rows": [
            row(f'so\n</think>\n\n<minimax:tool_call>\n<invoke name="get_weather">\n<parameter name="city">Rome</parameter>\n</invoke>\n<invoke name="ping">\n</invoke>\n</minimax:tool_call>', [ROME, PING], reasoning="so", suffix="<think>\n"),
            row("so</think>Plain.", content="Plain.", reasoning="so", suffix="<think>\n"),
            row("so\n<minimax:tool_call>\n<invoke name='ping'>\n</invoke>\n</minimax:tool_call>", [PING], reasoning="so", suffix="<think>\n"),
        ],
    },
}


@pytest.fixture(scope="module", params=list(SERVERS))
def scripted(request, tmp_path_factory):
    setup = SERVERS[request.param]
    folder = tmp_path_factory.mktemp(request.param)
    scripts = [r["text"] + END for r in setup["rows"]]
    scripted_model.write(folder, scripts, setup["special"], setup.get("template", ""))
    flags = ["--dtype", "float32", "--served-model-name", "scripted", "--max-total-tokens", "32768", "--constrain-tool-calls=false"]
    with Server(folder, *flags, *setup.get("flags", []), log=folder / "log") as server:
        yield server, setup


def joined(chunks):
    """The message that a client puts together from the events of a stream, and the finish reason."""
    message, finish = {"content": "", "reasoning_content": "", "tool_calls": []}, None
    for chunk in chunks:
        for choice in chunk["choices"]:
            delta = choice["delta"]
            message["content"] += delta.get("content") or ""
            message["reasoning_content"] += delta.get("reasoning_content") or ""
            for piece in delta.get("tool_calls") or []:
                if piece["index"] == len(message["tool_calls"]):
                    assert piece["id"] and piece["type"] == "function" and piece["function"]["name"]
                    message["tool_calls"].append({"id": piece["id"], "function": {"name": piece["function"]["name"], "arguments": ""}})
                message["tool_calls"][piece["index"]]["function"]["arguments"] += piece["function"].get("arguments") or ""
            finish = choice["finish_reason"] or finish
    return message, finish


def events(body):
    lines = [line[6:] for line in body.decode().split("\n") if line.startswith("data: ")]
    assert lines[-1] == "[DONE]"
    return [json.loads(line) for line in lines[:-1]]


def check(wanted, message, finish):
    assert finish == wanted["finish"]
    assert (message.get("content") or None) == wanted["content"]
    assert ((message.get("reasoning_content") or "").strip() or None) == wanted["reasoning"]
    calls = message.get("tool_calls") or []
    assert [c["function"]["name"] for c in calls] == [name for name, _ in wanted["calls"]]
    for call, (_, arguments) in zip(calls, wanted["calls"]):
        text = call["function"]["arguments"]
        if isinstance(arguments, str):
            assert text == arguments  # with every digit
        elif arguments is not None:
            assert json.loads(text) == arguments
        else:
            assert text.startswith('{"city": "R')


def test_rows(scripted):
    server, setup = scripted
    for number, wanted in enumerate(setup["rows"], 1):
        body = chat(number, setup["special"], tools=TOOLS, **wanted["request"])
        reply = server.post(CHAT, body)
        assert reply.status == 200, reply.body
        choice = reply.json()["choices"][0]
        check(wanted, choice["message"], choice["finish_reason"])
        stream = server.post(CHAT, {**body, "stream": True})
        message, finish = joined(events(stream.body))
        check(wanted, message, finish)
        if number in setup.get("ids", {}):
            assert [c["id"] for c in choice["message"]["tool_calls"]] == setup["ids"][number]
        if "--tool-call-parser mistral" in " ".join(setup.get("flags", [])):
            ids = [c["id"] for c in choice["message"].get("tool_calls") or []]
            assert all(len(i) == 9 and i.isalnum() for i in ids) and len(set(ids)) == len(ids)
            if "abcDEF123" in wanted["text"]:
                assert ids == ["abcDEF123"]
        # What came goes back.
        again = chat(number, setup["special"], tools=TOOLS)
        again["messages"] += [choice["message"], {"role": "tool", "tool_call_id": "x", "content": None}, {"role": "user", "content": "1"}]
        assert server.post(CHAT, again).status == 200


def test_every_cut_by_max_tokens(scripted):
    """Wherever max_tokens falls: no part of a mark, whole calls or the beginning of the last one."""
    server, setup = scripted
    marks = [m for m in setup["special"] if m not in THINK]
    for number in random.Random(3).sample(range(1, len(setup["rows"]) + 1), 3):
        wanted = setup["rows"][number - 1]
        if wanted["request"]:
            continue
        said = scripted_model.tokens(wanted["text"], setup["special"])
        for count in range(1, len(said), 3):
            body = chat(number, setup["special"], tools=TOOLS, max_tokens=count)
            choice = server.post(CHAT, body).json()["choices"][0]
            message, finish = joined(events(server.post(CHAT, {**body, "stream": True}).body))
            assert finish == choice["finish_reason"] == "length"
            assert message["content"] == (choice["message"]["content"] or "")
            arguments = [c["function"]["arguments"] for c in message["tool_calls"]]
            assert arguments == [c["function"]["arguments"] for c in choice["message"].get("tool_calls") or []]
            for text in arguments[:-1]:
                assert isinstance(json.loads(text), dict)
            if wanted["calls"]:
                assert not any(m in message["content"] for m in marks)


def test_tools_without_a_parser_are_refused_by_name(tmp_path):
    folder = scripted_model.write(tmp_path / "model", ["<function=ping>" + END], template="<function=")
    ask = chat(1, [], tools=TOOLS)
    flags = ["--dtype", "float32", "--served-model-name", "scripted"]
    with Server(folder, *flags, log=tmp_path / "log") as server:
        reply = server.post(CHAT, ask)
        assert reply.status == 400 and reply.error["param"] == "tools"
        assert "--tool-call-parser" in reply.error["message"] and "hermes" in reply.error["message"]
        assert server.post(CHAT, {**ask, "tool_choice": "none"}).status == 200
        assert server.post(CHAT, {**ask, "tools": []}).status == 200
        assert "tools are refused" in (tmp_path / "log").read_text()
    with Server(folder, *flags, "--tool-call-parser", "none", log=tmp_path / "log") as server:
        choice = server.post(CHAT, ask).json()["choices"][0]
        assert (choice["message"]["content"], choice["finish_reason"]) == ("<function=ping>", "stop")
