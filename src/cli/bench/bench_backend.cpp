#include "cli/bench/bench_backend.h"

#include <algorithm>
#include <array>

#include "cli/arguments.h"

namespace sluice {
namespace {

using enum LoadProtocol;

constexpr std::array kBackends = {
    LoadBackend{"sluice", kGenerate, 30000},        LoadBackend{"sluice-oai", kCompletions, 30000},
    LoadBackend{"sluice-oai-chat", kChat, 30000},   LoadBackend{"sglang", kGenerate, 30000},
    LoadBackend{"sglang-native", kGenerate, 30000}, LoadBackend{"sglang-oai", kCompletions, 30000},
    LoadBackend{"sglang-oai-chat", kChat, 30000},   LoadBackend{"vllm", kCompletions, 8000},
    LoadBackend{"vllm-chat", kChat, 8000},          LoadBackend{"lmdeploy", kCompletions, 23333},
    LoadBackend{"lmdeploy-chat", kChat, 23333},
};

// A member of an object that may be absent, null or of another kind.
const Json* member(const Json& json, std::string_view key) {
  if (!json.is_object()) return nullptr;
  const auto it = json.find(key);
  return it == json.end() || it->is_null() ? nullptr : &*it;
}

std::string text_of(const Json* json) {
  return json != nullptr && json->is_string() ? json->get<std::string>() : std::string();
}

}  // namespace

const LoadBackend& find_backend(std::string_view name) {
  std::string names;
  for (const LoadBackend& backend : kBackends) {
    if (backend.name == name) return backend;
    names += fmt::format("{}{}", names.empty() ? "" : ", ", backend.name);
  }
  throw UsageError(fmt::format("--backend: '{}' is unknown", name), "allowed: " + names);
}

std::string_view protocol_path(LoadProtocol protocol) {
  switch (protocol) {
    case kGenerate:
      return "/generate";
    case kCompletions:
      return "/v1/completions";
    case kChat:
      return "/v1/chat/completions";
  }
  return "";
}

std::string request_body(LoadProtocol protocol, const LoadPrompt& prompt, const LoadStyle& style) {
  Json json;
  if (protocol == kGenerate) {
    if (style.as_ids)
      json["input_ids"] = prompt.ids;
    else
      json["text"] = prompt.text;
    json["sampling_params"] = {{"temperature", 0.0},
                               {"max_new_tokens", prompt.output_len},
                               {"ignore_eos", style.ignore_eos}};
    json["stream"] = style.stream;
  } else {
    json["model"] = style.model;
    if (protocol == kChat)
      json["messages"] = Json::array({{{"role", "user"}, {"content", prompt.text}}});
    else if (style.as_ids)
      json["prompt"] = prompt.ids;
    else
      json["prompt"] = prompt.text;
    json["temperature"] = 0.0;
    json["max_tokens"] = prompt.output_len;
    json["stream"] = style.stream;
    json["ignore_eos"] = style.ignore_eos;
    if (style.stream) json["stream_options"] = {{"include_usage", true}};
  }
  for (const auto& [key, value] : style.extra.items()) json[key] = value;
  return dump_json(json);
}

AnswerReader::AnswerReader(LoadProtocol protocol, bool stream, const LoadPrompt& prompt)
    : protocol_(protocol), stream_(stream), wanted_len_(prompt.output_len) {
  record_.prompt_len = prompt.prompt_len;
}

void AnswerReader::fail(std::string message) {
  if (record_.error.empty()) record_.error = std::move(message);
}

// `count` tokens came at once: the time since the last ones is shared among them.
void AnswerReader::tokens(int count, double at_s) {
  if (count <= 0) return;
  if (record_.ttft_s == 0) {
    record_.ttft_s = at_s;
  } else {
    record_.itl_s.insert(record_.itl_s.end(), static_cast<std::size_t>(count),
                         (at_s - last_s_) / count);
  }
  last_s_ = record_.latency_s = at_s;
}

void AnswerReader::take(const Json& json, double at_s) {
  if (const Json* error = member(json, "error")) {
    const std::string message = text_of(member(*error, "message"));
    return fail(message.empty() ? dump_json(*error) : message);
  }
  if (protocol_ == kGenerate) {
    // The text so far, and how many tokens it took.
    const Json* const meta = member(json, "meta_info");
    const Json* const count = meta == nullptr ? nullptr : member(*meta, "completion_tokens");
    const int now =
        count != nullptr && count->is_number_integer() ? count->get<int>() : counted_ + 1;
    if (stream_) tokens(now - counted_, at_s);
    counted_ = now;
    record_.text = text_of(member(json, "text"));
    return;
  }
  const Json* const usage = member(json, "usage");
  const Json* const count = usage == nullptr ? nullptr : member(*usage, "completion_tokens");
  if (count != nullptr && count->is_number_integer()) counted_ = count->get<int>();
  const Json* const choices = member(json, "choices");
  if (choices == nullptr || !choices->is_array() || choices->empty()) return;
  const Json& choice = choices->front();
  std::string piece;
  if (protocol_ == kCompletions) {
    piece = text_of(member(choice, "text"));
  } else if (const Json* message = member(choice, stream_ ? "delta" : "message")) {
    for (const char* key : {"reasoning_content", "reasoning", "content"})
      piece += text_of(member(*message, key));
  }
  if (piece.empty()) return;
  record_.text += piece;
  if (stream_) tokens(1, at_s);
}

void AnswerReader::event(std::string_view data, double at_s) {
  if (data == "[DONE]") {
    done_ = true;
    return;
  }
  const Result<Json> json = parse_json(data);
  if (!json.ok()) return fail("an event holds no JSON");
  take(*json, at_s);
}

void AnswerReader::body(std::string_view text, double at_s) {
  const Result<Json> json = parse_json(text);
  if (!json.ok()) return fail("the answer is no JSON");
  take(*json, at_s);
  record_.ttft_s = record_.latency_s = at_s;
  done_ = true;
}

void AnswerReader::end(double at_s) {
  if (stream_ && !done_) fail("the stream ended without [DONE]");
  record_.success = record_.error.empty();
  const bool any = record_.ttft_s > 0;
  record_.output_len = counted_ > 0 || !any ? counted_ : wanted_len_;
  // Tokens that are no text leave no time of a first one.
  if (!any) record_.latency_s = at_s;
}

}  // namespace sluice
