// Tokens that stay on the device from one step to the next, so that a step can be launched before
// the host has seen the tokens of the previous one. Of steps with drafts, which drafts are right
// says where the next rows lie (kernels/types/round_rows.h).
#pragma once

#include "kernels/types/round_rows.h"
#include "tensor/context.h"

namespace sluice::ops {

// tokens[i] := the token that sampling/host_sampler.h samples from row i of the raw logits with
// sample_rows[i]. 0 if the row is left out. -1 if the row holds NaN or +infinity, or nothing above
// -infinity. The same on every device, bit for bit. Logits are not changed.
void sample_tokens(Context& ctx, const Tensor& logits,  // [rows, vocab] f32
                   const Tensor& sample_rows,           // [rows, sizeof(SampleRow)] u8
                   const Tensor& tokens);               // [rows] i32

// ids[i] := slot_tokens[-1 - ids[i]] if ids[i] < 0; other ids stay.
void take_slot_tokens(Context& ctx, const Tensor& slot_tokens,  // [slots] i32
                      const Tensor& ids);                       // [tokens] i32, changed in place

// slot_tokens[slots[i]] := tokens[i] if slots[i] >= 0. Slots are distinct. A token of -1 is stored
// as 0: the row's next step is launched already, and needs a legal input.
void put_slot_tokens(Context& ctx, const Tensor& tokens,  // [rows] i32
                     const Tensor& slots,                 // [rows] i32
                     const Tensor& slot_tokens);          // [slots] i32, changed in place

// Moves rows that were laid out as if all drafts of the round before were right. `moved` [slots]
// i32: how far back.
void place_rows(Context& ctx, const RowPlaces& rows, const Tensor& moved, const Tensor& last_rows);

// A draft is right where the row before it counts and chose it, and its own row chose a token at
// all. Writes what the rows of later runs and steps need.
void accept_drafts(Context& ctx, const RoundRows& rows, const RoundState& state);

// slot_tokens[slots[i]] := map[tokens[i]], of rows with slots[i] >= 0 and places[i] >= 0. Without
// map (undefined) the token itself. A token of -1 counts as 0.
void put_draft_tokens(Context& ctx, const Tensor& tokens,  // [rows] i32
                      const Tensor& slots,                 // [rows] i32
                      const Tensor& places,                // [rows] i32
                      const Tensor& map,                   // [draft's vocab, 1] i32, or undefined
                      const Tensor& slot_tokens);          // [slots] i32, changed in place

}  // namespace sluice::ops
