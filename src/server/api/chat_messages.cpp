// Validation of messages and tools. Faults carry the dotted path of the value at fault.
#include <cctype>
#include <unordered_set>

#include "base/json.h"
#include "server/api/chat_prompt.h"
#include "server/api/request_fields.h"
#include "server/core/errors.h"

namespace sluice {
namespace {

constexpr std::size_t kMaxMessages = 4096, kMaxTools = 128, kMaxSchemaBytes = 256 << 10,
                      kMaxToolCalls = 128;
constexpr std::size_t kMaxNameBytes = 64;

constexpr std::string_view kRoles[] = {"system", "developer", "user", "assistant", "tool"};

constexpr std::string_view kMediaParts[] = {"image_url",   "image",     "input_image",
                                            "input_audio", "audio_url", "video_url",
                                            "video",       "file",      "input_file"};

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

// Text, or a list of text parts in one spelling; the template's own format is ChatTemplate's work.
Result<Json> read_content(const Json& content, const std::string& path) {
  if (content.is_string() || content.is_null()) return content;
  if (!content.is_array())
    return wrong_type(path, "a string or an array of parts", json_type_name(content));
  Json parts = Json::array();
  const auto add = [&](const Json& text) {
    parts.push_back(Json{{"type", "text"}, {"text", text}});
  };
  for (std::size_t i = 0; i < content.size(); ++i) {
    const Json& part = content[i];
    const std::string part_path = fmt::format("{}.{}", path, i);
    if (part.is_string()) {
      add(part);
      continue;
    }
    if (!part.is_object())
      return wrong_type(part_path, "an object with a type", json_type_name(part));
    const auto type = part.find("type");
    if (type == part.end() || !type->is_string()) return missing_field(part_path + ".type");
    const auto& name = type->get_ref<const std::string&>();
    if (among(name, kMediaParts))
      return unsupported(part_path + ".type", "this server reads text only, and fetches nothing.");
    if (name != "text" && name != "input_text")
      return invalid_value(
          part_path + ".type",
          fmt::format("The type of a part must be `text`, not {}.", shown_text(name)));
    const auto value = part.find("text");
    if (value == part.end()) return missing_field(part_path + ".text");
    if (!value->is_string())
      return wrong_type(part_path + ".text", "a string", json_type_name(*value));
    add(*value);
  }
  return parts;
}

// Arguments travel as JSON text; templates want them as an object.
Result<Json> read_tool_calls(const Json& calls, const std::string& path) {
  if (!calls.is_array()) return wrong_type(path, "an array", json_type_name(calls));
  if (calls.size() > kMaxToolCalls)
    return bad_messages(path, fmt::format("`{}` has {} calls; at most {} are allowed.", path,
                                          calls.size(), kMaxToolCalls));
  Json out = Json::array();
  for (std::size_t i = 0; i < calls.size(); ++i) {
    const std::string call_path = fmt::format("{}.{}", path, i);
    const Json& call = calls[i];
    if (!call.is_object()) return wrong_type(call_path, "an object", json_type_name(call));
    const auto function = call.find("function");
    if (function == call.end() || !function->is_object())
      return missing_field(call_path + ".function");
    const auto name = function->find("name");
    if (name == function->end() || !name->is_string())
      return missing_field(call_path + ".function.name");
    Json read = call;
    const auto arguments = function->find("arguments");
    if (arguments != function->end() && arguments->is_string()) {
      const auto& text = arguments->get_ref<const std::string&>();
      Result<Json> parsed = text.empty() ? Result<Json>(Json::object()) : parse_json(text, kArgumentsJson);
      if (!parsed || !parsed->is_object())
        return bad_messages(call_path + ".function.arguments",
                            "The arguments of a tool call must be the JSON text of an object.");
      read["function"]["arguments"] = std::move(*parsed);
    } else if (arguments == function->end() || arguments->is_null()) {
      read["function"]["arguments"] = Json::object();
    } else if (!arguments->is_object()) {
      return wrong_type(call_path + ".function.arguments", "the JSON text of an object",
                        json_type_name(*arguments));
    }
    out.push_back(std::move(read));
  }
  return out;
}

bool is_tool_name(std::string_view name) {
  if (name.empty() || name.size() > kMaxNameBytes) return false;
  for (const char c : name)
    if (!(std::isalnum(static_cast<unsigned char>(c)) || c == '_' || c == '-' || c == '.'))
      return false;
  return true;
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
  if (dump_json(schema).size() > kMaxSchemaBytes)
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
    const bool assistant = *role_name == "assistant";
    Json read{{"role", *role_name}};

    const auto calls = message.find("tool_calls");
    const bool has_calls = assistant && calls != message.end() && !calls->is_null() &&
                           !(calls->is_array() && calls->empty());
    const auto content = message.find("content");
    if (content == message.end() || content->is_null()) {
      if (!assistant) return missing_field(path + ".content");
      read["content"] = has_calls ? Json(nullptr) : Json("");
    } else {
      Result<Json> text = read_content(*content, path + ".content");
      if (!text) return text.fault();
      read["content"] = std::move(*text);
    }
    for (const char* key : {"name", "tool_call_id"}) {
      const auto value = message.find(key);
      if (value == message.end() || value->is_null()) continue;
      if (!value->is_string())
        return wrong_type(fmt::format("{}.{}", path, key), "a string", json_type_name(*value));
      read[key] = *value;
    }
    for (const char* key : {"reasoning", "reasoning_content"}) {
      const auto value = message.find(key);
      if (!assistant || value == message.end() || value->is_null()) continue;
      if (!value->is_string())
        return wrong_type(fmt::format("{}.{}", path, key), "a string", json_type_name(*value));
      read["reasoning_content"] = *value;
    }
    if (has_calls) {
      Result<Json> parsed = read_tool_calls(*calls, path + ".tool_calls");
      if (!parsed) return parsed.fault();
      read["tool_calls"] = std::move(*parsed);
    }
    out.push_back(std::move(read));
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
    const auto parameters = function->find("parameters");
    if (parameters != function->end() && !parameters->is_null())
      if (auto fault = check_schema(*parameters, path + ".function.parameters")) return *fault;
    const auto strict = function->find("strict");
    if (strict != function->end() && *strict == true)
      return unsupported(
          path + ".function.strict",
          "strict arguments need constrained output, which is not part of this version.");
  }
  return json.empty() ? Json(nullptr) : json;
}

}  // namespace sluice
