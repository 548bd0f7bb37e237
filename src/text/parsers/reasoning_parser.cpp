#include "text/parsers/reasoning_parser.h"

#include <algorithm>
#include <utility>

#include "base/error.h"

namespace sluice {

namespace {

// True if `text` ends with a mark of the format: the last one of `marks` is meant.
bool ends_with_any(std::string_view text, std::initializer_list<std::string_view> marks) {
  return std::ranges::any_of(
      marks, [&](std::string_view mark) { return !mark.empty() && text.ends_with(mark); });
}

std::size_t rfind_any(std::string_view text, std::initializer_list<std::string_view> marks) {
  std::size_t last = std::string_view::npos;
  for (const std::string_view mark : marks) {
    const std::size_t at = mark.empty() ? std::string_view::npos : text.rfind(mark);
    if (at != std::string_view::npos && (last == std::string_view::npos || at > last)) last = at;
  }
  return last;
}

std::vector<std::string_view> both(std::string_view mark, std::string_view other) {
  std::vector<std::string_view> marks = {mark};
  if (!other.empty()) marks.push_back(other);
  return marks;
}

}  // namespace

std::vector<std::string> known_reasoning_parsers() {
  std::vector<std::string> names;
  for (const ReasoningFormat& format : reasoning_formats()) names.emplace_back(format.name);
  return names;
}

std::vector<std::string> reasoning_parser_marks(std::string_view name) {
  const ReasoningFormat& format = find_reasoning_format(name);
  std::vector<std::string> marks;
  for (const std::string_view mark : {format.open, format.close, format.other_open,
                                      format.other_close, format.answer_open, format.answer_close})
    if (!mark.empty()) marks.emplace_back(mark);
  for (const std::string_view mark : format.more_marks)
    if (!mark.empty()) marks.emplace_back(mark);
  return marks;
}

std::string reasoning_parser_name(std::string_view name) {
  return std::string(find_reasoning_format(name).name);
}

ReasoningStart reasoning_start(std::string_view prompt, std::string_view name, bool is_off) {
  const ReasoningFormat& format = find_reasoning_format(name);
  prompt = trimmed(prompt);
  if (ends_with_any(prompt, {format.open, format.other_open})) return ReasoningStart::kInside;
  if (ends_with_any(prompt, {format.close, format.other_close})) return ReasoningStart::kBehind;
  return format.always && !is_off ? ReasoningStart::kInside : ReasoningStart::kUnknown;
}

ReasoningStart message_reasoning_start(std::string_view prompt, std::string_view message,
                                       std::string_view name) {
  const ReasoningFormat& format = find_reasoning_format(name);
  const std::size_t open = rfind_any(message, {format.open, format.other_open}),
                    close = rfind_any(message, {format.close, format.other_close});
  constexpr std::size_t kNowhere = std::string_view::npos;
  if (open != kNowhere && (close == kNowhere || close < open)) return ReasoningStart::kInside;
  if (close != kNowhere) return ReasoningStart::kUnknown;
  if (prompt.ends_with(message)) prompt.remove_suffix(message.size());
  const ReasoningStart start = reasoning_start(prompt, name, true);
  return start == ReasoningStart::kInside ? start : ReasoningStart::kUnknown;
}

ReasoningParser::ReasoningParser(const ReasoningFormat& format, ReasoningStart start)
    : format_(&format) {
  const bool has_marks = format.kind == ReasoningKind::kMarks;
  state_ = !has_marks || start == ReasoningStart::kBehind ? State::kContent
           : start == ReasoningStart::kInside             ? State::kReasoning
                                                          : State::kStart;
  if (format.kind == ReasoningKind::kAppend) pending_ = format.open;
  if (state_ == State::kReasoning) thoughts_.emplace_back();
  if (!has_marks) return;
  std::vector<std::string_view> marks = both(format.open, format.other_open);
  num_opens_ = static_cast<int>(marks.size());
  const std::vector<std::string_view> closes = both(format.close, format.other_close);
  if (state_ == State::kStart) marks.insert(marks.end(), closes.begin(), closes.end());
  opening_ = MarkerScanner(std::move(marks));
  closing_ = MarkerScanner(closes);
}

ReasoningParser ReasoningParser::create(std::string_view name, ReasoningStart start) {
  return ReasoningParser(find_reasoning_format(name), start);
}

ReasoningDelta ReasoningParser::push(std::string_view text) {
  ReasoningDelta out;
  if (!text.empty()) out.content = std::exchange(pending_, {});
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (state_ == State::kContent) {
      out.content += text.substr(i);
      break;
    }
    ++num_read_;
    step(text[i], out);
  }
  return out;
}

void ReasoningParser::close_reasoning() {
  if (state_ == State::kReasoning) thoughts_.back().end = num_read_;
}

std::size_t ReasoningParser::num_divided() const {
  if (is_over()) return kTextEnd;
  return in_reasoning() ? num_read_ - opening_.held().size() - closing_.held().size() : 0;
}

void ReasoningParser::step(char c, ReasoningDelta& out) {
  switch (state_) {
    case State::kStart: {
      if (!opening_.holding() && is_blank(c)) {
        held_ += c;
        return;
      }
      const std::size_t blanks = held_.size();
      const int marker = opening_.push(c, held_);
      if (marker >= 0) {
        held_.clear();
        state_ = marker < num_opens_ ? State::kReasoning : State::kAfter;
        if (state_ == State::kReasoning) thoughts_.push_back({.begin = num_read_});
        opening_ = MarkerScanner();  // a second mark would be text
      } else if (!opening_.holding() || held_.size() > blanks) {
        opening_.flush(held_);  // text comes before what may still become a mark
        out.content += held_;
        held_.clear();
        state_ = State::kContent;
      }
      return;
    }
    case State::kReasoning:
      step_reasoning(c, out);
      return;
    case State::kAfter:
      if (c == '\n') return;
      state_ = State::kContent;
      [[fallthrough]];
    case State::kContent:
      out.content += c;
      return;
  }
}

void ReasoningParser::step_reasoning(char c, ReasoningDelta& out) {
  std::string text;
  if (at_start_ && (opening_.holding() || !is_blank(c))) {
    // The prompt opened the reasoning, and the model may open it again.
    if (const int marker = opening_.push(c, text); marker >= 0) {
      thoughts_.back().end = num_read_ - opening_.marker(marker).size();
      thoughts_.push_back({.begin = num_read_});
      opening_ = MarkerScanner();
      return;
    }
    if (text.empty()) return;
    opening_.flush(text);
    opening_ = MarkerScanner();
  } else {
    text += c;
  }
  for (std::size_t i = 0; i < text.size(); ++i) {
    std::string plain;
    const int marker = closing_.push(text[i], plain);
    append_reasoning(plain, out);
    if (marker < 0) continue;
    thoughts_.back().end = num_read_ - (text.size() - 1 - i) - closing_.marker(marker).size();
    newlines_ = 0;
    state_ = State::kAfter;
    for (++i; i < text.size(); ++i) step(text[i], out);
  }
}

void ReasoningParser::append_reasoning(std::string_view text, ReasoningDelta& out) {
  for (const char c : text) {
    if (c == '\n') {
      newlines_ += !at_start_;
      continue;
    }
    at_start_ = false;
    out.reasoning.append(newlines_, '\n');
    newlines_ = 0;
    out.reasoning += c;
  }
}

ReasoningDelta ReasoningParser::finish(bool is_cut) {
  ReasoningDelta out;
  if (state_ == State::kStart) {
    const auto has_begun = [&](std::string_view mark) {
      return !mark.empty() && opening_.held().find(mark) != std::string::npos;
    };
    if (is_cut && std::ranges::any_of(format_->more_marks, has_begun)) return out;
    opening_.flush(held_);
    out.content = std::move(held_);
  } else if (state_ == State::kReasoning) {
    std::string plain;
    closing_.flush(plain);
    opening_.flush(plain);
    append_reasoning(plain, out);
  }
  state_ = State::kContent;
  return out;
}

}  // namespace sluice
