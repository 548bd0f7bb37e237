// What a request's rules make of a logit, the same on every device, and log-probabilities of a row
// on the CPU. Compiled without contraction.
#pragma once

#include <cmath>
#include <span>

#include "kernels/types/log_math.h"
#include "kernels/types/sampling_rows.h"

namespace sluice::draw {

// rule.raw with its bias, its ban and its penalties, in this order (sampling/host_sampler.h). A row
// with NaN or +infinity fails, which no rule shall hide.
SLUICE_ON_BOTH inline float edited_logit(const ops::LogitEdit& edit,
                                         const ops::LogitEdits& row_edits) {
  float x = edit.raw;
  if (!(x < INFINITY)) return x;
  x += edit.bias;
  if (edit.banned != 0 && row_edits.bans != 0) x = -INFINITY;
  if (edit.count >= 0) {
    x = x > 0 ? x / row_edits.repetition : x * row_edits.repetition;
    if (edit.count > 0)
      x -= row_edits.frequency * static_cast<float>(edit.count) + row_edits.presence;
  }
  return x;
}

// ln sum(exp(x)) of a row whose largest entry is `max`. The sum is exact (sample_math.h), so it has
// no order; entries that together are below 2^-41 of the largest one's weight each may be left out,
// less than 1e-7 in all.
double log_sum_exp(std::span<const float> row, float max);

// The k largest entries, largest first, ties to the lower index, each less `normaliser`, into
// `out`. Returns how many.
int top_entries(std::span<const float> row, int k, double normaliser, ops::SampledRow::Entry* out);

}  // namespace sluice::draw
