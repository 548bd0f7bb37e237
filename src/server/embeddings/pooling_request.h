// What requests for vectors have in common: their fields, and texts as inputs of the engine.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "base/json.h"
#include "server/api/protocol_fields.h"
#include "server/core/pooling_model.h"
#include "server/core/server_state.h"
#include "server/embeddings/pooling_job.h"

namespace sluice {

// A number of a request: the table of their ranges (R7) is in pooling_request.cpp.
struct PoolingFields {
  std::optional<std::string> model, prompt_name, cache_salt, task;
  std::optional<bool> normalize, add_special_tokens, truncate, return_documents, return_text,
      raw_scores;
  // truncate_tokens -1: as many as the model takes
  std::optional<std::int64_t> dimensions, truncate_tokens, priority, top_n;
  std::optional<double> timeout;
  bool base64 = false;
  std::vector<std::string> ignored;  // fields that changed nothing

  // Of a text; 0: texts are not cut.
  std::int64_t kept_tokens(const PoolingModel& model) const;
};

// Reads those of `rows` that the names above stand for; other own fields are the caller's.
std::optional<Fault> read_pooling_fields(const ServedModel& model, const Json& body,
                                         std::span<const ProtocolField> rows, PoolingFields& out);

// The model, or why requests for vectors are not served: 503, or 400 unsupported_task.
Result<const ServedModel*> serving_vectors(const ServerState& state);

// Inputs of a request, and what is left out of them.
struct PoolingInputs {
  std::vector<PoolingJob::Input> list;
  std::int64_t num_tokens = 0;
  std::int64_t num_cut = 0;  // tokens that were asked to be left out
};
// Most texts of a request.
inline constexpr std::size_t kMaxPoolingInputs = 2048;

// `input`: a text, a list of texts, token ids, or a list of such lists. 400: a wrong shape, a text
// without tokens or with more than the model takes (both numbers), too many texts or tokens.
std::optional<Fault> read_pooling_inputs(const ServerState& state, const ServedModel& model,
                                         const PoolingFields& fields, const Json& input,
                                         const std::string& param, PoolingInputs& out);

// Token ids of a text whose prompt stands before it already.
Result<std::vector<std::int32_t>> encode_text(const ServedModel& model, std::string_view text,
                                              const std::string& param, bool add_special_tokens,
                                              bool is_cut);
// 400: the texts of a request have too many tokens together.
std::optional<Fault> check_total(const ServerState& state, std::int64_t tokens,
                                 const std::string& param);
Fault too_many_tokens(const std::string& param, std::size_t tokens, std::int64_t most);

// What the engine is asked for each input.
Request pooling_request(const HttpRequest& request, const PoolingFields& fields, Pooling pooling);

// Headers that tell of ignored fields and of tokens that were left out.
void tell_pooling(Responder& responder, const PoolingFields& fields, const PoolingInputs& inputs);

// `dimensions` of the request; 0: whole vectors.
Result<std::int64_t> read_dimensions(const PoolingModel& model, const PoolingFields& fields);

// Appends a vector: an array of numbers, or base64 of its float32 (little endian) in quotes.
void append_vector(std::string& out, std::span<const float> vector, bool base64);

}  // namespace sluice
