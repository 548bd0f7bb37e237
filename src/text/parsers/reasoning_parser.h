// Splits a model's output into its reasoning and its answer, piece by piece.
//
//   bool inside = prompt_opens_reasoning(prompt, "glm45");
//   ReasoningParser parser = ReasoningParser::create("glm45", inside);
//   ReasoningDelta delta = parser.push(text);     // any cut of the text gives the same whole
//   ReasoningDelta rest = parser.finish();
//
// Reasoning counts only at the start of the output: marks inside the answer are text. A closing
// mark before anything else is dropped. Newlines
// beside the marks belong to the format and are dropped. Output that ends inside the reasoning has
// no answer. One thread uses a parser.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "text/parsers/tool_parser_scan.h"

namespace sluice {

struct ReasoningDelta {
  std::string reasoning, content;
};

struct ReasoningFormat;

class ReasoningParser {
 public:
  // `starts_inside`: the prompt opened the reasoning. Error{kBadInput} for an unknown name; it
  // lists the known ones.
  static ReasoningParser create(std::string_view name, bool starts_inside);

  ReasoningDelta push(std::string_view text);
  ReasoningDelta finish();
  bool in_reasoning() const { return state_ == State::kReasoning; }
  // The answer has begun: no reasoning follows.
  bool is_over() const { return state_ == State::kAfter || state_ == State::kContent; }

 private:
  enum class State { kStart, kReasoning, kAfter, kContent };

  ReasoningParser(const ReasoningFormat& format, bool starts_inside);
  void step(char c, ReasoningDelta& out);
  void step_reasoning(char c, ReasoningDelta& out);
  void append_reasoning(std::string_view text, ReasoningDelta& out);

  MarkerScanner opening_, closing_;
  State state_;
  bool at_start_ = true;      // so far the reasoning has only newlines, perhaps the opening mark
  std::string held_;          // space before a possible opening mark
  std::size_t newlines_ = 0;  // held back: dropped if the closing mark follows
};

// True if output that goes on with `message`, the end of `prompt`, begins inside the reasoning: the
// last mark of the message, or the mark before it, is an opening one.
bool message_opens_reasoning(std::string_view prompt, std::string_view message,
                             std::string_view name);

// True if output after this prompt begins inside the reasoning. Either the prompt ends with the
// opening mark, or the format always begins inside and the prompt does not end with the closing
// mark.
// `is_off`: the request switched reasoning off, so that only an opening mark counts.
bool prompt_opens_reasoning(std::string_view prompt, std::string_view name, bool is_off = false);

// The table's name for a name or an alias; Error{kBadInput} for an unknown one.
std::string reasoning_parser_name(std::string_view name);
std::vector<std::string> known_reasoning_parsers();
// The opening and the closing mark. In many models these are special tokens, which must then stay
// in the text.
std::vector<std::string> reasoning_parser_marks(std::string_view name);

}  // namespace sluice
