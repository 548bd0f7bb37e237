// Scores of pairs of texts and of labels: what the routes of scores have in common.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "server/embeddings/pooling_request.h"

namespace sluice {

// The score of each pair of (first, second), in their order.
struct PairScores {
  std::vector<double> scores;
  std::int64_t prompt_tokens = 0;
};
struct TextPair {
  const std::string* first = nullptr;
  const std::string* second = nullptr;
};

// Scores the pairs and answers with what `reply` makes of them: by the model's head, or by the
// cosine of both vectors. 400: the model gives no scores, or a text is too long. The texts may go
// when this returns.
std::optional<Fault> score_pairs(ServerState& state, const ServedModel* model,
                                 const HttpRequest& request,
                                 const std::shared_ptr<Responder>& responder,
                                 const PoolingFields& fields, const std::vector<TextPair>& pairs,
                                 std::function<HttpReply(const PairScores&)> reply);

// Scores of labels as probabilities: sigmoids of one label or of labels that exclude each other
// not, else the softmax. Unchanged where `activates` is false.
std::vector<double> label_scores(const PoolingModel& model, std::span<const float> logits,
                                 bool activates);

// {"prompt_tokens": ..., "total_tokens": ...}
Json score_usage(std::int64_t prompt_tokens);

}  // namespace sluice
