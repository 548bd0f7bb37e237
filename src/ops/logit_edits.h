// Penalties, biases, bans and log-probabilities of rows of logits, for sampling on the device.
// sampling/host_sampler.h defines the results; they are the same bits on every device. Around
// sampling:
//
//   read_logprobs(ctx, logits, logit_edits, sampled_rows);            // from the raw logits
//   adjust_logits(ctx, logit_edits, edit_lists, lengths, logits);
//   mask_logits(ctx, mask_of_row, masks, logits);
//   sample_tokens(ctx, logits, sample_rows, tokens);
//   record_sampled_rows(ctx, tokens, logits, logit_edits, edit_lists, lengths, sampled_rows);
//
// A slot has a list of logit edits: edit_lists[slot][0 .. lengths[slot]), in any order. It has one
// edit for each token that the request biases or bans, or penalises because it occurred before.
// Each token occurs once and is below the width of the logits.
#pragma once

#include "kernels/types/sampling_rows.h"
#include "tensor/context.h"

namespace sluice::ops {

// sampled_rows[i] := normaliser and most likely tokens of row i, as logit_edits[i] requests; zeros
// if it requests none. A row that is not finite (sample_tokens gives it -1) gets zeros.
void read_logprobs(Context& ctx, const Tensor& logits,  // [rows, vocab] f32
                   const Tensor& logit_edits,           // [rows, sizeof(LogitEdits)] u8
                   const Tensor& sampled_rows);         // [rows, sizeof(SampledRow)] u8

// Applies the edits of logit_edits[i].slot to row i, and stores the raw logits in them. A slot
// occurs once.
void adjust_logits(Context& ctx, const Tensor& logit_edits,  // [rows, sizeof(LogitEdits)] u8
                   const Tensor& edit_lists,  // [slots, capacity, sizeof(LogitEdit)] u8
                   const Tensor& lengths,     // [slots] i32
                   const Tensor& logits);     // [rows, vocab] f32, changed in place

// Row i may become the tokens of masks[mask_of_row[i]] alone: other finite logits become -infinity.
// Bit t % 32 of word t / 32 is token t. -1: the row has no mask.
void mask_logits(Context& ctx, const Tensor& mask_of_row,  // [rows] i32
                 const Tensor& masks,                      // [masks, ceil(vocab / 32)] i32
                 const Tensor& logits);                    // [rows, vocab] f32, changed in place

// Stores the log-probability of tokens[i] in sampled_rows[i]. If logit_edits[i].remembers, also
// counts the token in the slot's edits; if the list is full, a new token is not added. Does nothing
// for tokens[i] < 0.
void record_sampled_rows(Context& ctx, const Tensor& tokens,  // [rows] i32
                         const Tensor& logits, const Tensor& logit_edits, const Tensor& edit_lists,
                         const Tensor& lengths, const Tensor& sampled_rows);

}  // namespace sluice::ops
