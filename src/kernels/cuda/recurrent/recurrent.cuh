// Where the rows and the state of a sequence are, for the kernels of recurrent layers.
#pragma once

#include "kernels/cuda/common/common.cuh"
#include "kernels/types/recurrent_params.h"

namespace sluice::cuda {

struct SequenceArgs {
  const std::int32_t *start = nullptr, *prefix = nullptr, *slots = nullptr;
  std::int64_t num_rows = 0, num_states = 0;
};

struct Part {
  std::int64_t first, tokens, slot;
  bool fresh;  // the state before is zero, whatever the slot holds
};

__device__ inline Part part_of(const SequenceArgs& a, int sequence) {
  const std::int64_t first = a.start[sequence], end = a.start[sequence + 1],
                     slot = a.slots[sequence];
  expect_below(first, end + 1);
  expect_below(end, a.num_rows + 1);
  expect_below(slot, a.num_states);
  return {first, end - first, slot, a.prefix[sequence] == 0};
}

inline SequenceArgs sequences_of(const ops::SequenceRows& rows, const Tensor& x,
                                 const Tensor& state) {
  return {.start = rows.start_loc.ptr<std::int32_t>(),
          .prefix = rows.prefix_lens.ptr<std::int32_t>(),
          .slots = rows.state_slots.ptr<std::int32_t>(),
          .num_rows = x.dim(0),
          .num_states = state.dim(0)};
}

}  // namespace sluice::cuda
