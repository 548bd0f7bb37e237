"""Sixty conversations in the forms that clients send, as the text of their requests: tools, several turns, system
messages, reasoning, parts, nulls, large numbers, duplicate keys."""
import json

WEATHER = {"type": "function", "function": {"name": "get_weather", "description": "Get the weather <now> & \"later\".", "parameters": {
    "type": "object", "properties": {"city": {"type": "string", "description": "e.g. 東京"},
                                     "unit": {"type": "string", "enum": ["celsius", "fahrenheit"], "default": "celsius"}}, "required": ["city"]}}}
SEARCH = {"type": "function", "function": {"name": "search", "description": "Search.\nTwo lines.", "parameters": {
    "type": "object", "properties": {
        "query": {"type": "string"}, "limit": {"type": "integer", "minimum": 0, "maximum": 18446744073709551616, "default": 10},
        "score": {"type": ["number", "null"], "minimum": -1.5, "exclusiveMaximum": 1e22}, "tags": {"type": "array", "items": {"type": "string"}},
        "filters": {"type": "object", "properties": {"year": {"type": "number"}, "exact": {"type": "boolean"}}, "required": ["year"], "additionalProperties": False},
        "any": {"anyOf": [{"type": "string"}, {"type": "integer", "const": 2**80}], "nullable": True}}, "required": ["query"]},
    "return": {"type": "string", "description": "hits"}, "strict": True}}
PING = {"type": "function", "function": {"name": "ping", "description": "No arguments.", "parameters": {"type": "object", "properties": {}}}}
BARE = {"type": "function", "function": {"name": "bare"}}
NESTED = {"type": "function", "function": {"name": "order", "description": "", "parameters": {"type": "object", "$defs": {"Item": {
    "type": "object", "properties": {"id": {"type": "integer"}}}}, "properties": {"items": {"type": "array", "items": {"$ref": "#/$defs/Item"}, "minItems": 1},
                                                                                   "note": {"type": "string", "description": "a 'quoted' \\ note", "maxLength": 5}}}}}
TOOLS = [WEATHER, SEARCH, PING]


def user(content, **more):
    return {"role": "user", "content": content, **more}


def says(content, **more):
    return {"role": "assistant", "content": content, **more}


def system(content):
    return {"role": "system", "content": content}


def call(name, arguments, name_of_call="abcdef123"):
    return {"id": name_of_call, "type": "function", "function": {"name": name, "arguments": arguments}}


def result(content, name_of_call="abcdef123", **more):
    return {"role": "tool", "content": content, "tool_call_id": name_of_call, **more}


def text(value, **more):
    return {"type": "text", "text": value, **more}


BIG = {"id": 12345678901234567890123456789, "min": -2**63, "max": 2**64, "one": 1.0, "int": 1, "e": 1e16, "small": 1.5e-7, "long": 0.1 + 0.2,
       "zero": -0.0, "list": [2**100, {"deep": 9007199254740993}], "none": None, "yes": True}
ASK = dict(add_generation_prompt=True)
TURNS = [user("One?"), says("First."), user("Two?"), says("Second."), user("Three?")]

CONVERSATIONS = {
    "user": ([user("Hello!")], ASK), "user-no-prompt": ([user("Hello!")], {}), "system": ([system("Be terse."), user("Hi")], ASK),
    "spaces": ([system(" \nBe kind. \n"), user("  What is 2+2?  \n"), says(" 4\n"), user("\tAnd 3+3?")], ASK), "turns": (TURNS, ASK),
    "ends-with-assistant": (TURNS[:2], {}), "system-only": ([system("Alone.")], ASK), "two-systems": ([system("a"), system("b"), user("c")], ASK),
    "late-system": ([user("a"), says("b"), system("c"), user("d")], ASK), "developer": ([{"role": "developer", "content": "dev"}, user("x")], ASK),
    "two-users": ([user("one"), user("two")], ASK), "assistant-first": ([says("I go first."), user("ok")], ASK),
    "two-assistants": ([user("q"), says("a"), says("b"), user("c")], ASK), "unknown-role": ([user("a"), {"role": "wizard", "content": "b"}], ASK),
"no-messages": ([], ASK), "names": ([user("q", name="bob"), says("a", name="al"), user("r")], ASK),
    "reasoning": ([user("17*3?"), says("51", reasoning_content="17*3 = 51.\n"), user("Sure?"), says("Yes.", reasoning_content="\nIt is.")], {}),
    "reasoning-turn": ([user("17*3?"), says("51", reasoning_content="think"), user("Sure?")], ASK),
    "reasoning-name": ([user("q"), says("a", reasoning="other name"), user("r")], ASK), "thinking-name": ([user("q"), says("a", thinking="third name"), user("r")], ASK),
    "reasoning-inline": ([user("Q1"), says("<think>\nhm\n</think>\n\nA1"), user("Q2"), says("x</think>y"), user("Q3")], ASK),
    "reasoning-null": ([user("q"), says("a", reasoning_content=None), user("r")], ASK), "reasoning-only": ([user("q"), says(None, reasoning_content="r"), user("s")], ASK),
    "thinking-off": ([user("Hi")], dict(ASK, enable_thinking=False, thinking=False)),
    "thinking-on": ([system("s"), user("Hi")], dict(ASK, enable_thinking=True, thinking=True, reasoning_effort="high", thinking_budget=512)),
    "effort-low": ([user("Hi")], dict(ASK, reasoning_effort="low", model_identity="You are X.")),
    "tools": ([user("Weather in Paris?")], dict(ASK, tools=TOOLS)), "tools-system": ([system("Use tools."), user("Weather?")], dict(ASK, tools=TOOLS[:1])),
    "tools-bare": ([user("x")], dict(ASK, tools=[BARE])), "tools-nested": ([system("s"), user("x")], dict(ASK, tools=[NESTED, PING])), "tools-empty": ([user("x")], dict(ASK, tools=[])),
    "tools-options": ([user("x")], dict(ASK, tools=TOOLS, tools_in_user_message=False, tool_choice="auto", parallel_tool_calls=True, xml_tools=TOOLS, python_tools=[])),
    "call": ([user("Weather?"), says(None, tool_calls=[call("get_weather", {"city": "東京", "unit": "celsius"})]), result('{"temp": 21.5, "sky": "☀️"}')], dict(ASK, tools=TOOLS)),
    "call-empty-content": ([user("Weather?"), says("", tool_calls=[call("get_weather", {"city": "Oslo"})]), result("cold"), says("Cold."), user("Thanks")], dict(ASK, tools=TOOLS[:2])),
    "call-text": ([user("Find"), says("", tool_calls=[call("search", "{\"query\": \"a \\\"b\\\"\", \"limit\": 3}")]), result("none")], dict(ASK, tools=TOOLS)),
    "calls": ([user("Both"), says("Looking.", reasoning_content="two", tool_calls=[call("get_weather", {"city": "Rome"}), call(
        "search", {"query": "x<y>&z", "limit": 2, "tags": ["a", "b"], "filters": {"year": 2020.0, "exact": True}, "score": None}, "bcdefg234")]),
        result("hot"), result("[1, 2]", "bcdefg234")], dict(ASK, tools=TOOLS)),
    "call-final": ([user("w"), says("", tool_calls=[call("ping", {})]), result("pong"), says("Done.", reasoning_content="got pong")], dict(tools=TOOLS)),
    "call-open": ([user("w"), says(None, tool_calls=[call("ping", {})])], dict(tools=TOOLS)), "call-no-content": ([user("w"), {"role": "assistant", "tool_calls": [call("ping", {})]}, result("pong")], dict(ASK, tools=TOOLS)),
    "call-numbers": ([user("w"), says(None, tool_calls=[call("search", BIG)]), result(json.dumps(BIG), name="search")], dict(ASK, tools=TOOLS)),
    "call-strings": ([user("w"), says(None, tool_calls=[call("search", {"query": "a\n\"b\" \\ 'c' \u2028 é <x>&amp; {{ 1 }}", "tags": [], "filters": {}})]), result("")], dict(ASK, tools=TOOLS)),
    "call-unknown": ([user("w"), says("t", tool_calls=[call("gone", {"a": [1, [2, {"b": False}]]}, "id with space")]), result("r", "id with space")], dict(ASK, tools=[PING])),
    "call-without-tools": ([user("w"), says(None, tool_calls=[call("ping", {"a": 1})]), result("p"), user("x")], ASK),
    "call-rounds": ([user("w"), says(None, tool_calls=[call("ping", {}, "callaaaa1")], reasoning_content="r1"), result("p1", "callaaaa1"), says("t", tool_calls=[call("ping", {"n": 1.0}, "callaaaa2")], reasoning_content="r2"),
                     result("p2", "callaaaa2"), says("end", reasoning_content="r3"), user("again")], dict(ASK, tools=TOOLS)),
    "call-null": ([user("w"), says("x", tool_calls=None), user("y")], ASK), "calls-empty": ([user("w"), says("x", tool_calls=[]), user("y")], dict(ASK, tools=TOOLS)),
    "result-parts": ([user("w"), says(None, tool_calls=[call("ping", {})]), result([text("a"), text("b")])], dict(ASK, tools=TOOLS)),
    "result-object": ([user("w"), says(None, tool_calls=[call("ping", {})]), result({"a": 1, "b": [2**70, 1.0]}, name="ping")], dict(ASK, tools=TOOLS)),
    "result-stray": ([user("a"), result("stray", "short")], {}), "function-role": ([user("a"), {"role": "function", "name": "f", "content": "r"}], ASK),
    "parts": ([user([text("What is "), {"type": "image"}, text("this?")])], ASK), "parts-text": ([system([text("sys")]), user([text("a"), text("b")]), says([text("c")]), user([text("d")])], ASK),
    "parts-media": ([user([{"type": "image_url", "image_url": {"url": "data:,x"}}, {"type": "video"}, {"type": "audio", "audio": "x"}, text("look")])], ASK), "parts-empty": ([user([]), says("x"), user("y")], ASK),
    "documents": ([user("What grows?")], dict(ASK, documents=[{"title": "Tall", "text": "Emperors are tall."}, {"doc_id": 2**66, "title": "Habitats", "text": "In \"Antarctica\"."}], citation_mode="fast")),
    "continue": ([user("Write a poem."), says("Roses are red, ")], dict(continue_final_message=True)),
    "unicode": ([user("  ñ 你好 🎉 \u202e\u200d <b>&amp;</b> {{ 7*7 }} {% if %} </s>\t\u00a0"), says("\u3000ok\u3000"), user("\n\nnext\n\n")], ASK),
    "custom": ([user("Hi")], dict(ASK, date_string="1 Jan 2000", builtin_tools=["brave_search", "code_interpreter"], custom_tools=[WEATHER], safety_identifier="s", language="de", seed=2**65)),
    "extra-fields": ([dict(system("sys"), tools="[{}]", cache=True), user("q", explode=1, weight=1.50)], ASK), "null-content": ([user(None), says(None)], {}),
}
SPECIAL = dict(bos_token="<s>", eos_token="</s>", pad_token="<pad>", unk_token="<unk>")


def requests():
    """Name and JSON text of every conversation; some repeat a number or a key in a way that dumps never do."""
    out = {name: json.dumps(dict(messages=messages, **arguments, **SPECIAL)) for name, (messages, arguments) in CONVERSATIONS.items()}
    assert len(out) == 60, len(out)
    out["call-numbers"] = out["call-numbers"].replace('"one": 1.0', '"one": 1.0, "ten": 1E1, "huge": 1e400, "neg": -0, "exp": 1.50e+3')
    return out
