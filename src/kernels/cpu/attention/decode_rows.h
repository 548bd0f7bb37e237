// Decode attention over panels (kv_plane.h): no two rows share keys. The thread that attends also
// rotates the heads and writes the keys of its rows, in the same pass. If threads split the keys of
// a few long rows (KV split), heads are distributed separately before and after attention.
#pragma once

#include "kernels/cpu/cpu.h"

namespace sluice::cpu {

// Whether the functions below apply: panels, and no two neighbouring rows of one sequence.
bool decodes_rows(const Tensor& q, const KvPlane& k_plane, std::int64_t kv_heads,
                  const PagedRows& rows);

// rotate_write_and_attend() for rows that satisfy decodes_rows().
void decode_rows(Context& ctx, const Tensor& q, const Tensor& k, const Tensor& v,
                 const HeadRotation& rotation, const Tensor& slots, const KvPlane& k_plane,
                 const KvPlane& v_plane, std::int64_t kv_heads, const PagedRows& rows,
                 const AttentionParams& params, const Tensor& mixed, const Tensor& out);

// The same for rows whose keys are already written: paged_attention(), with pages checked.
void attend_rows(Context& ctx, const Tensor& q, const KvPlane& k_plane, const KvPlane& v_plane,
                 std::int64_t kv_heads, const PagedRows& rows, const AttentionParams& params,
                 const Tensor& out);

}  // namespace sluice::cpu
