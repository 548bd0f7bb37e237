// Calls as JSON objects, JSON arguments behind a name, and arguments that are literals.
#include <algorithm>

#include "text/parsers/tool_parser.h"

namespace sluice {

// Behind the name of kNamed: white space, a code fence, or marks of a call without arguments.
void ToolParser::step_before_arguments(char c) {
  std::string plain;
  const int marker = scanner_.push(c, plain);
  for (std::size_t i = 0; i < plain.size(); ++i) {
    const char p = plain[i];
    if (is_blank(p)) {
      if (fence_ == Fence::kFirstLine) fence_ = Fence::kInside;
      continue;
    }
    const std::string rest = plain.substr(i + 1) + scanner_.held();
    if (p == '{' && marker < 0) {
      unread(rest);
      begin_json(true);
      step_json(p);
      return;
    }
    if (p == '`') {
      fence_ = fence_ == Fence::kNone ? Fence::kFirstLine : fence_;
      continue;
    }
    if (fence_ == Fence::kFirstLine && std::islower(static_cast<unsigned char>(p))) continue;
    const std::size_t read = plain.size() - i + scanner_.held().size() +
                             (marker < 0 ? 0 : scanner_.marker(marker).size());
    json_at_ = raw_.size() - std::min(raw_.size(), read);
    bare_arguments_ = true;
    break_call(c);
    return;
  }
  if (marker < 0) return;
  const Mark mark = marks_[static_cast<std::size_t>(marker)];
  if (mark.role != Role::kNameClose) end_call(mark.role, mark.text);
}

// The byte that follows is the JSON's first one, which raw_ holds already.
void ToolParser::begin_json(bool bare_arguments) {
  json_ = JsonCall(bare_arguments, format_);
  bare_arguments_ = bare_arguments;
  if (fence_ != Fence::kNone) fence_ = Fence::kInside;
  json_at_ = raw_.empty() ? 0 : raw_.size() - 1;
  state_ = State::kJson;
}

void ToolParser::step_json(char c) {
  const JsonCall::Status status = json_.push(c);
  if (status == JsonCall::Status::kInvalid) {
    if (told_) arguments(json_.take_arguments());
    break_call(c);
    return;
  }
  const bool is_bare = !is_marked();
  if (!bare_arguments_ && !begun_ && json_.has_name()) {
    if ((is_bare && !is_tool(json_.name())) || !begin(json_.name())) {
      give_up(false);
      return;
    }
  }
  if (begun_) arguments(json_.take_arguments());
  if (status == JsonCall::Status::kDone) {
    json_done();
  } else if (is_bare && !begun_ && !json_.has_arguments() &&
             (json_.has_odd_member() || raw_.size() > kMaxHeldCall)) {
    give_up(false);  // an object of the answer: it streams on as text
  }
}

void ToolParser::json_done() {
  // Arguments may stand in a member of another name, which is a fault.
  const bool is_call =
      begun_ && !json_.has_odd_arguments() && (json_.has_arguments() || !json_.has_odd_member());
  if (!is_call) {
    if (!is_marked()) {
      give_up(false);
    } else {
      break_call('\0');
    }
    return;
  }
  if (id_.empty()) id_ = json_.id();
  complete();
  enter_between();
}

void ToolParser::step_literals(char c) {
  std::string json;
  const LiteralArguments::Status status = literals_.push(c, json);
  if (status == LiteralArguments::Status::kInvalid) {
    if (told_) {
      break_call(c);
    } else {
      begun_ = false;
      give_up(is_marked());
    }
    return;
  }
  arguments(json);
  if (status != LiteralArguments::Status::kDone) return;
  complete();
  enter_between();
}

}  // namespace sluice
