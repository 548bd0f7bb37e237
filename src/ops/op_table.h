// The kernels of all operations, one column per device. An op checks its arguments and calls
// bodies(ctx).
#pragma once

#include "kernels/cpu/cpu.h"
#include "kernels/cpu/recurrent/recurrent.h"
#include "kernels/cpu/sampling/sampling_steps.h"
#include "kernels/cuda/cuda.h"
#include "kernels/cuda/sampling/sampling_steps.h"
#include "tensor/context.h"

namespace sluice::ops {

// One entry per operation. The signature is that of the CPU kernel; all columns have the same.
struct OpTable {
  decltype(cpu::rms_norm)* rms_norm;
  decltype(cpu::add_rms_norm)* add_rms_norm;
  decltype(cpu::layer_norm)* layer_norm;
  decltype(cpu::rope_cos_sin)* rope_cos_sin;
  decltype(cpu::rope)* rope;
  decltype(cpu::norm_and_rotate_heads)* norm_and_rotate_heads;
  decltype(cpu::act_and_mul)* act_and_mul;
  decltype(cpu::activate)* activate;
  decltype(cpu::xielu)* xielu;
  decltype(cpu::sigmoid_mul)* sigmoid_mul;
  decltype(cpu::add)* add;
  decltype(cpu::scale)* scale;
  decltype(cpu::clamp)* clamp;
  decltype(cpu::softcap)* softcap;
  decltype(cpu::scale_queries)* scale_queries;
  decltype(cpu::convert)* convert;
  decltype(cpu::gather_rows)* gather_rows;
  decltype(cpu::linear_heads)* linear_heads;
  decltype(cpu::kv_write)* kv_write;
  decltype(cpu::kv_gather)* kv_gather;
  decltype(cpu::kv_move)* kv_move;
  decltype(cpu::paged_attention)* paged_attention;
  decltype(cpu::write_and_attend)* write_and_attend;
  decltype(cpu::rotate_write_and_attend)* rotate_write_and_attend;
  decltype(cpu::mla_attention)* mla_attention;
  decltype(cpu::mla_sparse_attention)* mla_sparse_attention;
  decltype(cpu::mha_attention)* mha_attention;
  decltype(cpu::merge_state)* merge_state;
  decltype(cpu::hadamard)* hadamard;
  decltype(cpu::index_topk)* index_topk;
  decltype(cpu::route)* route;
  decltype(cpu::causal_conv)* causal_conv;
  decltype(cpu::recurrent_scan)* recurrent_scan;
  decltype(cpu::decay_gates)* decay_gates;
  decltype(cpu::sigmoid)* sigmoid;
  decltype(cpu::gated_mul)* gated_mul;
  decltype(cpu::sample_tokens)* sample_tokens;
  decltype(cpu::take_slot_tokens)* take_slot_tokens;
  decltype(cpu::put_slot_tokens)* put_slot_tokens;
  decltype(cpu::load_step_inputs)* load_step_inputs;
  decltype(cpu::store_step_tokens)* store_step_tokens;
  decltype(cpu::read_logprobs)* read_logprobs;
  decltype(cpu::adjust_logits)* adjust_logits;
  decltype(cpu::record_sampled_rows)* record_sampled_rows;
};

// The column of a device. Error{kBug} when this build has none for it.
const OpTable& op_table(DeviceKind kind);

inline const OpTable& bodies(const Context& ctx) {
  return op_table(ctx.device.kind);
}

}  // namespace sluice::ops
