// The ends of a recorded step: its inputs come from host memory and its tokens go there without a
// copy before or behind it.
#pragma once

#include <array>

#include "kernels/types/sampling_rows.h"
#include "tensor/context.h"

namespace sluice::ops {

// Brings the inputs of the step whose number is in fetch.counter to the device and puts tokens in
// the place of slots, as take_slot_tokens does. A number that is not the side's own is a bug: Error
// on the CPU, a stopped kernel on a GPU.
void load_step_inputs(Context& ctx, const StepInputs& fetch);

// put_slot_tokens; tokens go to boxes[number % 2] too, [rows] i32 in host memory that the device
// can write, and then the counter goes on to the next number. The host may read the box when the
// stream has passed.
void store_step_tokens(Context& ctx, const Tensor& tokens,  // [rows] i32
                       const Tensor& slots,                 // [rows] i32
                       const Tensor& slot_tokens,           // [slots] i32, changed in place
                       const Tensor& counter,               // [1] i64, changed in place
                       const std::array<Tensor, 2>& boxes);

}  // namespace sluice::ops
