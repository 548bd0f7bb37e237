#include "text/grammar/sources/structural_tag.h"

#include <algorithm>
#include <optional>
#include <vector>

#include "base/json.h"
#include "text/grammar/captures/regex_captures.h"
#include "text/grammar/sources/lark.h"

namespace sluice::grammar {
namespace {

class Reader {
 public:
  Reader(Grammar& grammar, const Vocabulary& vocabulary, const SchemaOptions& options)
      : grammar_(grammar), vocabulary_(vocabulary), options_(options) {}

  Result<NodeId> run(const Json& json) {
    const NodeId node = whole(json);
    if (fault_) return *fault_;
    return node;
  }

 private:
  NodeId fail_at(std::string_view pointer, std::string_view what) {
    if (!fault_)
      fault_ = Fault{400, "invalid_structural_tag", "",
                     fmt::format("The structural tag is wrong at {}: {}.",
                                 pointer.empty() ? "its root" : pointer, what)};
    return grammar_.none();
  }
  NodeId refuse(std::string_view pointer, std::string_view what) {
    if (!fault_)
      fault_ = Fault{
          400, "unsupported_structural_tag", "",
          fmt::format("The structural tag has {} at {}, which is not supported.", what, pointer)};
    return grammar_.none();
  }
  // `pointer`: where the schema, pattern or grammar stands that became `result`.
  template <class T>
  NodeId take(Result<T> result, const std::string& pointer, auto use) {
    if (result) return use(result.value());
    if (!fault_) {
      fault_ = result.fault();
      fault_->message = fmt::format("The structural tag, {}: {}", pointer, fault_->message);
    }
    return grammar_.none();
  }

  NodeId whole(const Json& json) {
    if (!json.is_object()) return fail_at("", "it must be an object");
    if (json.contains("format")) return format(json["format"], "/format", {});
    if (!json.contains("structures")) return fail_at("", "`format` is missing");
    // the older form
    Json tags = Json::array();
    const Json structures = json["structures"];
    if (!structures.is_array()) return fail_at("/structures", "it must be an array");
    for (const Json& one : structures) {
      if (!one.is_object()) return fail_at("/structures", "an entry must be an object");
      tags.push_back(
          {{"begin", one.value("begin", Json())},
           {"content", {{"type", "json_schema"}, {"json_schema", one.value("schema", Json())}}},
           {"end", one.value("end", Json())}});
    }
    return format(
        {{"type", "triggered_tags"}, {"triggers", json.value("triggers", Json())}, {"tags", tags}},
        "/structures", {});
  }

  // `ends`: texts that free text must not hold, since they close the tag around it. The depth is
  // that of the JSON, which its parser bounds.
  NodeId format(const Json& json, const std::string& at, const std::vector<std::string>& ends) {
    const NodeId node = format_of(json, at, ends);
    if (fault_ || json["type"] == "tag") return node;
    return captured(json, at, node);
  }
  // `node` under the name that `capture` gives it.
  NodeId captured(const Json& json, const std::string& at, NodeId node) {
    const auto found = json.find("capture");
    if (found == json.end() || found->is_null()) return node;
    if (!found->is_string() || found->get_ref<const std::string&>().empty())
      return fail_at(at + "/capture", "it must be a name");
    return grammar_.capture(node, Grammar::CaptureKind::kNamed,
                            found->get_ref<const std::string&>());
  }
  NodeId format_of(const Json& json, const std::string& at, const std::vector<std::string>& ends) {
    if (fault_) return grammar_.none();
    if (!json.is_object() || !json.contains("type") || !json["type"].is_string())
      return fail_at(at, "a format is an object with `type`");
    const auto type = json["type"].get<std::string>();
    if (type == "const_string") return text_of(json, "value", at);
    if (type == "json_schema") return schema(json, at);
    if (type == "regex") return pattern(json, at);
    if (type == "grammar") return grammar_text(json, at);
    if (type == "any_text") return any_text(json, at, ends);
    if (type == "sequence" || type == "or") return list(json, at, ends, type == "or");
    if (type == "optional" || type == "plus" || type == "star" || type == "repeat")
      return repeat(json, at, ends, type);
    if (type == "tag") return tag(json, at);
    if (type == "triggered_tags") return triggered(json, at, ends);
    if (type == "tags_with_separator") return separated(json, at);
    return refuse(at + "/type", fmt::format("the format `{}`", type.substr(0, 64)));
  }

  std::optional<std::string> string(const Json& json, const char* key, const std::string& at) {
    const auto found = json.find(key);
    if (found == json.end() || !found->is_string()) {
      fail_at(at + "/" + key, "it must be a string");
      return std::nullopt;
    }
    return found->get<std::string>();
  }
  NodeId text_of(const Json& json, const char* key, const std::string& at) {
    const std::optional<std::string> text = string(json, key, at);
    return text ? marked_text(grammar_, *text, vocabulary_) : grammar_.none();
  }
  std::vector<std::string> strings(const Json& json, const char* key, const std::string& at,
                                   bool may_be_one) {
    std::vector<std::string> out;
    const auto found = json.find(key);
    if (may_be_one && found != json.end() && found->is_string()) return {found->get<std::string>()};
    if (found == json.end() || !found->is_array()) {
      fail_at(at + "/" + key, "it must be an array of strings");
      return out;
    }
    for (const Json& item : *found) {
      if (!item.is_string())
        fail_at(at + "/" + key, "it must be an array of strings");
      else
        out.push_back(item.get<std::string>());
    }
    return out;
  }
  // The same without empty ones, which would exclude every text.
  std::vector<std::string> marks(const Json& json, const char* key, const std::string& at) {
    std::vector<std::string> out = strings(json, key, at, false);
    if (std::ranges::find(out, "") != out.end()) fail_at(at + "/" + key, "a text of it is empty");
    return out;
  }
  bool flag(const Json& json, const char* key, const std::string& at) {
    const auto found = json.find(key);
    if (found == json.end() || found->is_null()) return false;
    if (!found->is_boolean()) fail_at(at + "/" + key, "it must be true or false");
    return found->is_boolean() && found->get<bool>();
  }

  NodeId schema(const Json& json, const std::string& at) {
    const auto style = json.find("style");
    if (style != json.end() && *style != "json") return refuse(at + "/style", "a style of XML");
    const auto found = json.find("json_schema");
    if (found == json.end() || found->is_null())
      return fail_at(at + "/json_schema", "it is missing");
    return take(add_json_schema(grammar_, dump_json(*found), options_), at + "/json_schema",
                [](const SchemaRoot& root) { return root.node; });
  }
  NodeId pattern(const Json& json, const std::string& at) {
    const std::optional<std::string> text = string(json, "pattern", at);
    if (!text) return grammar_.none();
    return take(regex_node(grammar_, *text), at + "/pattern", [](NodeId node) { return node; });
  }
  NodeId grammar_text(const Json& json, const std::string& at) {
    const std::optional<std::string> text = string(json, "grammar", at);
    if (!text) return grammar_.none();
    return take(parse_grammar(grammar_, *text), at + "/grammar", [](NodeId node) { return node; });
  }

  NodeId free_text(const std::vector<std::string>& excluded) {
    Languages& languages = grammar_.languages();
    if (excluded.empty()) return grammar_.text(languages.any_text());
    const LanguageId any = languages.any_text();
    return grammar_.text(
        languages.complement(languages.concat({any, languages.literals(excluded), any})));
  }
  NodeId any_text(const Json& json, const std::string& at, std::vector<std::string> ends) {
    if (json.contains("excludes"))
      for (std::string& text : marks(json, "excludes", at)) ends.push_back(std::move(text));
    for (const char* key : {"max_tokens", "max_chars"})
      if (json.contains(key) && !json[key].is_null()) return refuse(at + "/" + key, "a bound");
    std::erase(ends, "");
    return free_text(ends);
  }

  NodeId list(const Json& json, const std::string& at, const std::vector<std::string>& ends,
              bool is_choice) {
    const auto elements = json.find("elements");
    if (elements == json.end() || !elements->is_array() || elements->empty())
      return fail_at(at + "/elements", "it must be an array of formats");
    std::vector<NodeId> nodes;
    for (std::size_t i = 0; i < elements->size(); ++i)
      nodes.push_back(format((*elements)[i], fmt::format("{}/elements/{}", at, i), ends));
    return is_choice ? grammar_.any_of(nodes) : grammar_.sequence(nodes);
  }
  NodeId repeat(const Json& json, const std::string& at, const std::vector<std::string>& ends,
                const std::string& type) {
    const auto content = json.find("content");
    if (content == json.end()) return fail_at(at + "/content", "it is missing");
    const NodeId node = format(*content, at + "/content", ends);
    if (type == "optional") return grammar_.optional(node);
    if (type != "repeat") return grammar_.repeat(node, type == "plus" ? 1 : 0, kUnbounded);
    const auto bound = [&](const char* key, std::uint64_t missing) -> std::uint64_t {
      const auto found = json.find(key);
      if (found == json.end() || found->is_null() || *found == -1) return missing;
      if (!found->is_number_unsigned()) fail_at(at + "/" + key, "it must be an integer");
      return found->is_number_unsigned() ? found->get<std::uint64_t>() : missing;
    };
    return grammar_.repeat(node, bound("min", 0), bound("max", kUnbounded));
  }

  NodeId tag(const Json& json, const std::string& at) {
    if (!json.is_object()) return fail_at(at, "a tag must be an object");
    const NodeId begin = text_of(json, "begin", at);
    const std::vector<std::string> ends = strings(json, "end", at, true);
    const auto content = json.find("content");
    if (content == json.end()) return fail_at(at + "/content", "it is missing");
    const NodeId inside = captured(json, at, format(*content, at + "/content", ends));
    std::vector<NodeId> closing;
    for (const std::string& end : ends) closing.push_back(marked_text(grammar_, end, vocabulary_));
    return grammar_.sequence({begin, inside, grammar_.any_of(closing)});
  }

  std::vector<NodeId> tags(const Json& json, const std::string& at) {
    std::vector<NodeId> nodes;
    const auto found = json.find("tags");
    if (found == json.end() || !found->is_array() || found->empty()) {
      fail_at(at + "/tags", "it must be an array of tags");
      return nodes;
    }
    for (std::size_t i = 0; i < found->size(); ++i)
      nodes.push_back(tag((*found)[i], fmt::format("{}/tags/{}", at, i)));
    return nodes;
  }

  NodeId triggered(const Json& json, const std::string& at, std::vector<std::string> excluded) {
    const std::vector<std::string> triggers = marks(json, "triggers", at);
    const NodeId one = grammar_.any_of(tags(json, at));
    if (fault_) return grammar_.none();
    for (std::size_t i = 0; i < json["tags"].size(); ++i) {
      const auto begin = json["tags"][i].value("begin", std::string());
      if (std::ranges::none_of(triggers,
                               [&](const std::string& t) { return begin.starts_with(t); }))
        return fail_at(fmt::format("{}/tags/{}/begin", at, i), "it begins with no trigger");
    }
    if (json.contains("excludes"))
      for (std::string& text : marks(json, "excludes", at)) excluded.push_back(std::move(text));
    excluded.insert(excluded.end(), triggers.begin(), triggers.end());
    std::erase(excluded, "");
    const NodeId free = free_text(excluded);
    const bool is_single = flag(json, "stop_after_first", at);
    const bool is_needed = flag(json, "at_least_one", at);
    const NodeId part = is_needed ? one : grammar_.sequence({free, one});
    if (is_single) return is_needed ? one : grammar_.sequence({free, grammar_.optional(one)});
    const NodeId more = grammar_.repeat(grammar_.sequence({free, one}), 0, kUnbounded);
    return is_needed ? grammar_.sequence({part, more, free}) : grammar_.sequence({more, free});
  }

  NodeId separated(const Json& json, const std::string& at) {
    const NodeId one = grammar_.any_of(tags(json, at));
    const NodeId separator = text_of(json, "separator", at);
    return grammar_.separated(one, separator, flag(json, "at_least_one", at) ? 1 : 0,
                              flag(json, "stop_after_first", at) ? 1 : kUnbounded);
  }

  Grammar& grammar_;
  const Vocabulary& vocabulary_;
  const SchemaOptions& options_;
  std::optional<Fault> fault_;
};

}  // namespace

NodeId marked_text(Grammar& grammar, std::string_view text, const Vocabulary& vocabulary) {
  const NodeId plain = grammar.bytes(text);
  std::vector<NodeId> parts;
  std::size_t from = 0;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t length = vocabulary.special_at(text.substr(at));
    if (length == 0) {
      ++at;
      continue;
    }
    parts.push_back(grammar.bytes(text.substr(from, at - from)));
    parts.push_back(grammar.bytes(special(text.substr(at, length))));
    at = from = at + length;
  }
  if (parts.empty()) return plain;
  parts.push_back(grammar.bytes(text.substr(from)));
  return grammar.any_of({plain, grammar.sequence(parts)});
}

Result<NodeId> add_structural_tag(Grammar& grammar, std::string_view tag,
                                  const Vocabulary& vocabulary, const SchemaOptions& options) {
  const Result<Json> json = parse_json(tag, {.exact_numbers = true});
  if (!json)
    return Fault{400, "invalid_structural_tag", "",
                 "The structural tag is no JSON: " + json.fault().message};
  return Reader(grammar, vocabulary, options).run(json.value());
}

}  // namespace sluice::grammar
