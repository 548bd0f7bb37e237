// Bodies on a GPU of what happens at the head and the tail of a step: see ops/step_mail.h and ops/penalties.h.
#pragma once

#include <array>

#include "kernels/cpu/step_types.h"
#include "tensor/context.h"

namespace sluice::cuda {

void fetch_step(Context& ctx, const ops::StepFetch& fetch);
void hand_out_tokens(Context& ctx, const Tensor& tokens, const Tensor& slots, const Tensor& slot_tokens, const Tensor& counter,
                     const std::array<Tensor, 2>& boxes);

void read_logprobs(Context& ctx, const Tensor& logits, const Tensor& asks, const Tensor& choices);
void adjust_logits(Context& ctx, const Tensor& asks, const Tensor& rules, const Tensor& lengths, const Tensor& logits);
void remember_choices(Context& ctx, const Tensor& tokens, const Tensor& logits, const Tensor& asks, const Tensor& rules,
                      const Tensor& lengths, const Tensor& choices);

}  // namespace sluice::cuda
