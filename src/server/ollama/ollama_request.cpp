#include "server/ollama/ollama_request.h"

#include "server/api/request_fields.h"
#include "server/api/unknown_fields.h"
#include "server/core/errors.h"

namespace sluice {
namespace {

constexpr std::string_view kMedia = "this server reads text only.";
constexpr std::string_view kNeverCut = "a prompt is never cut in silence; shorten it.";
constexpr std::string_view kWhiteSpace = "use `structured_outputs` with `disable_any_whitespace`.";
constexpr std::string_view kSampler = "the server has no such sampler.";

constexpr auto kChatFields = with_grammar_fields({
    own_field("model"),
    own_field("messages"),
    own_field("options"),
    own_field("format"),
    own_field("think"),
    own_field("stream"),
    same_field("tools"),
    refused_field("response_format", "use `format`."),
    refused_field("guided_whitespace_pattern", kWhiteSpace),
    ignored_field("keep_alive"),
    refused_field("logprobs", "use /v1/chat/completions."),
    refused_field("top_logprobs", "use /v1/chat/completions."),
    refused_field("truncate", kNeverCut),
    refused_field("shift", "an answer ends where the context does."),
});

constexpr auto kGenerateFields = with_grammar_fields({
    own_field("model"),
    own_field("prompt"),
    own_field("system"),
    own_field("raw"),
    own_field("options"),
    own_field("format"),
    own_field("think"),
    own_field("stream"),
    refused_field("response_format", "use `format`."),
    refused_field("guided_whitespace_pattern", kWhiteSpace),
    ignored_field("keep_alive"),
    refused_field("images", kMedia),
    refused_field("suffix", "filling in the middle is not part of this version."),
    refused_field("template",
                  "templates come from the model or from --chat-template, never from a request."),
    refused_field("context", "send the conversation to /api/chat; the prefix cache finds it."),
    refused_field("logprobs", "use /v1/completions."),
    refused_field("top_logprobs", "use /v1/completions."),
    refused_field("truncate", kNeverCut),
    refused_field("shift", "an answer ends where the context does."),
});

constexpr ProtocolField kOptions[] = {
    own_field("num_predict"),
    own_field("repeat_last_n"),
    own_field("mirostat"),
    own_field("tfs_z"),
    own_field("typical_p"),
    same_field("temperature"),
    same_field("top_k"),
    same_field("top_p"),
    same_field("min_p"),
    same_field("seed"),
    same_field("stop"),
    same_field("presence_penalty"),
    same_field("frequency_penalty"),
    renamed_field("repeat_penalty", "repetition_penalty"),
    // How much the model holds is decided when the server starts.
    ignored_field("num_ctx"),
    ignored_field("num_keep"),
    ignored_field("num_batch"),
    ignored_field("num_gpu"),
    ignored_field("main_gpu"),
    ignored_field("num_thread"),
    ignored_field("numa"),
    ignored_field("low_vram"),
    ignored_field("f16_kv"),
    ignored_field("use_mmap"),
    ignored_field("use_mlock"),
    ignored_field("vocab_only"),
    ignored_field("logits_all"),
    ignored_field("embedding_only"),
    ignored_field("mirostat_eta"),
    ignored_field("mirostat_tau"),
    ignored_field("penalize_newline"),
    refused_field("draft_num_predict", kSampler),
};

std::optional<Fault> read_options(const Json& options, OllamaRequest& out) {
  if (options.is_null()) return std::nullopt;
  if (!options.is_object()) return wrong_type("options", "an object", json_type_name(options));
  if (auto fault =
          translate_fields(options, kOptions, "options.", out.chat, out.names, out.ignored))
    return fault;
  // 0, -1 and -2: as much as the context holds.
  const Json& most = member_or_null(options, "num_predict");
  if (!most.is_null() && most != 0 && most != -1 && most != -2) {
    out.chat["max_tokens"] = most;
    out.names.add("max_tokens", "options.num_predict");
  }
  const Json& last = member_or_null(options, "repeat_last_n");
  if (last == 0)
    out.chat["repetition_penalty"] = 1;
  else if (!last.is_null() && last != -1 && options.contains("repeat_penalty"))
    return unsupported("options.repeat_last_n",
                       "the penalty looks at the whole text; -1 says so, and 0 is no penalty.");
  else if (!last.is_null() && last != -1)
    note_without_effect("options.repeat_last_n", out.ignored);
  for (const auto& [name, off] :
       {std::pair<const char*, int>{"mirostat", 0}, {"tfs_z", 1}, {"typical_p", 1}}) {
    const Json& value = member_or_null(options, name);
    if (!value.is_null() && value != off)
      return unsupported(fmt::format("options.{}", name), kSampler);
  }
  return std::nullopt;
}

std::optional<Fault> read_format(const Json& format, OllamaRequest& out) {
  if (format.is_null() || format == "") return std::nullopt;
  if (format == "json") {
    out.chat["response_format"] = Json{{"type", "json_object"}};
  } else if (format.is_object()) {
    out.chat["response_format"] =
        Json{{"type", "json_schema"}, {"json_schema", {{"schema", format}}}};
  } else {
    return invalid_value("format", "`format` must be `json` or a JSON Schema (an object).");
  }
  out.names.add("response_format.json_schema.schema", "format");
  out.names.add("response_format", "format");
  return std::nullopt;
}

std::optional<Fault> read_think(const Json& think, OllamaRequest& out) {
  if (think.is_null()) return std::nullopt;
  if (think.is_string()) {
    out.chat["reasoning_effort"] = think;
    out.names.add("reasoning_effort", "think");
    out.chat["chat_template_kwargs"] = Json{{"enable_thinking", true}, {"thinking", true}};
    return std::nullopt;
  }
  if (!think.is_boolean())
    return wrong_type("think", "true, false, `low`, `medium` or `high`", json_type_name(think));
  out.chat["chat_template_kwargs"] = Json{{"enable_thinking", think}, {"thinking", think}};
  return std::nullopt;
}

// What both routes share.
std::optional<Fault> read_common(const Json& body, OllamaRequest& out) {
  const Json& model = member_or_null(body, "model");
  if (model.is_null()) return missing_field("model");
  if (!model.is_string()) return wrong_type("model", "a string", json_type_name(model));
  out.chat["model"] = ollama_model_name(model.get<std::string>());
  std::optional<bool> stream;
  if (auto fault = read_member(body, "stream", "stream", stream)) return fault;
  out.chat["stream"] = stream.value_or(true);
  if (auto fault = read_options(member_or_null(body, "options"), out)) return fault;
  if (auto fault = read_format(member_or_null(body, "format"), out)) return fault;
  return read_think(member_or_null(body, "think"), out);
}

// The model stays as long as the server runs.
std::optional<Fault> check_load(const Json& body) {
  const Json& keep = member_or_null(body, "keep_alive");
  if (keep == 0 || keep == "0" || keep == "0s")
    return unsupported("keep_alive", "the model stays loaded as long as the server runs.");
  return std::nullopt;
}

std::optional<Fault> read_history(const Json& messages, OllamaRequest& out) {
  Json list = Json::array();
  for (std::size_t i = 0; i < messages.size(); ++i) {
    const std::string path = fmt::format("messages.{}", i);
    Json message = messages[i];
    if (!message.is_object()) return wrong_type(path, "an object", json_type_name(message));
    const Json& images = member_or_null(message, "images");
    if (!images.is_null() && !images.empty()) return unsupported(path + ".images", kMedia);
    message.erase("images");
    if (message.contains("tool_name") && !message.contains("name"))
      message["name"] = message["tool_name"];
    if (member_or_null(message, "content").is_null()) message["content"] = "";
    list.push_back(std::move(message));
  }
  out.chat["messages"] = std::move(list);
  return std::nullopt;
}

}  // namespace

std::string ollama_model_name(std::string name) {
  constexpr std::string_view kLatest = ":latest";
  if (name.ends_with(kLatest)) name.resize(name.size() - kLatest.size());
  return name;
}

Result<OllamaRequest> read_ollama_chat(const Json& body) {
  OllamaRequest out;
  if (auto fault = translate_fields(body, kChatFields, "", out.chat, out.names, out.ignored))
    return *fault;
  if (auto fault = read_common(body, out)) return *fault;
  const Json& messages = member_or_null(body, "messages");
  if (!messages.is_null() && !messages.is_array())
    return wrong_type("messages", "an array", json_type_name(messages));
  out.is_load = messages.empty();
  std::optional<Fault> fault = out.is_load ? check_load(body) : read_history(messages, out);
  if (fault) return *fault;
  return out;
}

Result<OllamaRequest> read_ollama_generate(const Json& body) {
  OllamaRequest out;
  if (auto fault = translate_fields(body, kGenerateFields, "", out.chat, out.names, out.ignored))
    return *fault;
  if (auto fault = read_common(body, out)) return *fault;
  std::optional<std::string> prompt, system;
  std::optional<bool> raw;
  if (auto fault = read_member(body, "prompt", "prompt", prompt)) return *fault;
  if (auto fault = read_member(body, "system", "system", system)) return *fault;
  if (auto fault = read_member(body, "raw", "raw", raw)) return *fault;
  out.prompt = prompt.value_or("");
  out.is_raw = raw.value_or(false);
  out.is_load = out.prompt.empty();
  if (out.is_load) {
    if (auto fault = check_load(body)) return *fault;
    return out;
  }
  if (out.is_raw) {
    if (system && !system->empty())
      return invalid_value("system", "`system` needs the template, which `raw` leaves out.");
    return out;
  }
  Json messages = Json::array();
  if (system && !system->empty()) {
    messages.push_back(Json{{"role", "system"}, {"content", *system}});
    out.names.add("messages.0", "system");
  }
  messages.push_back(Json{{"role", "user"}, {"content", out.prompt}});
  out.names.add("messages", "prompt");
  out.chat["messages"] = std::move(messages);
  return out;
}

std::span<const ProtocolField> ollama_chat_fields() {
  return kChatFields;
}

std::span<const ProtocolField> ollama_generate_fields() {
  return kGenerateFields;
}

}  // namespace sluice
