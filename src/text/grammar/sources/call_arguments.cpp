#include "text/grammar/sources/call_arguments.h"

#include <algorithm>

#include "base/json.h"
#include "text/grammar/regex.h"
#include "text/grammar/sources/call_spelling.h"
#include "text/grammar/sources/structural_tag.h"

namespace sluice::grammar {
namespace {

constexpr std::string_view kAnyObject = R"({"type": "object"})";
constexpr std::string_view kFreeKey = "[A-Za-z_][A-Za-z0-9_.-]{0,63}";
constexpr std::uint64_t kMaxFreePairs = 64;
constexpr int kMaxHops = 8;
constexpr std::size_t kMaxShown = 200;  // bytes of a name in a message
constexpr const char* kParameters = "urn:sluice:parameters";

// Keywords beside `properties` that constrain nothing here, or that KeyedArguments reads.
constexpr std::string_view kReadKeywords[] = {
    "type",    "properties",  "required", "additionalProperties",
    "title",   "description", "$schema",  "$id",
    "$defs",   "definitions", "default",  "examples",
    "example", "deprecated",  "$comment", "strict",
    "readOnly"};

// Keywords beside `$ref` that constrain nothing.
constexpr std::string_view kBesideReference[] = {"$schema",  "$id",   "$defs",      "definitions",
                                                 "$comment", "title", "description"};

// Whether a reference names another place of the schema than a definition.
bool refers_beyond_definitions(const Json& schema) {
  std::vector<const Json*> left = {&schema};
  while (!left.empty()) {
    const Json& at = *left.back();
    left.pop_back();
    if (!at.is_structured()) continue;
    for (const auto& [key, value] : at.items()) {
      if (value.is_structured()) left.push_back(&value);
      if (key != "$ref" || !value.is_string()) continue;
      const std::string_view name = value.get_ref<const std::string&>();
      if (name.starts_with("#") && !name.starts_with("#/$defs/") &&
          !name.starts_with("#/definitions/"))
        return true;
    }
  }
  return false;
}

// A key as a part of a JSON pointer in a URI's fragment (RFC 6901, 6).
std::string pointer_part(const std::string& key) {
  std::string out;
  for (const char c : key) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '~')
      out += "~0";
    else if (c == '/')
      out += "~1";
    else if (byte > 0x20 && byte < 0x7F &&
             std::string_view("%\"<>\\^`{|}#").find(c) == std::string_view::npos)
      out += c;
    else
      out += fmt::format("%{:02X}", byte);
  }
  return out;
}

// Texts that the parser takes for a value of `type` where no quotes tell a string.
std::string_view literals_of(std::string_view type) {
  if (type == "integer" || type == "number")
    return R"(\s*([-+]?[0-9.][0-9_.eE+-]*|[-+]?([nN]a[nN]|[iI]nf(inity)?|Infinity))\s*)";
  if (type == "boolean") return R"(\s*([tT]rue|[fF]alse|TRUE|FALSE)\s*)";
  if (type == "null") return R"(\s*([nN]ull|[nN]one|NULL|NONE)\s*)";
  if (type == "array") return R"(\s*[\[(](.|\n)*)";
  return R"(\s*\{(.|\n)*)";
}

class KeyedArguments {
 public:
  KeyedArguments(const ArgumentContext& context, const CallTool& tool)
      : context_(context), grammar_(context.grammar), format_(context.format), tool_(tool) {}

  Result<NodeId> run() {
    const Result<Json> parsed =
        parse_json(tool_.schema.empty() ? kAnyObject : std::string_view(tool_.schema),
                   {.exact_numbers = true});
    if (!parsed) return parsed.fault();
    document_ = *parsed;
    if (!document_.is_object()) document_ = Json::object();
    has_far_references_ = refers_beyond_definitions(document_);
    follow_reference();
    Json tools = Json::array({Json::object()});
    tools[0]["name"] = tool_.name;
    tools[0]["parameters"] = document_;
    types_ = ToolSchemas(tools);
    for (const auto& [key, unused] : root_->items()) {
      if (std::ranges::find(kReadKeywords, key) != std::end(kReadKeywords)) continue;
      if (tool_.is_strict) return refused(fmt::format("the keyword `{}` of its object", key));
      note(base_ + "/" + key);
    }
    return pairs();
  }

 private:
  Fault refused(std::string_view what) const {
    return Fault{400, "unsupported_tool_schema", "",
                 fmt::format("The strict tool `{}` cannot be enforced: in the calls of `{}`, {} is "
                             "not supported. Leave out `strict`, or change the schema.",
                             tool_.name, format_.name, what)};
  }
  void note(std::string pointer) {
    std::vector<Unenforced>* out = context_.unenforced;
    if (out == nullptr) return;
    const auto is_same = [&](const Unenforced& one) {
      return one.tool == tool_.name && one.pointer == pointer;
    };
    if (std::ranges::none_of(*out, is_same)) out->push_back({tool_.name, std::move(pointer)});
  }
  // A pointer into the document that property_schema made for `at_`, as one into the parameters.
  std::string place_of(std::string_view pointer) const {
    const auto skip = [&](std::string_view part) {
      const bool has_part = pointer.starts_with(part);
      if (has_part) pointer.remove_prefix(part.size());
      return has_part;
    };
    if (format_.syntax == CallSyntax::kBraces || !format_.string_key_close.empty())
      skip("/allOf/0");
    if (has_far_references_ && (skip("/$defs/parameters") || skip("/definitions/parameters")))
      return std::string(pointer);
    const bool is_shared = pointer.starts_with("/$defs/") || pointer.starts_with("/definitions/");
    return is_shared ? std::string(pointer) : base_ + at_ + std::string(pointer);
  }
  Fault located(Fault fault) const {
    constexpr std::string_view kBegin = "JSON schema, ", kRoot = "at the root";
    std::string& message = fault.message;
    const std::size_t end = message.find(": ");
    if (!message.starts_with(kBegin) || end == std::string::npos) {
      message = fmt::format("JSON schema, {}: {}", base_ + at_, message);
      return fault;
    }
    const std::string place = message.substr(kBegin.size(), end - kBegin.size());
    message =
        fmt::format("{}{}{}", kBegin, place_of(place == kRoot ? "" : place), message.substr(end));
    return fault;
  }
  Result<NodeId> schema_node(const std::string& schema, const SchemaOptions& options) {
    const Result<SchemaRoot> value = add_json_schema(grammar_, schema, options);
    if (!value) return value.fault();
    for (const std::string& pointer : value->ignored) note(place_of(pointer));
    return value->node;
  }
  // Each mark is made once.
  NodeId mark(std::string_view text) {
    if (text.empty()) return grammar_.empty();
    const auto found = std::ranges::find(marks_, text, [](const auto& one) { return one.first; });
    if (found != marks_.end()) return found->second;
    return marks_.emplace_back(text, marked_text(grammar_, text, context_.vocabulary)).second;
  }
  LanguageId regex(std::string_view pattern) { return own_regex(grammar_.languages(), pattern); }

  Result<NodeId> pairs() {
    ObjectSpec spec;
    spec.is_bare = true;
    spec.any_order = true;
    spec.space = grammar_.empty();
    if (format_.syntax == CallSyntax::kKeywords) spec.space = grammar_.bytes(", ");
    if (format_.syntax == CallSyntax::kBraces) spec.space = grammar_.bytes(",");
    static const Json kNone = Json::object(), kNames = Json::array(), kAny = true;
    const auto part = [&](const char* key, const Json& otherwise) -> const Json& {
      return root_->contains(key) ? (*root_)[key] : otherwise;
    };
    const Json& properties = part("properties", kNone);
    const Json& required = part("required", kNames);
    const Json& more = part("additionalProperties", kAny);
    const auto is_required = [&](const std::string& key) {
      return required.is_array() && std::ranges::find(required, Json(key)) != required.end();
    };
    if (!properties.is_object()) return refused("`properties` that is no object");
    const auto add = [&](const std::string& key, const std::string& at,
                         const Json& schema) -> std::optional<Fault> {
      at_ = at;
      if (!can_spell_key(format_, key)) {
        if (tool_.is_strict)
          return refused(
              fmt::format("the name of the argument `{}`", (base_ + at).substr(0, kMaxShown)));
        note(base_ + at);
        return std::nullopt;
      }
      const Result<NodeId> node = pair(key, property_schema(at, schema));
      if (!node)
        return node.fault().code == "unsupported_tool_schema" ? node.fault()
                                                              : located(node.fault());
      spec.members.push_back({key, *node, is_required(key)});
      if (is_required(key)) context_.values->push_back({tool_.name, base_ + at, *node});
      return std::nullopt;
    };
    for (const auto& [key, schema] : properties.items())
      if (auto fault = add(key, "/properties/" + pointer_part(key), schema)) return *fault;
    if (required.is_array())
      for (const Json& key : required)
        if (key.is_string() && !properties.contains(key.get<std::string>()))
          if (auto fault = add(key.get<std::string>(), "/additionalProperties", more))
            return *fault;
    if (!spec.members.empty() || more == false) return grammar_.object(std::move(spec));
    const NodeId any = free_pair();
    return grammar_.separated(any, spec.space, 0, kMaxFreePairs);
  }

  // Arguments that no schema names: any key, any value.
  NodeId free_pair() {
    const NodeId key = grammar_.text(regex(kFreeKey));
    switch (format_.syntax) {
      case CallSyntax::kKeywords:
        return grammar_.sequence({key, grammar_.bytes("="), grammar_.any_json(space())});
      case CallSyntax::kBraces:
        return grammar_.sequence({key, grammar_.bytes(":"), braces_value()});
      default:
        return tagged(key, true, grammar_.text(without(format_.value_close)));
    }
  }

  // `text`: the schema of the value.
  Result<NodeId> pair(const std::string& key, const std::string& text) {
    const NodeId name = grammar_.bytes(key);
    if (format_.syntax == CallSyntax::kKeywords) {
      const Result<NodeId> value = schema_node(text, context_.options);
      if (!value) return value.fault();
      return grammar_.sequence({name, grammar_.bytes("="), *value});
    }
    if (format_.syntax == CallSyntax::kBraces) return braces_pair(key, text);
    if (format_.string_key_close.empty()) {
      const Result<NodeId> value = raw_value(text, unquoted(key));
      if (!value) return value.fault();
      return tagged(name, false, *value);
    }
    // The tag tells strings from other values.
    std::vector<NodeId> options;
    for (const bool is_string : {true, false}) {
      const Result<NodeId> value =
          is_string ? raw_value(only(text, R"({"type": "string"})"), without(format_.value_close))
                    : json_value(only(text, kNoString));
      if (value) options.push_back(tagged(name, is_string, *value));
      if (!value && value.fault().code != "unsatisfiable_json_schema") return value.fault();
    }
    return grammar_.any_of(options);
  }

  NodeId tagged(NodeId key, bool is_string, NodeId value) {
    const std::string_view key_close = is_string && !format_.string_key_close.empty()
                                           ? format_.string_key_close
                                           : format_.key_close;
    const NodeId pad = grammar_.bytes(format_.pads_values ? "\n" : "");
    return grammar_.sequence({mark(format_.key_open), key, mark(key_close),
                              grammar_.bytes(format_.after_key), mark(format_.value_open), pad,
                              value, pad, mark(format_.value_close),
                              grammar_.bytes(format_.after_pair)});
  }

  Result<NodeId> braces_pair(const std::string& key, const std::string& text) {
    const NodeId name = grammar_.sequence({grammar_.bytes(key), grammar_.bytes(":")});
    std::vector<NodeId> options;
    const Result<NodeId> string =
        raw_value(only(text, R"({"type": "string"})"), without(format_.quote));
    if (string)
      options.push_back(grammar_.sequence({mark(format_.quote), *string, mark(format_.quote)}));
    const Result<NodeId> scalar =
        json_value(only(text, R"({"type": ["null", "boolean", "number"]})"));
    if (scalar) options.push_back(*scalar);
    for (const Result<NodeId>* value : {&string, &scalar})
      if (!value->ok() && value->fault().code != "unsatisfiable_json_schema") return value->fault();
    const std::vector<std::string>* types = types_.types_of(tool_.name, key);
    const bool has_parts = types == nullptr || std::ranges::any_of(*types, [](const auto& type) {
                             return type == "array" || type == "object";
                           });
    if (has_parts) {
      if (tool_.is_strict) return refused(fmt::format("the array or object `{}`", key));
      options.push_back(braces_value());
    }
    return grammar_.sequence({name, grammar_.any_of(options)});
  }

  // Any value, with bare keys and strings between two quote marks.
  NodeId braces_value() {
    if (braces_value_) return grammar_.rule(*braces_value_);
    braces_value_ = grammar_.declare_rule("value");
    const NodeId value = grammar_.rule(*braces_value_);
    const NodeId string = grammar_.sequence(
        {mark(format_.quote), grammar_.text(without(format_.quote)), mark(format_.quote)});
    const NodeId member =
        grammar_.sequence({grammar_.text(regex(kFreeKey)), grammar_.bytes(":"), value});
    const NodeId comma = grammar_.bytes(",");
    grammar_.define_rule(
        *braces_value_,
        grammar_.any_of({string, grammar_.any_json_number(), grammar_.bytes("true"),
                         grammar_.bytes("false"), grammar_.bytes("null"),
                         grammar_.sequence({grammar_.bytes("["),
                                            grammar_.separated(value, comma, 0, kUnbounded),
                                            grammar_.bytes("]")}),
                         grammar_.sequence({grammar_.bytes("{"),
                                            grammar_.separated(member, comma, 0, kUnbounded),
                                            grammar_.bytes("}")})}));
    return value;
  }

  Result<NodeId> json_value(const std::string& schema) {
    return schema_node(schema, context_.options);
  }
  Result<NodeId> raw_value(const std::string& schema, LanguageId strings) {
    SchemaOptions options = context_.options;
    options.raw_string = strings;
    return schema_node(schema, options);
  }

  // Parameters that only refer to their arguments' schema, as some libraries write them.
  void follow_reference() {
    for (int hop = 0; hop < kMaxHops && root_->contains("$ref"); ++hop) {
      for (const auto& [key, unused] : root_->items())
        if (key != "$ref" && std::ranges::find(kBesideReference, key) == std::end(kBesideReference))
          return;
      const Json* named = schema_named(*root_, document_);
      if (named == nullptr || !named->is_object()) return;
      base_ = (*root_)["$ref"].get<std::string>().substr(1);
      root_ = named;
    }
  }

  // A property's schema as a document of its own, with what it may refer to. `at`: its place in
  // root_, a JSON pointer.
  std::string property_schema(const std::string& at, const Json& property) const {
    if (!property.is_object()) return dump_json(property);
    if (has_far_references_) return reference_to(base_ + at);
    Json schema = property;
    for (const char* key : {"$schema", "$defs", "definitions"})
      if (document_.contains(key) && !schema.contains(key)) schema[key] = document_[key];
    return dump_json(schema);
  }
  // A document that holds the whole parameters as a resource with an identifier, in which their own
  // references go on to name what they named.
  std::string reference_to(const std::string& pointer) const {
    const std::string draft = document_.value("$schema", std::string());
    const bool is_old = draft.find("draft-0") != std::string::npos;
    const char* const id = draft.find("draft-04") == std::string::npos ? "$id" : "id";
    Json parameters = document_;
    if (!parameters.contains(id) || !parameters[id].is_string()) parameters[id] = kParameters;
    std::string name = parameters[id].get<std::string>();
    name.resize(std::min(name.find('#'), name.size()));
    Json out = Json::object();
    if (!draft.empty()) out["$schema"] = draft;
    out["allOf"] = Json::array({Json{{"$ref", name + "#" + pointer}}});
    out[is_old ? "definitions" : "$defs"] = Json{{"parameters", std::move(parameters)}};
    return dump_json(out);
  }
  // The values of `schema` that are also of `other`.
  static std::string only(const std::string& schema, std::string_view other) {
    Json whole = parse_json(schema, {.exact_numbers = true}).value();
    Json out = {{"allOf", Json::array()}};
    for (const char* key : {"$schema", "$defs", "definitions"})
      if (whole.is_object() && whole.contains(key)) {
        out[key] = whole[key];
        whole.erase(key);
      }
    out["allOf"].push_back(std::move(whole));
    out["allOf"].push_back(parse_json(other).value());
    return dump_json(out);
  }

  NodeId space() { return grammar_.white_space(context_.options.max_space); }
  LanguageId without(std::string_view text) {
    Languages& languages = grammar_.languages();
    const LanguageId any = languages.any_text();
    return languages.complement(languages.concat({any, languages.literal(text), any}));
  }
  // Strings between tags: the parser takes them for nothing else.
  LanguageId unquoted(const std::string& key) {
    Languages& languages = grammar_.languages();
    std::vector<LanguageId> parts{without(format_.value_close)};
    const std::vector<std::string>* types = types_.types_of(tool_.name, key);
    static const std::vector<std::string> kAll = {"number", "boolean", "null", "array", "object"};
    for (const std::string& type : types ? *types : kAll)
      if (type != "string") parts.push_back(languages.complement(regex(literals_of(type))));
    if (!types) parts.push_back(languages.complement(regex(R"(\s*["'](.|\n)*)")));
    return languages.intersect(parts);
  }

  static constexpr std::string_view kNoString =
      R"({"type": ["null", "boolean", "number", "array", "object"]})";

  const ArgumentContext& context_;
  Grammar& grammar_;
  const ToolFormat& format_;
  const CallTool& tool_;
  Json document_;  // the tool's `parameters`
  // The schema of the arguments' object: document_, or what it refers to.
  const Json* root_ = &document_;
  std::string base_;  // the JSON pointer of root_ in document_
  std::string at_;    // the pointer in root_ of the property that is made
  bool has_far_references_ = false;
  ToolSchemas types_;
  std::optional<RuleId> braces_value_;
  std::vector<std::pair<std::string_view, NodeId>> marks_;  // of format_
};

}  // namespace

Result<NodeId> json_arguments(const ArgumentContext& context, const CallTool& tool) {
  SchemaOptions options = context.options;
  options.only_objects = true;
  const std::string_view schema = tool.schema.empty() ? kAnyObject : std::string_view(tool.schema);
  const Result<SchemaRoot> root = add_json_schema(context.grammar, schema, options);
  if (!root) return root.fault();
  if (context.unenforced != nullptr)
    for (const std::string& pointer : root->ignored)
      context.unenforced->push_back({tool.name, pointer});
  return root->node;
}

Result<NodeId> keyed_arguments(const ArgumentContext& context, const CallTool& tool) {
  return KeyedArguments(context, tool).run();
}

}  // namespace sluice::grammar
