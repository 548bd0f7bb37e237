"""What Codex asks of the Responses API, as 26 cases: the shapes that vllm-project/vllm#56285 and Codex's requests have.

Codex pairs the items of a stream with those of the final response. It keeps nothing at the server and sends all items
again. Its tools are functions, custom ones, namespaces of MCP servers, and hosted ones.
"""

import json
import re

import openai
import pytest
from test_responses import TIMER

TIMER_WORDS = "Set a timer of 12 minutes for the napkin."
ARGUMENTS = {"minutes": 12, "label": "napkin"}
PATCH = {"type": "custom", "name": "apply_patch", "description": "Edits files",
         "format": {"type": "grammar", "syntax": "lark", "definition": "start: /.+/"}}
HOSTED = {"type": "web_search", "external_web_access": False}
# What Codex sends with each request.
CODEX = {
    "model": "tiny", "store": False, "stream": True, "tool_choice": "auto", "parallel_tool_calls": False,
    "include": ["reasoning.encrypted_content"], "prompt_cache_key": "session", "temperature": 0,
    "max_output_tokens": 120,
    "reasoning": {"effort": "none", "summary": "auto"}, "text": {"verbosity": "low"},
    "extra_body": {"client_metadata": {"x-codex-installation-id": "1"}},
}
THINK = {"reasoning": {"effort": "medium"}}


@pytest.fixture(scope="module")
def client(tiny):
    with openai.OpenAI(base_url=tiny.url + "/v1", api_key="none", max_retries=0, timeout=120) as c:
        yield c


def user(text):
    return {"type": "message", "role": "user", "content": [{"type": "input_text", "text": text}]}


class Stream:
    """The events of one response, and what they build."""

    def __init__(self, client, words=TIMER_WORDS, **more):
        wanted = {**CODEX, "input": [user(words)] if isinstance(words, str) else words, **more}
        self.events = [event.model_dump() for event in client.responses.create(**wanted)]
        self.types = [event["type"] for event in self.events]
        self.done = [event["item"] for event in self.events if event["type"] == "response.output_item.done"]
        self.final = self.events[-1]["response"]

    def of(self, kind):
        return [event for event in self.events if event["type"] == kind]

    def items(self, kind):
        return [item for item in self.done if item["type"] == kind]

    def text(self):
        return "".join(event["delta"] for event in self.of("response.output_text.delta"))


def sent_again(items):
    """Items as Codex sends them: without what it does not keep."""
    return [{key: value for key, value in item.items() if value is not None and key not in ("id", "status")}
            for item in items]


def result_of(item, output="ok"):
    return {"type": item["type"] + "_output", "call_id": item["call_id"], "output": output}


def test_text_whole(client):
    answer = client.responses.create(**{**CODEX, "stream": False, "input": "What is the capital of France?"})
    assert answer.status == "completed" and "Paris" in answer.output_text and answer.id.startswith("resp_")


def test_order_of_events_of_a_text(client):
    stream = Stream(client, "What is the capital of France?")
    types = [kind for at, kind in enumerate(stream.types) if at == 0 or kind != stream.types[at - 1]]
    assert types == [
        "response.created", "response.in_progress", "response.output_item.added", "response.content_part.added",
        "response.output_text.delta", "response.output_text.done", "response.content_part.done",
        "response.output_item.done", "response.completed"]


def test_sequence_numbers_have_no_gap(client):
    stream = Stream(client, tools=[TIMER])
    assert [event["sequence_number"] for event in stream.events] == list(range(len(stream.events)))


def test_items_of_the_stream_are_those_of_the_response(client):
    stream = Stream(client, "Add 12, 34 and 56.", tools=[TIMER], **THINK)
    assert [item["type"] for item in stream.done] == ["reasoning", "message"]
    assert stream.done == stream.final["output"]


def test_prefixes_of_ids(client):
    items = Stream(client, "Add 12, 34 and 56.", **THINK).done + Stream(client, tools=[TIMER]).done
    prefixes = {"reasoning": "rs_", "message": "msg_", "function_call": "fc_"}
    assert {item["type"] for item in items} == set(prefixes)
    assert all(re.fullmatch(prefixes[item["type"]] + "[0-9a-f]+", item["id"]) for item in items)


def test_events_name_their_item(client):
    stream = Stream(client, "Add 12, 34 and 56.", **THINK)
    added = {event["output_index"]: event["item"]["id"] for event in stream.of("response.output_item.added")}
    assert added == {at: item["id"] for at, item in enumerate(stream.done)}
    assert all(added[event["output_index"]] == event["item_id"] for event in stream.events if "item_id" in event)


def test_text_of_deltas_is_the_items(client):
    stream = Stream(client, "What is the capital of France?")
    assert stream.text() == stream.of("response.output_text.done")[0]["text"] == stream.done[0]["content"][0]["text"]


def test_reasoning_streams(client):
    stream = Stream(client, "Add 12, 34 and 56.", **THINK)
    thoughts = "".join(event["delta"] for event in stream.of("response.reasoning_text.delta"))
    assert thoughts and thoughts == stream.of("response.reasoning_text.done")[0]["text"]
    (item,) = stream.items("reasoning")
    assert item["summary"] == [] and item["content"][0]["text"] == thoughts and item["encrypted_content"]
    assert stream.final["usage"]["output_tokens_details"]["reasoning_tokens"] > 0


def test_encrypted_reasoning_is_read_again(client):
    first = Stream(client, "Add 12, 34 and 56.", **THINK)
    plain = [user("Add 12, 34 and 56."), *sent_again(first.done), user("And 1?")]
    hidden = json.loads(json.dumps(plain))
    hidden[1].pop("content")
    counts = [Stream(client, items, **THINK).final["usage"]["input_tokens"] for items in (plain, hidden)]
    assert counts[0] == counts[1]


def test_function_call_whole(client):
    answer = client.responses.create(**{**CODEX, "stream": False, "input": TIMER_WORDS, "tools": [TIMER]})
    (call,) = [item for item in answer.output if item.type == "function_call"]
    assert call.name == "set_timer" and json.loads(call.arguments) == ARGUMENTS and call.status == "completed"


def test_function_call_streams(client):
    stream = Stream(client, tools=[TIMER])
    (item,) = stream.items("function_call")
    (done,) = stream.of("response.function_call_arguments.done")
    deltas = "".join(event["delta"] for event in stream.of("response.function_call_arguments.delta"))
    assert deltas == done["arguments"] == item["arguments"] and json.loads(deltas) == ARGUMENTS


def test_call_ids_are_one(client):
    stream = Stream(client, tools=[TIMER])
    added = [event["item"] for event in stream.of("response.output_item.added")]
    ids = [[item["call_id"] for item in items if item["type"] == "function_call"]
           for items in (added, stream.done, stream.final["output"])]
    assert len(ids[0]) == 1 and ids[0] == ids[1] == ids[2]


def test_results_go_back(client):
    first = Stream(client, tools=[TIMER])
    items = [user(TIMER_WORDS), *sent_again(first.done), result_of(first.items("function_call")[0], "started")]
    second = Stream(client, items, tools=[TIMER])
    assert second.text() and second.final["usage"]["input_tokens_details"]["cached_tokens"] > 0


def test_results_may_be_parts(client):
    first = Stream(client, tools=[TIMER])
    items = [user(TIMER_WORDS), *sent_again(first.done),
             result_of(first.items("function_call")[0], [{"type": "input_text", "text": "started"}])]
    assert Stream(client, items, tools=[TIMER]).text()


def test_choice_required(client):
    stream = Stream(client, "Hello.", tools=[TIMER], tool_choice="required")
    assert [item["name"] for item in stream.items("function_call")] == ["set_timer"]


def test_choice_of_a_function(client):
    stream = Stream(client, "Hello.", tools=[TIMER, PATCH], tool_choice={"type": "function", "name": "set_timer"})
    assert [item["name"] for item in stream.items("function_call")] == ["set_timer"]


def test_choice_none(client):
    stream = Stream(client, tools=[TIMER], tool_choice="none")
    assert [item["type"] for item in stream.done] == ["message"]


def test_custom_tool_streams(client):
    stream = Stream(client, "Hello.", tools=[PATCH], tool_choice={"type": "custom", "name": "apply_patch"})
    (item,) = stream.items("custom_tool_call")
    (done,) = stream.of("response.custom_tool_call_input.done")
    deltas = "".join(event["delta"] for event in stream.of("response.custom_tool_call_input.delta"))
    assert item["name"] == "apply_patch" and item["id"].startswith("ctc_")
    assert deltas == done["input"] == item["input"]
    assert not stream.of("response.function_call_arguments.done")


def test_custom_tool_is_required(client):
    stream = Stream(client, "Hello.", tools=[PATCH], tool_choice="required")
    assert [item["type"] for item in stream.done] == ["custom_tool_call"]
    items = [user("Hello."), *sent_again(stream.done), result_of(stream.done[0], "Done.")]
    assert Stream(client, items, tools=[PATCH]).final["status"] in ("completed", "incomplete")


def test_tools_of_a_namespace(client):
    space = {"type": "namespace", "name": "mcp__clock", "description": "Tools of a clock.", "tools": [TIMER]}
    stream = Stream(client, tools=[space])
    (item,) = stream.items("function_call")
    assert (item["namespace"], item["name"]) == ("mcp__clock", "set_timer")
    assert stream.final["output"][-1]["namespace"] == "mcp__clock"
    items = [user(TIMER_WORDS), *sent_again(stream.done), result_of(item)]
    assert Stream(client, items, tools=[space]).text()
    chosen = Stream(client, "Hello.", tools=[space],
                    tool_choice={"type": "function", "namespace": "mcp__clock", "name": "set_timer"})
    assert [call["name"] for call in chosen.done] == ["set_timer"]


def test_hosted_tools_stand_beside_others(client):
    stream = Stream(client, tools=[HOSTED, TIMER])
    assert [item["name"] for item in stream.items("function_call")] == ["set_timer"]


def test_parallel_calls_go_back(client):
    calls = [{"type": "function_call", "call_id": f"call_{at}", "name": "set_timer",
              "arguments": json.dumps({"minutes": at})} for at in (3, 4)]
    items = [user(TIMER_WORDS), *calls, *[result_of(call) for call in calls], user(TIMER_WORDS)]
    stream = Stream(client, items, tools=[TIMER], parallel_tool_calls=True)
    assert stream.final["parallel_tool_calls"] is True and stream.done


def test_developer_messages(client):
    developer = {"type": "message", "role": "developer", "content": [{"type": "input_text", "text": "Be brief."}]}
    stream = Stream(client, [developer, user("Hello."), developer, user("What is the capital of France?")],
                    instructions="You help.")
    assert stream.final["status"] == "completed" and stream.final["instructions"] == "You help."


def test_answers_go_back_without_id_and_status(client):
    first = Stream(client, "What is the capital of France?")
    items = [user("What is the capital of France?"), *sent_again(first.done), user("And of Spain?")]
    assert "id" not in items[1] and Stream(client, items).final["status"] == "completed"


def test_schema_of_the_text(client):
    form = {"type": "json_schema", "name": "digit", "strict": True,
            "schema": {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"],
                       "additionalProperties": False}}
    assert isinstance(json.loads(Stream(client, "Give me a number.", text={"format": form}).text())["n"], int)


def test_ends_and_faults(client):
    cut = Stream(client, "What is the capital of France?", max_output_tokens=2)
    assert cut.types[-1] == "response.incomplete" and cut.done[0]["status"] == "incomplete"
    assert cut.final["incomplete_details"] == {"reason": "max_output_tokens"}
    with pytest.raises(openai.NotFoundError):
        Stream(client, model="other")
    with pytest.raises(openai.NotFoundError):
        Stream(client, previous_response_id="resp_none")
    with pytest.raises(openai.BadRequestError) as unknown:
        Stream(client, [{"type": "no_such_item"}])
    assert unknown.value.body["param"] == "input.0.type"
