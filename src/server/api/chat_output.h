// One choice's text, divided into reasoning, content and tool calls as it arrives.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "text/parsers/reasoning_parser.h"
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
  Json tools;                    // null: none
};

// The special tokens that spell the marks of these parsers: they must stay in the text.
std::vector<std::int32_t> parser_tokens(const Tokenizer& tokenizer,
                                        const ChatOutputSettings& settings);

class ChatOutput {
 public:
  explicit ChatOutput(const ChatOutputSettings& settings);

  // Adds what `text` brings to `out`.
  void push(std::string_view text, ChatDelta& out);
  // The end of the text: what was held back comes as it is.
  void finish(ChatDelta& out);
  bool in_reasoning() const { return reasoning_ && reasoning_->in_reasoning(); }

 private:
  void add_content(std::string_view text, ChatDelta& out);

  std::optional<ReasoningParser> reasoning_;
  std::optional<ToolParser> tools_;
};

}  // namespace sluice
