// Chooses the next tokens, and reads log-probabilities, from the logits of a step, on the host.
//
//   sampler.begin(batch);                            // takes in batch.slot_inits
//   for (each chunk of logit rows) sampler.process(ctx, batch, first_row, logits);
//   BatchResult result = sampler.finish(batch);      // and the slots remember what was chosen
//
// Where a device chooses the tokens (not any_needs_host), the host learns of them later, in the
// order of the batches:
//
//   sampler.apply(batch.slot_inits);                 // when the batch is launched; sample_row_of()
//                                                    // and logit_edits_of() say how
//   BatchResult result = sampler.accept(batch, tokens, sampled_rows);  // when the tokens have come
//
// State lives by slot, as sequences do on a device: parameters, the last token, how many tokens
// were generated and, where penalties need it, how often each token occurred. The sampler appends
// what it chooses, so a step may be launched before the host has seen the step before it.
//
// Order of work for a sampled row (docs/architecture.md, Numerics): raw log-probabilities and hash
// are read first; then logit bias, the ban on end tokens until min_new_tokens, repetition,
// frequency and presence penalties, and the mask of tokens; then the most likely token (ties to the
// lowest id), or temperature, softmax, top-k, top-p, min-p and a draw. Filters keep the best tokens
// in the order (probability descending, id ascending). top-k and top-p both look at the
// probabilities of the whole vocabulary and the smaller set is kept ("joint" in FlashInfer); with
// min-p in use top-p looks at the probabilities renormalised after top-k, and min-p keeps p >=
// min_p * max(p) of what is left.
//
// The draw is one uniform number, a hash of (seed, position), laid on the cumulative sum of the
// kept probabilities in order of token id. Sums of probabilities are exact
// (kernels/types/sample_math.h). So a token depends on its row of logits, its slot and (seed,
// position) alone: not on the batch, the number of threads, the device that draws, or how the rows
// were cut into chunks. Choices of one request (n > 1) need seeds of their own.
//
// A row that holds NaN or +infinity, or in which no finite logit is left, fails its item
// (numerics_error); other rows are not affected. Filters work inside the row of logits; the only
// copy is of one row for each worker (R12).
//
// One thread calls; rows are shared out over ctx.pool.
#pragma once

#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

#include "batch/batch.h"
#include "batch/sample_inputs.h"
#include "batch/step_result.h"
#include "kernels/types/op_params.h"
#include "kernels/types/round_rows.h"
#include "kernels/types/sampling_rows.h"
#include "tensor/context.h"
#include "tensor/tensor.h"

namespace sluice {

// A bug unless the inputs have the masks of the rows with has_mask, and no others.
void expect_masks(const Batch& batch, const SampleInputs& inputs);

class HostSampler {
 public:
  // Slots are 0 .. max_slots - 1; rows of logits have vocab_size entries. Measurements pretend:
  // with `pretended` the draft at place d is right with chance pretended[d], and 0 behind the last;
  // with `replayed` the token at position p of every sequence is replayed[p], whatever the logits.
  HostSampler(int max_slots, int vocab_size, std::vector<double> pretended = {},
              std::vector<std::int32_t> replayed = {});

  // Gives slots to new sequences. begin() does it for the batch.
  void apply(std::span<const SlotInit> inits);

  // Starts a batch: applies its slot_inits and forgets what was left of the batch before.
  void begin(const Batch& batch);
  // The same for a batch whose slot_inits were applied. `inputs` live until finish(): a mask for
  // each row with has_mask.
  void begin_rows(const Batch& batch, const SampleInputs& inputs = {});
  // Logit rows [first_row, first_row + logits.dim(0)) of the batch; each row of the batch must be
  // given once. logits: float32 [rows, vocab_size], dense; on return the rows of sampled tokens
  // hold scratch values. Rows come in their order. Of several sampled rows of an item, a later one
  // counts if the row that it is behind (LogitRow::behind) counts and chose the later one's token;
  // it sees that token in its slot.
  void process(const Context& ctx, const Batch& batch, std::int32_t first_row,
               const Tensor& logits);
  // Gathers the results in the order of items, and appends each chosen token to its slot.
  BatchResult finish(const Batch& batch);

  // Whether a row wants what only the host does: log-probabilities of a prompt, hashes, more logit
  // edits than kMaxEdits, any logit edits behind a draft. The batch's slot_inits were applied;
  // batches that are not finished yet do not change the answer to no.
  bool any_needs_host(const Batch& batch) const;
  // How ops::sample_tokens chooses the token of a row; left out where the row needs the host.
  ops::SampleRow sample_row_of(const LogitRow& row, std::int32_t slot) const;
  // What its random number is made of.
  ops::RowKey row_key_of(const LogitRow& row, std::int32_t slot) const {
    return {.seed = slots_[slot].params.seed, .position = row.position};
  }
  // What else is asked of the row (ops/logit_edits.h), when `num_ahead` tokens of the slot have
  // been chosen that the host has not seen; nothing where the row needs the host.
  ops::LogitEdits logit_edits_of(const LogitRow& row, std::int32_t slot,
                                 std::int32_t num_ahead) const;
  // The slot's logit edits, as of the tokens that the host has seen; at most kMaxEdits - 2.
  std::vector<ops::LogitEdit> list_of(std::int32_t slot) const;
  // The result of a batch of which no row needs the host, from what ops::sample_tokens chose; -1
  // where a row was not finite. `sampled_rows`, of as many rows, may be null where no row wants
  // log-probabilities. `skipped`: rows whose masks are skipped, ascending.
  BatchResult accept(const Batch& batch, std::span<const std::int32_t> tokens,
                     const ops::SampledRow* sampled_rows = nullptr,
                     std::span<const std::int32_t> skipped = {});

  static constexpr std::int64_t kMaxEdits = 8192;  // of a slot

  // begin, process and finish for logits [batch.logit_rows.size(), vocab_size].
  BatchResult sample(const Context& ctx, const Batch& batch, const Tensor& logits);

  // The token that the slot's sequence got last: what kTokenFromSlot stands for. -1 before its
  // first.
  std::int32_t last_token(int slot) const { return slots_[slot].last_token; }

 private:
  struct Slot {
    SamplingParams params;
    std::int32_t last_token = -1;
    std::int32_t num_output = 0;
    bool repeats_biases = false;  // a token has two: the host adds them one by one
    // Tokens of prompt and output, with their count in the output; only where a penalty needs it.
    std::unordered_map<std::int32_t, std::int32_t> counts;
  };
  struct RowResult {
    bool done = false;
    bool failed = false;
    bool is_skipped = false;     // behind a draft that was wrong
    bool is_remembered = false;  // the slot knows the token
    bool is_pretended = false;   // the token is that of a measurement
    std::int32_t token = -1;
    const TokenMask* mask = nullptr;
    RowLogprobs logprobs;
  };

  bool needs_host(const LogitRow& row, std::int32_t slot) const;
  bool known(std::int32_t token) const {
    return token >= 0 && token < vocab_size_;
  }  // R7: others are skipped
  // `scratch` takes the raw logits where they are needed after the row was changed; `pool` is there
  // for a row that is alone.
  void process_row(const LogitRow& row, const Slot& slot, float* logits,
                   std::vector<float>& scratch, ThreadPool* pool, RowResult& result) const;
  void adjust(const Slot& slot, float* logits) const;
  // Whether the draft that the row holds is pretended to be right.
  bool pretends(const Batch& batch, std::size_t row) const;
  // A token that no row of the item holds.
  static std::int32_t wrong_token(const Batch& batch, std::int32_t item);
  // Whether the row follows another sampled row of its item.
  bool is_behind_draft(const Batch& batch, std::size_t row) const;
  // Takes in that the row before was right, if it was; else this row does not count.
  bool follow_draft(const Batch& batch, std::size_t row, bool is_skipped);
  // Rows [begin, end) of one item.
  void process_item(const Batch& batch, std::size_t begin, std::size_t end, float* logits,
                    std::vector<float>& scratch, ThreadPool* pool);
  static void remember(Slot& slot, RowResult& row);
  // The token of a row whose logits say `token`.
  std::int32_t replayed_or(const LogitRow& row, std::int32_t token) const;

  const int vocab_size_;
  const std::vector<double> pretended_;
  const std::vector<std::int32_t> replayed_;
  std::vector<Slot> slots_;
  std::vector<RowResult> rows_;           // [logit rows of the batch]
  std::vector<std::size_t> item_begins_;  // rows of process() where an item begins, and their end
};

}  // namespace sluice
