// Plain values of the head and the tail of a step that ops and their bodies on every device share.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "tensor/tensor.h"

namespace sluice::ops {

// The most likely tokens that a request may want named.
inline constexpr int kMaxTopLogprobs = 20;

// What a request says about one token: its row of logits is changed there. The bodies also note the
// raw logit.
struct LogitEdit {
  std::int32_t token = 0;
  std::int32_t count = kUnseen;  // in the output; 0: in the prompt alone
  float bias = 0;
  std::int32_t banned = 0;  // 1: impossible while LogitEdits::bans
  float raw = 0;

  static constexpr std::int32_t kUnseen = -1;  // neither in the prompt nor in the output
};
// Of a tensor [slots, capacity, sizeof(LogitEdit)] u8.
inline LogitEdit* as_logit_edit_list(const Tensor& edit_lists) {
  return static_cast<LogitEdit*>(edit_lists.data);
}

// What is wanted of a row of logits beyond a token.
struct LogitEdits {
  std::int32_t slot = -1;  // whose rules change the row; -1: nobody's
  float repetition = 1, frequency = 0, presence = 0;
  std::int32_t bans = 0;               // 1: the rules' bans count
  std::int32_t remembers = 0;          // 1: the chosen token joins the rules
  std::int32_t num_top_logprobs = -1;  // -1: no log-probabilities; 0 .. kMaxTopLogprobs

  bool anything() const { return slot >= 0 || num_top_logprobs >= 0; }
};
// Of a tensor [rows, sizeof(LogitEdits)] u8.
inline LogitEdits* as_logit_edits(const Tensor& logit_edits) {
  return static_cast<LogitEdits*>(logit_edits.data);
}

// Log-probabilities of a row, over all its raw logits.
struct SampledRow {
  double normaliser = 0;  // the logarithm of the sum of exponentials
  float logprob = 0;      // of the chosen token
  std::int32_t num_top = 0;
  struct Entry {
    std::int32_t token;
    float logprob;
  } top[kMaxTopLogprobs] = {};  // best first, ties to the lower id
};
// Of a tensor [rows, sizeof(SampledRow)] u8.
inline SampledRow* as_sampled_rows(const Tensor& sampled_rows) {
  return static_cast<SampledRow*>(sampled_rows.data);
}

// The inputs of a recorded step, which the device fetches from host memory by itself. Step number n
// lies in sides[n % 2], whose first eight bytes are n.
struct StepInputs {
  std::array<Tensor, 2> sides;  // [bytes] u8, host memory that the device can read
  Tensor counter;   // [1] i64: the number of the next step; store_step_tokens moves it on
  Tensor inputs;    // [bytes] u8: copied whole from the beginning of the side; a multiple of 16
  Tensor ids;       // [tokens] i32, in inputs; -1 - slot becomes the slot's token
  Tensor seq_lens;  // [seqs] i32, in inputs
  std::vector<Tensor> page_tables;  // [seqs, max_pages] i32, behind inputs; of a row only the pages
                                    // of its length are copied
  Tensor slot_tokens;               // [slots] i32
};
inline constexpr std::size_t kMaxInputTables = 8;

}  // namespace sluice::ops
