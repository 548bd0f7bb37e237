#include <cmath>
#include <limits>

#include "kernels/cpu/common/rows.h"
#include "kernels/cpu/cpu.h"

namespace sluice::cpu {
namespace {

constexpr float kNever = -std::numeric_limits<float>::infinity();
using ops::kMaxExperts;
using ops::kMaxGroups;

// In double precision, rounded to float once.
void softmax(const float* logits, std::int64_t n, float* out) {
  const double top = *std::max_element(logits, logits + n);
  double sum = 0;
  for (std::int64_t i = 0; i < n; ++i) sum += std::exp(static_cast<double>(logits[i]) - top);
  for (std::int64_t i = 0; i < n; ++i)
    out[i] = static_cast<float>(std::exp(static_cast<double>(logits[i]) - top) / sum);
}

// Index of the largest entry that is not taken; the first of equal ones. NaN and -inf are taken
// only when nothing else is left.
std::int64_t best(const float* values, const bool* taken, std::int64_t n) {
  std::int64_t found = -1;
  for (std::int64_t i = 0; i < n; ++i)
    if (!taken[i] && (found < 0 || values[i] > values[found] ||
                      (std::isnan(values[found]) && !std::isnan(values[i]))))
      found = i;
  return found;
}

// Group-limited routing: sets the choice values of all groups that are not kept to -inf.
// DeepSeek-V3 (kNoauxTc) ranks a group by the sum of its two best experts, DeepSeek-V2 by its best
// one.
void drop_groups(const RouterParams& params, float* choice, std::int64_t experts) {
  const std::int64_t size = experts / params.n_group;
  float score[kMaxGroups];
  for (int g = 0; g < params.n_group; ++g) {
    float first = kNever, second = kNever;
    for (std::int64_t i = g * size; i < (g + 1) * size; ++i) {
      second = std::max(second, std::min(first, choice[i]));
      first = std::max(first, choice[i]);
    }
    score[g] = params.method == TopkMethod::kNoauxTc && size > 1 ? first + second : first;
  }
  bool kept[kMaxGroups] = {};
  for (int i = 0; i < params.topk_group; ++i) kept[best(score, kept, params.n_group)] = true;
  for (int g = 0; g < params.n_group; ++g)
    if (!kept[g]) std::fill(choice + g * size, choice + (g + 1) * size, kNever);
}

// SparseMixer inference, as transformers `sparsemixer` outside training. Two rounds: take the best
// expert; its weight is its softmax among the experts near it; mask it.
void mix_row(const RouterParams& params, const float* logits, std::int64_t experts, float* weights,
             std::int32_t* ids) {
  float left[kMaxExperts], near[kMaxExperts];
  std::copy_n(logits, experts, left);
  const bool none[kMaxExperts] = {};
  std::int64_t chosen[2];
  float weight[2];
  for (int j = 0; j < 2; ++j) {
    const std::int64_t top = best(left, none, experts);
    const float highest = left[top];
    for (std::int64_t i = 0; i < experts; ++i) {
      const float distance = (highest - logits[i]) / std::max(std::abs(logits[i]), highest);
      near[i] = distance > 2 * params.mixer_eps ? kNever : left[i];
    }
    softmax(near, experts, near);
    chosen[j] = top;
    weight[j] = near[top] * params.scaling;
    left[top] = kNever;
  }
  // Experts come out in ascending order of id.
  const int lower = chosen[0] < chosen[1] ? 0 : 1;
  for (int j = 0; j < 2; ++j) {
    const int from = j == 0 ? lower : 1 - lower;
    ids[j] = static_cast<std::int32_t>(chosen[from]);
    weights[j] = weight[from];
  }
}

void route_row(const RouterParams& params, const float* logits, const float* bias,
               std::int64_t experts, float* weights, std::int32_t* ids) {
  if (params.method == TopkMethod::kSparseMixer)
    return mix_row(params, logits, experts, weights, ids);
  float scores[kMaxExperts], choice[kMaxExperts];
  bool taken[kMaxExperts] = {};
  switch (params.scoring) {
    case RouterScoring::kSoftmax:
      softmax(logits, experts, scores);
      break;
    case RouterScoring::kSigmoid:
      for (std::int64_t i = 0; i < experts; ++i)
        scores[i] = static_cast<float>(1.0 / (1.0 + std::exp(-static_cast<double>(logits[i]))));
      break;
  }
  // Greedy sigmoid routing compares logits: sigmoids of large logits are equal, the logits are not.
  const bool by_logits =
      params.method == TopkMethod::kGreedy && params.scoring == RouterScoring::kSigmoid;
  for (std::int64_t i = 0; i < experts; ++i)
    choice[i] = bias != nullptr ? scores[i] + bias[i] : by_logits ? logits[i] : scores[i];
  if (params.method != TopkMethod::kGreedy && params.n_group > 1)
    drop_groups(params, choice, experts);
  for (int j = 0; j < params.top_k; ++j) taken[best(choice, taken, experts)] = true;

  // Collect the chosen experts in ascending order. Their weights come from the unbiased scores.
  int found = 0;
  float sum = 0;
  for (std::int64_t i = 0; i < experts; ++i) {
    if (!taken[i]) continue;
    ids[found] = static_cast<std::int32_t>(i);
    weights[found++] = scores[i];
    sum += scores[i];
  }
  for (int j = 0; j < found; ++j) {
    if (params.renormalise)
      weights[j] /= std::max(sum + params.renormalise_eps, params.renormalise_min);
    weights[j] *= params.scaling;
  }
}

}  // namespace

void route(Context& ctx, const Tensor& logits, const Tensor& correction_bias,
           const RouterParams& params, const Tensor& weights, const Tensor& ids) {
  const std::int64_t experts = logits.dim(1);
  const float* bias = correction_bias.defined() ? correction_bias.ptr<float>() : nullptr;
  parallel(ctx, logits.dim(0), experts * (32 + params.top_k),
           [&](std::int64_t begin, std::int64_t end) {
             for (std::int64_t t = begin; t < end; ++t)
               route_row(params, row<float>(logits, t), bias, experts, row<float>(weights, t),
                         row<std::int32_t>(ids, t));
           });
}

}  // namespace sluice::cpu
