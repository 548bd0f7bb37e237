// CUDA functions of ops/graph_io.h and ops/logit_edits.h: input, output and logit edits of a step.
#pragma once

#include <array>

#include "kernels/types/sampling_rows.h"
#include "tensor/context.h"

namespace sluice::cuda {

void load_step_inputs(Context& ctx, const ops::StepInputs& fetch);
void store_step_tokens(Context& ctx, const Tensor& tokens, const Tensor& slots,
                       const Tensor& slot_tokens, const Tensor& counter,
                       const std::array<Tensor, 2>& boxes);

void read_logprobs(Context& ctx, const Tensor& logits, const Tensor& logit_edits,
                   const Tensor& sampled_rows);
void adjust_logits(Context& ctx, const Tensor& logit_edits, const Tensor& edit_lists,
                   const Tensor& lengths, const Tensor& logits);
void record_sampled_rows(Context& ctx, const Tensor& tokens, const Tensor& logits,
                         const Tensor& logit_edits, const Tensor& edit_lists, const Tensor& lengths,
                         const Tensor& sampled_rows);

}  // namespace sluice::cuda
