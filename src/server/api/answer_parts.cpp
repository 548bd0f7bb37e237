#include "server/api/answer_parts.h"

#include <charconv>

namespace sluice {

void AnswerReader::append(AnswerPart::Kind kind, int call, std::string&& text) {
  const bool is_same = has_part_ && last_kind_ == kind && last_call_ == call;
  if (is_same && !parts_.empty()) {
    parts_.back().text += text;
    return;
  }
  AnswerPart part;
  part.kind = kind;
  part.is_new = !is_same;
  part.text = std::move(text);
  parts_.push_back(std::move(part));
  has_part_ = true;
  last_kind_ = kind;
  last_call_ = call;
}

void AnswerReader::add(const ChoiceUpdate& update) {
  ChatDelta delta;
  output_.push(update.text, delta, update.token_starts);
  if (update.finish != FinishReason::kNone)
    output_.finish(delta, update.is_cut, update.unsent_stop);
  if (!delta.reasoning.empty()) append(AnswerPart::kThought, -1, std::move(delta.reasoning));
  if (!delta.content.empty()) append(AnswerPart::kText, -1, std::move(delta.content));
  for (ToolDelta& tool : delta.tools) {
    if (one_call_ && tool.index > 0) continue;
    append(AnswerPart::kCall, tool.index, std::move(tool.arguments));
    if (!tool.id.empty()) parts_.back().call_id = std::move(tool.id);
    if (!tool.name.empty()) parts_.back().name = std::move(tool.name);
  }
  finish_ = update.finish;
  matched_stop_ = update.matched_stop;
}

std::vector<AnswerPart> AnswerReader::take() {
  return std::exchange(parts_, {});
}

namespace {

// The code of `\uXXXX` at `at`; -1: there is none.
int escape_at(const std::string& text, std::size_t at) {
  if (text.compare(at, 2, "\\u") != 0 || text.size() - at < 6) return -1;
  int code = 0;
  const char* const digits = text.data() + at + 2;
  const auto [end, fault] = std::from_chars(digits, digits + 4, code, 16);
  return end == digits + 4 ? code : -1;
}

// JSON's text with U+FFFD in place of each half of a surrogate pair that has no other half.
std::string with_whole_pairs(std::string text) {
  for (std::size_t at = text.find('\\'); at != std::string::npos; at = text.find('\\', at)) {
    const int code = escape_at(text, at);
    if (code < 0) {
      at += 2;
      if (at > text.size()) break;
      continue;
    }
    const int next = code >= 0xD800 && code < 0xDC00 ? escape_at(text, at + 6) : -1;
    const bool is_pair = next >= 0xDC00 && next < 0xE000;
    if (!is_pair && code >= 0xD800 && code < 0xE000) text.replace(at + 2, 4, "FFFD");
    at += is_pair ? 12 : 6;
  }
  return text;
}

}  // namespace

Json arguments_object(const std::string& text) {
  if (text.empty()) return Json::object();
  Result<Json> json = parse_json(text, kArgumentsJson);
  if (!json) json = parse_json(with_whole_pairs(text), kArgumentsJson);
  if (json && json->is_object()) return *std::move(json);
  return Json{{"INVALID_JSON", text}};
}

}  // namespace sluice
