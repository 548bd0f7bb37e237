// Pieces that OpenAI's chat and completion answers share.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/json.h"
#include "server/api/request_fields.h"
#include "server/core/generation.h"

namespace sluice {

// usage{prompt_tokens, completion_tokens, total_tokens, details}.
Json usage_json(const GenerationTotals& totals, int reasoning_tokens);

// The head of an answer or chunk: id, object, created, model, system_fingerprint.
struct AnswerHead {
  std::string id;
  std::int64_t created = 0;
  std::string model;
  Json json(std::string_view object) const;
};

// `prefix` and the request's `request_id`, or random digits.
std::string answer_id(std::string_view prefix, const GenerationFields& fields);

// A token as text: its bytes, with what is no valid UTF-8 replaced.
std::string token_text(const Tokenizer& tokenizer, std::int32_t id);

// stop, length, abort; and what made it stop: the string, the token id, or null.
Json finish_reason_json(FinishReason reason);
Json matched_stop_json(const ChoiceUpdate& update);

}  // namespace sluice
