#include "kernels/cuda/attention_fast.h"

#include "kernels/cuda/alignment.h"
#include "kernels/cuda/launch_plan.h"
#include "kernels/cuda/session.h"

namespace sluice::cuda {
namespace {

constexpr float kLog2E = 1.4426950408889634f;

}  // namespace

bool attend_fast(Context& ctx, const Tensor& q, const Tensor& k_plane, const Tensor& v_plane, std::int64_t kv_heads,
                 const ops::PagedRows& rows, float scale, std::int64_t window, const Tensor& out) {
  if (ctx.cuda == nullptr) return false;
  const AttentionChoice choice = choose_attention({.tokens = q.dim(0),
                                                   .seqs = rows.page_table.dim(0),
                                                   .group = q.dim(1) / kv_heads,
                                                   .dim = q.dim(2),
                                                   .value_dim = out.dim(2),
                                                   .plane = k_plane.dtype,
                                                   .aligned = rows_aligned(k_plane) && rows_aligned(v_plane),
                                                   .deterministic = ctx.deterministic,
                                                   .sm = ctx.cuda->facts().sm});
  if (choice == AttentionChoice::kReference) return false;
  const PagedArgs args{.q = q.ptr<float>(),
                       .q_token = q.stride[0],
                       .q_head = q.stride[1],
                       .k = k_plane.data,
                       .v = v_plane.data,
                       .k_slot = k_plane.stride[0],
                       .v_slot = v_plane.stride[0],
                       .out = out.ptr<float>(),
                       .out_token = out.stride[0],
                       .out_head = out.stride[1],
                       .page_table = rows.page_table.ptr<std::int32_t>(),
                       .table_stride = rows.page_table.stride[0],
                       .num_seqs = rows.page_table.dim(0),
                       .max_pages = rows.page_table.dim(1),
                       .num_slots = k_plane.dim(0),
                       .row_seq = rows.row_seq.ptr<std::int32_t>(),
                       .positions = rows.positions.ptr<std::int32_t>(),
                       .tokens = q.dim(0),
                       .group = q.dim(1) / kv_heads,
                       .dim = q.dim(2),
                       .window = window,
                       .scale_log2 = scale * kLog2E};
  if (choice == AttentionChoice::kSingleRows) {
    attend_single_rows(ctx, args, kv_heads, false);
    return true;
  }
  // Rows that decode in a step that also prefills are runs of one row.
  attend_tiles(ctx, args, kv_heads, choice == AttentionChoice::kTilesAndSingleRows);
  if (choice == AttentionChoice::kTilesAndSingleRows) attend_single_rows(ctx, args, kv_heads, true);
  return true;
}

}  // namespace sluice::cuda
