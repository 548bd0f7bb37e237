// Tool calls inside an open thought: a call that a model makes without closing its thought ends the
// thought, and a call that it only thinks of stays reasoning.
//
//   ThoughtCalls calls("hermes", tools, "</think>");
//   reasoning.push(calls.push(byte));      // while the reasoning is open
//   ThoughtCalls::End end = calls.finish(is_cut);
//
// From the opening mark on, text is held until it is known which of the two it is. A call was only
// thought of if the thought is closed after it, or if more than a sentence follows it. One thread
// uses an object.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "text/parsers/tool_parser.h"

namespace sluice {

class ThoughtCalls {
 public:
  struct End {
    std::string thought;  // belongs to the reasoning
    std::string calls;    // follows the thought: calls, and text behind them
  };

  // `tool_parser`: a name of tool_parser.h; `close`: the mark that closes the thought.
  ThoughtCalls(std::string tool_parser, const Json& tools, std::string close);

  // The text that certainly belongs to the reasoning parser.
  std::string push(char c);
  // All that is held: the thought is over.
  std::string take();
  // The end of the text; `is_cut` as in ToolParser::finish.
  End finish(bool is_cut);

 private:
  void start(std::string_view mark);
  void probe(std::string_view text);

  const std::string tool_parser_, close_;
  const Json tools_;
  std::vector<std::string> openings_;
  MarkerScanner scanner_;  // opening marks, in text outside calls
  std::optional<ToolParser> parser_;
  std::string held_;   // since the opening mark; empty: no call is being read
  std::string after_;  // text behind the last call
};

}  // namespace sluice
