// Enumerations of model properties, shared by the model configuration and the kernels.
#pragma once

#include <cstdint>

namespace sluice {

// Activation function of an MLP.
enum class Activation : std::uint8_t {
  kSilu,      // x * sigmoid(x)
  kGeluTanh,  // 0.5 x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3)))
  kGelu,      // 0.5 x (1 + erf(x / sqrt(2)))
  kRelu,      // max(x, 0)
  kRelu2,     // max(x, 0)^2
  kXielu,     // Apertus: two learned slopes a layer, see ops::xielu()
};

// Scores that a router computes from its logits.
enum class RouterScoring : std::uint8_t { kSoftmax, kSigmoid };

// How the experts of a token are selected.
enum class TopkMethod : std::uint8_t {
  kGreedy,              // the k best scores
  kGroupLimitedGreedy,  // DeepSeek-V2: keep the groups with the best single scores, then the
                        // k best of the kept groups
  kNoauxTc,  // DeepSeek-V3: select by score + bias, groups ranked by the sum of their two
             // best; weights are the scores
  // PhiMoE: twice the best remaining logit. Its weight is its softmax among the logits within a
  // relative distance of 2 * mixer_eps below it. top_k is 2.
  kSparseMixer,
};

}  // namespace sluice
