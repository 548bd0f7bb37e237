#include "text/parsers/tool_schemas.h"

#include <algorithm>

#include "text/parsers/lenient_json.h"

namespace sluice {
namespace {

const char* type_of(const Json& value) {
  if (value.is_string()) return "string";
  if (value.is_boolean()) return "boolean";
  if (value.is_number_integer() || is_big_integer(value)) return "integer";
  if (value.is_number()) return "number";
  if (value.is_array()) return "array";
  return value.is_object() ? "object" : "null";
}

// The types that a schema states; `root` holds what its references name.
void add_types(const Json& schema, const Json& root, int depth, std::vector<std::string>& types) {
  constexpr int kMaxDepth = 8;
  if (!schema.is_object() || depth > kMaxDepth) return;
  const auto add = [&](const Json& type) {
    if (type.is_string()) types.push_back(type.get<std::string>());
  };
  const Json reference = schema.value("$ref", Json());
  for (const char* key : {"$defs", "definitions"}) {
    const std::string start = fmt::format("#/{}/", key);
    if (!reference.is_string() || !root.contains(key) || !root[key].is_object()) continue;
    const auto& name = reference.get_ref<const std::string&>();
    if (!name.starts_with(start)) continue;
    const auto named = root[key].find(name.substr(start.size()));
    if (named != root[key].end()) add_types(*named, root, depth + 1, types);
  }
  if (schema.contains("type")) {
    if (!schema["type"].is_array()) return add(schema["type"]);
    for (const Json& type : schema["type"]) add(type);
    return;
  }
  if (schema.contains("const")) types.emplace_back(type_of(schema["const"]));
  for (const char* key : {"enum", "anyOf", "oneOf", "allOf"})
    if (schema.contains(key) && schema[key].is_array())
      for (const Json& choice : schema[key]) {
        if (std::string_view(key) == "enum") {
          types.emplace_back(type_of(choice));
        } else {
          add_types(choice, root, depth + 1, types);
        }
      }
}

bool fits(JsonKind kind, const std::string& type) {
  switch (kind) {
    case JsonKind::kObject:
      return type == "object";
    case JsonKind::kArray:
      return type == "array";
    case JsonKind::kString:
      return type == "string";
    case JsonKind::kInteger:
      return type == "integer" || type == "number";
    case JsonKind::kNumber:
      return type == "number";
    case JsonKind::kBoolean:
      return type == "boolean";
    case JsonKind::kNull:
      return type == "null";
  }
  return false;
}

std::string quoted(std::string_view text) {
  return "\"" + escape_json_string(text) + "\"";
}

}  // namespace

ToolSchemas::ToolSchemas(const Json& tools) {
  if (!tools.is_array()) return;
  for (const Json& tool : tools) {
    const Json& function = tool.is_object() && tool.contains("function") ? tool["function"] : tool;
    if (!function.is_object() || !function.contains("name") || !function["name"].is_string())
      continue;
    auto& types = types_[function["name"].get<std::string>()];
    if (!function.contains("parameters") || !function["parameters"].is_object()) continue;
    const Json& parameters = function["parameters"];
    if (!parameters.contains("properties") || !parameters["properties"].is_object()) continue;
    for (const auto& [key, schema] : parameters["properties"].items())
      add_types(schema, parameters, 0, types[key]);
  }
}

const ToolSchemas::Types* ToolSchemas::types_of(const std::string& tool,
                                                const std::string& argument) const {
  const auto found = types_.find(tool);
  if (found == types_.end()) return nullptr;
  const auto types = found->second.find(argument);
  return types == found->second.end() || types->second.empty() ? nullptr : &types->second;
}

bool ToolSchemas::is_string(const std::string& tool, const std::string& argument) const {
  const Types* types = types_of(tool, argument);
  return types && std::ranges::all_of(*types, [](const auto& type) { return type == "string"; });
}

std::string ToolSchemas::typed_value(const std::string& tool, const std::string& argument,
                                     std::string_view text) const {
  const Types* types = types_of(tool, argument);
  const bool may_be_string = types && std::ranges::find(*types, "string") != types->end();
  const std::optional<JsonText> value = read_json_text(text);
  const bool is_stated =
      value && types && value->kind != JsonKind::kString &&
      std::ranges::any_of(*types, [&](const std::string& type) { return fits(value->kind, type); });
  if (!value || (may_be_string && !is_stated)) return quoted(text);
  return value->text;
}

std::string literal_or_string(std::string_view text) {
  const std::optional<JsonText> value = read_json_text(text);
  return value ? value->text : quoted(text);
}

}  // namespace sluice
