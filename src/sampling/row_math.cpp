#include "sampling/row_math.h"

#include <algorithm>

#include "kernels/types/logit_edit_math.h"
#include "kernels/types/uniform.h"

namespace sluice {

double log_sum_exp(std::span<const float> row, float max) {
  return draw::log_sum_exp(row, max);
}

std::vector<TokenLogprob> top_logprobs(std::span<const float> row, int k, double log_sum_exp) {
  std::vector<ops::SampledRow::Entry> best(
      std::min(static_cast<std::size_t>(std::max(k, 0)), row.size()));
  draw::top_entries(row, k, log_sum_exp, best.data());
  std::vector<TokenLogprob> out;
  for (const auto& [token, logprob] : best) out.push_back({token, logprob});
  return out;
}

double uniform_at(std::uint64_t seed, std::int32_t position) {
  return draw::uniform_at(seed, position);
}

}  // namespace sluice
