// The rows and the state of a sequence, for the kernels of recurrent layers.
#pragma once

#include "kernels/cuda/common/common.cuh"
#include "kernels/types/recurrent_params.h"

namespace sluice::cuda {

// Rows [start[i], start[i + 1]) are sequence i, with prefix[i] tokens before them. sources: null,
// or where the state before each sequence lies: its own slot, or that of the sequence before it.
struct SequenceArgs {
  const std::int32_t *start = nullptr, *prefix = nullptr, *slots = nullptr, *sources = nullptr;
  std::int64_t num_rows = 0, num_states = 0;
  int num_sequences = 0;
};

// The rows of one sequence in a step, and of those that continue it one after the other. The state
// behind token first_saved + i of the part goes to the slot of sequence + i.
struct Part {
  std::int64_t first, tokens, slot, first_saved;
  bool is_fresh;  // the sequence begins: its state is zero, whatever the slot holds
};

// No tokens: another sequence's part has these rows. Traps if rows or slots are out of range: a
// wrong slot would overwrite the state of another sequence.
__device__ inline Part part_of(const SequenceArgs& a, int sequence) {
  const std::int64_t first = a.start[sequence], slot = a.slots[sequence];
  std::int64_t end = a.start[sequence + 1];
  expect_below(first, end + 1);
  expect_below(slot, a.num_states);
  const std::int64_t first_saved = end - first - 1;
  if (a.sources != nullptr) {
    if (a.sources[sequence] != slot) return {first, 0, slot, 0, false};
    for (int next = sequence + 1; next < a.num_sequences; ++next) {
      if (a.sources[next] == a.slots[next]) break;
      expect_below(a.slots[next], a.num_states);
      expect_below(a.start[next + 1] - end - 1, 1);  // one token
      ++end;
    }
  }
  expect_below(end, a.num_rows + 1);
  return {first, end - first, slot, first_saved, a.prefix[sequence] == 0};
}

// Where the state behind token `token` of the part goes, from first_saved on.
__device__ inline std::int64_t slot_behind(const SequenceArgs& a, const Part& part, int sequence,
                                           std::int64_t token) {
  return a.slots[sequence + token - part.first_saved];
}

inline SequenceArgs sequences_of(const ops::SequenceRows& rows, const Tensor& x,
                                 const Tensor& state) {
  return {
      .start = rows.start_loc.ptr<std::int32_t>(),
      .prefix = rows.prefix_lens.ptr<std::int32_t>(),
      .slots = rows.state_slots.ptr<std::int32_t>(),
      .sources = rows.state_sources.defined() ? rows.state_sources.ptr<std::int32_t>() : nullptr,
      .num_rows = x.dim(0),
      .num_states = state.dim(0),
      .num_sequences = static_cast<int>(rows.state_slots.dim(0))};
}

}  // namespace sluice::cuda
