#include "kernels/types/logit_edit_math.h"

#include <algorithm>

namespace sluice::draw {

double log_sum_exp(std::span<const float> row, float max) {
  std::uint64_t sum = 0;
  for (const float x : row) sum += mass_of(exp_nonpositive(x - max));
  return log_of_mass(sum) + max;
}

int top_entries(std::span<const float> row, int k, double normaliser, ops::SampledRow::Entry* out) {
  k = static_cast<int>(std::min<std::size_t>(static_cast<std::size_t>(std::max(k, 0)), row.size()));
  int found = 0;  // until the end, entries hold logits
  for (std::size_t i = 0; i < row.size() && k > 0; ++i) {
    const float x = row[i];
    if (found == k && !(x > out[k - 1].logprob)) continue;
    // Insert after entries of equal value, which have lower ids.
    int at = found == k ? k - 1 : found++;
    for (; at > 0 && x > out[at - 1].logprob; --at) out[at] = out[at - 1];
    out[at] = {static_cast<std::int32_t>(i), x};
  }
  for (int i = 0; i < found; ++i)
    out[i].logprob = static_cast<float>(static_cast<double>(out[i].logprob) - normaliser);
  return found;
}

}  // namespace sluice::draw
