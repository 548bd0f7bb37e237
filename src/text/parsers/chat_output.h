// One choice's text, divided into reasoning, content and tool calls as it arrives.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "text/parsers/answer_frame.h"
#include "text/parsers/harmony_parser.h"
#include "text/parsers/reasoning_parser.h"
#include "text/parsers/thought_calls.h"
#include "text/parsers/thought_tokens.h"
#include "text/parsers/tool_parser.h"
#include "text/tokenizer/tokenizer.h"

namespace sluice {

// A piece of one tool call: id and name come once, with the first piece.
struct ToolDelta {
  int index = 0;
  std::string id;
  std::string name;
  std::string arguments;
};

struct ChatDelta {
  std::string reasoning;
  std::string content;
  std::vector<ToolDelta> tools;
  bool empty() const { return reasoning.empty() && content.empty() && tools.empty(); }
};

struct ChatOutputSettings {
  std::string reasoning_parser;  // empty: none
  std::string tool_parser;       // empty: none, or no tools are offered
  std::string prompt;            // as rendered: tells whether the answer begins inside reasoning
  bool thinking_off = false;     // the request switched reasoning off
  bool continues = false;        // the answer goes on with `continued`
  std::string continued;         // the text of the last message
  Json tools;                    // null: none
  bool is_whole = false;         // the answer is told at once: long calls are held, too
};

// The special tokens that spell the marks of these parsers: they must stay in the text.
std::vector<std::int32_t> parser_tokens(const Tokenizer& tokenizer,
                                        const ChatOutputSettings& settings);

class ChatOutput {
 public:
  explicit ChatOutput(const ChatOutputSettings& settings);

  // Adds what `text` brings to `out`. `token_starts`: of each token that came, the number of bytes
  // before it in the whole text. Tokens may come before their text.
  void push(std::string_view text, ChatDelta& out, std::span<const std::size_t> token_starts = {});
  // The end of the text. `is_cut`: the model did not end it. `stop`: the stop string behind the
  // text that cut it, which may close a call.
  void finish(ChatDelta& out, bool is_cut = false, std::string_view stop = {});
  // Tokens that begin inside a thought; marks are none. Until finish(), those that are known.
  int reasoning_tokens() const { return thought_tokens_.count(); }
  bool in_reasoning() const {
    return harmony_ ? harmony_->in_reasoning() : reasoning_ && reasoning_->in_reasoning();
  }
  int num_calls() const {
    return harmony_ ? harmony_->num_calls() : tools_ ? tools_->num_calls() : 0;
  }
  // The arguments of a call are not a whole JSON object.
  bool incomplete() const {
    return harmony_ ? harmony_->incomplete() : tools_ && tools_->incomplete();
  }
  // The text was cut inside a call.
  bool is_cut_off() const {
    return harmony_ ? harmony_->is_cut_off() : tools_ && tools_->is_cut_off();
  }

 private:
  void add_content(std::string_view text, ChatDelta& out);
  void add_thought(std::string_view text, ChatDelta& out);
  void add_text(std::string_view text, ChatDelta& out);
  void end_text(ChatDelta& out, bool is_cut, std::string_view stop);
  std::span<const ThoughtRange> thoughts() const;
  void add_events(std::vector<ToolEvent>&& events, ChatDelta& out);

  std::optional<HarmonyParser> harmony_;  // then the others are empty
  std::optional<ReasoningParser> reasoning_;
  std::optional<AnswerFrame> frame_;  // of the content
  std::optional<ToolParser> tools_;
  std::optional<ThoughtCalls> thought_calls_;
  ThoughtTokens thought_tokens_;
};

}  // namespace sluice
