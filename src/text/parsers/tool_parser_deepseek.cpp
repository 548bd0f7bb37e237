// DeepSeek's frame around the arguments: V3 "type<sep>name\n```json\n{...}\n```", V3.1
// "name<sep>{...}".
#include <algorithm>

#include "text/parsers/tool_parser.h"
#include "text/parsers/tool_parser_format.h"

namespace sluice {
namespace {

constexpr std::string_view kFence = "```";

bool has_text(std::string_view plain) {
  return !trimmed(plain).empty();
}

}  // namespace

// The name is known once the arguments begin: V3 writes a type before it.
bool ToolParser::begin_deepseek() {
  const std::string_view first = trimmed(head_), second = trimmed(value_);
  if (second.empty() || second == "null" || second.starts_with(kFence))
    return begin(std::string(first));
  return first == "function" && begin(std::string(second));
}

// A mark behind a call: of its end, of another call, or of the end of all.
void ToolParser::after_deepseek(int marker) {
  raw_.clear();
  raw_marker_ = 0;
  if (marker == 0) {
    enter(State::kDeepseekOuter, {kDeepseekCall, format_.close});
  } else {
    enter_content();
  }
}

void ToolParser::step_deepseek(char c) {
  std::string plain;
  switch (state_) {
    case State::kDeepseekOuter: {
      const int marker = scanner_.push(c, plain);
      if (has_text(plain)) {
        if (block_calls_ == 0) {
          give_up(true);
          return;
        }
        // Text between the calls; the closing mark of all is still to come.
        content(plain);
        raw_ = scanner_.held();
      }
      if (marker == 0) {
        head_.clear();
        if (block_calls_ > 0) {
          raw_ = kDeepseekCall;
          raw_marker_ = raw_.size();
        }
        enter(State::kDeepseekHead, {kDeepseekSeparator, kDeepseekCallEnd, format_.close});
      } else if (marker == 1) {
        enter_content();
      }
      return;
    }
    case State::kDeepseekHead: {
      const int marker = scanner_.push(c, head_);
      const bool is_word = head_.find_first_of("\n\"{}") == std::string::npos;
      if (marker > 0 || !is_word || head_.size() > kMaxToolName) {
        give_up(true);
      } else if (marker == 0) {
        enter(State::kDeepseekName, {kDeepseekCallEnd, format_.close});
        value_.clear();
      }
      return;
    }
    case State::kDeepseekName:
      step_deepseek_name(c);
      return;
    case State::kDeepseekFence: {
      const int marker = scanner_.push(c, plain);
      if (marker >= 0) {
        complete();
        after_deepseek(marker);
      } else if (plain == "{") {
        begin_json(true);
        step_json('{');
      } else if (plain.find_first_not_of("`json \n\r\t") != std::string::npos) {
        json_at_ = raw_.size() - plain.size() - scanner_.held().size();
        bare_arguments_ = true;
        break_call(c);
      }
      return;
    }
    case State::kDeepseekTail: {
      const int marker = scanner_.push(c, plain);
      if (marker == 1) {
        raw_ = kDeepseekCall;
        raw_marker_ = raw_.size();
        head_.clear();
        enter(State::kDeepseekHead, {kDeepseekSeparator, kDeepseekCallEnd, format_.close});
      } else if (marker >= 0) {
        after_deepseek(marker);
      } else if (plain.find_first_not_of("`}];, \n\r\t") != std::string::npos) {
        content(plain);  // the marks of the frame are still to come
      }
      return;
    }
    default:
      return;
  }
}

void ToolParser::step_deepseek_name(char c) {
  std::string plain;
  const int marker = scanner_.push(c, plain);
  for (const char p : plain) {
    if (p == '{' && plain.size() == 1) {
      if (!begin_deepseek()) {
        give_up(true);
        return;
      }
      begin_json(true);
      step_json('{');
      return;
    }
    value_ += p;
    if (value_.size() > kMaxToolName) {
      give_up(true);
      return;
    }
    if (p == '\n' && has_text(value_)) {
      if (!begin_deepseek()) {
        give_up(true);
        return;
      }
      enter(State::kDeepseekFence, {kDeepseekCallEnd, format_.close});
      return;
    }
  }
  if (marker < 0) return;
  if (!begin_deepseek()) {
    give_up(true);
    return;
  }
  complete();
  after_deepseek(marker);
}

}  // namespace sluice
