// How answers of the Messages API are written: one message, or events that build it block by block.
#pragma once

#include <string>

#include "base/json.h"
#include "server/api/answer_parts.h"
#include "server/core/generation.h"

namespace sluice {

class MessagesFormat : public ReplyFormat {
 public:
  struct Settings {
    std::string id;
    std::string model;
    int prompt_tokens = 0;
    bool one_call = false;
    bool is_fitted = false;  // the context ends the answer before max_tokens does
    bool has_edits = false;  // says that no edit of the context was applied
    ChatOutputSettings output;
  };
  explicit MessagesFormat(Settings settings);

  ErrorShape error_shape() const override { return ErrorShape::kAnthropic; }
  StreamFraming framing() const override;
  void end_stream(std::string& events) override;
  void fail_stream(const Fault& fault, std::string_view request_id, std::string& events) override;
  void prompt_logprobs(int, std::vector<RowLogprobs>&&) override {}
  void add(const ChoiceUpdate& update) override { reader_.add(update); }
  void emit(int index, const GenerationTotals& totals, std::string& events) override;
  void first_events(std::string& events) override;
  void last_events(const GenerationTotals& totals, std::string& events) override;
  std::string body(const GenerationTotals& totals) override;

 private:
  void open_block(const AnswerPart& part, std::string& events);
  void close_block(std::string& events);
  Json head() const;
  Json stop_reason() const;
  Json stop_sequence() const;

  const Settings set_;
  AnswerReader reader_;
  // Of a stream: the block that is open.
  int num_blocks_ = 0;
  bool is_open_ = false;
  AnswerPart::Kind open_kind_ = AnswerPart::kText;
  std::uint64_t thought_hash_ = 0;
};

// usage: `input_tokens` are those that were computed, and cached ones stand beside them.
Json messages_usage(const GenerationTotals& totals);

}  // namespace sluice
