// Start and end of a recorded step (CUDA graph). The step reads its inputs from host memory and
// writes its tokens there, without copies before or after it.
#pragma once

#include <array>

#include "kernels/types/sampling_rows.h"
#include "tensor/context.h"

namespace sluice::ops {

// Loads the inputs of the step with number fetch.counter to the device, and replaces slot numbers
// by tokens as take_slot_tokens does. If the side holds another number, that is a bug: Error on the
// CPU, a trap on a GPU.
void load_step_inputs(Context& ctx, const StepInputs& fetch);

// put_slot_tokens, then: copies the tokens to boxes[number % 2], [rows] i32 in host memory that the
// device can write, and advances the counter. The host may read the box once the stream has passed.
void store_step_tokens(Context& ctx, const Tensor& tokens,  // [rows] i32
                       const Tensor& slots,                 // [rows] i32
                       const Tensor& slot_tokens,           // [slots] i32, changed in place
                       const Tensor& counter,               // [1] i64, changed in place
                       const std::array<Tensor, 2>& boxes);

}  // namespace sluice::ops
