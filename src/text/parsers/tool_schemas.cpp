#include "text/parsers/tool_schemas.h"

#include <algorithm>
#include <charconv>
#include <functional>

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

constexpr int kMaxDepth = 8;

// A walk through the schema of a tool: what its references name, and the schemas that it may still
// visit. References can make few schemas many.
struct Walk {
  const Json& root;
  int left = 1 << 14;

  bool enters(const Json& schema, int depth) {
    return schema.is_object() && depth <= kMaxDepth && --left >= 0;
  }
};

constexpr const char* kChoices[] = {"anyOf", "oneOf", "allOf"};

// Python's names of types, which tools written by hand have, as JSON Schema's.
std::string type_named(const std::string& name) {
  static const std::map<std::string, std::string, std::less<>> kNames = {
      {"str", "string"},   {"int", "integer"}, {"float", "number"},
      {"bool", "boolean"}, {"dict", "object"}, {"list", "array"}};
  const auto found = kNames.find(name);
  return found == kNames.end() ? name : found->second;
}

}  // namespace

const Json* schema_named(const Json& schema, const Json& root) {
  const auto reference = schema.find("$ref");
  if (reference == schema.end() || !reference->is_string()) return nullptr;
  std::string_view rest = reference->get_ref<const std::string&>();
  if (!rest.starts_with("#")) return nullptr;
  rest.remove_prefix(1);
  const Json* at = &root;
  while (!rest.empty()) {
    if (rest[0] != '/') return nullptr;
    const std::size_t end = std::min(rest.find('/', 1), rest.size());
    std::string name;
    for (std::size_t i = 1; i < end; ++i) {
      unsigned code = 0;
      const bool is_encoded =
          rest[i] == '%' && i + 2 < end &&
          std::from_chars(rest.data() + i + 1, rest.data() + i + 3, code, 16).ptr ==
              rest.data() + i + 3;
      name += is_encoded ? static_cast<char>(code) : rest[i];
      if (is_encoded) i += 2;
    }
    for (std::size_t i = 0; (i = name.find('~', i)) != std::string::npos; ++i)
      if (i + 1 < name.size() && (name[i + 1] | 1) == '1')
        name.replace(i, 2, name[i + 1] == '0' ? "~" : "/");
    rest.remove_prefix(end);
    if (!at->is_object()) return nullptr;
    const auto member = at->find(name);
    if (member == at->end()) return nullptr;
    at = &*member;
  }
  return at;
}

namespace {

// The types that a schema states.
void add_types(const Json& schema, Walk& walk, int depth, std::vector<std::string>& types) {
  if (!walk.enters(schema, depth)) return;
  const auto add = [&](const Json& type) {
    if (type.is_string()) types.push_back(type_named(type.get<std::string>()));
  };
  if (const Json* named = schema_named(schema, walk.root))
    add_types(*named, walk, depth + 1, types);
  if (schema.contains("type")) {
    if (!schema["type"].is_array()) return add(schema["type"]);
    for (const Json& type : schema["type"]) add(type);
    return;
  }
  if (schema.contains("const")) types.emplace_back(type_of(schema["const"]));
  if (schema.contains("enum") && schema["enum"].is_array())
    for (const Json& value : schema["enum"]) types.emplace_back(type_of(value));
  for (const char* key : kChoices)
    if (schema.contains(key) && schema[key].is_array())
      for (const Json& choice : schema[key]) add_types(choice, walk, depth + 1, types);
}

// Calls use(key, schema) for the properties of an object's schema, also behind references and in
// schemas that it joins, and others(schema) for what other properties are.
template <class Use, class Others>
void for_properties(const Json& schema, Walk& walk, int depth, const Use& use,
                    const Others& others) {
  if (!walk.enters(schema, depth)) return;
  if (const Json* named = schema_named(schema, walk.root))
    for_properties(*named, walk, depth + 1, use, others);
  for (const char* key : kChoices)
    if (schema.contains(key) && schema[key].is_array())
      for (const Json& choice : schema[key]) for_properties(choice, walk, depth + 1, use, others);
  const auto each = [&](const char* key, const auto& visit) {
    if (schema.contains(key) && schema[key].is_object())
      for (const auto& [name, value] : schema[key].items()) visit(name, value);
  };
  each("properties", use);
  each("patternProperties", [&](const std::string&, const Json& value) { others(value); });
  if (schema.contains("additionalProperties")) others(schema["additionalProperties"]);
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
    Tool& types = types_[function["name"].get<std::string>()];
    if (!function.contains("parameters")) continue;
    const Json& parameters = function["parameters"];
    Walk walk{parameters};
    for_properties(
        parameters, walk, 0,
        [&](const std::string& key, const Json& schema) {
          add_types(schema, walk, 0, types.properties[key]);
        },
        [&](const Json& schema) { add_types(schema, walk, 0, types.others); });
  }
}

const ToolSchemas::Types* ToolSchemas::types_of(const std::string& tool,
                                                const std::string& argument) const {
  const auto found = types_.find(tool);
  if (found == types_.end()) return nullptr;
  const Tool& of_tool = found->second;
  const auto named = of_tool.properties.find(argument);
  const Types& types = named == of_tool.properties.end() ? of_tool.others : named->second;
  return types.empty() ? nullptr : &types;
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
