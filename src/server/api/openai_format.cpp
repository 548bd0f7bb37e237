#include "server/api/openai_format.h"

#include "base/build.h"
#include "server/http/request_id.h"
#include "text/unicode.h"

namespace sluice {

Json usage_json(const GenerationTotals& totals, int reasoning_tokens) {
  const int prompt = totals.total_prompt(), completion = totals.total_completion();
  Json details{{"reasoning_tokens", reasoning_tokens}};
  if (const DraftCounts drafts = totals.total_drafts(); drafts.is_on) {
    details["accepted_prediction_tokens"] = drafts.accepted;
    details["rejected_prediction_tokens"] = drafts.drafted - drafts.accepted;
  }
  return Json{{"prompt_tokens", prompt},
              {"completion_tokens", completion},
              {"total_tokens", prompt + completion},
              {"prompt_tokens_details", {{"cached_tokens", totals.total_cached()}}},
              {"completion_tokens_details", std::move(details)},
              {"queue_time", totals.queue_s}};
}

Json AnswerHead::json(std::string_view object) const {
  return Json{{"id", id},
              {"object", object},
              {"created", created},
              {"model", model},
              {"system_fingerprint", fmt::format("sluice-{}", kVersion)}};
}

std::string answer_id(std::string_view prefix, const GenerationFields& fields) {
  if (fields.request_id && !fields.request_id->empty())
    return std::string(prefix) + *fields.request_id;
  return make_id(prefix);
}

std::string token_text(const Tokenizer& tokenizer, std::int32_t id) {
  return to_valid_utf8(tokenizer.token_bytes_view(id));
}

Json finish_reason_json(FinishReason reason) {
  if (reason == FinishReason::kNone) return nullptr;
  return std::string(finish_reason_name(reason));
}

Json matched_stop_json(const ChoiceUpdate& update) {
  if (update.finish != FinishReason::kStop) return nullptr;
  if (!update.matched_stop.empty()) return update.matched_stop;
  if (update.matched_token >= 0) return update.matched_token;
  return nullptr;
}

}  // namespace sluice
