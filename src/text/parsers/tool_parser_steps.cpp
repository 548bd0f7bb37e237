// The formats whose calls are JSON, and DeepSeek's frame around the JSON.
#include <algorithm>

#include "text/parsers/tool_parser.h"
#include "text/parsers/tool_parser_format.h"

namespace sluice {
namespace {

constexpr std::size_t kMaxName = 128;
constexpr std::string_view kArgsMark = kMistralArgs;

bool is_blank(char c) {
  return c == ' ' || c == '\n' || c == '\r' || c == '\t';
}

std::string trimmed(std::string_view text) {
  while (!text.empty() && is_blank(text.front())) text.remove_prefix(1);
  while (!text.empty() && is_blank(text.back())) text.remove_suffix(1);
  return std::string(text);
}

}  // namespace

void ToolParser::begin_json(bool bare_arguments) {
  json_ = JsonCall(bare_arguments);
  state_ = State::kJson;
}

void ToolParser::forward_json() {
  if (!begun_) {
    if (!json_.has_name()) return;
    if (format_.syntax == ToolSyntax::kBare && !is_tool(json_.name())) return;
    if (!begin(json_.name())) return;
  }
  arguments(json_.take_arguments());
}

void ToolParser::step_json(char c) {
  const JsonCall::Status status = json_.push(c);
  if (status == JsonCall::Status::kInvalid) {
    give_up(false);
    return;
  }
  const bool preset = begun_ && !json_.has_name();  // the name came before the arguments
  if (preset) {
    arguments(json_.take_arguments());
  } else {
    forward_json();
  }
  if (status == JsonCall::Status::kDone) json_done();
}

void ToolParser::json_done() {
  if (!begun_) {
    give_up(false);
    return;
  }
  if (!told_arguments_) arguments("{}");
  begun_ = false;
  raw_.clear();
  switch (format_.syntax) {
    case ToolSyntax::kDeepseek:
      enter(State::kDeepseekTail, {kDeepseekCallEnd});
      break;
    case ToolSyntax::kBlock:
      enter(State::kAfterBlock, {format_.close});
      break;
    case ToolSyntax::kBare:
      enter(State::kListNext);
      break;
    default:
      if (in_list_) {
        enter(State::kListNext);
      } else {
        enter_content();
      }
  }
}

void ToolParser::step_json_format(char c) {
  switch (state_) {
    case State::kBeforeJson:
      if (is_blank(c)) return;
      if (c == '{') {
        begin_json(false);
        step_json(c);
      } else if (c == '[' && format_.syntax == ToolSyntax::kList && !in_list_) {
        in_list_ = true;
      } else if (format_.syntax == ToolSyntax::kList && !in_list_) {
        enter(State::kMistralName, {kArgsMark, "{"});
        step_json_format(c);
      } else {
        give_up(true);
      }
      return;
    case State::kMistralName: {
      const int marker = scanner_.push(c, head_);
      if (marker < 0) {
        if (head_.size() > kMaxName) give_up(true);
        return;
      }
      if (!begin(trimmed(head_))) {
        give_up(true);
        return;
      }
      begin_json(true);
      if (marker == 1) step_json('{');
      return;
    }
    case State::kJson:
      step_json(c);
      return;
    case State::kListNext: {
      if (is_blank(c)) return;
      const bool bare = format_.syntax == ToolSyntax::kBare;
      if (c == '{' && bare) {
        raw_marker_ = 0;
        begin_json(false);
        step_json(c);
      } else if (c == ',' && !bare) {
        raw_.clear();
        raw_marker_ = 0;
        enter(State::kBeforeJson);
      } else if (c == ';' && bare) {
        raw_.clear();
      } else {
        const std::string left = c == ']' && !bare ? "" : raw_;
        enter_content();
        replay_ = left + replay_.substr(std::min(replay_at_, replay_.size()));
        replay_at_ = 0;
      }
      return;
    }
    case State::kAfterBlock: {
      std::string plain;
      if (scanner_.push(c, plain) == 0) {
        enter_content();
      } else if (std::any_of(plain.begin(), plain.end(), [](char p) { return !is_blank(p); })) {
        // No closing mark: the following bytes are text, or another call.
        scanner_.flush(plain);
        enter_content();
        replay_ = plain + replay_.substr(std::min(replay_at_, replay_.size()));
        replay_at_ = 0;
      }
      return;
    }
    default:
      return;
  }
}

void ToolParser::step_deepseek(char c) {
  switch (state_) {
    case State::kDeepseekOuter: {
      std::string plain;
      const int marker = scanner_.push(c, plain);
      if (marker == 0) {
        head_.clear();
        enter(State::kDeepseekHead, {kDeepseekSeparator});
      } else if (marker == 1) {
        enter_content();
      } else if (std::any_of(plain.begin(), plain.end(), [](char p) { return !is_blank(p); })) {
        give_up(true);
      }
      return;
    }
    case State::kDeepseekHead:
      if (scanner_.push(c, head_) == 0) {
        enter(State::kDeepseekName);
        value_.clear();
      } else if (head_.size() > kMaxName) {
        give_up(true);
      }
      return;
    case State::kDeepseekName:
      // "type<sep>name\n```json\n{": V3; "name<sep>{": V3.1.
      if (c == '{' && trimmed(value_).empty()) {
        if (!begin(trimmed(head_))) {
          give_up(true);
          return;
        }
        begin_json(true);
        step_json(c);
      } else if (c == '\n' && !trimmed(value_).empty()) {
        if (begin(trimmed(value_))) {
          value_.clear();
          enter(State::kDeepseekFence);
        }
      } else {
        value_ += c;
        if (value_.size() > kMaxName) give_up(true);
      }
      return;
    case State::kDeepseekFence:
      if (c == '{') {
        begin_json(true);
        step_json(c);
      } else if (!is_blank(c)) {
        value_ += c;
        if (!std::string_view("```json").starts_with(value_)) give_up(true);
      }
      return;
    case State::kDeepseekTail: {
      std::string plain;
      if (scanner_.push(c, plain) == 0) {
        raw_.clear();
        raw_marker_ = 0;
        enter(State::kDeepseekOuter, {kDeepseekCall, format_.close});
        return;
      }
      // The closing fence belongs to the frame; other text does not.
      const bool frame =
          std::all_of(plain.begin(), plain.end(), [](char p) { return is_blank(p) || p == '`'; });
      if (!frame) {
        enter_content();
        broken_ = incomplete_ = true;
        content(plain);
      }
      return;
    }
    default:
      return;
  }
}

}  // namespace sluice
