#include "cli/verify/parser_cases.h"

#include <algorithm>
#include <filesystem>

#include "base/gunzip.h"
#include "cli/files.h"
#include "text/parsers/chat_output.h"

namespace sluice {
namespace {

// Every text in which a macro's key becomes `times` of its unit. Values are walked with a stack.
void expand(Json& value, std::string_view key, const std::string& by) {
  std::vector<Json*> left = {&value};
  while (!left.empty()) {
    Json& next = *left.back();
    left.pop_back();
    if (next.is_structured()) {
      for (Json& inner : next) left.push_back(&inner);
      continue;
    }
    if (!next.is_string()) continue;
    auto& text = next.get_ref<std::string&>();
    for (std::size_t at = 0; (at = text.find(key, at)) != std::string::npos; at += by.size())
      text.replace(at, key.size(), by);
  }
}

Json standard_tools(const std::string& path) {
  const std::filesystem::path folder = std::filesystem::absolute(path).parent_path();
  for (const std::filesystem::path& place : {folder, folder.parent_path()})
    if (std::filesystem::exists(place / "tools.json")) {
      const std::string file = (place / "tools.json").string();
      return parse_json_or_throw(read_text_file(file), file);
    }
  fail(
      ErrorKind::kBadInput,
      "{}: a case takes the standard tools, but there is no tools.json beside the file or above it",
      path);
}

ParserCase read_case(Json row, const std::string& path) {
  const Json macros = row.value("macros", Json::array());
  for (const Json& macro : macros) {
    std::string by;
    for (int i = macro.value("times", 0); i > 0; --i) by += macro.value("unit", "");
    expand(row, macro.value("key", ""), by);
  }
  ParserCase out;
  out.id = row.value("id", "");
  out.kind = row.value("kind", "");
  out.tool_parser = row.value("tool_parser", "");
  out.reasoning_parser = row.value("reasoning_parser", "");
  out.prompt = row.value("prompt", "");
  out.text = row.value("text", "");
  out.doubt = row.value("doubt", "");
  out.is_cut = row.value("finish", "stop") == "length";
  const Json kwargs = row.value("kwargs", Json::object());
  for (const char* name : {"enable_thinking", "thinking"})
    out.is_thinking_off = out.is_thinking_off || kwargs.value(name, Json()) == false;
  const Json tools = row.value("tools", Json());
  if (tools == "std") out.tools = standard_tools(path);
  if (tools.is_array() && !tools.empty()) out.tools = tools;
  out.expect = row.value("expect", Json::object());
  out.accept = row.value("accept", Json::array());
  for (const Json& chunk : row.value("chunks", Json::array()))
    out.chunks.push_back(chunk.get<std::string>());
  out.cuts = row.value("cuts", Json());
  return out;
}

// Equal values: numbers by value, members in any order.
bool same(const Json& a, const Json& b) {
  std::vector<std::pair<const Json*, const Json*>> left = {{&a, &b}};
  while (!left.empty()) {
    const auto [x, y] = left.back();
    left.pop_back();
    if (x->is_number() && y->is_number()) {
      if (*x != *y) return false;
    } else if (x->type() != y->type()) {
      return false;
    } else if (x->is_structured()) {
      if (x->size() != y->size()) return false;
      for (const auto& [key, inner] : x->items()) {
        const auto found =
            x->is_object() ? y->find(key) : y->begin() + static_cast<long>(std::stoul(key));
        if (found == y->end()) return false;
        left.emplace_back(&inner, &*found);
      }
    } else if (*x != *y) {
      return false;
    }
  }
  return true;
}

std::string text_of(const Json& value) {
  return value.is_string() ? value.get<std::string>() : std::string();
}

std::string shown(std::string_view text) {
  constexpr std::size_t kMaxShown = 160;
  return dump_json(Json(std::string(text.substr(0, kMaxShown))));
}

// Pieces of content in order; white space between them does not count.
bool pieces_fit(const Json& pieces, std::string_view got) {
  got = trimmed(got);
  for (std::size_t i = 0; i < pieces.size(); ++i) {
    const std::string wanted = text_of(pieces[i]);
    const std::string_view part = trimmed(wanted);
    while (i > 0 && !got.empty() && is_blank(got[0]) && !got.starts_with(part))
      got.remove_prefix(1);
    if (!got.starts_with(part)) return false;
    got.remove_prefix(part.size());
  }
  return got.empty();
}

bool content_fits(const Json& want, const std::string& got, bool is_loose) {
  if (want == "*") return true;
  if (want.is_array()) return pieces_fit(want, got);
  const std::string text = text_of(want);
  return is_loose ? trimmed(got) == trimmed(text) : got == text;
}

// The problem of a call; empty: none.
std::string call_problem(const Json& want, const ParsedCall& got) {
  if (got.name != want.value("name", "")) return "name " + shown(got.name);
  const auto value = parse_json(got.arguments, kArgumentsJson);
  if (want.value("any", false)) return {};
  if (want.contains("invalid")) {
    const std::string wanted = text_of(want["invalid"]);
    const std::string_view raw = trimmed(wanted), text = trimmed(got.arguments);
    const bool is_passed = raw.find(text) != std::string_view::npos ||
                           (text.starts_with(raw) &&
                            text.find_first_not_of("}] \n", raw.size()) == std::string_view::npos);
    if ((value.ok() && value->is_object() && !value->empty()) || (!text.empty() && is_passed))
      return {};
    return "broken arguments came as " + shown(text);
  }
  const Json wanted = want.value("arguments", Json());
  if (value.ok() && same(wanted, *value)) return {};
  if (want.value("partial", false)) {
    const auto closed = parse_json(got.arguments + "}", kArgumentsJson);
    if (closed.ok() && same(wanted, *closed)) return {};
  }
  return "arguments " + shown(got.arguments);
}

std::vector<std::string> against(const Json& want, const ParserResult& got, bool is_loose) {
  std::vector<std::string> problems;
  const Json& calls = want["tool_calls"];
  const Json reasoning = want.value("reasoning", Json());
  is_loose = is_loose || !calls.empty() || !reasoning.is_null();
  if (trimmed(got.reasoning) != trimmed(text_of(reasoning)))
    problems.push_back("reasoning " + shown(got.reasoning));
  if (!content_fits(want.value("content", Json()), got.content, is_loose))
    problems.push_back("content " + shown(got.content));
  if (calls.size() != got.calls.size()) {
    problems.push_back(fmt::format("{} calls, not {}", got.calls.size(), calls.size()));
  } else {
    for (std::size_t i = 0; i < calls.size(); ++i) {
      const std::string problem = call_problem(calls[i], got.calls[i]);
      if (!problem.empty()) problems.push_back(problem);
      // An id that the model gave must come back.
      if (calls[i].contains("id") && got.calls[i].id != calls[i]["id"])
        problems.push_back("id " + shown(got.calls[i].id));
    }
  }
  if (got.finish_reason != want.value("finish_reason", ""))
    problems.push_back("finish_reason " + got.finish_reason);
  return problems;
}

std::string squeezed(std::string_view text) {
  std::string out;
  for (const char c : text)
    if (!is_blank(c)) out += c;
  return out;
}

std::string joined(const Json& content) {
  if (!content.is_array()) return text_of(content);
  std::string all;
  for (const Json& piece : content) all += text_of(piece);
  return all;
}

void take(const ChatDelta& delta, ParserResult& result) {
  result.reasoning += delta.reasoning;
  result.content += delta.content;
  for (const ToolDelta& piece : delta.tools) {
    const auto index = static_cast<std::size_t>(piece.index);
    if (!piece.name.empty()) {
      if (index != result.calls.size()) result.fault = "a call's index does not follow";
      result.calls.push_back({piece.id, piece.name, ""});
    }
    if (index + 1 != result.calls.size()) {
      result.fault = "arguments of another call than the last one";
      continue;
    }
    result.calls.back().arguments += piece.arguments;
  }
}

}  // namespace

bool ParserResult::operator==(const ParserResult& other) const {
  const auto equal = [](const ParsedCall& a, const ParsedCall& b) {
    return a.name == b.name && a.arguments == b.arguments;
  };
  return reasoning == other.reasoning && content == other.content &&
         finish_reason == other.finish_reason && fault == other.fault &&
         std::ranges::equal(calls, other.calls, equal);
}

std::vector<ParserCase> read_parser_cases(const std::string& path) {
  std::string text = read_text_file(path);
  if (is_gzip(text)) text = gunzip(text, path);
  std::vector<ParserCase> cases;
  int number = 0;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find('\n', at), text.size());
    ++number;
    const std::string_view line = std::string_view(text).substr(at, end - at);
    if (!trimmed(line).empty()) {
      const std::string place = fmt::format("{}, line {}", path, number);
      Json row = parse_json_or_throw(line, place, kArgumentsJson);
      require(row.is_object() && row.contains("id") && row.contains("text") &&
                  row.value("expect", Json()).contains("tool_calls"),
              "{}: a case has id, text, and expect with tool_calls", place);
      cases.push_back(read_case(std::move(row), path));
    }
    at = end + 1;
  }
  return cases;
}

ParserResult run_parsers(const ParserCase& one, const std::vector<std::string_view>& pieces,
                         bool is_cut) {
  ChatOutputSettings settings;
  settings.tools = one.tools;
  if (!one.tools.is_null()) settings.tool_parser = one.tool_parser;
  settings.reasoning_parser = one.reasoning_parser;
  settings.prompt = one.prompt;
  settings.thinking_off = one.is_thinking_off;
  ChatOutput output(settings);
  ParserResult result;
  for (const std::string_view piece : pieces) {
    ChatDelta delta;
    output.push(piece, delta);
    take(delta, result);
  }
  ChatDelta last;
  output.finish(last, is_cut);
  take(last, result);
  result.finish_reason = is_cut ? "length" : output.num_calls() > 0 ? "tool_calls" : "stop";
  return result;
}

std::vector<std::string> check_result(const ParserCase& one, const ParserResult& got) {
  const bool is_loose = !one.reasoning_parser.empty();
  std::vector<std::string> problems = against(one.expect, got, is_loose);
  if (!problems.empty() && std::ranges::any_of(one.accept, [&](const Json& other) {
        return against(other, got, is_loose).empty();
      }))
    problems.clear();
  if (!got.fault.empty()) problems.push_back(got.fault);
  return problems;
}

std::vector<std::string> check_cut(const ParserCase& one, std::size_t size, const ParserResult& got,
                                   const ParserResult& full) {
  const auto found = std::ranges::find_if(one.cuts, [&](const Json& run) {
    return run.value("from", std::size_t{0}) <= size && size <= run.value("to", std::size_t{0});
  });
  if (found == one.cuts.end()) return {};
  const Json& run = *found;
  std::vector<std::string> problems;
  if (!got.fault.empty()) problems.push_back(got.fault);
  const std::string tail = run.value("tail", ""), thought = text_of(run.value("reasoning", Json()));
  const std::string reasoning = squeezed(got.reasoning);
  if (reasoning != squeezed(thought) && reasoning != squeezed(thought + tail))
    problems.push_back("reasoning " + shown(got.reasoning));
  const std::string content = joined(run.value("content", Json()));
  std::vector<std::string> fits = {content, content + run.value("mark", ""), content + tail};
  const std::string open = run.value("open", "none");
  const auto complete = run.value("complete", std::size_t{0});
  if (one.doubt.starts_with("bare") && (open == "head" || open == "maybe") && complete == 0)
    fits.push_back(one.text.substr(0, size));
  if (std::ranges::none_of(
          fits, [&](const std::string& text) { return squeezed(text) == squeezed(got.content); }))
    problems.push_back("content " + shown(got.content));
  const std::size_t least = complete + (open == "open" || open == "full" ? 1 : 0),
                    most = least + (open == "maybe" ? 1 : 0);
  if (got.calls.size() < least || got.calls.size() > most) {
    problems.push_back(fmt::format("{} calls, not {}", got.calls.size(), least));
    return problems;
  }
  const Json& want = one.expect["tool_calls"];
  for (std::size_t i = 0; i < got.calls.size(); ++i) {
    const ParsedCall& call = got.calls[i];
    if (i < complete) {
      const std::string problem = call_problem(want[i], call);
      if (!problem.empty()) problems.push_back(problem);
    } else {
      if (call.name != want[i].value("name", "")) problems.push_back("name " + shown(call.name));
      if (i < full.calls.size() && !full.calls[i].arguments.starts_with(call.arguments))
        problems.push_back(shown(call.arguments) + " is no beginning of the arguments");
    }
  }
  return problems;
}

std::pair<int, int> count_own_text(const ParserCase& one, const ParserResult& got) {
  std::pair<int, int> counts;
  const Json& want = one.expect["tool_calls"];
  for (std::size_t i = 0; i < want.size() && i < got.calls.size(); ++i) {
    if (!want[i].contains("text")) continue;
    ++counts.first;
    counts.second += want[i]["text"] == got.calls[i].arguments ? 1 : 0;
  }
  return counts;
}

}  // namespace sluice
