// Runs outputs of models through the parsers of chat answers, whole and in pieces.
//
//   parser_runs [--outputs N] [--seed S]   N scripted outputs for every tool parser together
//
// Rules for every output:
//   1. any cut into pieces gives the same answer, and the pieces of calls come in order;
//   2. the arguments of a call are a JSON object, unless the engine cut the text inside it, or a
//      fault stands behind 512 bytes of the call: then the answer says that it is not whole;
//   3. without calls, no byte that is not white space or a reasoning mark is lost or doubled;
//   4. no part of a mark is content, where the text has whole marks only;
//   5. an output without a fault gives the calls, text and reasoning it was made from, and every
//      digit of their numbers.
// Exit status 1 and the outputs in question if a rule is broken.
#include <iostream>
#include <map>

#include "scripted_outputs.h"
#include "text/parsers/chat_output.h"
#include "text/parsers/lenient_json.h"

namespace sluice {
namespace {

struct Call {
  std::string name, arguments;
  bool operator==(const Call&) const = default;
};

struct Answer {
  std::string reasoning, content;
  std::vector<Call> calls;
  bool is_whole = false;
  bool in_order = true;
  bool operator==(const Answer&) const = default;
};

void take(const ChatDelta& delta, Answer& answer) {
  answer.reasoning += delta.reasoning;
  answer.content += delta.content;
  for (const ToolDelta& piece : delta.tools) {
    const auto index = static_cast<std::size_t>(piece.index);
    if (!piece.name.empty()) {
      answer.in_order = answer.in_order && index == answer.calls.size() && !piece.id.empty();
      answer.calls.push_back({piece.name, ""});
    }
    answer.in_order = answer.in_order && index + 1 == answer.calls.size();
    if (!answer.calls.empty()) answer.calls.back().arguments += piece.arguments;
  }
}

Answer run(const ChatOutputSettings& settings, const std::vector<std::string_view>& pieces,
           bool is_cut) {
  ChatOutput output(settings);
  Answer answer;
  for (const std::string_view piece : pieces) {
    ChatDelta delta;
    output.push(piece, delta);
    take(delta, answer);
  }
  ChatDelta last;
  output.finish(last, is_cut);
  take(last, answer);
  answer.is_whole = !output.incomplete();
  return answer;
}

std::vector<std::string_view> pieces_of(std::string_view text, std::size_t longest,
                                        std::mt19937& random) {
  std::vector<std::string_view> pieces;
  while (!text.empty()) {
    const std::size_t size = std::min<std::size_t>(text.size(), 1 + random() % longest);
    pieces.push_back(text.substr(0, size));
    text.remove_prefix(size);
  }
  return pieces;
}

std::string without(std::string text, const std::vector<std::string>& marks) {
  for (const std::string& mark : marks)
    for (std::size_t at; (at = text.find(mark)) != std::string::npos;) text.erase(at, mark.size());
  std::erase_if(text, [](char c) { return c == ' ' || c == '\n' || c == '\r' || c == '\t'; });
  return text;
}

// Literals of other languages are passed on as values, JSON with its digits and escapes.
bool same_arguments(const ScriptedOutput& output, const std::string& a, const std::string& b) {
  if (without(a, {}) == without(b, {})) return true;
  const CallSyntax syntax = find_tool_format(output.tool_parser).syntax;
  if (syntax == CallSyntax::kObject || syntax == CallSyntax::kNamed) return false;
  const auto x = parse_json(a, kArgumentsJson), y = parse_json(b, kArgumentsJson);
  return x.ok() && y.ok() && dump_json(*x) == dump_json(*y);
}

bool is_object(const std::string& text) {
  const auto value = read_json_text(text);
  return value && value->is_strict && value->kind == JsonKind::kObject;
}

std::size_t count(std::string_view text, std::string_view part) {
  std::size_t found = 0;
  for (std::size_t at = 0; (at = text.find(part, at)) != std::string_view::npos; ++at) ++found;
  return found;
}

// The rule that an answer breaks; empty: none.
std::string broken_rule(const ScriptedOutput& output, const Answer& answer) {
  std::vector<std::string> thoughts;
  if (!output.reasoning_parser.empty()) thoughts = reasoning_parser_marks(output.reasoning_parser);
  if (!answer.in_order) return "the pieces of calls come in order";
  for (std::size_t i = 0; i < answer.calls.size(); ++i) {
    const bool is_last = i + 1 == answer.calls.size();
    const bool is_long = output.text.size() > 512;
    if (is_object(answer.calls[i].arguments) || (is_last && !answer.is_whole && output.is_cut) ||
        (is_long && (!is_last || !answer.is_whole)))
      continue;
    return "arguments are a JSON object";
  }
  if (answer.calls.empty() && !output.is_cut &&
      without(output.text, thoughts) != without(answer.reasoning + answer.content, thoughts))
    return "no byte is lost";
  const std::vector<std::string> marks = tool_parser_marks(output.tool_parser);
  for (const std::string& mark : marks) {
    const std::string part = mark.substr(0, mark.size() - 1);
    if (count(output.text, part) == count(output.text, mark) &&
        count(answer.content, part) != count(answer.content, mark))
      return "no part of a mark is content";
  }
  if (output.is_marred) return {};
  if (without(answer.reasoning, {}) != without(output.reasoning, {})) return "the reasoning";
  if (without(answer.content, {}) != without(output.content, {})) return "the content";
  if (answer.calls.size() != output.calls.size()) return "the number of calls";
  for (std::size_t i = 0; i < answer.calls.size(); ++i) {
    if (answer.calls[i].name != output.calls[i].name) return "the name of a call";
    if (!same_arguments(output, answer.calls[i].arguments, output.calls[i].arguments))
      return "the arguments of a call, with every digit";
  }
  return {};
}

int run_scripted(int outputs, unsigned seed) {
  std::mt19937 random(seed);
  std::vector<std::string> parsers;
  for (const ToolFormat& format : tool_formats())
    if (format.syntax != CallSyntax::kChannels) parsers.emplace_back(format.name);
  std::map<std::string, int> calls;
  int runs = 0, faults = 0, texts = 0;
  for (int i = 0; i < outputs; ++i) {
    const ScriptedOutput output =
        make_output(parsers[static_cast<std::size_t>(i) % parsers.size()], random);
    ChatOutputSettings settings;
    settings.tool_parser = output.tool_parser;
    settings.reasoning_parser = output.reasoning_parser;
    settings.prompt = output.prompt;
    settings.tools = scripted_tools();
    const Answer whole = run(settings, {output.text}, output.is_cut);
    std::string rule = broken_rule(output, whole);
    for (const std::size_t longest : {1, 3, 9, 40}) {
      const Answer again = run(settings, pieces_of(output.text, longest, random), output.is_cut);
      ++runs;
      if (!(again == whole)) rule = "any cut gives the same";
    }
    ++runs;
    texts += whole.calls.empty();
    calls[output.tool_parser] += static_cast<int>(whole.calls.size());
    if (rule.empty()) continue;
    ++faults;
    Json answer{
        {"reasoning", whole.reasoning}, {"content", whole.content}, {"whole", whole.is_whole}};
    for (const Call& call : whole.calls)
      answer["calls"].push_back(Json{{"name", call.name}, {"arguments", call.arguments}});
    std::cout << "broken: " << rule << "\n  " << output.tool_parser << " "
              << output.reasoning_parser << (output.is_cut ? " cut " : " ")
              << dump_json(Json(output.prompt)) << " + " << dump_json(Json(output.text)) << "\n  "
              << dump_json(answer) << "\n";
  }
  std::cout << outputs << " outputs, " << runs << " runs, " << texts << " without calls, " << faults
            << " faults; calls:";
  for (const auto& [parser, number] : calls) std::cout << " " << parser << " " << number;
  std::cout << "\n";
  return faults > 0;
}

}  // namespace
}  // namespace sluice

int main(int argc, char** argv) {
  int outputs = 2000;
  unsigned seed = 1;
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string option = argv[i];
    if (option == "--outputs") outputs = std::stoi(argv[i + 1]);
    if (option == "--seed") seed = static_cast<unsigned>(std::stoul(argv[i + 1]));
  }
  return sluice::run_scripted(outputs, seed);
}
