#include "server/anthropic/messages_request.h"

#include "server/api/field_values.h"
#include "server/api/request_fields.h"
#include "server/api/unknown_fields.h"
#include "server/core/errors.h"

namespace sluice {
namespace {

constexpr auto kFields = with_grammar_fields({
    same_field("model"),
    same_field("max_tokens"),
    same_field("stream"),
    same_field("temperature"),
    same_field("top_p"),
    same_field("top_k"),
    renamed_field("stop_sequences", "stop"),
    own_field("messages"),
    own_field("system"),
    own_field("tools"),
    own_field("tool_choice"),
    own_field("thinking"),
    own_field("output_config"),
    own_field("output_format"),
    own_field("context_management"),
    // Of Sluice, as in every protocol
    same_field("seed"),
    same_field("min_p"),
    same_field("frequency_penalty"),
    same_field("presence_penalty"),
    same_field("repetition_penalty"),
    same_field("logit_bias"),
    same_field("chat_template_kwargs"),
    same_field("cache_salt"),
    same_field("priority"),
    same_field("timeout"),
    same_field("deterministic"),
    same_field("rid"),
    ignored_field("metadata"),
    ignored_field("service_tier"),
    ignored_field("cache_control"),
    ignored_field("inference_geo"),
    ignored_field("betas"),
    refused_field("response_format", "use `output_config.format`."),
    refused_field("guided_whitespace_pattern",
                  "use `structured_outputs` with `disable_any_whitespace`."),
    refused_field("mcp_servers", "the server makes no outbound connection."),
    refused_field("container", "the server runs no code."),
});

// thinking: the switch of the template, and the budget.
std::optional<Fault> read_thinking(const Json& body, MessagesRequest& out) {
  const Json& thinking = member_or_null(body, "thinking");
  bool is_on = false;
  if (!thinking.is_null()) {
    if (!thinking.is_object()) return wrong_type("thinking", "an object", json_type_name(thinking));
    const Json& type = member_or_null(thinking, "type");
    if (type.is_null()) return missing_field("thinking.type");
    is_on = type == "enabled" || type == "adaptive";
    if (!is_on && type != "disabled")
      return bad_word("thinking.type", "`enabled`, `adaptive` or `disabled`", type);
    const Json& budget = member_or_null(thinking, "budget_tokens");
    if (type == "enabled" && budget.is_null()) return missing_field("thinking.budget_tokens");
    if (!budget.is_null()) {
      if (!is_on)
        return invalid_value("thinking.budget_tokens",
                             "`thinking.budget_tokens` needs the type `enabled`.");
      const Json& most = member_or_null(body, "max_tokens");
      if (budget.is_number() && most.is_number() && most <= budget)
        return invalid_value("thinking.budget_tokens",
                             "`thinking.budget_tokens` must be less than `max_tokens`.");
      out.chat["thinking_token_budget"] = budget;
      out.names.add("thinking_token_budget", "thinking.budget_tokens");
    }
    static constexpr std::string_view kKnown[] = {"type", "budget_tokens", "display"};
    if (thinking.contains("display")) note_without_effect("thinking.display", out.ignored);
    note_unknown(thinking, kKnown, "thinking.", out.ignored);
  }
  // The API's default is off. The words of the template go before.
  Json& kwargs = out.chat["chat_template_kwargs"];
  if (kwargs.is_null()) kwargs = Json::object();
  if (!kwargs.is_object()) return std::nullopt;  // read_chat_prompt says what is wrong
  for (const char* name : {"enable_thinking", "thinking"})
    if (!kwargs.contains(name)) kwargs[name] = is_on;
  return std::nullopt;
}

// {"type": "json_schema", "schema": ...} as a response_format.
std::optional<Fault> read_format(const Json& format, const std::string& path,
                                 MessagesRequest& out) {
  if (format.is_null()) return std::nullopt;
  if (!format.is_object()) return wrong_type(path, "an object", json_type_name(format));
  const Json& type = member_or_null(format, "type");
  if (type.is_null()) return missing_field(path + ".type");
  if (type != "json_schema") return bad_word(path + ".type", "`json_schema`", type);
  const Json& schema = member_or_null(format, "schema");
  if (schema.is_null()) return missing_field(path + ".schema");
  if (out.chat.contains("response_format"))
    return invalid_value(path, fmt::format("`output_format` and `{}` both constrain the output; "
                                           "give one.",
                                           path));
  out.chat["response_format"] =
      Json{{"type", "json_schema"}, {"json_schema", {{"schema", schema}}}};
  out.names.add("response_format.json_schema", path);
  out.names.add("response_format", path);
  return std::nullopt;
}

std::optional<Fault> read_output(const Json& body, MessagesRequest& out) {
  if (auto fault = read_format(member_or_null(body, "output_format"), "output_format", out))
    return fault;
  const Json& config = member_or_null(body, "output_config");
  if (config.is_null()) return std::nullopt;
  if (!config.is_object()) return wrong_type("output_config", "an object", json_type_name(config));
  static constexpr ProtocolField kConfig[] = {renamed_field("effort", "reasoning_effort"),
                                              own_field("format")};
  if (auto fault =
          translate_fields(config, kConfig, "output_config.", out.chat, out.names, out.ignored))
    return fault;
  return read_format(member_or_null(config, "format"), "output_config.format", out);
}

// context_management: of its edits the one that keeps all thoughts is taken, for it changes
// nothing.
std::optional<Fault> read_edits(const Json& management, MessagesRequest& out) {
  if (management.is_null()) return std::nullopt;
  if (!management.is_object())
    return wrong_type("context_management", "an object", json_type_name(management));
  static constexpr std::string_view kKnown[] = {"edits"};
  note_unknown(management, kKnown, "context_management.", out.ignored);
  const Json& edits = member_or_null(management, "edits");
  if (edits.is_null()) return std::nullopt;
  if (!edits.is_array())
    return wrong_type("context_management.edits", "an array", json_type_name(edits));
  for (std::size_t i = 0; i < edits.size(); ++i) {
    const std::string path = fmt::format("context_management.edits.{}", i);
    if (!edits[i].is_object()) return wrong_type(path, "an object", json_type_name(edits[i]));
    static constexpr std::string_view kEdit[] = {"type", "keep"};
    note_unknown(edits[i], kEdit, "context_management.edits.", out.ignored);
    const Json& type = member_or_null(edits[i], "type");
    if (type.is_null()) return missing_field(path + ".type");
    if (type != "clear_thinking_20251015")
      return unsupported(path + ".type", "a conversation is never changed here; shorten it.");
    if (member_or_null(edits[i], "keep") != "all")
      return unsupported(path + ".keep",
                         "no thoughts are taken from a conversation here: say `keep: \"all\"`, and "
                         "send the blocks that count.");
  }
  out.has_edits = true;
  return std::nullopt;
}

}  // namespace

Result<MessagesRequest> read_messages_request(const Json& body, bool is_counting) {
  MessagesRequest out;
  if (auto fault = translate_fields(body, kFields, "", out.chat, out.names, out.ignored))
    return *fault;
  if (!is_counting && member_or_null(body, "max_tokens").is_null())
    return missing_field("max_tokens");
  if (auto fault = read_anthropic_messages(body, out)) return *fault;
  if (auto fault = read_anthropic_tools(body, out)) return *fault;
  if (auto fault = read_thinking(body, out)) return *fault;
  if (auto fault = read_output(body, out)) return *fault;
  if (auto fault = read_edits(member_or_null(body, "context_management"), out)) return *fault;
  return out;
}

std::span<const ProtocolField> messages_fields() {
  return kFields;
}

}  // namespace sluice
