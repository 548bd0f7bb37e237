// Reads harmony, the messages of gpt-oss: <|channel|>NAME to=RECIPIENT<|message|>TEXT<|end|>.
//
//   HarmonyParser parser(tools, true);
//   for (const ToolEvent& event : parser.push(text)) ...
//   for (const ToolEvent& event : parser.finish(is_cut)) ...
//
// The recipient makes a call, in any channel. Channel analysis is reasoning, any other one content.
// Several messages of one kind are joined by a line break. Text outside messages is content. A mark
// in a string of arguments is text, unless the string stays open: then the mark ends the message.
// A call whose arguments have a fault comes with its own text as arguments, and `incomplete()` says
// so. Any cut of the text gives the same. One thread uses a parser.
#pragma once

#include <algorithm>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "text/parsers/thought_tokens.h"
#include "text/parsers/tool_events.h"
#include "text/parsers/tool_parser.h"
#include "text/parsers/tool_parser_json.h"
#include "text/parsers/tool_parser_scan.h"

namespace sluice {

class HarmonyParser {
 public:
  // `reads_calls` false: no tools are offered, and messages to recipients are text, marks and all.
  explicit HarmonyParser(bool reads_calls, ToolParser::MakeId make_id = {});

  std::vector<ToolEvent> push(std::string_view text);
  // `is_cut` as in ToolParser::finish.
  std::vector<ToolEvent> finish(bool is_cut = false);
  // The output goes on behind `prompt`: the last assistant's message may be open there.
  void start_behind(std::string_view prompt);
  // Calls are held until they are whole, whatever their length.
  void hold_calls() { max_held_ = std::string::npos; }

  int num_calls() const { return num_calls_; }
  bool incomplete() const { return incomplete_; }
  // finish(true) came inside a call.
  bool is_cut_off() const { return is_cut_off_; }
  bool in_reasoning() const { return state_ == State::kBody && body_ == Body::kReasoning; }
  // Where the messages of reasoning stand in the text that push() got.
  std::span<const ThoughtRange> thoughts() const { return thoughts_; }
  // Bytes of that text that no later byte makes a mark or reasoning.
  std::size_t num_divided() const {
    return num_read_ - std::min(num_read_, late_.size() + scanner_.held().size());
  }

 private:
  enum class State {
    kHeader,     // up to <|message|>
    kBody,       // the text of a message
    kArguments,  // the JSON of a call
    kBroken,     // JSON with a fault, up to the end of the message
    kTail,       // behind the JSON of a call
  };
  enum class Body { kContent, kReasoning, kRaw };

  void step(char c);
  void step_again();
  void step_header(char c);
  void step_body(char c);
  void step_arguments(char c);
  void step_string(char c);
  void step_late(char c);
  JsonCall::Status read_json(char c);
  void end_json();
  void release_late();
  void replay(std::string_view text);
  void step_broken(char c);
  void begin_message();
  void begin_header(std::string_view mark);
  void end_message(std::string_view mark);
  std::size_t position() const { return num_read_ - (replay_.size() - replay_at_); }
  void text(Body body, std::string_view part);
  void tell();
  void arguments(std::string_view part);
  void end_broken();

  const bool reads_calls_;
  ToolParser::MakeId make_id_;
  State state_ = State::kHeader;
  Body body_ = Body::kContent;
  MarkerScanner scanner_;
  std::vector<ToolEvent> events_;
  std::string head_;          // the header so far, with its marks
  bool is_marked_ = false;    // the header has a mark
  bool is_new_body_ = false;  // nothing of the body was told
  bool has_text_[2] = {};     // content, reasoning
  std::string name_, arguments_, raw_;
  // From a mark in a string on: the bytes, and the arguments that they make if the mark is text.
  std::string late_, late_arguments_;
  std::size_t late_mark_ = 0;  // the length of the mark
  std::string replay_;         // bytes to read again, before later bytes
  std::size_t replay_at_ = 0;
  std::size_t num_read_ = 0;  // bytes
  std::vector<ThoughtRange> thoughts_;
  JsonCall json_;
  bool told_ = false, began_ = false;
  int num_calls_ = 0;
  bool incomplete_ = false, is_cut_off_ = false;
  std::size_t max_held_ = kMaxHeldCall;
};

}  // namespace sluice
