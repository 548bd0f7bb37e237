// Tokens that stay on the device from one step to the next, so that a step can be launched before
// the host has seen the tokens of the previous one.
#pragma once

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

}  // namespace sluice::ops
