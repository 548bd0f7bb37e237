"""Every field of every request: it has effect, is refused by name, or the answer says that it was ignored."""

import json
import re

import pytest

import request_bodies as bodies
from sluice_server import TINY, Server

# Every name that the request classes of vLLM 0.33 and SGLang 0.5.23, and the types of OpenAI's SDK 3.52, have.
RIVALS = {
    bodies.CHAT: """
        messages model frequency_penalty logit_bias logprobs top_logprobs max_tokens max_completion_tokens n
        presence_penalty response_format seed stop stream stream_options temperature top_p tools tool_choice
        reasoning_effort thinking_token_budget include_reasoning parallel_tool_calls user use_beam_search top_k min_p
        repetition_penalty watermarking length_penalty stop_token_ids include_stop_str_in_output ignore_eos min_tokens
        skip_special_tokens spaces_between_special_tokens truncate_prompt_tokens truncation_side prompt_logprobs
        logprob_token_ids allowed_token_ids bad_words echo add_generation_prompt continue_final_message
        documents chat_template chat_template_kwargs media_io_kwargs mm_processor_kwargs
        structured_outputs priority request_id session_id return_tokens_as_token_ids return_token_ids
        return_weight_versions routed_experts_prompt_start return_token_offsets return_prompt_text mm_payload
        return_mm_kwargs cache_salt kv_transfer_params ec_transfer_params vllm_xargs repetition_detection
        stream_interval return_hidden_states return_routed_experts routed_experts_start_len
        return_cached_tokens_details return_spec_tokens_details return_prompt_token_ids return_meta_info
        return_input_ids_in_sglext return_output_ids_in_sglext return_sampling_mask sampling_logprobs_mode
        return_flat_raw_output_top_logprobs return_flat_raw_top_logprobs_b64 thinking regex ebnf stop_regex
        no_stop_trim lora_path session_params separate_reasoning stream_reasoning use_audio_in_video images_config
        video_config custom_logit_processor watermark input_ids rid extra_key data_parallel_rank audio function_call
        functions metadata modalities moderation prediction prompt_cache_key prompt_cache_options
        prompt_cache_retention safety_identifier service_tier store verbosity web_search_options""",
    bodies.COMPLETION: """
        model prompt echo frequency_penalty logit_bias logprobs max_tokens n presence_penalty seed stop stream
        stream_options suffix temperature top_p user use_beam_search top_k min_p repetition_penalty watermarking
        length_penalty stop_token_ids include_stop_str_in_output ignore_eos min_tokens skip_special_tokens
        spaces_between_special_tokens truncate_prompt_tokens truncation_side allowed_token_ids prompt_logprobs
        logprob_token_ids bad_words prompt_embeds response_format structured_outputs priority
        request_id session_id return_tokens_as_token_ids return_token_ids return_weight_versions
        routed_experts_prompt_start return_token_offsets mm_payload return_mm_kwargs cache_salt kv_transfer_params
        ec_transfer_params vllm_xargs repetition_detection thinking_token_budget stream_interval best_of
        return_hidden_states return_routed_experts routed_experts_start_len return_cached_tokens_details
        return_spec_tokens_details json_schema regex ebnf stop_regex no_stop_trim lora_path session_params
        custom_logit_processor watermark images_config mm_processor_kwargs data_parallel_rank rid extra_key
        custom_labels""",
    bodies.NATIVE: """
        rid session_id text input_ids input_embeds image_data video_data audio_data mm_hashes mm_content_hashes
        use_audio_in_video video_config sampling_params watermark return_logprob logprob_start_len top_logprobs_num
        token_ids_logprob return_sampling_mask sampling_logprobs_mode return_text_in_logprobs
        return_flat_raw_top_logprobs return_flat_raw_output_top_logprobs return_flat_raw_top_logprobs_b64 stream
        log_metrics return_hidden_states return_routed_experts routed_experts_start_len return_indexer_topk modalities
        session_params lora_path custom_logit_processor positional_embed_overrides bootstrap_host bootstrap_port
        bootstrap_room bootstrap_pair_key decode_tp_size routed_dp_rank data_parallel_rank disagg_prefill_dp_rank
        routing_key conversation_id background require_reasoning max_thinking_tokens priority extra_key no_logs
        custom_labels return_bytes return_entropy return_prompt_token_ids external_trace_header received_time
        encoder_urls images_config mm_processor_kwargs multi_item_delimiter_indices token_indices_to_pool cache_salt
        kv_hints""",
    bodies.SAMPLING: """
        max_new_tokens stop stop_token_ids stop_regex temperature top_p top_k min_p frequency_penalty presence_penalty
        repetition_penalty min_new_tokens n beam_width json_schema regex ebnf structural_tag ignore_eos
        skip_special_tokens spaces_between_special_tokens no_stop_trim stream_interval logit_bias sampling_seed
        custom_params watermark""",
}


def test_each_body_is_answered_as_its_row_says(tiny):
    wrong, count = bodies.run("127.0.0.1", tiny.port, bodies.cases())
    assert count >= 1000
    assert not wrong, "\n".join(f"{case.kind} {json.dumps(case.body)[:200]}: {message}" for case, message in wrong[:20])


@pytest.mark.parametrize("kind", RIVALS)
def test_no_field_of_another_engine_is_unknown(tmp_path, kind):
    """A value of a type that no field has: a known field is refused by name, or stands in the list of ignored ones
    beside no guess. An unknown one would be written to the log as such."""
    log = tmp_path / "log"
    with Server(TINY, log=log) as server:
        for name in RIVALS[kind].split():
            reply = server.post(bodies.PATHS[kind], bodies.with_fields(kind, {name: {"no such": "value"}}))
            assert reply.status in (200, 400), (name, reply.body)
            if reply.status == 400:
                assert bodies.path_of(kind, name) in reply.error["message"], (name, reply.body)
    unknown = re.findall(r"request field `([^`]*)` is not known", log.read_text())
    assert all(name.endswith(".no such") for name in unknown), unknown


def test_an_unknown_field_is_logged_once_with_the_nearest_name(tmp_path):
    log = tmp_path / "log"
    with Server(TINY, log=log) as server:
        for _ in range(3):
            reply = server.post("/v1/chat/completions", bodies.with_fields(bodies.CHAT, {"temprature": 0, "zzz": 1}))
            assert reply.headers["X-Ignored-Fields"] == "temprature, zzz"
        for _ in range(3):
            reply = server.post("/v1/completions", bodies.with_fields(
                bodies.COMPLETION, {"stream": True, "stream_options": {"include_usages": True}}))
            assert reply.headers["X-Ignored-Fields"] == "stream_options.include_usages"
        # A client's names neither break a header nor fill the log.
        odd = {"a\r\nX-Evil: 1": 1, "b,c": 2, "ü": 3, "d" * 500: 4}
        reply = server.post("/v1/chat/completions", bodies.with_fields(bodies.CHAT, odd))
        assert reply.status == 200 and "X-Evil" not in reply.headers
        assert len(reply.headers["X-Ignored-Fields"]) < 200
        for i in range(400):
            many = {f"unknown_{i}_{j}": 1 for j in range(40)}
            reply = server.post("/tokenize", {"prompt": "a", **many})
        assert reply.headers["X-Ignored-Fields"].endswith(", ...")
    text = log.read_text()
    assert text.count("`temprature` is not known") == 1
    assert "did you mean `temperature`?" in text
    assert text.count("`zzz` is not known") == 1 and "`zzz` is not known and has no effect\n" in text
    assert "did you mean `include_usage`?" in text
    assert text.count("is not known") <= 256


def test_a_request_id_is_part_of_the_answers_id(tiny):
    for kind, prefix in ((bodies.CHAT, "chatcmpl-"), (bodies.COMPLETION, "cmpl-")):
        reply = tiny.post(bodies.PATHS[kind], bodies.with_fields(kind, {"request_id": "abc"})).json()
        assert reply["id"] == prefix + "abc"


@pytest.mark.parametrize("text", ["I like 🦊 and café.", "🦊🦊x", "日本", "naïve", "a\n🦊"])
def test_offsets_of_characters_that_several_tokens_make(tiny, text):
    """text_offset is an index into the text: of the character that the token's first byte belongs to."""
    ask = {"prompt": text, "echo": True, "max_tokens": 0, "logprobs": 0}
    choice = tiny.post("/v1/completions", ask).json()["choices"][0]
    assert choice["text"] == text
    ids = tiny.post("/tokenize", {"prompt": text}).json()["tokens"]
    offsets = choice["logprobs"]["text_offset"]
    assert len(offsets) == len(ids)
    # The bytes of each token, from a chat that is made to say it.
    at, want, raw = 0, [], text.encode()
    for token in ids:
        want.append(len(raw[:at].decode(errors="ignore")))
        said = tiny.post("/v1/chat/completions", {
            "messages": [{"role": "user", "content": "a"}], "max_tokens": 1, "logprobs": True, "temperature": 0,
            "logit_bias": {str(token): 100}, "skip_special_tokens": False}).json()["choices"][0]
        at += len(said["logprobs"]["content"][0]["bytes"])
    assert at == len(raw)
    assert offsets == want


def test_bytes_of_logprobs_join_to_the_text(tiny):
    ids = tiny.post("/tokenize", {"prompt": "🦊 é 日本"}).json()["tokens"]
    ask = {"messages": [{"role": "user", "content": "a"}], "max_tokens": 40, "logprobs": True, "top_logprobs": 3,
           "logit_bias": {str(i): 60 for i in ids}, "temperature": 1, "seed": 3, "ignore_eos": True}
    choice = tiny.post("/v1/chat/completions", ask).json()["choices"][0]
    said = b"".join(bytes(entry["bytes"]) for entry in choice["logprobs"]["content"])
    text = choice["message"].get("reasoning_content", "") + choice["message"]["content"]
    assert said.decode(errors="replace") == text
    for entry in choice["logprobs"]["content"]:
        for other in entry["top_logprobs"]:
            assert bytes(other["bytes"]).decode(errors="replace") == other["token"]


def test_keys_inside_messages_and_tools_are_told():
    tool = {"type": "function", "strct": True,
            "function": {"name": "f", "paramters": {}, "parameters": {"type": "object", "properties": {"q": {}}}}}
    call = {"id": "x", "type": "function", "extra": 1, "function": {"name": "f", "arguments": "{}", "zz": 1}}
    plain = {"role": "user", "content": "Hi"}
    rows = [
        ({"messages": [{**plain, "cntent": "b"}]}, "messages.cntent"),
        ({"messages": [{**plain, "cntent": "b"}, {**plain, "cntent": "c"}]}, "messages.cntent"),
        ({"messages": [{"role": "user", "content": [{"type": "text", "text": "a", "txt": 1}]}]}, "messages.content.txt"),
        ({"messages": [plain, {"role": "assistant", "tool_calls": [call]}]},
         "messages.tool_calls.extra, messages.tool_calls.function.zz"),
        ({"messages": [plain], "tools": [tool], "tool_choice": {"type": "function", "y": 2, "function": {"name": "f", "x": 1}}},
         "tool_choice.y, tool_choice.function.x"),
        ({"messages": [plain], "chat_template_kwargs": {"enable_thnking": False}}, "chat_template_kwargs.enable_thnking"),
        ({"messages": [plain], "response_format": {"type": "text", "jsn": 1}}, "response_format.jsn"),
        ({"messages": [plain, {"role": "assistant", "tool_calls": [{**call, "extra": None, "function": {
            "name": "f", "arguments": '{"a": 1, "a": 2}'}}]}]}, None),
        ({"messages": [plain], "documents": [{"title": "a", "text": "b"}]}, "documents"),
        ({"messages": [plain], "reasoning_effort": "high"}, "reasoning_effort"),
        ({"messages": [{**plain, "audio": {"id": "x"}}]}, "messages.audio"),
        # Go's nil slices and maps, and PHP's empty ones.
        *[({"messages": [plain], "tools": [{"type": "function", "function": {"name": "f", "parameters": schema}}]}, None)
          for schema in ({"type": "object", "properties": {}, "required": None}, {"type": "object", "properties": None},
                         {"type": None, "properties": []})],
        ({"messages": [plain], "seed": 1.0, "function_call": "none"}, None),
        # What replies have, and nulls, ask for nothing.
        ({"messages": [plain, {"role": "assistant", "content": "a", "refusal": None, "annotations": [], "audio": None}, plain],
          "chat_template_kwargs": {"enable_thinking": False}}, None),
    ]
    with Server(TINY) as server:
        for fields, told in rows:
            reply = server.post("/v1/chat/completions", {"max_tokens": 2, **fields})
            assert reply.status == 200, reply.body
            found = reply.headers.get("X-Ignored-Fields")
            if told and "tools" in fields:  # the template may show whole tools
                assert found.endswith(told), found
            else:
                assert found == told, (fields, found)
        reply = server.post("/v1/responses", {
            "max_output_tokens": 16, "text": {"format": {"type": "text", "z": 1}},
            "input": [{"role": "user", "content": "a", "bar": 2}]})
        assert reply.status == 200 and reply.headers["X-Ignored-Fields"] == "input.bar, text.format.z", reply.headers
