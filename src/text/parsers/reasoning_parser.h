// Splits a model's output into its reasoning and its answer, piece by piece.
//
//   ReasoningStart start = reasoning_start(prompt, "glm45");
//   ReasoningParser parser = ReasoningParser::create("glm45", start);
//   ReasoningDelta delta = parser.push(text);     // any cut of the text gives the same whole
//   ReasoningDelta rest = parser.finish();
//
// Reasoning counts only at the start of the output: marks inside the answer are text. A closing
// mark before anything else is dropped. Newlines beside the marks belong to the format and are
// dropped. Output that ends inside the reasoning has no answer. One thread uses a parser.
#pragma once

#include <array>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "text/parsers/thought_tokens.h"
#include "text/parsers/tool_parser_scan.h"

namespace sluice {

struct ReasoningDelta {
  std::string reasoning, content;
};

// How a format divides the output.
enum class ReasoningKind {
  kMarks,     // between two marks at the start
  kNone,      // nothing is reasoning
  kAppend,    // nothing is reasoning, and the opening mark of the prompt becomes content
  kChannels,  // harmony: HarmonyParser reads it
};

// One row of the table: how a family of models writes its thoughts.
struct ReasoningFormat {
  std::string_view name = {};
  std::array<std::string_view, 4> aliases = {};  // names of SGLang and vLLM, and older ones
  ReasoningKind kind = ReasoningKind::kMarks;
  std::string_view open = {}, close = {};
  std::string_view other_open = {}, other_close = {};  // spellings that are read, too
  bool always = false;  // older templates leave the opening mark to neither prompt nor model
  std::string_view answer_open = {},
                   answer_close = {};               // a frame around the answer, which is dropped
  std::array<std::string_view, 7> more_marks = {};  // special tokens that no other field names
};

std::span<const ReasoningFormat> reasoning_formats();
// By its name or an alias; Error{kBadInput} for an unknown one lists the known ones.
const ReasoningFormat& find_reasoning_format(std::string_view name);

// Where the output begins.
enum class ReasoningStart {
  kUnknown,  // the model opens the reasoning, or there is none
  kInside,   // the prompt opened the reasoning
  kBehind,   // the prompt closed the reasoning: all is answer
};

class ReasoningParser {
 public:
  // Error{kBadInput} for an unknown name lists the known ones.
  static ReasoningParser create(std::string_view name, ReasoningStart start);

  ReasoningDelta push(std::string_view text);
  // `is_cut`: the engine ended the text, not the model. Then the beginning of an opening mark is
  // dropped once a special token of it has come.
  ReasoningDelta finish(bool is_cut = false);
  // The text so far ends the reasoning without a mark. Comes before finish().
  void close_reasoning();
  bool in_reasoning() const { return state_ == State::kReasoning; }
  // The answer has begun: no reasoning follows.
  bool is_over() const { return state_ == State::kAfter || state_ == State::kContent; }
  // Where the reasoning stands in the text. A second opening mark divides it.
  std::span<const ThoughtRange> thoughts() const { return thoughts_; }
  // Bytes of the text that no later byte makes a mark or reasoning.
  std::size_t num_divided() const;

 private:
  enum class State { kStart, kReasoning, kAfter, kContent };

  ReasoningParser(const ReasoningFormat& format, ReasoningStart start);
  void step(char c, ReasoningDelta& out);
  void step_reasoning(char c, ReasoningDelta& out);
  void append_reasoning(std::string_view text, ReasoningDelta& out);

  const ReasoningFormat* format_;
  MarkerScanner opening_, closing_;
  int num_opens_ = 1;  // the first marks of opening_ open the reasoning
  State state_;
  std::vector<ThoughtRange> thoughts_;
  std::size_t num_read_ = 0;  // bytes
  bool at_start_ = true;      // so far the reasoning has only newlines, perhaps the opening mark
  std::string pending_;       // content before all other
  std::string held_;          // space before a possible opening mark
  std::size_t newlines_ = 0;  // held back: dropped if the closing mark follows
};

// Where output begins that goes on with `message`, the end of `prompt`: the last mark of the
// message decides, or the mark before the message.
ReasoningStart message_reasoning_start(std::string_view prompt, std::string_view message,
                                       std::string_view name);

// Where output after this prompt begins. The mark at the prompt's end decides. Without one, a
// format that is opened always begins inside.
// `is_off`: the request switched reasoning off, so that only an opening mark counts.
ReasoningStart reasoning_start(std::string_view prompt, std::string_view name, bool is_off = false);

// The table's name for a name or an alias; Error{kBadInput} for an unknown one.
std::string reasoning_parser_name(std::string_view name);
std::vector<std::string> known_reasoning_parsers();
// The marks of a parser. In many models these are special tokens, which must then stay in the text.
std::vector<std::string> reasoning_parser_marks(std::string_view name);

}  // namespace sluice
