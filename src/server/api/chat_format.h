// How chat answers are written: one JSON object, or chunks whose deltas join to the same message.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/json.h"
#include "server/api/openai_format.h"
#include "server/core/generation.h"
#include "text/parsers/chat_output.h"

namespace sluice {

class ChatFormat : public ReplyFormat {
 public:
  struct Settings {
    AnswerHead head;
    int num_choices = 1;
    bool logprobs = false;
    bool include_usage = false;
    bool continuous_usage = false;
    bool token_ids = false;
    bool one_tool_call = false;   // parallel_tool_calls: false
    std::string reasoning_field;  // reasoning_content, reasoning, both
    ChatOutputSettings output;
  };

  ChatFormat(Settings settings, const ServedModel* model, std::vector<std::int32_t> prompt_ids);

  void prompt_logprobs(int, std::vector<RowLogprobs>&&) override {}
  void add(const ChoiceUpdate& update) override;
  void emit(int index, const GenerationTotals& totals, std::string& events) override;
  void first_events(std::string& events) override;
  void last_events(const GenerationTotals& totals, std::string& events) override;
  std::string body(const GenerationTotals& totals) override;

 private:
  struct Choice {
    explicit Choice(const ChatOutputSettings& settings) : output(settings) {}
    ChatOutput output;
    ChatDelta pending;  // since the last emit; everything when not streaming
    Json logprobs = Json::array();
    Json token_ids = Json::array();
    FinishReason finish = FinishReason::kNone;
    Json matched_stop;
    std::optional<Json> captures{};
  };

  Json chunk(int index, Json delta, Json finish_reason, const GenerationTotals* totals);
  Json logprob_entry(std::int32_t token, const RowLogprobs& row) const;
  Json tool_calls_json(const std::vector<ToolDelta>& calls, bool streaming) const;
  void put_reasoning(Json& message, const std::string& text) const;
  Json finish_reason(const Choice& choice) const;
  int reasoning_tokens() const;

  const Settings set_;
  const ServedModel* const model_;
  const std::vector<std::int32_t> prompt_ids_;
  std::vector<std::unique_ptr<Choice>> choices_;
};

}  // namespace sluice
