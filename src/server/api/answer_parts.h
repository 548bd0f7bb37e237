// One answer as an ordered list of parts: thoughts, texts and calls, for the protocols that show
// each as a block or an item of its own.
//
//   AnswerReader reader(output_settings, /*one_call=*/false);
//   reader.add(update);                                    // of the one choice
//   for (AnswerPart& piece : reader.take()) ...            // pieces since the last take
//
// Pieces of one part follow each other; `is_new` marks the first. One thread.
#pragma once

#include <string>
#include <vector>

#include "base/json.h"
#include "server/core/generation.h"
#include "text/parsers/chat_output.h"

namespace sluice {

struct AnswerPart {
  enum Kind { kThought, kText, kCall };
  Kind kind = kText;
  bool is_new = false;
  std::string text;           // thoughts, text, or the JSON text of a call's arguments
  std::string call_id, name;  // of a call, with its first piece
};

class AnswerReader {
 public:
  AnswerReader(const ChatOutputSettings& settings, bool one_call)
      : output_(settings), one_call_(one_call) {}

  void add(const ChoiceUpdate& update);
  std::vector<AnswerPart> take();

  FinishReason finish() const { return finish_; }
  const std::string& matched_stop() const { return matched_stop_; }  // the stop string, or empty
  int reasoning_tokens() const { return output_.reasoning_tokens(); }
  bool has_calls() const { return output_.num_calls() > 0; }
  // The last call was cut, so its arguments are not whole.
  bool has_cut_call() const { return output_.is_cut_off() && output_.incomplete(); }

 private:
  void append(AnswerPart::Kind kind, int call, std::string&& text);

  ChatOutput output_;
  const bool one_call_;
  std::vector<AnswerPart> parts_;
  bool has_part_ = false;
  AnswerPart::Kind last_kind_ = AnswerPart::kText;  // of the last piece, taken or not
  int last_call_ = -1;
  FinishReason finish_ = FinishReason::kNone;
  std::string matched_stop_;
};

// The arguments of a call as an object. Text that is no JSON object, which a cut answer may hold,
// stands under the key INVALID_JSON.
Json arguments_object(const std::string& text);

}  // namespace sluice
