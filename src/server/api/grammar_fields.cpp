#include "server/api/grammar_fields.h"

#include "server/api/field_values.h"
#include "server/api/unknown_fields.h"
#include "server/core/errors.h"

namespace sluice {
namespace {

using grammar::GrammarSource;

// Characters of white space that a model may put between the tokens of JSON.
constexpr std::uint64_t kMaxWhiteSpace = 64;
constexpr std::size_t kMaxChoices = 1 << 16;

std::optional<Fault> set_source(const std::string& path, GrammarSource source,
                                GenerationFields& out) {
  if (out.grammar)
    return invalid_value(path, fmt::format("`{}` and `{}` both constrain the output; give one.",
                                           out.grammar->param, path));
  source.max_white_space = kMaxWhiteSpace;
  source.plain_integers = true;
  out.grammar = GrammarField{std::move(source), path};
  return std::nullopt;
}

std::optional<Fault> read_text(GrammarSource::Kind kind, const std::string& path, const Json& json,
                               GenerationFields& out) {
  if (!json.is_string()) return wrong_type(path, "a string", json_type_name(json));
  return set_source(path, {.kind = kind, .text = json.get<std::string>()}, out);
}

// A schema as JSON, or as a string that holds it.
std::optional<Fault> read_schema(const std::string& path, const Json& json, GenerationFields& out) {
  if (json.is_string()) return read_text(GrammarSource::kJsonSchema, path, json, out);
  if (!json.is_object() && !json.is_boolean())
    return wrong_type(path, "a JSON Schema: an object, or its text", json_type_name(json));
  return set_source(path, {.kind = GrammarSource::kJsonSchema, .text = dump_json(json)}, out);
}

std::optional<Fault> read_choices(const std::string& path, const Json& json,
                                  GenerationFields& out) {
  if (!json.is_array()) return wrong_type(path, "an array of strings", json_type_name(json));
  if (json.empty() || json.size() > kMaxChoices)
    return invalid_value(path, fmt::format("`{}` has {} strings; 1 to {} are allowed.", path,
                                           json.size(), kMaxChoices));
  GrammarSource source{.kind = GrammarSource::kChoice};
  for (const Json& item : json) {
    if (!item.is_string()) return wrong_type(path, "an array of strings", json_type_name(item));
    source.choices.push_back(item.get<std::string>());
  }
  return set_source(path, std::move(source), out);
}

std::optional<Fault> read_tag(const std::string& path, const Json& json, GenerationFields& out) {
  if (json.is_string()) return read_text(GrammarSource::kStructuralTag, path, json, out);
  if (!json.is_object())
    return wrong_type(path, "a structural tag: an object, or its text", json_type_name(json));
  return set_source(path, {.kind = GrammarSource::kStructuralTag, .text = dump_json(json)}, out);
}

bool is_absent(const Json& object, const char* name) {
  const auto found = object.find(name);
  return found == object.end() || found->is_null();
}

// `schema` of the type json_object, as llama.cpp and SGLang take it: an object that obeys the
// schema. A schema with a type of its own says itself what its values are.
std::optional<Fault> read_object_schema(const std::string& path, const Json& json,
                                        GenerationFields& out) {
  Json schema = json;
  if (json.is_string())
    if (Result<Json> parsed = parse_json(json.get_ref<const std::string&>(), kRequestJson);
        parsed && parsed->is_object())
      schema = *std::move(parsed);
  if (schema == true || (schema.is_object() && schema.empty()))
    return set_source(path, {.kind = GrammarSource::kJson, .text = "object"}, out);
  if (schema.is_object() && !schema.contains("type")) schema["type"] = "object";
  return read_schema(path, schema, out);
}

std::optional<Fault> read_response_format(const std::string& path, const Json& json,
                                          GenerationFields& out) {
  if (!json.is_object()) return wrong_type(path, "an object", json_type_name(json));
  const auto type = json.find("type");
  if (type == json.end() || type->is_null()) return missing_field(path + ".type");
  if (*type == "structural_tag") return read_tag(path, json, out);
  if (*type != "text" && *type != "json_object" && *type != "json_schema")
    return bad_word(path + ".type", "`text`, `json_object`, `json_schema` or `structural_tag`",
                    *type);
  static constexpr std::string_view kOuter[] = {"type", "json_schema", "schema"};
  note_unknown(json, kOuter, path + ".", out.ignored);
  const std::string inner = path + ".json_schema";
  // A schema that the type leaves without effect is a slip of the client.
  if (*type != "json_schema" && !is_absent(json, "json_schema"))
    return invalid_value(inner, fmt::format("`{}` needs the type `json_schema`, and `{}.type` is "
                                            "{}; leave one out.",
                                            inner, path, shown_text(type->get<std::string>())));
  if (*type == "text" && !is_absent(json, "schema"))
    return invalid_value(path + ".schema",
                         fmt::format("`{}.schema` needs the type `json_object`, and `{}.type` is "
                                     "`text`; leave one out.",
                                     path, path));
  if (*type == "text") return std::nullopt;
  if (*type == "json_object" && !is_absent(json, "schema"))
    return read_object_schema(path + ".schema", json["schema"], out);
  if (*type == "json_object")
    return set_source(path, {.kind = GrammarSource::kJson, .text = "object"}, out);
  const auto format = json.find("json_schema");
  if (!is_absent(json, "schema")) {  // as Together writes it
    if (!is_absent(json, "json_schema"))
      return invalid_value(
          path + ".schema",
          fmt::format("`{}.schema` and `{}` both hold a schema; give one.", path, inner));
    return read_schema(path + ".schema", json["schema"], out);
  }
  if (format == json.end() || format->is_null()) return missing_field(inner);
  if (!format->is_object()) return wrong_type(inner, "an object", json_type_name(*format));
  const auto schema = format->find("schema");
  if (schema == format->end() || schema->is_null()) return missing_field(inner + ".schema");
  for (const auto& [name, wanted] :
       {std::pair<const char*, const char*>{"strict", "true or false"}, {"name", "a string"}}) {
    const auto found = format->find(name);
    if (found == format->end() || found->is_null()) continue;
    const bool fits = std::string_view(name) == "strict" ? found->is_boolean() : found->is_string();
    if (!fits) return wrong_type(inner + "." + name, wanted, json_type_name(*found));
  }
  static constexpr std::string_view kKnown[] = {"schema", "name", "strict", "description"};
  note_unknown(*format, kKnown, inner + ".", out.ignored);
  return read_schema(inner + ".schema", *schema, out);
}

std::optional<Fault> read_structured_outputs(const std::string& path, const Json& json,
                                             GenerationFields& out) {
  if (!json.is_object()) return wrong_type(path, "an object", json_type_name(json));
  const auto read = [&](const char* name, const Json& value) -> std::optional<Fault> {
    const std::string inner = path + "." + name;
    const std::string_view key = name;
    if (key == "json") return read_schema(inner, value, out);
    if (key == "regex") return read_text(GrammarSource::kRegex, inner, value, out);
    if (key == "choice") return read_choices(inner, value, out);
    if (key == "grammar") return read_text(GrammarSource::kEbnf, inner, value, out);
    if (key == "structural_tag") return read_tag(inner, value, out);
    if (!value.is_boolean()) return wrong_type(inner, "true or false", json_type_name(value));
    if (!value.get<bool>()) return std::nullopt;
    return set_source(inner, {.kind = GrammarSource::kJson, .text = "object"}, out);
  };
  for (const char* name : {"json", "regex", "choice", "grammar", "structural_tag", "json_object"}) {
    const auto found = json.find(name);
    if (found == json.end() || found->is_null()) continue;
    if (auto fault = read(name, *found)) return fault;
  }
  const auto compact = json.find("disable_any_whitespace");
  if (compact != json.end() && !compact->is_null()) {
    const std::string inner = path + ".disable_any_whitespace";
    if (!compact->is_boolean()) return wrong_type(inner, "true or false", json_type_name(*compact));
    if (compact->get<bool>() && out.grammar) out.grammar->source.max_white_space = 0;
  }
  const auto pattern = json.find("whitespace_pattern");
  if (pattern != json.end() && !pattern->is_null())
    return unsupported(path + ".whitespace_pattern", "use `disable_any_whitespace`.");
  const auto closed = json.find("disable_additional_properties");
  if (closed != json.end() && !closed->is_null() && *closed != false)
    return unsupported(path + ".disable_additional_properties",
                       "say `additionalProperties`: false in the schema.");
  if (!out.grammar)
    return invalid_value(
        path, fmt::format("`{}` must have one of `json`, `regex`, `choice`, `grammar` and "
                          "`structural_tag`, or `json_object`: true; it has {}.",
                          path, shown_text(json.begin().key())));
  static constexpr std::string_view kKnown[] = {"json",
                                                "regex",
                                                "choice",
                                                "grammar",
                                                "structural_tag",
                                                "json_object",
                                                "disable_any_whitespace",
                                                "disable_additional_properties",
                                                "whitespace_pattern"};
  note_unknown(json, kKnown, path + ".", out.ignored);
  return std::nullopt;
}

}  // namespace

std::optional<Fault> read_grammar_field(std::string_view name, const std::string& path,
                                        const Json& json, GenerationFields& out) {
  // It holds fields, and none of them is given. Anything else that is empty says something.
  if (name == "structured_outputs" && json.is_object() && json.empty()) return std::nullopt;
  if (name == "response_format") return read_response_format(path, json, out);
  if (name == "structured_outputs") return read_structured_outputs(path, json, out);
  if (name == "guided_json" || name == "json_schema") return read_schema(path, json, out);
  if (name == "guided_choice") return read_choices(path, json, out);
  if (name == "structural_tag") return read_tag(path, json, out);
  if (name == "guided_regex" || name == "regex")
    return read_text(GrammarSource::kRegex, path, json, out);
  return read_text(GrammarSource::kEbnf, path, json, out);
}

}  // namespace sluice
