#include "server/api/tool_choice.h"

#include <algorithm>
#include <utility>

#include "server/api/field_values.h"
#include "server/api/unknown_fields.h"
#include "server/core/errors.h"
#include "text/parsers/reasoning_parser.h"
#include "text/parsers/tool_format.h"

namespace sluice {
namespace {

constexpr std::string_view kField = "tool_choice";
constexpr std::uint64_t kMaxWhiteSpace = 64;  // characters between tokens of JSON

const Json& function_of(const Json& tool) {
  const auto found = tool.find("function");
  return found == tool.end() ? tool : *found;
}

// The name in {"type": "function", "function": {"name": NAME}}.
Result<std::string> read_name(const Json& json, const std::string& path, const Json& tools) {
  if (!json.is_object()) return wrong_type(path, "an object", json_type_name(json));
  const auto type = json.find("type");
  if (type == json.end() || type->is_null()) return missing_field(path + ".type");
  if (*type != "function")
    return bad_word(path + ".type", path == kField ? "`function` or `allowed_tools`" : "`function`",
                    *type);
  const auto function = json.find("function");
  if (function == json.end() || function->is_null()) return missing_field(path + ".function");
  if (!function->is_object())
    return wrong_type(path + ".function", "an object", json_type_name(*function));
  const auto name = function->find("name");
  if (name == function->end() || name->is_null()) return missing_field(path + ".function.name");
  if (!name->is_string())
    return wrong_type(path + ".function.name", "a string", json_type_name(*name));
  const auto& text = name->get_ref<const std::string&>();
  const bool is_known = tools.is_array() && std::ranges::any_of(tools, [&](const Json& tool) {
                          return function_of(tool).value("name", std::string()) == text;
                        });
  if (!is_known)
    return invalid_value(path + ".function.name",
                         fmt::format("No tool of the request has the name {}.", shown_text(text)));
  return text;
}

Result<ToolChoice> read_allowed(const Json& json, const Json& tools) {
  const auto inner = json.find("allowed_tools");
  const bool is_nested = inner != json.end();
  const Json& allowed = is_nested ? *inner : json;
  const std::string path = std::string(kField) + (is_nested ? ".allowed_tools" : "");
  if (!allowed.is_object()) return wrong_type(path, "an object", json_type_name(allowed));
  ToolChoice choice;
  const auto mode = allowed.find("mode");
  if (mode == allowed.end() || mode->is_null()) return missing_field(path + ".mode");
  if (*mode != "auto" && *mode != "required")
    return bad_word(path + ".mode", "`auto` or `required`", *mode);
  choice.is_required = *mode == "required";
  const auto list = allowed.find("tools");
  if (list == allowed.end() || list->is_null()) return missing_field(path + ".tools");
  if (!list->is_array())
    return wrong_type(path + ".tools", "an array of tools", json_type_name(*list));
  if (list->empty())
    return invalid_value(path + ".tools",
                         fmt::format("`{}.tools` is empty; name one tool at least, "
                                     "or use `tool_choice`: `none`.",
                                     path));
  for (std::size_t i = 0; i < list->size(); ++i) {
    Result<std::string> name = read_name((*list)[i], fmt::format("{}.tools.{}", path, i), tools);
    if (!name) return name.fault();
    choice.names.push_back(std::move(*name));
  }
  return choice;
}

// Whether calls that nobody asked for are held to their tools. Text behind the last call is not of
// the grammar, so a request that forbids its end is left alone.
bool binds_free_calls(const ServerState& state, const GenerationFields& fields) {
  return state.options.constrain_tool_calls && !fields.ignore_eos.value_or(false) &&
         fields.min_tokens.value_or(0) == 0;
}

// A call needs its format, and an answer that is free to be one.
std::optional<Fault> check_required(const ServedModel& model, const ChatPrompt& prompt) {
  if (!prompt.tools.is_array())
    return invalid_value(std::string(kField),
                         "`tool_choice` asks for a call, but the request has no `tools`.");
  if (model.tool_parser.empty())
    return unsupported(std::string(kField),
                       "--tool-call-parser is `none`, so calls have no known format.");
  return std::nullopt;
}

}  // namespace

Result<ToolChoice> read_tool_choice(const Json& tool_choice, const Json& tools) {
  if (tool_choice.is_null() || tool_choice == "auto" || tool_choice == "none") return ToolChoice{};
  if (tool_choice == "required") return ToolChoice{.is_required = true, .names = {}};
  if (!tool_choice.is_object())
    return bad_word(std::string(kField),
                    "`none`, `auto`, `required`, or an object that names a function or "
                    "`allowed_tools`",
                    tool_choice);
  const auto type = tool_choice.find("type");
  if (type != tool_choice.end() && *type == "allowed_tools")
    return read_allowed(tool_choice, tools);
  Result<std::string> name = read_name(tool_choice, std::string(kField), tools);
  if (!name) return name.fault();
  return ToolChoice{.is_required = true, .is_single = true, .names = {std::move(*name)}};
}

std::optional<Fault> constrain_calls(const ServerState& state, const ServedModel& model,
                                     const ChatPrompt& prompt, const ToolChoice& choice,
                                     GenerationFields& fields) {
  if (choice.is_required) {
    if (auto fault = check_required(model, prompt)) return fault;
    // The answer is a call, which this grammar does not bind, and which has none of its captures.
    if (fields.grammar) {
      note_without_effect(fields.grammar->param.substr(0, fields.grammar->param.find('.')),
                          fields.ignored);
      if (std::exchange(fields.return_captures, std::nullopt).value_or(false))
        note_without_effect("return_captures", fields.ignored);
    }
  }
  if (!prompt.tools.is_array() || model.tool_parser.empty()) return std::nullopt;
  grammar::CallSource calls;
  calls.format = model.tool_parser;
  calls.is_required = choice.is_required;
  calls.is_single = choice.is_single || !fields.parallel_tool_calls.value_or(true);
  bool is_strict = false;
  for (const Json& tool : prompt.tools) {
    const Json& function = function_of(tool);
    grammar::CallTool one{.name = function.value("name", std::string()), .schema = {}};
    if (!choice.names.empty() && std::ranges::find(choice.names, one.name) == choice.names.end())
      continue;
    const auto parameters = function.find("parameters");
    if (parameters != function.end() && !parameters->is_null()) one.schema = dump_json(*parameters);
    one.is_strict = function.value("strict", Json()) == true;
    is_strict |= one.is_strict;
    calls.tools.push_back(std::move(one));
  }
  const bool is_asked = choice.is_required || is_strict || !choice.names.empty();
  if (!is_asked && !fields.grammar && !binds_free_calls(state, fields)) return std::nullopt;
  if (!fields.grammar && !constrains(calls)) return std::nullopt;
  // A continued answer may be inside anything.
  if (prompt.continues && !choice.is_required) {
    if (is_asked)
      return unsupported("continue_final_message",
                         "strict tools and `allowed_tools` need an answer from its beginning.");
    return std::nullopt;
  }
  if (!fields.grammar) {
    fields.grammar = GrammarField{.source = {}, .param = "tools"};
    fields.grammar->source.max_white_space = kMaxWhiteSpace;
    fields.grammar->source.plain_integers = true;
    fields.grammar->is_optional = !is_asked;
    // Whoever asks for nothing gets the model's own order of arguments.
    fields.grammar->source.any_order = !is_asked;
  }
  fields.grammar->source.calls = std::move(calls);
  return std::nullopt;
}

void allow_thoughts(const ServedModel& model, const ChatPrompt& prompt, GenerationFields& fields) {
  if (!fields.grammar || model.reasoning_parser.empty() || prompt.continues) return;
  const ReasoningFormat& format = find_reasoning_format(model.reasoning_parser);
  grammar::GrammarSource& source = fields.grammar->source;
  source.has_channels = format.kind == ReasoningKind::kChannels;
  const ReasoningStart start =
      reasoning_start(prompt.text, model.reasoning_parser, prompt.thinking_off);
  const bool has_none = start == ReasoningStart::kBehind ||
                        (start == ReasoningStart::kUnknown && prompt.thinking_off);
  if (format.kind != ReasoningKind::kMarks || has_none) return;
  source.is_thinking = start == ReasoningStart::kInside;
  source.think_open = format.open;
  source.think_close = format.close;
}

}  // namespace sluice
