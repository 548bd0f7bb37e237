// Validation of messages and tools. Faults carry the dotted path of the value at fault.
#include <cctype>
#include <unordered_set>

#include "base/json.h"
#include "server/api/chat_prompt.h"
#include "server/api/message_parts.h"
#include "server/api/request_fields.h"
#include "server/core/errors.h"

namespace sluice {
namespace {

constexpr std::size_t kMaxMessages = 4096, kMaxTools = 128, kMaxSchemaBytes = 256 << 10,
                      kMaxToolCalls = 128;
constexpr std::size_t kMaxNameBytes = 64;

// `function` is the older name of `tool`.
constexpr std::string_view kRoles[] = {"system",    "developer", "user",
                                       "assistant", "tool",      "function"};

template <class List>
bool among(std::string_view value, const List& list) {
  for (const std::string_view item : list)
    if (item == value) return true;
  return false;
}

Fault bad_messages(std::string param, std::string message) {
  return Fault{400, "invalid_messages", std::move(param), std::move(message)};
}
Fault bad_tools(std::string param, std::string message) {
  return Fault{400, "invalid_tools", std::move(param), std::move(message)};
}

// The calls with what templates insist on. Arguments stay as they are, JSON text or an object; what
// a template makes of text that is no JSON is text/chat/chat_history.h.
Result<Json> read_tool_calls(const Json& calls, const std::string& path) {
  if (!calls.is_array()) return wrong_type(path, "an array", json_type_name(calls));
  if (calls.size() > kMaxToolCalls)
    return bad_messages(path, fmt::format("`{}` has {} calls; at most {} are allowed.", path,
                                          calls.size(), kMaxToolCalls));
  Json out = Json::array();
  for (std::size_t i = 0; i < calls.size(); ++i) {
    const std::string call_path = fmt::format("{}.{}", path, i);
    const Json& call = calls[i];
    if (call.is_null()) continue;
    if (!call.is_object()) return wrong_type(call_path, "an object", json_type_name(call));
    const auto function = call.find("function");
    if (function == call.end() || !function->is_object())
      return missing_field(call_path + ".function");
    const auto name = function->find("name");
    if (name == function->end() || !name->is_string())
      return missing_field(call_path + ".function.name");
    Json read = call;
    for (const char* key : {"id", "type"})
      if (read.contains(key) && !read[key].is_string()) {
        if (!read[key].is_null())
          return wrong_type(fmt::format("{}.{}", call_path, key), "a string",
                            json_type_name(read[key]));
        read.erase(key);
      }
    Json& arguments = read["function"]["arguments"];
    // An empty list is how PHP writes an empty object.
    if (arguments.is_null() || arguments == Json::array() || arguments == "")
      arguments = Json::object();
    if (!arguments.is_object() && !arguments.is_string())
      return wrong_type(call_path + ".function.arguments", "the JSON text of an object",
                        json_type_name(arguments));
    out.push_back(std::move(read));
  }
  return out;
}

// The older spelling of one call.
Result<Json> read_function_call(const Json& call, const std::string& path) {
  if (!call.is_object()) return wrong_type(path, "an object", json_type_name(call));
  return read_tool_calls(Json::array({Json{{"type", "function"}, {"function", call}}}), path);
}

// Reasoning under any of the names that servers and clients use.
std::optional<Fault> read_reasoning(const Json& message, const std::string& path,
                                    std::string& reasoning) {
  for (const char* key : {"thinking", "reasoning", "reasoning_content"}) {
    const auto value = message.find(key);
    if (value == message.end() || value->is_null()) continue;
    if (!value->is_string())
      return wrong_type(fmt::format("{}.{}", path, key), "a string", json_type_name(*value));
    reasoning = value->get<std::string>();
  }
  // OpenRouter's list of thoughts; encrypted ones have no text.
  const auto details = message.find("reasoning_details");
  if (!reasoning.empty() || details == message.end() || !details->is_array()) return std::nullopt;
  for (const Json& detail : *details)
    for (const char* key : {"text", "summary"})
      if (detail.is_object() && detail.contains(key) && detail[key].is_string())
        reasoning += detail[key].get<std::string>();
  return std::nullopt;
}

Result<Json> read_message(const Json& message, const std::string& path) {
  const std::string& role = message["role"].get_ref<const std::string&>();
  const bool is_assistant = role == "assistant", is_result = role == "tool" || role == "function";
  Json read{{"role", is_result ? "tool" : role}};
  MessageText text;
  Json calls = Json::array();
  if (is_assistant) {
    for (const char* key : {"tool_calls", "function_call"}) {
      const auto value = message.find(key);
      if (value == message.end() || value->is_null() || !calls.empty()) continue;
      const std::string calls_path = fmt::format("{}.{}", path, key);
      Result<Json> parsed = std::string_view(key) == "tool_calls"
                                ? read_tool_calls(*value, calls_path)
                                : read_function_call(*value, calls_path);
      if (!parsed) return parsed.fault();
      calls = *std::move(parsed);
    }
    if (auto fault = read_reasoning(message, path, text.reasoning)) return *fault;
  }
  const auto content = message.find("content");
  if (content != message.end() && !content->is_null()) {
    if (auto fault = read_content(*content, path + ".content", is_assistant, text)) return *fault;
    for (Json& call : text.calls) calls.push_back(std::move(call));
  } else if (is_assistant || is_result) {
    const auto refusal = message.find("refusal");
    const bool refused = refusal != message.end() && refusal->is_string();
    text.content = refused ? *refusal : !calls.empty() ? Json(nullptr) : Json("");
  } else {
    return missing_field(path + ".content");
  }
  read["content"] = std::move(text.content);
  // `tool_name` is Ollama's name of a result's `name`.
  for (const auto& [key, name] : {std::pair<const char*, const char*>{"tool_name", "name"},
                                  {"name", "name"},
                                  {"tool_call_id", "tool_call_id"}}) {
    const auto value = message.find(key);
    if (value == message.end() || value->is_null()) continue;
    if (!value->is_string())
      return wrong_type(fmt::format("{}.{}", path, key), "a string", json_type_name(*value));
    if (is_result || std::string_view(key) != "tool_name") read[name] = *value;
  }
  if (!text.reasoning.empty()) read["reasoning_content"] = std::move(text.reasoning);
  if (!calls.empty()) read["tool_calls"] = std::move(calls);
  return read;
}

bool is_tool_name(std::string_view name) {
  if (name.empty() || name.size() > kMaxNameBytes) return false;
  for (const char c : name)
    if (!(std::isalnum(static_cast<unsigned char>(c)) || c == '_' || c == '-' || c == '.'))
      return false;
  return true;
}

// Nil slices and maps of Go are null, and an empty map of PHP is a list: they say nothing.
Json without_empty_members(Json schema) {
  for (const char* key : {"type", "properties", "required"})
    if (schema.contains(key) && schema[key].is_null()) schema.erase(key);
  if (schema.contains("properties") && schema["properties"] == Json::array())
    schema["properties"] = Json::object();
  return schema;
}

// What a schema may say for itself at its top: an object's.
std::optional<Fault> check_schema(const Json& schema, const std::string& path) {
  if (!schema.is_object())
    return wrong_type(path, "a JSON schema (an object)", json_type_name(schema));
  const auto type = schema.find("type");
  if (type != schema.end() && *type != "object")
    return bad_tools(path + ".type",
                     "The schema of a function's parameters must have the type `object`.");
  const auto properties = schema.find("properties");
  if (properties != schema.end() && !properties->is_object())
    return wrong_type(path + ".properties", "an object", json_type_name(*properties));
  const auto required = schema.find("required");
  if (required != schema.end() && !required->is_array())
    return wrong_type(path + ".required", "an array", json_type_name(*required));
  if (schema.dump().size() > kMaxSchemaBytes)
    return bad_tools(path, fmt::format("The schema is larger than {} bytes.", kMaxSchemaBytes));
  return std::nullopt;
}

}  // namespace

Result<Json> read_messages(const Json& json) {
  if (!json.is_array()) return wrong_type("messages", "an array", json_type_name(json));
  if (json.empty())
    return bad_messages("messages", "`messages` is empty; give at least one message.");
  if (json.size() > kMaxMessages)
    return bad_messages("messages", fmt::format("`messages` has {} items; at most {} are allowed.",
                                                json.size(), kMaxMessages));
  Json out = Json::array();
  for (std::size_t i = 0; i < json.size(); ++i) {
    const Json& message = json[i];
    const std::string path = fmt::format("messages.{}", i);
    if (!message.is_object()) return wrong_type(path, "an object", json_type_name(message));
    const auto role_name = message.find("role");
    if (role_name == message.end() || role_name->is_null()) return missing_field(path + ".role");
    if (!role_name->is_string())
      return wrong_type(path + ".role", "a string", json_type_name(*role_name));
    if (!among(role_name->get_ref<const std::string&>(), kRoles))
      return invalid_value(
          path + ".role",
          fmt::format("The role {} is not one of system, developer, user, assistant and tool.",
                      shown_text(role_name->get_ref<const std::string&>())));
    Result<Json> read = read_message(message, path);
    if (!read) return read.fault();
    out.push_back(*std::move(read));
  }
  return out;
}

Result<Json> read_tools(const Json& json) {
  if (json.is_null()) return Json(nullptr);
  if (!json.is_array()) return wrong_type("tools", "an array", json_type_name(json));
  if (json.size() > kMaxTools)
    return bad_tools("tools", fmt::format("`tools` has {} items; at most {} are allowed.",
                                          json.size(), kMaxTools));
  std::unordered_set<std::string> names;
  Json tools = json;
  for (std::size_t i = 0; i < json.size(); ++i) {
    const Json& tool = json[i];
    const std::string path = fmt::format("tools.{}", i);
    if (!tool.is_object()) return wrong_type(path, "an object", json_type_name(tool));
    const auto type = tool.find("type");
    if (type == tool.end() || type->is_null()) return missing_field(path + ".type");
    if (*type != "function")
      return bad_tools(path + ".type", "The type of a tool must be `function`.");
    const auto function = tool.find("function");
    if (function == tool.end() || function->is_null()) return missing_field(path + ".function");
    if (!function->is_object())
      return wrong_type(path + ".function", "an object", json_type_name(*function));
    const auto name = function->find("name");
    if (name == function->end() || name->is_null()) return missing_field(path + ".function.name");
    if (!name->is_string())
      return wrong_type(path + ".function.name", "a string", json_type_name(*name));
    const auto& text = name->get_ref<const std::string&>();
    if (!is_tool_name(text))
      return bad_tools(
          path + ".function.name",
          fmt::format("The name {} must have 1 to {} of a-z, A-Z, 0-9, `_`, `-` and `.`.",
                      shown_text(text), kMaxNameBytes));
    if (!names.insert(text).second)
      return bad_tools(path + ".function.name",
                       fmt::format("Two tools have the name {}.", shown_text(text)));
    const auto description = function->find("description");
    if (description != function->end() && !description->is_null() && !description->is_string())
      return wrong_type(path + ".function.description", "a string", json_type_name(*description));
    Json& read = tools[i]["function"];
    if (read.contains("parameters") && !read["parameters"].is_null()) {
      Json& parameters = read["parameters"];
      if (parameters.is_object()) parameters = without_empty_members(std::move(parameters));
      if (auto fault = check_schema(parameters, path + ".function.parameters")) return *fault;
    }
    const auto strict = function->find("strict");
    if (strict != function->end() && !strict->is_null() && !strict->is_boolean())
      return wrong_type(path + ".function.strict", "true or false", json_type_name(*strict));
  }
  return tools.empty() ? Json(nullptr) : tools;
}

}  // namespace sluice
