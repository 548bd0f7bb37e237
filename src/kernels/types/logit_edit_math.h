// Effect of a logit edit, the same on every device, and log-probabilities of a row on the CPU.
// Compiled without FMA contraction.
#pragma once

#include <cmath>
#include <span>

#include "kernels/types/log_math.h"
#include "kernels/types/sampling_rows.h"

namespace sluice::draw {

// edit.raw with bias, ban and penalties applied, in this order (sampling/host_sampler.h).
// HostSampler::adjust computes the same bits. NaN and
// +infinity stay: such a row fails, and no edit may hide that.
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

// ln sum(exp(x)) of a row whose largest entry is `max`. The sum is exact integer arithmetic
// (sample_math.h), so it has no order. Entries below 2^-41 of the largest entry's weight may be
// omitted: less than 1e-7 in all.
double log_sum_exp(std::span<const float> row, float max);

// The k largest entries minus `normaliser`, into `out`: largest first, ties to the lower index.
// Returns their number.
int top_entries(std::span<const float> row, int k, double normaliser, ops::SampledRow::Entry* out);

}  // namespace sluice::draw
