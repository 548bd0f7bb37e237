#include "text/grammar/sources/grammar_parts.h"

#include <algorithm>

namespace sluice::grammar {

NodeId node_of(Grammar& grammar, const Part& part) {
  return part.is_language ? grammar.text(part.language) : part.node;
}

Part concat_of(Grammar& grammar, std::span<const Part> parts) {
  std::vector<NodeId> nodes;
  std::vector<LanguageId> run;
  const auto flush = [&] {
    if (!run.empty()) nodes.push_back(grammar.text(grammar.languages().concat(run)));
    run.clear();
  };
  const bool is_language = std::ranges::all_of(parts, &Part::is_language);
  for (const Part& part : parts) {
    if (part.is_language) {
      run.push_back(part.language);
      continue;
    }
    flush();
    nodes.push_back(part.node);
  }
  if (is_language) return {true, grammar.languages().concat(run), {}};
  flush();
  return {false, {}, grammar.sequence(nodes)};
}

Part any_of(Grammar& grammar, std::span<const Part> parts) {
  if (parts.size() == 1) return parts[0];
  std::vector<LanguageId> ids;
  std::vector<NodeId> nodes;
  for (const Part& part : parts)
    if (part.is_language) ids.push_back(part.language);
  if (!ids.empty()) {
    const LanguageId any = grammar.languages().alternate(ids);
    if (ids.size() == parts.size()) return {true, any, {}};
    nodes.push_back(grammar.text(any));
  }
  for (const Part& part : parts)
    if (!part.is_language) nodes.push_back(part.node);
  return {false, {}, grammar.any_of(nodes)};
}

Part repeat_of(Grammar& grammar, const Part& part, std::uint64_t min, std::uint64_t max) {
  if (part.is_language) return {true, grammar.languages().repeat(part.language, min, max), {}};
  return {false, {}, grammar.repeat(part.node, min, max)};
}

Result<std::string> read_capture(std::string_view attributes, std::string_view rule,
                                 std::string_view place) {
  const auto trim = [](std::string_view text) {
    while (!text.empty() && (text.front() == ' ' || text.front() == '\t')) text.remove_prefix(1);
    while (!text.empty() && (text.back() == ' ' || text.back() == '\t')) text.remove_suffix(1);
    return text;
  };
  attributes = trim(attributes);
  const std::string_view key = trim(attributes.substr(0, attributes.find('=')));
  if (key != "capture")
    return Fault{400, "unsupported_grammar", "",
                 fmt::format("The grammar has the attribute '{}' at {}, which is not supported; "
                             "`capture` is.",
                             key.substr(0, 32), place)};
  if (key.size() == attributes.size()) return std::string(rule);
  std::string_view value = trim(trim(attributes.substr(key.size())).substr(1));
  const bool is_text = value.size() > 2 && value.front() == '"' && value.back() == '"' &&
                       value.find_first_of("\"\\", 1) == value.size() - 1;
  if (!is_text)
    return Fault{400, "invalid_grammar", "",
                 fmt::format("The grammar is wrong at {}: a capture's name stands in quotes, "
                             "without others inside.",
                             place)};
  return std::string(value.substr(1, value.size() - 2));
}

std::string place_in(std::string_view text, std::size_t position) {
  std::size_t line = 1, column = 1;
  for (std::size_t i = 0; i < position && i < text.size(); ++i) {
    column = text[i] == '\n' ? 1 : column + 1;
    line += text[i] == '\n' ? 1 : 0;
  }
  return fmt::format("line {}, column {}", line, column);
}

}  // namespace sluice::grammar
