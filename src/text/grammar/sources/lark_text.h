// The text of a Lark grammar: a place in it, white space and comments, literals, and the fault that
// ends the reading.
#pragma once

#include <algorithm>
#include <optional>
#include <string_view>
#include <vector>

#include "base/error.h"

namespace sluice::grammar {

class LarkText {
 public:
  static constexpr std::uint64_t kMaxCount = 1'000'000'000;
  struct Span {
    std::size_t begin = 0, end = 0;
  };

  explicit LarkText(std::string_view text) : text_(text), end_(text.size()) {}

  std::size_t at() const { return at_; }
  bool is_at_end() const { return at_ >= end_; }
  const std::optional<Fault>& fault() const { return fault_; }
  void fail(Fault fault) {
    if (!fault_) fault_ = std::move(fault);
  }
  void fail_at(std::size_t position, std::string_view what);
  void refuse(std::size_t position, std::string_view what);
  void undefined(std::size_t position, std::string_view name);
  std::string place(std::size_t position) const;

  // Reads a part of the text alone.
  void go_to(const Span& span);
  Span rest() const { return {at_, end_}; }

  char peek(std::size_t ahead = 0) const { return at_ + ahead < end_ ? text_[at_ + ahead] : '\0'; }
  bool next_is(std::string_view text) const {
    return text_.substr(at_, end_ - at_).starts_with(text);
  }
  void advance(std::size_t count) { at_ = std::min(at_ + count, end_); }
  // To what is no white space and no comment; false: the end. A line's end is passed where
  // `also_lines`.
  bool skip(bool also_lines);
  // Letters, digits and underscores; empty where there are none.
  std::string_view name();
  std::optional<std::uint64_t> number();
  // From here to the end of a definition: a line's end outside brackets, and before no '|'.
  Span body();
  // The characters of a string, from its quote on; nothing where there is a fault.
  std::optional<std::vector<char32_t>> string();
  // What stands between two slashes.
  std::optional<std::string_view> pattern();

 private:
  void skip_comment();
  // The end of a literal that begins with a quote or a slash; 0: it is not closed on its line.
  std::size_t literal_end() const;
  std::optional<char32_t> escape();

  const std::string_view text_;
  std::size_t at_ = 0, end_ = 0;
  std::optional<Fault> fault_;
};

}  // namespace sluice::grammar
