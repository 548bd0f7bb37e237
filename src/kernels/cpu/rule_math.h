// What a request's rules make of a logit, the same on every device, and log-probabilities of a row on the CPU. Compiled
// without contraction.
#pragma once

#include <cmath>
#include <span>

#include "kernels/cpu/log_math.h"
#include "kernels/cpu/step_types.h"

namespace sluice::draw {

// rule.raw with its bias, its ban and its penalties, in this order (sampling/sampler.h). A row with NaN or +infinity fails,
// which no rule shall hide.
SLUICE_ON_BOTH inline float ruled_logit(const ops::TokenRule& rule, const ops::RowAsk& ask) {
  float x = rule.raw;
  if (!(x < INFINITY)) return x;
  x += rule.bias;
  if (rule.banned != 0 && ask.bans != 0) x = -INFINITY;
  if (rule.count >= 0) {
    x = x > 0 ? x / ask.repetition : x * ask.repetition;
    if (rule.count > 0) x -= ask.frequency * static_cast<float>(rule.count) + ask.presence;
  }
  return x;
}

// ln sum(exp(x)) of a row whose largest entry is `max`. The sum is exact (draw_math.h), so it has no order; entries that
// together are below 2^-41 of the largest one's weight each may be left out, less than 1e-7 in all.
double log_sum_exp(std::span<const float> row, float max);

// The k largest entries, largest first, ties to the lower index, each less `normaliser`, into `out`. Returns how many.
int top_entries(std::span<const float> row, int k, double normaliser, ops::RowChoice::Entry* out);

}  // namespace sluice::draw
