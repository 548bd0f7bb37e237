// The fields of a request that are plain values, in one declarative table (R7): name, where it is
// read, type, range.
//
//   GenerationFields fields;
//   if (std::optional<Fault> fault = read_fields(body, kChatApi, "", {vocab_size}, fields)) ...
//
// A field that is absent or null keeps its default. Known ones that this server cannot honour are
// refused by name, unless their value asks for nothing (null, false, empty). Those that may be
// ignored, and unknown ones, are noted in the log once and listed in `ignored`. Any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/json.h"
#include "engine/engine.h"
#include "text/grammar/sources/grammar_source.h"

namespace sluice {

enum FieldApi : unsigned { kChatApi = 1, kCompletionApi = 2, kNativeApi = 4, kSamplingApi = 8 };

// What the output must obey, and the field that says so.
struct GrammarField {
  grammar::GrammarSource source;
  std::string param;
  bool is_optional = false;  // where it cannot be compiled the answer is free, and that is told
};

// What requests may say; empty where they did not.
struct GenerationFields {
  std::optional<double> temperature, top_p, min_p, frequency_penalty, presence_penalty,
      repetition_penalty, timeout;
  std::optional<std::int64_t> top_k, n, best_of, max_tokens, max_completion_tokens, min_tokens,
      priority;
  std::optional<std::int64_t> seed;  // the bits of a 64-bit number, signed or not
  // top_logprobs (chat), logprobs (completions), top_logprobs_num
  std::optional<std::int64_t> num_logprobs;
  std::optional<std::int64_t> logprob_start_len;
  std::optional<std::int64_t> thinking_budget;  // tokens of thoughts, then the answer begins
  std::optional<bool> stream, want_logprobs, return_text_in_logprobs, ignore_eos,
      skip_special_tokens, keep_stop, echo;
  std::optional<bool> add_generation_prompt, continue_final_message, separate_reasoning,
      parallel_tool_calls;
  std::optional<bool> return_token_ids, return_captures, deterministic, add_special_tokens;
  std::optional<std::string> model, cache_salt, rid, reasoning_effort;
  std::optional<std::string> request_id;  // becomes a part of the answer's id
  std::vector<std::string> stop;
  std::vector<std::int32_t> stop_token_ids;
  std::vector<std::pair<std::int32_t, float>> logit_bias;
  std::optional<GrammarField> grammar;
  bool include_usage = false;        // stream_options
  bool continuous_usage = false;     // stream_options
  std::vector<std::string> ignored;  // fields of the request that changed nothing
};

struct FieldContext {
  std::int64_t vocab_size = 0;  // min(logits width, tokenizer size): ids must be below
};

// Reads what `api` knows of `object`; `prefix` ("sampling_params.") goes before names in faults.
std::optional<Fault> read_fields(const Json& object, FieldApi api, std::string_view prefix,
                                 const FieldContext& context, GenerationFields& out);

// A fault of the field `name` where fewer tokens may come than it asks for.
std::optional<Fault> check_minimum(const std::string& name, const GenerationFields& fields);

// What the engine is asked for, without the prompt: the request's word, else the model's (where
// `model_defaults` is set), else the interface's.
Request engine_request(const GenerationFields& fields, const GenerationConfig* model_defaults);

// The interfaces' word for the type of a value: "a string", "an array", ...
std::string_view json_type_name(const Json& value);

// One line for each row, for the table-driven test and the documentation.
struct FieldSummary {
  std::string_view name;
  unsigned apis;
  std::string_view kind;  // number, integer, boolean, string, ignored, unsupported, special
  double min, max;
};
std::vector<FieldSummary> field_summaries();

}  // namespace sluice
