// Attention over panels (kv_plane.h) for rows that share no keys, as when every sequence decodes
// one token: what happens to the heads of a row before and after attention happens in the same
// pass, by the thread that attends. Where threads share the keys of few long rows, heads are dealt
// anew before and after it.
#pragma once

#include "kernels/cpu/cpu.h"

namespace sluice::cpu {

bool decodes_rows(const Tensor& q, const KvPlane& k_plane, std::int64_t kv_heads,
                  const PagedRows& rows);

// As rotate_write_and_attend(), for what decodes_rows().
void decode_rows(Context& ctx, const Tensor& q, const Tensor& k, const Tensor& v,
                 const HeadRotation& rotation, const Tensor& slots, const KvPlane& k_plane,
                 const KvPlane& v_plane, std::int64_t kv_heads, const PagedRows& rows,
                 const AttentionParams& params, const Tensor& mixed, const Tensor& out);

// The same for rows whose keys are written: as paged_attention(), pages checked.
void attend_rows(Context& ctx, const Tensor& q, const KvPlane& k_plane, const KvPlane& v_plane,
                 std::int64_t kv_heads, const PagedRows& rows, const AttentionParams& params,
                 const Tensor& out);

}  // namespace sluice::cpu
