"""Codex and Claude Code themselves, as the packages of versions/coding_agents.txt bring them."""

import asyncio
import json
import os
import subprocess
import sys

import claude_agent_sdk
import codex_cli_bin
import pytest
import scripted_model
from sluice_server import TINY, Server

TURNS = 30
TIMER = {"type": "object", "properties": {"minutes": {"type": "integer"}, "label": {"type": "string"}},
         "required": ["minutes"]}

CODEX_CONFIG = """
model = "sluice-tiny"
model_provider = "sluice"
model_instructions_file = "{folder}/instructions.md"
model_reasoning_effort = "none"
model_context_window = 8192
[model_providers.sluice]
name = "Sluice"
base_url = "{url}/v1"
wire_api = "responses"
supports_websockets = false
request_max_retries = 0
stream_max_retries = 0
[analytics]
enabled = false
"""
CODEX_TOOL = """
[mcp_servers.t]
command = "{python}"
args = ["{folder}/timers.py"]
default_tools_approval_mode = "approve"
"""

# A server of the Model Context Protocol with one tool. It writes down each call.
TIMERS = """
import json, sys
for line in sys.stdin:
    message = json.loads(line)
    if "id" not in message:
        continue
    parameters, result = message.get("params", {{}}), {{}}
    if message["method"] == "initialize":
        result = {{"protocolVersion": parameters["protocolVersion"], "capabilities": {{"tools": {{}}}},
                  "serverInfo": {{"name": "timers", "version": "1"}}}}
    elif message["method"] == "tools/list":
        result = {{"tools": [{{"name": "set_timer", "description": "Start a timer", "inputSchema": {schema}}}]}}
    elif message["method"] == "tools/call":
        with open("{folder}/calls", "a") as calls:
            calls.write(json.dumps(parameters["arguments"]) + "\\n")
        result = {{"content": [{{"type": "text", "text": "ok"}}]}}
    print(json.dumps({{"jsonrpc": "2.0", "id": message["id"], "result": result}}), flush=True)
"""


@pytest.fixture
def codex(tmp_path):
    """Runs `codex exec` against a server, and returns its events. Its words and tools take 7,500 tokens."""
    work = tmp_path / "work"
    work.mkdir()
    (tmp_path / "instructions.md").write_text("You help. Be brief.")
    (tmp_path / "timers.py").write_text(TIMERS.format(folder=tmp_path, schema=TIMER))

    def run(url, *words, config=CODEX_CONFIG):
        (tmp_path / "config.toml").write_text(config.format(folder=tmp_path, url=url, python=sys.executable))
        done = subprocess.run(
            [codex_cli_bin.bundled_codex_path(), "exec", *words[:-1], "--json", "--skip-git-repo-check",
             "--dangerously-bypass-approvals-and-sandbox", words[-1]],
            cwd=work, env={**os.environ, "CODEX_HOME": str(tmp_path)}, stdin=subprocess.DEVNULL, capture_output=True,
            text=True, timeout=500)
        events = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
        assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
        return events

    return run


def test_codex(codex, server, counts):
    events = codex(server.url, "What is the capital of France?")
    assert events[-1]["type"] == "turn.completed", events
    assert events[-1]["usage"]["input_tokens"] == counts["prompt_tokens"]
    assert events[-1]["usage"]["output_tokens"] == counts["generated_tokens"]
    assert any(event.get("item", {}).get("type") == "agent_message" for event in events)


def test_codex_with_a_tool(codex, tmp_path):
    """A session whose model calls the tool of the MCP server in each turn, and answers when it has the result."""
    arguments = {"minutes": 3, "label": "tea"}
    call = json.dumps({"name": "mcp__t__set_timer", "arguments": arguments})
    scripts = [f"<tool_call>\n{call}\n</tool_call>", "Done."]
    folder = tmp_path / "model"
    scripted_model.write(folder, [script + scripted_model.END for script in scripts], ["<tool_call>", "</tool_call>"])
    settings = json.loads((folder / "tokenizer_config.json").read_text())
    settings["chat_template"] = ("{%- if tools -%}{%- endif -%}{{- 'x' * ((2 if messages[-1].role == 'tool' else 1) * "
                                 f"{scripted_model.SPAN}) -}}}}")
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    log = tmp_path / "server.log"
    with Server(folder, "--dtype", "float32", "--served-model-name", "sluice-tiny", "--max-total-tokens", "32768",
                "--tool-call-parser", "hermes", log=log) as scripted:
        for turn in range(TURNS):
            events = codex(scripted.url, *(["resume", "--last"] if turn else []), f"Set a timer, the {turn}th.",
                           config=CODEX_CONFIG + CODEX_TOOL)
            items = [event["item"] for event in events if event["type"] == "item.completed"]
            calls = [item for item in items if item["type"] == "mcp_tool_call"]
            assert [(call["server"], call["tool"]) for call in calls] == [("t", "set_timer")], events
            assert calls[0]["status"] == "completed", events
            assert items[-1]["type"] == "agent_message" and items[-1]["text"] == "Done.", events
            assert events[-1]["type"] == "turn.completed", events
    assert [json.loads(line) for line in (tmp_path / "calls").read_text().splitlines()] == [arguments] * TURNS
    assert log.read_text().count("POST /v1/responses 200,") == 2 * TURNS


def test_claude_code(server, counts, tmp_path):
    """A session with a tool of an MCP server: each turn calls it and reads its result."""
    calls = []

    @claude_agent_sdk.tool("set_timer", "Start a timer", TIMER)
    async def set_timer(arguments):
        calls.append(arguments)
        return {"content": [{"type": "text", "text": "ok"}]}

    options = claude_agent_sdk.ClaudeAgentOptions(
        system_prompt="You help with timers.", tools=[], setting_sources=[], model="sluice-tiny", max_turns=6,
        cwd=tmp_path,
        mcp_servers={"t": claude_agent_sdk.create_sdk_mcp_server("t", tools=[set_timer])},
        allowed_tools=["mcp__t__set_timer"],
        env={"ANTHROPIC_BASE_URL": server.url, "ANTHROPIC_API_KEY": "none", "ANTHROPIC_SMALL_FAST_MODEL": "sluice-tiny",
             "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1", "DISABLE_TELEMETRY": "1", "ENABLE_TOOL_SEARCH": "false",
             "HOME": os.environ["HOME"]})

    async def session():
        results = []
        async with claude_agent_sdk.ClaudeSDKClient(options) as client:
            for turn in range(TURNS):
                await client.query(f"Set a timer of {turn + 3} minutes for the napkin.")
                results += [message async for message in client.receive_response()
                            if isinstance(message, claude_agent_sdk.ResultMessage)]
        return results

    results = asyncio.run(session())
    assert len(results) == TURNS and not any(result.is_error for result in results), results
    assert len(calls) >= TURNS // 2 and calls[0] == {"minutes": 3, "label": "napkin"}
    assert counts["requests"] >= TURNS + len(calls) and counts["cached_tokens"] > 0


def test_claude_code_with_its_own_tools(tmp_path_factory, tmp_path):
    """Its own words and tools, some of them deferred: more than the model's context, which is stretched."""
    log = tmp_path_factory.mktemp("long") / "server.log"
    with Server(TINY, "--dtype", "float32", "--context-length", "32768", "--allow-longer", log=log) as long:
        program = os.path.join(os.path.dirname(claude_agent_sdk.__file__), "_bundled", "claude")
        done = subprocess.run(
            [program, "-p", "What is the capital of France?", "--output-format", "json", "--max-turns", "1"],
            cwd=tmp_path, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=500,
            env={**os.environ, "ANTHROPIC_BASE_URL": long.url, "ANTHROPIC_MODEL": "sluice-tiny",
                 "ANTHROPIC_SMALL_FAST_MODEL": "sluice-tiny", "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
                 "CLAUDE_CODE_MAX_OUTPUT_TOKENS": "64"})
        result = json.loads(done.stdout.splitlines()[-1])
        assert result.get("api_error_status") is None and result["usage"]["input_tokens"] > 8192, result
        assert " 400," not in log.read_text()
