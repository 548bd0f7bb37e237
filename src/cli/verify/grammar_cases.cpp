#include "cli/verify/grammar_cases.h"

#include "base/gunzip.h"
#include "base/json.h"
#include "cli/files.h"
#include "text/unicode.h"

namespace sluice {
namespace {

using grammar::GrammarSource;

// The end of the JSON string that begins at `at`.
std::size_t string_end(std::string_view text, std::size_t at) {
  for (++at; at < text.size() && text[at] != '"'; ++at)
    if (text[at] == '\\') ++at;
  return std::min(at + 1, text.size());
}

// The value of a key of the outermost object, as it is written. `line` is valid JSON.
std::string_view raw_member(std::string_view line, std::string_view key) {
  int depth = 0;
  std::size_t begin = 0;  // of the value that is looked for
  bool is_wanted = false;
  for (std::size_t at = 0; at < line.size();) {
    const char c = line[at];
    if (c == '"') {
      const std::size_t end = string_end(line, at);
      const std::size_t colon = line.find_first_not_of(" \t", end);
      const bool is_key = depth == 1 && colon != std::string_view::npos && line[colon] == ':';
      if (is_key && line.substr(at + 1, end - at - 2) == key) {
        is_wanted = true;
        begin = colon + 1;
      }
      at = is_key ? colon + 1 : end;
      continue;
    }
    if (c == '{' || c == '[') ++depth;
    const bool closes = c == '}' || c == ']';
    if (is_wanted && ((c == ',' && depth == 1) || (closes && depth == 1)))
      return line.substr(begin, at - begin);
    if (closes) --depth;
    ++at;
  }
  return {};
}

std::vector<std::string> texts_of(const Json& json, std::string_view key) {
  std::vector<std::string> texts;
  const auto found = json.find(key);
  if (found == json.end()) return texts;
  for (const Json& text : *found) texts.push_back(text.get<std::string>());
  return texts;
}

grammar::CallSource calls_of(const Json& tools, const std::string& format) {
  grammar::CallSource calls{.format = format, .tools = {}, .is_required = true};
  for (const Json& tool : tools) {
    const auto found = tool.find("function");
    const Json& function = found == tool.end() ? tool : *found;
    calls.tools.push_back({.name = function.at("name").get<std::string>(),
                           .schema = dump_json(function.at("parameters")),
                           .is_strict = function.value("strict", false)});
  }
  return calls;
}

}  // namespace

std::vector<GrammarCase> read_grammar_cases(const std::string& path) {
  std::string bytes = read_text_file(path);
  if (is_gzip(bytes)) bytes = gunzip(bytes, path);
  std::vector<GrammarCase> cases;
  std::size_t number = 0;
  for (std::string_view rest = bytes; !rest.empty();) {
    const std::string_view line = rest.substr(0, rest.find('\n'));
    rest.remove_prefix(std::min(rest.size(), line.size() + 1));
    ++number;
    if (line.empty()) continue;
    const Json json = parse_json_or_throw(line, fmt::format("{}: line {}", path, number),
                                          {.max_depth = 100'000, .exact_numbers = true});
    GrammarCase one;
    const auto text = [&](std::string_view key) {
      const auto found = json.find(key);
      return found != json.end() && found->is_string() ? found->get<std::string>() : std::string();
    };
    const std::string kind = text("kind");
    if (json.contains("schema"))
      one.source = {.kind = GrammarSource::kJsonSchema,
                    .text = std::string(raw_member(line, "schema"))};
    else if (json.contains("schema_text"))
      one.source = {.kind = GrammarSource::kJsonSchema, .text = text("schema_text")};
    else if (json.contains("regex"))
      one.source = {.kind = GrammarSource::kRegex, .text = text("regex")};
    else if (json.contains("ebnf"))
      one.source = {.kind = GrammarSource::kEbnf, .text = text("ebnf")};
    else if (json.contains("tools"))
      one.source.calls = calls_of(json.at("tools"), text("format"));
    else if (json.contains("make") || kind == "body")
      continue;
    require(one.source.kind != GrammarSource::kNone || !one.source.calls.tools.empty(),
            "{}: line {} has no schema, schema_text, regex, ebnf or tools", path, number);
    one.source.max_white_space = 64;
    one.id = text("id");
    one.group = text("group");
    one.expect = text("expect");
    one.valid = texts_of(json, "valid");
    one.invalid = texts_of(json, "invalid");
    if (json.contains("captures"))
      for (const Json& of_text : json.at("captures")) one.captures.push_back(dump_json(of_text));
    require(one.captures.empty() || one.captures.size() == one.valid.size(),
            "{}: line {} has captures of {} texts, but {} valid texts", path, number,
            one.captures.size(), one.valid.size());
    one.reordered = texts_of(json, "reordered");
    one.open = texts_of(json, "open");
    cases.push_back(std::move(one));
  }
  require(!cases.empty(), "{}: there is no case in it", path);
  return cases;
}

std::string compact_json(std::string_view text) {
  std::string out;
  for (std::size_t at = 0; at < text.size();) {
    if (text[at] == '"') {
      const std::size_t end = string_end(text, at);
      out += text.substr(at, end - at);
      at = end;
      continue;
    }
    if (std::string_view(" \t\r\n").find(text[at]) == std::string_view::npos) out += text[at];
    ++at;
  }
  return out;
}

std::string pretty_json(std::string_view text) {
  const std::string compact = compact_json(text);
  std::string out;
  std::size_t depth = 0;
  const auto new_line = [&] { out += "\n" + std::string(2 * depth, ' '); };
  for (std::size_t at = 0; at < compact.size(); ++at) {
    const char c = compact[at];
    if (c == '"') {
      const std::size_t end = string_end(compact, at);
      out += compact.substr(at, end - at);
      at = end - 1;
      continue;
    }
    const bool is_open = c == '{' || c == '[', is_close = c == '}' || c == ']';
    const bool is_empty =
        is_open && at + 1 < compact.size() && (compact[at + 1] == '}' || compact[at + 1] == ']');
    if (is_close) {
      --depth;
      new_line();
    }
    out += c;
    if (is_empty) {
      out += compact[++at];
    } else if (is_open || c == ',') {
      depth += is_open ? 1 : 0;
      new_line();
    } else if (c == ':') {
      out += ' ';
    }
  }
  return out;
}

std::string escaped_json(std::string_view text) {
  std::string out;
  for (std::size_t at = 0; at < text.size();) {
    if (text[at] != '"') {
      out += text[at++];
      continue;
    }
    const std::size_t end = string_end(text, at);
    out += '"';
    bool is_first = true;
    for (std::string_view body = text.substr(at + 1, end - at - 2); !body.empty();) {
      const Utf8Step next = next_utf8(body);
      const auto size = static_cast<std::size_t>(next.size);
      const bool is_plain = next.kind != Utf8Step::kCharacter || next.code == '\\';
      if (is_plain || (next.code < 0x80 && !is_first)) {
        out += body.substr(0, size);
        if (next.code == '\\' && body.size() > 1) {
          out += body[1];
          body.remove_prefix(1);
        }
      } else if (next.code >= 0x10000) {
        out += fmt::format("\\u{:04x}\\u{:04X}", 0xD800 + ((next.code - 0x10000) >> 10),
                           0xDC00 + ((next.code - 0x10000) & 0x3FF));
      } else {
        out += fmt::format("\\u{:04x}", static_cast<std::uint32_t>(next.code));
      }
      is_first = false;
      body.remove_prefix(size);
    }
    out += '"';
    at = end;
  }
  return out;
}

}  // namespace sluice
