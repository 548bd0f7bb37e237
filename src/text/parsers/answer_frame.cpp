#include "text/parsers/answer_frame.h"

#include <utility>

namespace sluice {

AnswerFrame::AnswerFrame(std::string_view open, std::string_view close)
    : state_(open.empty() ? State::kOff : State::kStart), opening_({open}), closing_({close}) {}

std::string AnswerFrame::push(std::string_view text) {
  if (state_ == State::kOff) return std::string(text);
  std::string out;
  for (const char c : text) step(c, out);
  return out;
}

void AnswerFrame::step(char c, std::string& out) {
  switch (state_) {
    case State::kOff:
      out += c;
      return;
    case State::kStart: {
      if (!opening_.holding() && is_blank(c)) {
        held_ += c;
        return;
      }
      const std::size_t num_blanks = held_.size();
      if (opening_.push(c, held_) == 0) {
        held_.clear();
        state_ = State::kInside;
      } else if (!opening_.holding() || held_.size() > num_blanks) {
        opening_.flush(held_);  // text comes before what may still become the mark
        out += std::exchange(held_, {});
        state_ = State::kOff;
      }
      return;
    }
    case State::kClosed:
      if (is_blank(c)) {
        held_ += c;
        return;
      }
      out += std::exchange(held_, {});
      is_empty_ = false;
      state_ = State::kInside;
      [[fallthrough]];
    case State::kInside: {
      std::string plain;
      const int mark = closing_.push(c, plain);
      for (const char p : plain) {
        if (is_blank(p)) {
          if (!is_empty_) held_ += p;
          continue;
        }
        out += std::exchange(held_, {}) + p;
        is_empty_ = false;
      }
      if (mark != 0) return;
      held_ += closing_.marker(0);
      state_ = State::kClosed;
      return;
    }
  }
}

std::string AnswerFrame::finish() {
  const State state = std::exchange(state_, State::kOff);
  if (state == State::kClosed) return {};
  std::string out = std::exchange(held_, {});
  if (state == State::kStart) opening_.flush(out);
  if (state == State::kInside) closing_.flush(out);
  return out;
}

}  // namespace sluice
