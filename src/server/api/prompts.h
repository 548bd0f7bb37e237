// From a request's body to prompts: what all text routes share. Text threads.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "base/json.h"
#include "server/api/request_fields.h"
#include "server/core/generation.h"
#include "server/core/server_state.h"

namespace sluice {

// The body as a JSON object.
Result<Json> parse_object(std::string_view body);

// 404 for a model that is not served, 400 for an adapter.
std::optional<Fault> check_model(const ServedModel& model, const std::optional<std::string>& name);

// Token ids of `text`; refuses without tokenising what cannot fit the context (R15).
Result<std::vector<std::int32_t>> encode_prompt(const ServedModel& model, std::string_view text,
                                                std::string_view param, bool add_special_tokens);
// An array of token ids, each in the vocabulary; at least one.
Result<std::vector<std::int32_t>> read_token_ids(const ServedModel& model, const Json& json,
                                                 const std::string& param);
// A fault when prompt and output cannot fit the context together.
std::optional<Fault> check_context(const ServedModel& model, std::size_t num_prompt_tokens,
                                   std::int64_t max_new_tokens, std::string_view param);

// check_context for every prompt of a plan. Where no length was `asked` for, the default yields to
// the context.
std::optional<Fault> fit_context(const ServedModel& model, GenerationPlan& plan, bool asked,
                                 std::string_view param);

// A fault when a plan's answers must be longer than they may become: than the model's own limit of
// an answer, or than what its prompts leave of the context.
std::optional<Fault> check_least(const ServedModel& model, const GenerationPlan& plan,
                                 std::string_view param);

// The prefix-cache namespace of an authenticated key, narrowed by a salt (R18).
std::uint64_t cache_namespace(std::uint64_t key_id, const std::optional<std::string>& salt);

// The part of a plan that every protocol fills alike.
GenerationPlan make_plan(const ServerState& state, const ServedModel& model,
                         const HttpRequest& request, const GenerationFields& fields);

// Compiles the grammar of a request, if it has one, for a plan that is otherwise made, and its
// captures where they are asked for. Lets others be read meanwhile.
std::optional<Fault> add_grammar(const ServedModel& model, const HttpRequest& request,
                                 GenerationFields& fields, GenerationPlan& plan);

// Makes the generation and starts it.
void start_generation(ServerState& state, const ServedModel* model, const HttpRequest& request,
                      std::shared_ptr<Responder> responder, GenerationPlan plan);

}  // namespace sluice
