#include "server/responses/responses_request.h"

#include <algorithm>

#include "server/api/field_values.h"
#include "server/api/request_fields.h"
#include "server/api/unknown_fields.h"
#include "server/core/errors.h"

namespace sluice {
namespace {

constexpr auto kFields = with_grammar_fields({
    same_field("model"),
    same_field("stream"),
    same_field("temperature"),
    same_field("top_p"),
    same_field("parallel_tool_calls"),
    renamed_field("max_output_tokens", "max_tokens"),
    own_field("input"),
    own_field("instructions"),
    own_field("metadata"),
    own_field("previous_response_id"),
    own_field("reasoning"),
    own_field("store"),
    own_field("text"),
    own_field("tool_choice"),
    own_field("tools"),
    own_field("truncation"),
    own_field("include"),
    own_field("top_logprobs"),
    same_field("thinking_token_budget"),
    // Of Sluice, as in every protocol
    same_field("seed"),
    same_field("top_k"),
    same_field("min_p"),
    same_field("stop"),
    same_field("frequency_penalty"),
    same_field("presence_penalty"),
    same_field("repetition_penalty"),
    same_field("logit_bias"),
    same_field("chat_template_kwargs"),
    same_field("cache_salt"),
    same_field("priority"),
    same_field("timeout"),
    same_field("deterministic"),
    ignored_field("user"),
    ignored_field("service_tier"),
    ignored_field("safety_identifier"),
    ignored_field("prompt_cache_key"),
    ignored_field("prompt_cache_retention"),
    ignored_field("stream_options"),
    ignored_field("max_tool_calls"),
    ignored_field("client_metadata"),
    refused_field("response_format", "use `text.format`."),
    refused_field("guided_whitespace_pattern",
                  "use `structured_outputs` with `disable_any_whitespace`."),
    refused_field("background", "a response is made while its client waits."),
    refused_field("conversation", "use `previous_response_id`."),
    refused_field("prompt", "the server keeps no prompts; send `instructions` and `input`."),
    refused_field("context_management", "use `truncation`."),
});

constexpr std::string_view kEncrypted = "reasoning.encrypted_content";
constexpr std::string_view kLogprobs = "message.output_text.logprobs";
constexpr std::size_t kMaxMetadata = 16, kMaxMetadataKey = 64, kMaxMetadataValue = 512;

std::optional<Fault> read_metadata(const Json& metadata) {
  if (metadata.is_null()) return std::nullopt;
  if (!metadata.is_object())
    return wrong_type("metadata", "an object of strings", json_type_name(metadata));
  if (metadata.size() > kMaxMetadata)
    return invalid_value("metadata", fmt::format("`metadata` has {} entries; at most {} are "
                                                 "allowed.",
                                                 metadata.size(), kMaxMetadata));
  for (const auto& [key, value] : metadata.items()) {
    if (!value.is_string())
      return wrong_type("metadata", "an object of strings", json_type_name(value));
    if (key.size() > kMaxMetadataKey ||
        value.get_ref<const std::string&>().size() > kMaxMetadataValue)
      return invalid_value("metadata",
                           fmt::format("Keys of `metadata` have at most {} bytes, values {}.",
                                       kMaxMetadataKey, kMaxMetadataValue));
  }
  return std::nullopt;
}

std::optional<Fault> read_reasoning(const Json& body, ResponsesRequest& out) {
  const Json& reasoning = member_or_null(body, "reasoning");
  if (reasoning.is_null()) return std::nullopt;
  if (!reasoning.is_object())
    return wrong_type("reasoning", "an object", json_type_name(reasoning));
  static constexpr ProtocolField kReasoning[] = {
      renamed_field("effort", "reasoning_effort"),
      ignored_field("summary"),
      ignored_field("generate_summary"),
  };
  return translate_fields(reasoning, kReasoning, "reasoning.", out.chat, out.names, out.ignored);
}

// text: the format as a response_format.
std::optional<Fault> read_text(const Json& text, ResponsesRequest& out) {
  if (text.is_null()) return std::nullopt;
  if (!text.is_object()) return wrong_type("text", "an object", json_type_name(text));
  if (!member_or_null(text, "verbosity").is_null())
    note_without_effect("text.verbosity", out.ignored);
  static constexpr std::string_view kKnown[] = {"format", "verbosity"};
  note_unknown(text, kKnown, "text.", out.ignored);
  const Json& format = member_or_null(text, "format");
  if (format.is_null()) return std::nullopt;
  if (!format.is_object()) return wrong_type("text.format", "an object", json_type_name(format));
  const Json& type = member_or_null(format, "type");
  if (type.is_null()) return missing_field("text.format.type");
  if (type != "text" && type != "json_object" && type != "json_schema")
    return bad_word("text.format.type", "`text`, `json_object` or `json_schema`", type);
  if (type != "json_schema" && !member_or_null(format, "schema").is_null())
    return invalid_value("text.format.schema",
                         fmt::format("`text.format.schema` needs the type `json_schema`, and "
                                     "`text.format.type` is {}; leave one out.",
                                     shown_text(type.get<std::string>())));
  static constexpr std::string_view kFormat[] = {"type", "name", "description", "schema", "strict"};
  note_unknown(format, kFormat, "text.format.", out.ignored);
  Json chat{{"type", type}};
  if (type == "json_schema") {
    Json schema = Json::object();
    for (const char* key : {"name", "description", "schema", "strict"})
      if (!member_or_null(format, key).is_null()) schema[key] = format[key];
    chat["json_schema"] = std::move(schema);
  }
  out.chat["response_format"] = std::move(chat);
  out.names.add("response_format.json_schema", "text.format");
  out.names.add("response_format", "text.format");
  return std::nullopt;
}

std::optional<Fault> read_include(const Json& include, ResponsesRequest& out) {
  if (include.is_null()) return std::nullopt;
  if (!include.is_array())
    return wrong_type("include", "an array of strings", json_type_name(include));
  for (const Json& item : include) {
    if (!item.is_string())
      return wrong_type("include", "an array of strings", json_type_name(item));
    if (item == kEncrypted)
      out.wants_encrypted = true;
    else if (item == kLogprobs)
      return unsupported("include", "log-probabilities are those of /v1/chat/completions.");
    else
      note_without_effect("include", out.ignored);
  }
  return std::nullopt;
}

bool is_system(const Json& message) {
  const Json& role = member_or_null(message, "role");
  return role == "system" || role == "developer";
}

// The texts of a message's content; nullopt where it is no text.
std::optional<std::string> plain_text(const Json& content) {
  if (content.is_string()) return content.get<std::string>();
  if (!content.is_array()) return std::nullopt;
  std::string out;
  for (const Json& part : content) {
    const Json& text = part.is_object() ? member_or_null(part, "text") : part;
    if (!text.is_string()) return std::nullopt;
    out += text.get_ref<const std::string&>();
  }
  return out;
}

// All messages behind the system's at the beginning, and those.
struct Parts {
  std::vector<SourcedMessage> system, rest;
};

Parts parts_of(const ResponsesRequest& request, const std::vector<Json>& history) {
  Parts parts;
  if (!request.instructions.empty())
    parts.system.emplace_back(Json{{"role", "system"}, {"content", request.instructions}},
                              "instructions");
  const auto add = [&](const Json& message, const std::string& path) {
    auto& list = parts.rest.empty() && is_system(message) ? parts.system : parts.rest;
    list.emplace_back(message, path);
  };
  for (const Json& message : history) add(message, "previous_response_id");
  for (const auto& [message, path] : request.messages) add(message, path);
  return parts;
}

}  // namespace

Result<ResponsesRequest> read_responses_request(const Json& body) {
  ResponsesRequest out;
  if (auto fault = translate_fields(body, kFields, "", out.chat, out.names, out.ignored))
    return *fault;
  const Json& input = member_or_null(body, "input");
  if (input.is_null()) return missing_field("input");
  Result<std::vector<SourcedMessage>> messages = read_input(input);
  if (!messages) return messages.fault();
  out.messages = *std::move(messages);
  note_input_keys(input, out.ignored);
  std::optional<std::string> instructions, previous, truncation;
  std::optional<bool> store;
  if (auto fault = read_member(body, "instructions", "instructions", instructions)) return *fault;
  if (auto fault = read_member(body, "previous_response_id", "previous_response_id", previous))
    return *fault;
  if (auto fault = read_member(body, "truncation", "truncation", truncation)) return *fault;
  if (auto fault = read_member(body, "store", "store", store)) return *fault;
  out.instructions = instructions.value_or("");
  if (previous && previous->empty())
    return invalid_value("previous_response_id",
                         "`previous_response_id` is empty; give the id of a response, or null.");
  out.previous_id = previous.value_or("");
  out.is_stored = store.value_or(true);
  if (truncation && *truncation != "auto" && *truncation != "disabled")
    return bad_word("truncation", "`auto` or `disabled`", Json(*truncation));
  out.may_truncate = truncation == "auto";
  const Json& logprobs = member_or_null(body, "top_logprobs");
  if (!logprobs.is_null() && logprobs != 0)
    return unsupported("top_logprobs", "log-probabilities are those of /v1/chat/completions.");
  if (auto fault = read_metadata(member_or_null(body, "metadata"))) return *fault;
  if (auto fault = read_reasoning(body, out)) return *fault;
  if (auto fault = read_text(member_or_null(body, "text"), out)) return *fault;
  if (auto fault = read_include(member_or_null(body, "include"), out)) return *fault;
  if (auto fault = read_response_tools(body, out)) return *fault;

  const auto echo = [&](const char* name, Json otherwise) {
    const Json& value = member_or_null(body, name);
    out.echo[name] = value.is_null() ? std::move(otherwise) : value;
  };
  echo("instructions", nullptr);
  echo("max_output_tokens", nullptr);
  echo("metadata", Json::object());
  echo("parallel_tool_calls", true);
  echo("previous_response_id", nullptr);
  echo("reasoning", Json{{"effort", nullptr}, {"summary", nullptr}});
  echo("store", true);
  echo("text", Json{{"format", {{"type", "text"}}}});
  echo("tool_choice", "auto");
  echo("tools", Json::array());
  echo("truncation", "disabled");
  return out;
}

void lay_out_messages(ResponsesRequest& request, const std::vector<Json>& history,
                      std::size_t num_dropped) {
  Parts parts = parts_of(request, history);
  Json list = Json::array();
  const auto add = [&](Json message, const std::string& path) {
    request.names.add(fmt::format("messages.{}", list.size()), path);
    list.push_back(std::move(message));
  };
  std::string joined;
  bool is_plain = !parts.system.empty();
  for (const auto& [message, path] : parts.system) {
    const std::optional<std::string> text = plain_text(member_or_null(message, "content"));
    is_plain = is_plain && text.has_value();
    if (!joined.empty()) joined += "\n\n";
    joined += text.value_or("");
  }
  if (is_plain)
    add(Json{{"role", "system"}, {"content", joined}}, parts.system[0].second);
  else
    for (auto& [message, path] : parts.system) add(std::move(message), path);
  for (std::size_t i = std::min(num_dropped, parts.rest.size()); i < parts.rest.size(); ++i)
    add(std::move(parts.rest[i].first), parts.rest[i].second);
  request.chat["messages"] = std::move(list);
}

std::vector<std::size_t> truncation_points(const ResponsesRequest& request,
                                           const std::vector<Json>& history) {
  const Parts parts = parts_of(request, history);
  std::vector<std::size_t> points;
  for (std::size_t i = 1; i < parts.rest.size(); ++i)
    if (member_or_null(parts.rest[i].first, "role") == "user") points.push_back(i);
  return points;
}

std::span<const ProtocolField> responses_fields() {
  return kFields;
}

}  // namespace sluice
