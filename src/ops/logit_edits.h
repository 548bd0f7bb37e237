// Penalties, biases, bans and log-probabilities of rows of logits, where the device chooses the
// tokens. The meaning is that of sampling/host_sampler.h, bit for bit, on every device. Around a
// choice:
//
//   read_logprobs(ctx, logits, asks, choices);            // of the raw logits
//   adjust_logits(ctx, asks, rules, lengths, logits);
//   sample_tokens(ctx, logits, draws, tokens);
//   record_sampled_rows(ctx, tokens, logits, asks, rules, lengths, choices);
//
// A slot has a list of rules, one for each token that its request says something about or that it
// penalises for having come before: rules[slot][0 .. lengths[slot]), in any order, each token once
// and below the width of the logits.
#pragma once

#include "kernels/types/sampling_rows.h"
#include "tensor/context.h"

namespace sluice::ops {

// choices[i] := normaliser and most likely tokens of row i as asks[i] wants, zeros where it wants
// none. A row that is not finite (sample_tokens gives it -1) has zeros.
void read_logprobs(Context& ctx, const Tensor& logits,  // [rows, vocab] f32
                   const Tensor& logit_edits,           // [rows, sizeof(LogitEdits)] u8
                   const Tensor& sampled_rows);         // [rows, sizeof(SampledRow)] u8

// Changes row i by the rules of asks[i].slot, which note the raw logits. A slot occurs once.
void adjust_logits(Context& ctx, const Tensor& logit_edits,  // [rows, sizeof(LogitEdits)] u8
                   const Tensor& edit_lists,  // [slots, capacity, sizeof(LogitEdit)] u8
                   const Tensor& lengths,     // [slots] i32
                   const Tensor& logits);     // [rows, vocab] f32, changed in place

// Gives choices[i] the log-probability of tokens[i], and counts it in the rules of the slot where
// asks[i].remembers; a rule for which there is no room is left out. Nothing where tokens[i] < 0.
void record_sampled_rows(Context& ctx, const Tensor& tokens,  // [rows] i32
                         const Tensor& logits, const Tensor& logit_edits, const Tensor& edit_lists,
                         const Tensor& lengths, const Tensor& sampled_rows);

}  // namespace sluice::ops
