// Random sampling of a token from a row of logits, on the CPU. The order of every loop depends only
// on the length of the row.
#pragma once

#include <cstdint>
#include <span>

#include "base/thread_pool.h"
#include "kernels/types/op_params.h"

namespace sluice::draw {

struct RowMax {
  float value = 0;          // the largest entry; -infinity if all entries are
  bool numbers = false;     // no entry is NaN
  bool finite = false;      // numbers, and the largest entry is finite
  std::int32_t first = -1;  // first entry equal to `value`; -1: not searched or not finite
};
RowMax row_max(std::span<const float> row);
// The same for a single row: the pool's threads search parts of it at once, and `first` is set.
RowMax row_max(ThreadPool& pool, std::span<const float> row);

// Index of the first entry equal to `value`, which must occur.
std::int32_t first_equal(std::span<const float> row, float value);

// row := exp((row - max) / temperature). Returns the sum, in the units of sample_math.h.
std::uint64_t weights_in_place(std::span<float> row, float max, float temperature);

// Filters on a row of weights. top_k <= 0, top_p >= 1 and min_p <= 0 each disable a filter.
struct Filters {
  int top_k = -1;
  float top_p = 1.0f;
  float min_p = 0.0f;
};

// Sets every weight that the filters drop to 0 (sampling/host_sampler.h defines them). Returns the
// sum of the others. `weights` and `total` come from weights_in_place.
std::uint64_t filter_in_place(std::span<float> weights, const Filters& filters,
                              std::uint64_t total);

// Index at which the running sum of the weights first exceeds sampled_mass(u, total) of
// sample_math.h.
std::int32_t draw(std::span<const float> weights, std::uint64_t total, double u);

// All steps together: samples a token from a row whose largest entry is `max`. The row is scratch
// memory afterwards.
std::int32_t choose(std::span<float> row, float max, const ops::SampleRow& how);

}  // namespace sluice::draw
