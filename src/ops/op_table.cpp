#include "ops/op_table.h"

#include <span>
#include <vector>

#include "base/build.h"
#include "base/error.h"

namespace sluice::ops {
namespace {

// Adapters for kernels that only know planes of rows. The ops reject all other planes on a GPU.
template <auto kBody>
void write_rows(Context& ctx, const Tensor& src, const Tensor& slots, const KvPlane& plane) {
  kBody(ctx, src, slots, plane.data);
}
template <auto kBody>
void move_rows(Context& ctx, std::span<const KvPlane> planes, const Tensor& from_slots,
               const Tensor& to_slots) {
  std::vector<Tensor> rows;
  for (const KvPlane& plane : planes) rows.push_back(plane.data);
  kBody(ctx, rows, from_slots, to_slots);
}
template <auto kBody>
void attend_rows(Context& ctx, const Tensor& q, const KvPlane& k_plane, const KvPlane& v_plane,
                 std::int64_t kv_heads, const PagedRows& rows, const AttentionParams& params,
                 const Tensor& out) {
  kBody(ctx, q, k_plane.data, v_plane.data, kv_heads, rows, params, out);
}
template <auto kWrite, auto kAttend>
void write_and_attend_rows(Context& ctx, const Tensor& q, const Tensor& k, const Tensor& v,
                           const Tensor& slots, const KvPlane& k_plane, const KvPlane& v_plane,
                           std::int64_t kv_heads, const PagedRows& rows,
                           const AttentionParams& params, const Tensor& out) {
  kWrite(ctx, k, slots, k_plane.data);
  kWrite(ctx, v, slots, v_plane.data);
  kAttend(ctx, q, k_plane.data, v_plane.data, kv_heads, rows, params, out);
}
template <auto kBody>
void rotate_rows(Context& ctx, const Tensor& q, const Tensor& k, const Tensor& v,
                 const HeadRotation& rotation, const Tensor& slots, const KvPlane& k_plane,
                 const KvPlane& v_plane, std::int64_t kv_heads, const PagedRows& rows,
                 const AttentionParams& params, const Tensor& mixed, const Tensor& out) {
  kBody(ctx, q, k, v, rotation, slots, k_plane.data, v_plane.data, kv_heads, rows, params, mixed,
        out);
}
template <auto kBody>
void index_rows(Context& ctx, const Tensor& q, const Tensor& weights, const KvPlane& index_k_plane,
                const PagedRows& rows, const Tensor& workspace, const Tensor& out_indices) {
  kBody(ctx, q, weights, index_k_plane.data, rows, workspace, out_indices);
}

}  // namespace

const OpTable& op_table(DeviceKind kind) {
  static constexpr OpTable kCpu = {.rms_norm = cpu::rms_norm,
                                   .add_rms_norm = cpu::add_rms_norm,
                                   .layer_norm = cpu::layer_norm,
                                   .rope_cos_sin = cpu::rope_cos_sin,
                                   .rope = cpu::rope,
                                   .norm_and_rotate_heads = cpu::norm_and_rotate_heads,
                                   .act_and_mul = cpu::act_and_mul,
                                   .activate = cpu::activate,
                                   .xielu = cpu::xielu,
                                   .sigmoid_mul = cpu::sigmoid_mul,
                                   .add = cpu::add,
                                   .scale = cpu::scale,
                                   .clamp = cpu::clamp,
                                   .softcap = cpu::softcap,
                                   .scale_queries = cpu::scale_queries,
                                   .convert = cpu::convert,
                                   .gather_rows = cpu::gather_rows,
                                   .linear_heads = cpu::linear_heads,
                                   .kv_write = cpu::kv_write,
                                   .kv_gather = cpu::kv_gather,
                                   .kv_move = cpu::kv_move,
                                   .paged_attention = cpu::paged_attention,
                                   .write_and_attend = cpu::write_and_attend,
                                   .rotate_write_and_attend = cpu::rotate_write_and_attend,
                                   .mla_attention = cpu::mla_attention,
                                   .mla_sparse_attention = cpu::mla_sparse_attention,
                                   .mha_attention = cpu::mha_attention,
                                   .merge_state = cpu::merge_state,
                                   .hadamard = cpu::hadamard,
                                   .index_topk = cpu::index_topk,
                                   .route = cpu::route,
                                   .causal_conv = cpu::causal_conv,
                                   .recurrent_scan = cpu::recurrent_scan,
                                   .decay_gates = cpu::decay_gates,
                                   .sigmoid = cpu::sigmoid,
                                   .gated_mul = cpu::gated_mul,
                                   .sample_tokens = cpu::sample_tokens,
                                   .take_slot_tokens = cpu::take_slot_tokens,
                                   .put_slot_tokens = cpu::put_slot_tokens,
                                   .load_step_inputs = cpu::load_step_inputs,
                                   .store_step_tokens = cpu::store_step_tokens,
                                   .read_logprobs = cpu::read_logprobs,
                                   .adjust_logits = cpu::adjust_logits,
                                   .record_sampled_rows = cpu::record_sampled_rows};
  if (kind == DeviceKind::kCpu) return kCpu;
  if constexpr (kHasCuda) {
    static constexpr OpTable kCuda = {
        .rms_norm = cuda::rms_norm,
        .add_rms_norm = cuda::add_rms_norm,
        .layer_norm = cuda::layer_norm,
        .rope_cos_sin = cuda::rope_cos_sin,
        .rope = cuda::rope,
        .norm_and_rotate_heads = cuda::norm_and_rotate_heads,
        .act_and_mul = cuda::act_and_mul,
        .activate = cuda::activate,
        .xielu = cuda::xielu,
        .sigmoid_mul = cuda::sigmoid_mul,
        .add = cuda::add,
        .scale = cuda::scale,
        .clamp = cuda::clamp,
        .softcap = cuda::softcap,
        .scale_queries = cuda::scale_queries,
        .convert = cuda::convert,
        .gather_rows = cuda::gather_rows,
        .linear_heads = cuda::linear_heads,
        .kv_write = write_rows<cuda::kv_write>,
        .kv_gather = cuda::kv_gather,
        .kv_move = move_rows<cuda::kv_move>,
        .paged_attention = attend_rows<cuda::paged_attention>,
        .write_and_attend = write_and_attend_rows<cuda::kv_write, cuda::paged_attention>,
        .rotate_write_and_attend = rotate_rows<cuda::rotate_write_and_attend>,
        .mla_attention = cuda::mla_attention,
        .mla_sparse_attention = cuda::mla_sparse_attention,
        .mha_attention = cuda::mha_attention,
        .merge_state = cuda::merge_state,
        .hadamard = cuda::hadamard,
        .index_topk = index_rows<cuda::index_topk>,
        .route = cuda::route,
        .causal_conv = cuda::causal_conv,
        .recurrent_scan = cuda::recurrent_scan,
        .decay_gates = cuda::decay_gates,
        .sigmoid = cuda::sigmoid,
        .gated_mul = cuda::gated_mul,
        .sample_tokens = cuda::sample_tokens,
        .take_slot_tokens = cuda::take_slot_tokens,
        .put_slot_tokens = cuda::put_slot_tokens,
        .load_step_inputs = cuda::load_step_inputs,
        .store_step_tokens = cuda::store_step_tokens,
        .read_logprobs = cuda::read_logprobs,
        .adjust_logits = cuda::adjust_logits,
        .record_sampled_rows = cuda::record_sampled_rows};
    return kCuda;
  }
  fail(ErrorKind::kBug, "this build has no kernels for a GPU");
}

}  // namespace sluice::ops
