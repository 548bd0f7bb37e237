// How the states of a request's tokens become one vector, as in sentence-transformers' Pooling.
#pragma once

#include <cstdint>

namespace sluice {

// A state is the hidden state of a token after the model's last norm.
enum class Pooling : std::uint8_t {
  kNone,          // the request generates tokens
  kLast,          // the last token's state
  kFirst,         // the first token's, as of [CLS]
  kMean,          // the mean
  kMax,           // the largest value of each column
  kMeanSqrt,      // the sum divided by the square root of the number of tokens
  kWeightedMean,  // the mean with weights 1, 2, 3, ... of positions 0, 1, 2, ...
  kAll,           // every state: [tokens, hidden]
  kScores,        // what the model's head for sequence classification says: [labels]
};

// Whether the states of all tokens are needed, so that none may come from the prefix cache.
constexpr bool pools_every_token(Pooling pooling) {
  return pooling != Pooling::kNone && pooling != Pooling::kLast;
}

}  // namespace sluice
