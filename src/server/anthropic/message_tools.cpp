// Tools and tool_choice of the Messages API. A tool with `defer_loading` is offered to the model
// once a message refers to it.
#include "server/anthropic/message_tools.h"

#include <algorithm>

#include "server/api/field_values.h"
#include "server/api/request_fields.h"
#include "server/api/unknown_fields.h"
#include "server/core/errors.h"

namespace sluice {
namespace {

struct Tool {
  std::string name;  // empty where the chat's own check refuses it
  Json function;
  std::string path;
  bool is_offered = true;
};

Result<Tool> read_tool(const Json& json, const std::string& path, MessagesRequest& out) {
  if (!json.is_object()) return wrong_type(path, "an object", json_type_name(json));
  const Json& type = member_or_null(json, "type");
  if (!type.is_null() && type != "custom")
    return unsupported(path + ".type",
                       "tools that the server runs itself are not part of this version; declare "
                       "the tool with `name` and `input_schema`, and run it in the client.");
  static constexpr ProtocolField kFields[] = {
      same_field("name"),
      same_field("description"),
      renamed_field("input_schema", "parameters"),
      same_field("strict"),
      own_field("type"),
      own_field("defer_loading"),
      ignored_field("cache_control"),
      ignored_field("eager_input_streaming"),
      ignored_field("input_examples"),
      ignored_field("allowed_callers"),
  };
  Tool tool{{}, Json::object(), path};
  FieldNames own;
  if (auto fault = translate_fields(json, kFields, "tools.", tool.function, own, out.ignored)) {
    fault->param = path + fault->param.substr(std::string_view("tools").size());
    return *fault;
  }
  if (!tool.function.contains("parameters")) return missing_field(path + ".input_schema");
  std::optional<bool> is_deferred;
  if (auto fault = read_member(json, "defer_loading", path + ".defer_loading", is_deferred))
    return *fault;
  tool.is_offered = !is_deferred.value_or(false);
  const Json& name = member_or_null(json, "name");
  if (name.is_string()) tool.name = name.get<std::string>();
  return tool;
}

std::optional<Fault> apply(const ToolChange& change, std::vector<Tool>& tools,
                           MessagesRequest& out) {
  if (!change.definition.is_null()) {
    Result<Tool> added = read_tool(change.definition, change.path, out);
    if (!added) return added.fault();
    added->is_offered = true;
    const auto same = std::ranges::find(tools, added->name, &Tool::name);
    if (same == tools.end())
      tools.push_back(*std::move(added));
    else
      *same = *std::move(added);
    return std::nullopt;
  }
  const auto found = std::ranges::find(tools, change.name, &Tool::name);
  if (found == tools.end())
    return invalid_value(
        change.path, fmt::format("`{}` names the tool {}, which is not in `tools`.", change.path,
                                 shown_text(change.name)));
  found->is_offered = change.is_offered;
  return std::nullopt;
}

std::optional<Fault> read_tool_choice(const Json& choice, MessagesRequest& out) {
  if (choice.is_null()) return std::nullopt;
  if (!choice.is_object()) return wrong_type("tool_choice", "an object", json_type_name(choice));
  const Json& type = member_or_null(choice, "type");
  if (type.is_null()) return missing_field("tool_choice.type");
  if (type == "auto" || type == "none") {
    out.chat["tool_choice"] = type;
  } else if (type == "any") {
    out.chat["tool_choice"] = "required";
  } else if (type == "tool") {
    Result<std::string> name = block_string(choice, "name", "tool_choice");
    if (!name) return name.fault();
    out.chat["tool_choice"] = Json{{"type", "function"}, {"function", {{"name", *name}}}};
    out.names.add("tool_choice.function", "tool_choice");
  } else {
    return bad_word("tool_choice.type", "`auto`, `any`, `tool` or `none`", type);
  }
  std::optional<bool> one_call;
  if (auto fault = read_member(choice, "disable_parallel_tool_use",
                               "tool_choice.disable_parallel_tool_use", one_call))
    return fault;
  if (one_call.value_or(false)) out.chat["parallel_tool_calls"] = false;
  static constexpr std::string_view kKnown[] = {"type", "name", "disable_parallel_tool_use"};
  note_unknown(choice, kKnown, "tool_choice.", out.ignored);
  return std::nullopt;
}

}  // namespace

Result<std::string> block_type(const Json& block, const std::string& path) {
  if (!block.is_object()) return wrong_type(path, "an object with a type", json_type_name(block));
  const Json& type = member_or_null(block, "type");
  if (type.is_null()) return missing_field(path + ".type");
  if (!type.is_string()) return wrong_type(path + ".type", "a string", json_type_name(type));
  return type.get<std::string>();
}

Result<std::string> block_string(const Json& block, const char* key, const std::string& path) {
  const Json& value = member_or_null(block, key);
  const std::string full = fmt::format("{}.{}", path, key);
  if (value.is_null()) return missing_field(full);
  if (!value.is_string()) return wrong_type(full, "a string", json_type_name(value));
  return value.get<std::string>();
}

std::optional<Fault> read_tool_change(const Json& block, const std::string& type,
                                      const std::string& path, MessagesRequest& out) {
  const std::string tool_path = path + ".tool";
  const Json& tool = member_or_null(block, "tool");
  if (tool.is_null()) return missing_field(tool_path);
  Result<std::string> kind = block_type(tool, tool_path);
  if (!kind) return kind.fault();
  ToolChange change;
  change.is_offered = type == "tool_addition";
  if (*kind == "tool_definition" && change.is_offered) {
    change.path = tool_path + ".definition";
    change.definition = member_or_null(tool, "definition");
    if (change.definition.is_null()) return missing_field(change.path);
  } else if (*kind == "tool_reference") {
    change.path = tool_path + ".name";
    Result<std::string> name = block_string(tool, "name", tool_path);
    if (!name) return name.fault();
    change.name = *std::move(name);
  } else {
    return invalid_value(tool_path + ".type",
                         fmt::format("`{}.type` must be `tool_reference`{}.", tool_path,
                                     change.is_offered ? " or `tool_definition`" : ""));
  }
  out.tool_changes.push_back(std::move(change));
  return std::nullopt;
}

Result<std::string> read_tool_reference(const Json& block, const std::string& path,
                                        MessagesRequest& out) {
  Result<std::string> name = block_string(block, "tool_name", path);
  if (!name) return name;
  out.tool_changes.push_back({*name, nullptr, path + ".tool_name", true});
  return fmt::format("The tool {} can be called now.", *name);
}

std::optional<Fault> read_anthropic_tools(const Json& body, MessagesRequest& out) {
  const Json& json = member_or_null(body, "tools");
  if (!json.is_null() && !json.is_array())
    return wrong_type("tools", "an array", json_type_name(json));
  std::vector<Tool> tools;
  for (std::size_t i = 0; i < json.size(); ++i) {
    Result<Tool> tool = read_tool(json[i], fmt::format("tools.{}", i), out);
    if (!tool) return tool.fault();
    tools.push_back(*std::move(tool));
  }
  for (const ToolChange& change : out.tool_changes)
    if (auto fault = apply(change, tools, out)) return fault;
  Json list = Json::array();
  for (Tool& tool : tools) {
    if (!tool.is_offered) continue;
    const std::string chat = fmt::format("tools.{}.function", list.size());
    out.names.add(chat + ".parameters", tool.path + ".input_schema");
    out.names.add(chat, tool.path);
    // X-Ignored-Fields names tools by their names. A number would be taken for a place.
    if (tool.name.find_first_not_of("0123456789") != std::string::npos)
      out.names.add(fmt::format("tools.{}.function.parameters", tool.name),
                    fmt::format("tools.{}.input_schema", tool.name));
    list.push_back(Json{{"type", "function"}, {"function", std::move(tool.function)}});
  }
  if (!json.is_null() || !list.empty()) out.chat["tools"] = std::move(list);
  return read_tool_choice(member_or_null(body, "tool_choice"), out);
}

}  // namespace sluice
