#include "server/api/answer_parts.h"

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
  const bool was_reasoning = output_.in_reasoning();
  ChatDelta delta;
  output_.push(update.text, delta);
  if (update.finish != FinishReason::kNone)
    output_.finish(delta, update.finish != FinishReason::kStop);
  if (was_reasoning && output_.in_reasoning())
    reasoning_tokens_ += static_cast<int>(update.tokens.size());
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

Json arguments_object(const std::string& text) {
  if (text.empty()) return Json::object();
  Result<Json> json = parse_json(text, kArgumentsJson);
  if (json && json->is_object()) return *std::move(json);
  return Json{{"INVALID_JSON", text}};
}

}  // namespace sluice
