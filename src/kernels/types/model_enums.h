// What a model computes, in the words that its configuration and the kernels share.
#pragma once

#include <cstdint>

namespace sluice {

// The function of an MLP.
enum class Activation : std::uint8_t {
  kSilu,      // x * sigmoid(x)
  kGeluTanh,  // 0.5 x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3)))
  kGelu,      // 0.5 x (1 + erf(x / sqrt(2)))
  kRelu,      // max(x, 0)
  kRelu2,     // max(x, 0)^2
  kXielu,     // Apertus: two learned slopes a layer, see ops::xielu()
};

// What a router makes of its logits.
enum class RouterScoring : std::uint8_t { kSoftmax, kSigmoid };

// How the experts of a token are chosen.
enum class TopkMethod : std::uint8_t {
  kGreedy,              // the k best scores
  kGroupLimitedGreedy,  // DeepSeek-V2: groups by their best score, then the k best of the kept
                        // groups
  kNoauxTc,  // DeepSeek-V3: score + bias chooses (groups by the sum of their two best), the score
             // weighs
  // PhiMoE: twice the best logit of those not chosen yet; its weight is its softmax among the
  // logits that lie within a relative distance of twice mixer_eps below it. top_k is 2.
  kSparseMixer,
};

}  // namespace sluice
