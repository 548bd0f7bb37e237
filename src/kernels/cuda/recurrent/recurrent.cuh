// The rows and the state of a sequence, for the kernels of recurrent layers.
#pragma once

#include "kernels/cuda/common/common.cuh"
#include "kernels/types/recurrent_params.h"

namespace sluice::cuda {

// Rows [start[i], start[i + 1]) are sequence i, with prefix[i] tokens before them.
struct SequenceArgs {
  const std::int32_t *start = nullptr, *prefix = nullptr, *slots = nullptr;
  std::int64_t num_rows = 0, num_states = 0;
};

// The rows of one sequence in a step.
struct Part {
  std::int64_t first, tokens, slot;
  bool is_fresh;  // the sequence begins: its state is zero, whatever the slot holds
};

// Traps if rows or slot are out of range: a wrong slot would overwrite the state of another
// sequence.
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
