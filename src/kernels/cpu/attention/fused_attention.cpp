// RoPE of the new rows, the write of their keys and values, and attention; for decode rows in one
// pass.
#include "kernels/cpu/attention/decode_rows.h"
#include "kernels/cpu/cpu.h"

namespace sluice::cpu {

void rotate_write_and_attend(Context& ctx, const Tensor& q, const Tensor& k, const Tensor& v,
                             const HeadRotation& rotation, const Tensor& slots,
                             const KvPlane& k_plane, const KvPlane& v_plane, std::int64_t kv_heads,
                             const PagedRows& rows, const AttentionParams& params,
                             const Tensor& mixed, const Tensor& out) {
  const bool has_runs = rows.runs.places.defined();
  if (!has_runs && decodes_rows(q, k_plane, kv_heads, rows))
    return decode_rows(ctx, q, k, v, rotation, slots, k_plane, v_plane, kv_heads, rows, params,
                       mixed, out);
  if (rotation.defined())
    norm_and_rotate_heads(ctx, q, ops::heads_of_rows(k, kv_heads), rotation.q_weight,
                          rotation.k_weight, rotation.eps, rotation.cos_sin, rotation.interleaved);
  if (has_runs) {  // write_and_attend() may attend with a row before it writes the next one
    kv_write(ctx, k, slots, k_plane);
    kv_write(ctx, v, slots, v_plane);
    paged_attention(ctx, q, k_plane, v_plane, kv_heads, rows, params, mixed);
  } else {
    write_and_attend(ctx, q, k, v, slots, k_plane, v_plane, kv_heads, rows, params, mixed);
  }
  if (out.data != mixed.data) convert(ctx, mixed, out);
}

}  // namespace sluice::cpu
