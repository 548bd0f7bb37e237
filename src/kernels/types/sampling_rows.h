// Plain structs of the start and the end of a step, shared by ops and their kernels on every
// device.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "tensor/tensor.h"

namespace sluice::ops {

// Maximum most-likely tokens that a request can have reported.
inline constexpr int kMaxTopLogprobs = 20;

// A change of one token's logit by a request. Kernels also store the raw logit in it.
struct LogitEdit {
  std::int32_t token = 0;
  std::int32_t count = kUnseen;  // occurrences in the output; 0: only in the prompt
  float bias = 0;
  std::int32_t banned = 0;  // 1: impossible while LogitEdits::bans is set
  float raw = 0;

  static constexpr std::int32_t kUnseen = -1;  // neither in the prompt nor in the output
};
// View of a tensor [slots, capacity, sizeof(LogitEdit)] u8.
inline LogitEdit* as_logit_edit_list(const Tensor& edit_lists) {
  return static_cast<LogitEdit*>(edit_lists.data);
}

// Per row of logits: which edits apply, the penalties, and the log-probabilities to report.
struct LogitEdits {
  std::int32_t slot = -1;  // slot whose edits apply; -1: none
  float repetition = 1, frequency = 0, presence = 0;
  std::int32_t bans = 0;               // 1: bans of the edits are active
  std::int32_t remembers = 0;          // 1: the sampled token is added to the edits
  std::int32_t num_top_logprobs = -1;  // -1: no log-probabilities; 0 .. kMaxTopLogprobs

  bool anything() const { return slot >= 0 || num_top_logprobs >= 0; }
};
// View of a tensor [rows, sizeof(LogitEdits)] u8.
inline LogitEdits* as_logit_edits(const Tensor& logit_edits) {
  return static_cast<LogitEdits*>(logit_edits.data);
}

// Log-probabilities of a row, over all its raw logits.
struct SampledRow {
  double normaliser = 0;  // log-sum-exp of the row
  float logprob = 0;      // of the sampled token
  std::int32_t num_top = 0;
  struct Entry {
    std::int32_t token;
    float logprob;
  } top[kMaxTopLogprobs] = {};  // best first, ties to the lower id
};
// View of a tensor [rows, sizeof(SampledRow)] u8.
inline SampledRow* as_sampled_rows(const Tensor& sampled_rows) {
  return static_cast<SampledRow*>(sampled_rows.data);
}

// Inputs of a recorded step (CUDA graph), which the device copies from host memory itself. Step n
// uses sides[n % 2], whose first eight bytes are n.
struct StepInputs {
  std::array<Tensor, 2> sides;  // [bytes] u8, host memory that the device can read
  Tensor counter;               // [1] i64: number of the next step; store_step_tokens advances it
  Tensor inputs;  // [bytes] u8: copied as a whole from the beginning of the side; a multiple of 16
  Tensor ids;     // [tokens] i32, in inputs; -1 - slot is replaced by the slot's token
  Tensor seq_lens;                  // [seqs] i32, in inputs
  std::vector<Tensor> page_tables;  // [seqs, max_pages] i32, after inputs; only the pages of a
                                    // sequence's length are copied
  Tensor slot_tokens;               // [slots] i32
};
inline constexpr std::size_t kMaxInputTables = 8;

}  // namespace sluice::ops
