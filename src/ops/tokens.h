// Tokens that stay on the device from one step to the next: a step can be launched before the host has seen the tokens of
// the step before it.
#pragma once

#include "tensor/context.h"

namespace sluice::ops {

// tokens[i] := the lowest index of the largest entry of row i, or -1 for a row that holds NaN or +infinity or nothing
// above -infinity: the greedy choice of sampling/sampler.h.
void argmax(Context& ctx, const Tensor& logits,   // [rows, vocab] f32
            const Tensor& tokens);                // [rows] i32

// ids[i] := slot_tokens[-1 - ids[i]] where ids[i] < 0; other ids stay.
void take_slot_tokens(Context& ctx, const Tensor& slot_tokens,   // [slots] i32
                      const Tensor& ids);                        // [tokens] i32, changed in place

// slot_tokens[slots[i]] := tokens[i] where slots[i] >= 0. Slots occur once. A token of -1 is kept as 0, so that a row
// whose logits were not finite is still a legal input to the step that was launched behind it.
void put_slot_tokens(Context& ctx, const Tensor& tokens,   // [rows] i32
                     const Tensor& slots,                  // [rows] i32
                     const Tensor& slot_tokens);           // [slots] i32, changed in place

}  // namespace sluice::ops
