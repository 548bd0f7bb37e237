#!/usr/bin/env python3
"""Request bodies for every route that takes one, each with what has to become of it.

    tests/run_python tests/serving/request_bodies.py http://127.0.0.1:30000     # against a server; prints differences

A case holds a route, a body, and one of these verdicts on its fields:
  taken     200, and the answer's `X-Ignored-Fields` does not name the field
  ignored   200, and that header names it
  refused   400, and `error.param` is the field
Names and types are those of OpenAI's API and of the request classes of vLLM 0.33 and SGLang 0.5.23; `check_names` of
test_requests.py holds every name that these three have.
"""

import dataclasses
import http.client
import itertools
import json
import random
import sys
import urllib.parse

CHAT, COMPLETION, NATIVE, SAMPLING = "chat", "completion", "native", "sampling"
PATHS = {
    CHAT: "/v1/chat/completions", COMPLETION: "/v1/completions", NATIVE: "/generate", SAMPLING: "/generate",
    "tokenize": "/tokenize", "detokenize": "/detokenize", "abort": "/abort_request",
}
BASES = {
    CHAT: {"messages": [{"role": "user", "content": "a"}], "max_tokens": 2},
    COMPLETION: {"prompt": "a", "max_tokens": 2},
    NATIVE: {"text": "a", "sampling_params": {"max_new_tokens": 2}},
    SAMPLING: {"text": "a"},
    "tokenize": {"prompt": "a"}, "detokenize": {"tokens": [5]}, "abort": {"rid": "nobody"},
}
TOOL = {"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": {}}}}
BOTH, ALL = (CHAT, COMPLETION), (CHAT, COMPLETION, NATIVE)
SAMPLED = (CHAT, COMPLETION, SAMPLING)

# routes, field, values that are taken, values that are refused
TAKEN = [
    (SAMPLED, "temperature", [0, 1, 0.7, 2, 1e0], [-0.1, 101, "0.7", True, []]),
    (SAMPLED, "top_p", [1, 0.5, 1e-3], [0, 1.1, "1", {}]),
    (SAMPLED, "top_k", [-1, 0, 1, 40, 40.0], [-2, 0.5, "1"]),
    (SAMPLED, "min_p", [0, 0.1, 1], [-0.1, 2]),
    (SAMPLED, "frequency_penalty", [-2, 0, 2], [2.1, "0"]),
    (SAMPLED, "presence_penalty", [-2, 0, 2], [-2.1, False]),
    (SAMPLED, "repetition_penalty", [1, 1.1], [0, 3]),
    (SAMPLED, "logit_bias", [{}, {"5": 1}, {"5": -100.0}], [{"5": 101}, {"x": 1}, {"-1": 1}, []]),
    (BOTH, "seed", [0, -1, 2**63, 7], [0.5, "1"]),
    ((SAMPLING,), "sampling_seed", [7], [0.5]),
    (SAMPLED, "n", [1, 2, 2.0], [0, 129, 1.5, "1"]),
    (BOTH, "best_of", [1], [2, 0]),
    (BOTH, "max_tokens", [1, 3.0], [-1, 1.5, "3", 2**40]),
    ((CHAT,), "max_completion_tokens", [1], [0, "1"]),
    ((SAMPLING,), "max_new_tokens", [0, 1, 2.0], [-1, "2"]),
    (BOTH, "min_tokens", [0, 1], [-1, 3]),
    ((SAMPLING,), "min_new_tokens", [0, 1], [-1, 200]),
    (SAMPLED, "stop", [[], "xyz", ["x", "yz"]], ["", [""], [1], 1, ["a"] * 17]),
    (SAMPLED, "stop_token_ids", [[], [5]], [[-1], ["5"], 5, [10**9]]),
    (SAMPLED, "ignore_eos", [True, False], [1, "true"]),
    (BOTH, "include_stop_str_in_output", [True, False], [0]),
    (SAMPLED, "no_stop_trim", [True, False], [0]),
    (ALL, "deterministic", [False], [1]),
    (ALL, "timeout", [60, 0.5e2], [0, -1, "1"]),
    (ALL, "priority", [0, -5], [0.5]),
    (ALL, "stream", [False, True], [1, "true"]),
    (BOTH, "stream_options", [{}, {"include_usage": False}], [[], {"include_usage": True}]),
    ((CHAT,), "logprobs", [True, False], [1, "true"]),
    ((CHAT,), "top_logprobs", [0], [5, -1, 21, 0.5]),
    ((COMPLETION,), "logprobs", [0, 1, 5], [-1, 21, "1"]),
    ((NATIVE,), "return_logprob", [True, False], [1]),
    ((NATIVE,), "top_logprobs_num", [0, 2], [-1, 21]),
    ((NATIVE,), "logprob_start_len", [-1, 0], [-2]),
    ((NATIVE,), "return_text_in_logprobs", [True], ["yes"]),
    ((COMPLETION,), "echo", [True, False], [1]),
    (BOTH, "return_token_ids", [True, False], [1]),
    (ALL, "return_captures", [False], [True, 1]),
    (SAMPLED, "skip_special_tokens", [True, False], [1]),
    ((CHAT,), "separate_reasoning", [True, False], [1]),
    (ALL, "cache_salt", ["", "x"], [1, "x" * 1025]),
    (ALL, "rid", ["r-1"], [1, "x" * 129]),
    (BOTH, "request_id", ["abc"], [1]),
    ((CHAT,), "reasoning_effort", ["none"], ["lots", 1]),
    ((CHAT,), "add_generation_prompt", [True, False], [1]),
    ((CHAT,), "continue_final_message", [False], [1]),
    ((CHAT,), "parallel_tool_calls", [True, False], [1]),
    ((CHAT,), "tools", [[], [TOOL]], [{}, 1]),
    ((CHAT,), "tool_choice", ["none", "auto"], ["sometimes", 1]),
    ((CHAT,), "chat_template_kwargs", [{}, {"enable_thinking": False}], [[], 1]),
    ((CHAT,), "documents", [[]], [{}, [1]]),
    (BOTH, "response_format", [{"type": "text"}, {"type": "json_object"}], ["json", 1, {"type": "json"}]),
    (BOTH, "modalities", [["text"]], [["audio"], ["text", "audio"], "text"]),
    (BOTH, "include_reasoning", [True], [False, 1]),
    (ALL, "model", [""], [1]),
]

# Harmless: 200 whatever the value is, and the answer says that it changed nothing.
IGNORED = [
    (BOTH, {"user": "u-1", "metadata": {"a": "b"}, "store": True, "service_tier": "flex", "safety_identifier": "s",
            "prompt_cache_key": "k", "prompt_cache_retention": "24h", "prompt_cache_options": {"mode": "x"},
            "verbosity": "low", "moderation": {"x": 1}, "length_penalty": 1.0, "session_id": "s", "cache_prompt": True,
            "custom_labels": {"a": "b"}, "spaces_between_special_tokens": True}),
    ((CHAT,), {"stream_reasoning": True}),
    # The template of the tests' model reads neither.
    ((CHAT,), {"reasoning_effort": "high", "documents": [{"title": "t", "text": "x"}]}),
    ((NATIVE,), {"session_id": "s", "log_metrics": True, "no_logs": True, "background": True, "routing_key": "k",
                 "conversation_id": "c", "external_trace_header": {"a": "b"}, "received_time": 1.5, "kv_hints": {"a": 1},
                 "custom_labels": {"a": "b"}, "modalities": ["text"]}),
    ((SAMPLING,), {"spaces_between_special_tokens": True}),
    # Unknown and misspelt ones
    (BOTH, {"temprature": 0, "max_token": 3, "foo": 1, "topP": 0.5, "typical_p": 0.9, "mirostat": 2, "keep_alive": "5m"}),
    ((CHAT,), {"prompt": "b", "max_new_token": 5, "n_probs": 3, "top_logprob": 2, "text": "b"}),
    ((COMPLETION,), {"messages": [], "top_logprobs": 2, "tools": [TOOL]}),
    ((NATIVE,), {"temperature": 0.5, "max_new_tokens": 7, "prompt": "b", "return_logprobs": True}),
    ((SAMPLING,), {"temprature": 0, "max_tokens": 7, "logprobs": 1, "foo.bar": 1}),
    (("tokenize",), {"add_special_token": True, "temperature": 1, "text": "b"}),
    (("detokenize",), {"skip_special": True, "text": "b"}),
    (("abort",), {"request_id": "x", "all": True}),
]

# What asks for something that does not exist here, and values that ask for nothing.
REFUSED = [
    (SAMPLED, ["ebnf", "json_schema", "structural_tag"], "x", [None]),
    (SAMPLED, ["regex"], "(x", ["", None]),
    (SAMPLED, ["stop_regex"], "x", ["", []]),
    (BOTH, ["structured_outputs"], {"json": {"type": 1}}, [None, {}]),
    (BOTH, ["guided_json"], {"type": 1}, [None, {}]),
    (BOTH, ["guided_grammar", "grammar"], "x", [None]),
    (BOTH, ["suffix"], "x", ["", None]),
    (BOTH, ["guided_regex"], "(x", ["", None]),
    (BOTH, ["guided_choice"], [1], [None]),
    (BOTH, ["guided_choice", "guided_regex", "guided_grammar", "regex", "ebnf", "grammar", "structural_tag"], [], [None]),
    (BOTH, ["guided_choice", "guided_regex", "guided_grammar", "regex", "ebnf", "grammar", "structural_tag"], {}, [None]),
    (BOTH, ["logits_processors", "bad_words", "allowed_token_ids", "logprob_token_ids"], ["x"], [[], None]),
    ((CHAT,), ["functions"], [{"name": "f"}], [[], None]),
    ((CHAT,), ["function_call", "prediction", "audio", "web_search_options", "thinking"], {"a": 1}, [None, {}]),
    (ALL, ["lora_path", "extra_key", "bootstrap_host"], "x", ["", None]),
    (ALL, ["custom_logit_processor"], "x", [None]),
    (ALL, ["return_hidden_states", "return_routed_experts", "return_sampling_mask"], True, [False, None]),
    (ALL, ["session_params", "mm_processor_kwargs", "images_config", "video_config"], {"a": 1}, [{}, None]),
    (ALL, ["bootstrap_port", "bootstrap_room", "routed_dp_rank", "data_parallel_rank"], 1, [None]),
    (BOTH, ["use_beam_search", "return_tokens_as_token_ids", "return_weight_versions", "return_token_offsets",
            "return_mm_kwargs", "return_cached_tokens_details", "return_spec_tokens_details", "return_meta_info"], True,
     [False, None]),
    (BOTH, ["kv_transfer_params", "ec_transfer_params", "vllm_xargs", "media_io_kwargs", "repetition_detection"],
     {"a": 1}, [{}, None]),
    (BOTH, ["max_new_tokens", "min_new_tokens", "n_predict", "prompt_logprobs", "truncate_prompt_tokens",
            "stream_interval"], 5, [None]),
    ((COMPLETION,), ["thinking_token_budget"], 5, [None]),
    (BOTH, ["prompt_embeds", "truncation_side"], "x", ["", None]),
    (BOTH, ["chat_template"], "x", [None]),
    ((CHAT,), ["echo"], True, [False, None]),
    ((CHAT,), ["input_ids"], [1], [[], None]),
    ((NATIVE,), ["image_data", "audio_data", "video_data", "input_embeds", "mm_hashes"], ["x"], [[], None]),
    ((NATIVE,), ["return_bytes", "return_entropy", "return_prompt_token_ids", "require_reasoning"], True, [False, None]),
    ((NATIVE,), ["token_ids_logprob"], [1], [[], None]),
    ((SAMPLING,), ["custom_params"], {"a": 1}, [{}, None]),
    ((SAMPLING,), ["beam_width"], 4, [None]),
]

# Whole bodies that clients and scripts are known to send.
BODIES = [
    (CHAT, {"logprobs": False, "top_logprobs": 0}, 200),
    (CHAT, {"logprobs": True, "top_logprobs": 0}, 200),
    (CHAT, {"logprobs": True, "top_logprobs": 20}, 200),
    (CHAT, {"logprobs": None, "top_logprobs": None}, 200),
    (CHAT, {"stream": True, "stream_options": {"include_usage": True, "include_obfuscation": False}}, 200),
    (CHAT, {"stream": True, "stream_options": None}, 200),
    (CHAT, {"stream": False, "stream_options": {"include_usage": False}}, 200),
    (CHAT, {"user": None, "metadata": None, "store": False, "service_tier": None, "n": None, "stop": None, "seed": None,
            "tools": None, "tool_choice": None, "logit_bias": None, "response_format": None, "max_tokens": None}, 200),
    (CHAT, {"user": "u", "metadata": {}, "store": False, "service_tier": "auto", "prompt_cache_key": "k",
            "safety_identifier": "s", "parallel_tool_calls": True, "n": 1, "stream": False}, 200),
    (CHAT, {"tools": [TOOL], "tool_choice": "auto", "parallel_tool_calls": False}, 200),
    (CHAT, {"messages": []}, 400), (CHAT, {"messages": None}, 400), (CHAT, {"messages": "hello"}, 400),
    (COMPLETION, {"logprobs": 0, "echo": True}, 200), (COMPLETION, {"logprobs": 5, "echo": True, "max_tokens": 0}, 200),
    (COMPLETION, {"max_tokens": 0}, 400), (COMPLETION, {"prompt": None}, 400), (COMPLETION, {"prompt": 5}, 400),
    (COMPLETION, {"prompt": ["a", "b"], "n": 2}, 200), (COMPLETION, {"prompt": [5, 6]}, 200),
    (COMPLETION, {"prompt": [[5, 6], [7]]}, 200), (COMPLETION, {"prompt": []}, 400),
    (NATIVE, {"text": None, "input_ids": [5, 6]}, 200), (NATIVE, {"text": "a", "input_ids": [5]}, 400),
    (NATIVE, {"sampling_params": None}, 200), (NATIVE, {"sampling_params": []}, 400),
    (NATIVE, {"text": ["a", "b"], "rid": ["x", "y"]}, 200), (NATIVE, {"text": ["a", "b"], "rid": ["x"]}, 400),
]


@dataclasses.dataclass
class Case:
    kind: str
    body: dict
    status: int
    taken: tuple = ()
    ignored: tuple = ()
    refused: str = ""


def with_fields(kind, fields):
    body = dict(BASES[kind])
    if kind != SAMPLING:
        return {**body, **fields}
    return {**body, "sampling_params": {"max_new_tokens": 2, **fields}}


def path_of(kind, name):
    return f"sampling_params.{name}" if kind == SAMPLING else name


def cases(seed=1, mixes=60):
    """Every row by itself, and `mixes` bodies of several fields that are drawn with `seed`."""
    for kinds, name, good, bad in TAKEN:
        for kind, value in itertools.product(kinds, good):
            yield Case(kind, with_fields(kind, {name: value}), 200, taken=(path_of(kind, name),))
        for kind, value in itertools.product(kinds, bad):
            yield Case(kind, with_fields(kind, {name: value}), 400, refused=path_of(kind, name))
        for kind in kinds:
            yield Case(kind, with_fields(kind, {name: None}), 200, taken=(path_of(kind, name),))
    for kinds, fields in IGNORED:
        for kind, (name, value) in itertools.product(kinds, fields.items()):
            yield Case(kind, with_fields(kind, {name: value}), 200, ignored=(path_of(kind, name),))
    for kinds, names, asks, nothing in REFUSED:
        for kind, name in itertools.product(kinds, names):
            yield Case(kind, with_fields(kind, {name: asks}), 400, refused=path_of(kind, name))
            for value in nothing:
                yield Case(kind, with_fields(kind, {name: value}), 200, taken=(path_of(kind, name),))
    for kind, fields, status in BODIES:
        yield Case(kind, with_fields(kind, fields), status)
    draw = random.Random(seed)
    # Fields that do not restrict each other.
    alone = {"min_tokens", "min_new_tokens", "best_of", "rid", "n", "stream_options", "max_completion_tokens",
             "max_tokens", "max_new_tokens", "documents", "add_generation_prompt"}
    for _ in range(mixes):
        kind = draw.choice([CHAT, COMPLETION, NATIVE, SAMPLING])
        rows = [(name, good) for kinds, name, good, _ in TAKEN if kind in kinds and name not in alone]
        fields = {name: draw.choice(good) for name, good in draw.sample(rows, min(len(rows), draw.randint(2, 8)))}
        extra = {name: value for kinds, ignored in IGNORED if kind in kinds for name, value in ignored.items()}
        lost = dict(draw.sample(sorted(extra.items(), key=lambda item: item[0]), draw.randint(0, min(3, len(extra)))))
        taken = [name for name in fields if name not in lost]
        yield Case(kind, with_fields(kind, {**fields, **lost}), 200, tuple(path_of(kind, name) for name in taken),
                   tuple(path_of(kind, name) for name in lost))


def verdict(case, status, headers, body):
    """What is wrong with an answer; empty: nothing."""
    if status != case.status:
        return f"status {status} instead of {case.status}: {body[:300]!r}"
    ignored = [name for name in headers.get("x-ignored-fields", "").split(", ") if name]
    wrong = [name for name in case.taken if name in ignored] + [name for name in case.ignored if name not in ignored]
    if wrong:
        return f"X-Ignored-Fields is {ignored}; {wrong} should be the other way"
    if case.refused:
        error = json.loads(body)["error"]
        if not (error["param"] or "").startswith(case.refused) or case.refused not in error["message"]:
            return f"the refusal does not name {case.refused}: {error}"
    return ""


def run(host, port, all_cases):
    """[(case, what is wrong)], and the number of cases."""
    connection = http.client.HTTPConnection(host, port, timeout=60)
    wrong, count = [], 0
    for case in all_cases:
        count += 1
        connection.request("POST", PATHS[case.kind], json.dumps(case.body), {"Content-Type": "application/json"})
        reply = connection.getresponse()
        body = reply.read()
        message = verdict(case, reply.status, {k.lower(): v for k, v in reply.getheaders()}, body)
        if message:
            wrong.append((case, message))
    connection.close()
    return wrong, count


if __name__ == "__main__":
    url = urllib.parse.urlsplit(sys.argv[1] if len(sys.argv) > 1 else "http://127.0.0.1:30000")
    differences, total = run(url.hostname, url.port, cases())
    for case, message in differences:
        print(case.kind, json.dumps(case.body), "->", message)
    print(f"{total} bodies, {len(differences)} differences")
    sys.exit(bool(differences))
