// Tokens that stay on the device from one step to the next: a step can be launched before the host
// has seen the tokens of the step before it.
#pragma once

#include "tensor/context.h"

namespace sluice::ops {

// tokens[i] := the choice of sampling/host_sampler.h for row i as draws[i] asks, from the raw
// logits: 0 where it is left out, -1 where the row holds NaN or +infinity or nothing above
// -infinity. The same on every device, bit for bit. Logits stay.
void sample_tokens(Context& ctx, const Tensor& logits,  // [rows, vocab] f32
                   const Tensor& sample_rows,  // [rows, sizeof(SampleRow)] u8: SampleRow each
                   const Tensor& tokens);      // [rows] i32

// ids[i] := slot_tokens[-1 - ids[i]] where ids[i] < 0; other ids stay.
void take_slot_tokens(Context& ctx, const Tensor& slot_tokens,  // [slots] i32
                      const Tensor& ids);                       // [tokens] i32, changed in place

// slot_tokens[slots[i]] := tokens[i] where slots[i] >= 0. Slots occur once. A token of -1 is kept
// as 0, so that a row whose logits were not finite is still a legal input to the step that was
// launched behind it.
void put_slot_tokens(Context& ctx, const Tensor& tokens,  // [rows] i32
                     const Tensor& slots,                 // [rows] i32
                     const Tensor& slot_tokens);          // [slots] i32, changed in place

}  // namespace sluice::ops
