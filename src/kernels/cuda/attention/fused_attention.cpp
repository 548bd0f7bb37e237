// Norm and RoPE of new heads, KV writes and attention. For decode rows this is one launch.
#include "kernels/cuda/attention/fused_attention.h"

#include <array>

#include "kernels/cuda/attention/attention_fast.h"
#include "kernels/cuda/cuda.h"

namespace sluice::cuda {

void rotate_write_and_attend(Context& ctx, const Tensor& q, const Tensor& k, const Tensor& v,
                             const HeadRotation& rotation, const Tensor& slots,
                             const KvPlane& k_plane, const KvPlane& v_plane, std::int64_t kv_heads,
                             const PagedRows& rows, const AttentionParams& params,
                             const Tensor& mixed, const Tensor& out) {
  if (attend_new_rows(ctx, q, k, v, rotation, slots, k_plane, v_plane, kv_heads, rows, params, out))
    return;
  if (attend_and_rotate(ctx, q, k, v, rotation, slots, k_plane, v_plane, kv_heads, rows, params,
                        out))
    return;
  rotate_write_then_attend(ctx, q, k, v, rotation, slots, k_plane, v_plane, kv_heads, rows, params,
                           mixed, out, {}, {});
}

void rotate_write_then_attend(Context& ctx, const Tensor& q, const Tensor& k, const Tensor& v,
                              const HeadRotation& rotation, const Tensor& slots,
                              const KvPlane& k_plane, const KvPlane& v_plane, std::int64_t kv_heads,
                              const PagedRows& rows, const AttentionParams& params,
                              const Tensor& mixed, const Tensor& out, const Tensor& from_slots,
                              const Tensor& to_slots) {
  if (!rotation.defined() ||
      !rotate_and_store_heads(ctx, q, k, v, rotation, slots, k_plane, v_plane, kv_heads)) {
    if (rotation.defined())
      norm_and_rotate_heads(ctx, q, ops::heads_of_rows(k, kv_heads), rotation.q_weight,
                            rotation.k_weight, rotation.eps, rotation.cos_sin,
                            rotation.interleaved);
    kv_write(ctx, k, slots, k_plane);
    kv_write(ctx, v, slots, v_plane);
  }
  if (from_slots.defined())
    kv_move(ctx, std::array<KvPlane, 2>{k_plane, v_plane}, from_slots, to_slots);
  if (attend_fast(ctx, q, k_plane, v_plane, kv_heads, rows, params, out)) return;
  paged_attention(ctx, q, k_plane, v_plane, kv_heads, rows, params, mixed);
  if (out.data != mixed.data) convert(ctx, mixed, out);
}

}  // namespace sluice::cuda
