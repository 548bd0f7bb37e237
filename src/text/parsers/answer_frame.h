// Takes the frame off an answer's text: <response> ... </response> and its like.
//
//   AnswerFrame frame("<answer>", "</answer>");
//   out += frame.push(text);
//   out += frame.finish();
//
// The opening mark counts at the start of the text only, and the closing mark at its end. White
// space inside the marks is dropped. Any cut of the text gives the same. One thread uses an object.
#pragma once

#include <string>
#include <string_view>

#include "text/parsers/tool_parser_scan.h"

namespace sluice {

class AnswerFrame {
 public:
  // Marks are static storage; empty marks: no frame.
  AnswerFrame(std::string_view open, std::string_view close);

  std::string push(std::string_view text);
  std::string finish();

 private:
  enum class State { kStart, kInside, kClosed, kOff };
  void step(char c, std::string& out);

  State state_;
  MarkerScanner opening_, closing_;
  std::string held_;  // white space, or the closing mark with white space around it
  bool is_empty_ = true;
};

}  // namespace sluice
