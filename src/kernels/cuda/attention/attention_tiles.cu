// Attention over bfloat16 pages on mma.sync tensor cores, and the launches for every type of pages
// (attention_tiles_kernel.cuh).
#include "kernels/cuda/attention/attention_fast.h"
#include "kernels/cuda/attention/attention_general.h"
#include "kernels/cuda/attention/attention_plan.h"
#include "kernels/cuda/attention/attention_tiles_kernel.cuh"
#include "kernels/cuda/common/alignment.h"
#include "kernels/cuda/common/session.h"

namespace sluice::cuda {
namespace {

using namespace general;

void launch_bf16(Context& ctx, const TileArgs& a, std::int64_t kv_heads, std::int64_t dim) {
  switch (dim) {
    case 64:
      return launch<64, 64, 64, Bf16Pages>(ctx, a, kv_heads);
    case 96:
      return launch<96, 96, 64, Bf16Pages>(ctx, a, kv_heads);
    case 128:
      return launch<128, 128, 64, Bf16Pages>(ctx, a, kv_heads);
    case 192:
      return launch<192, 128, 32, Bf16Pages>(ctx, a, kv_heads);
    default:
      return launch<256, 256, 32, Bf16Pages>(ctx, a, kv_heads);
  }
}

void launch_for_dim(Context& ctx, const TileArgs& a, std::int64_t kv_heads, std::int64_t dim,
                    bool is_fp8) {
  if (is_fp8)
    launch_fp8(ctx, a, kv_heads, dim);
  else
    launch_bf16(ctx, a, kv_heads, dim);
}

// One row a CTA, with the keys of a row split over as many CTAs as keep the GPU busy.
void attend_rows(Context& ctx, TileArgs a, std::int64_t kv_heads, std::int64_t dim,
                 std::int64_t value_dim, bool is_fp8) {
  const std::int64_t heads = kv_heads * a.group;
  a.tile_tokens = 1;
  a.splits = attention_splits({.blocks = a.tokens * kv_heads * a.head_blocks,
                               .blocks_of_each = 3,
                               .max_pages = a.max_pages,
                               .split_bytes = 4 * a.tokens * heads * (value_dim + 1),
                               .scratch_bytes = ctx.cuda->scratch_bytes(),
                               .num_sms = ctx.cuda->info().num_sms});
  if (a.splits == 1) return launch_for_dim(ctx, a, kv_heads, dim, is_fp8);
  a.part = static_cast<float*>(ctx.cuda->scratch());
  a.part_lse = a.part + a.tokens * heads * a.splits * value_dim;
  launch_for_dim(ctx, a, kv_heads, dim, is_fp8);
  merge_splits(ctx, {.part = a.part,
                     .lse = a.part_lse,
                     .sinks = a.sinks,
                     .out = a.out,
                     .out_token = a.out_token,
                     .out_head = a.out_head,
                     .tokens = a.tokens,
                     .heads = heads,
                     .dim = value_dim,
                     .splits = a.splits});
}

}  // namespace

bool attend_general(Context& ctx, const Tensor& q, const ops::KvPlane& k_plane,
                    const ops::KvPlane& v_plane, std::int64_t kv_heads, const PagedRows& rows,
                    const AttentionParams& params, const Tensor& out) {
  if (ctx.cuda == nullptr) return false;
  const std::int64_t seqs = rows.page_table.dim(0), group = q.dim(1) / kv_heads;
  const AttentionInputs inputs{.tokens = q.dim(0),
                               .seqs = seqs,
                               .group = group,
                               .dim = q.dim(2),
                               .value_dim = out.dim(2),
                               .plane = k_plane.data.dtype,
                               .aligned = rows_aligned(k_plane.data) && rows_aligned(v_plane.data),
                               .deterministic = ctx.deterministic,
                               .sm = ctx.cuda->info().sm};
  if (!tiles_are_fast(inputs)) return false;
  TileArgs a{.q = q.ptr<float>(),
             .k = k_plane.data.data,
             .v = v_plane.data.data,
             .k_scales = k_plane.head_scales(),
             .v_scales = v_plane.head_scales(),
             .out = out.ptr<float>(),
             .sinks = params.sinks.defined() ? params.sinks.ptr<float>() : nullptr,
             .slopes = params.slopes.defined() ? params.slopes.ptr<float>() : nullptr,
             .page_table = rows.page_table.ptr<std::int32_t>(),
             .row_seq = rows.row_seq.ptr<std::int32_t>(),
             .positions = rows.positions.ptr<std::int32_t>(),
             .q_token = q.stride[0],
             .q_head = q.stride[1],
             .k_slot = k_plane.data.stride[0],
             .v_slot = v_plane.data.stride[0],
             .out_token = out.stride[0],
             .out_head = out.stride[1],
             .table_stride = rows.page_table.stride[0],
             .num_seqs = seqs,
             .max_pages = rows.page_table.dim(1),
             .num_slots = k_plane.data.dim(0),
             .tokens = q.dim(0),
             .group = group,
             .window = params.window,
             .chunk = params.chunk,
             .scale = params.scale,
             .softcap = params.softcap};
  a.tile_heads = static_cast<int>(std::min<std::int64_t>(group, kRows));
  a.tile_tokens = kRows / a.tile_heads;
  a.head_blocks = static_cast<int>((group + a.tile_heads - 1) / a.tile_heads);
  const bool is_fp8 = k_plane.is_fp8();
  // Deterministic: tiles without splits for every row. A row's steps of keys begin at position 0,
  // or at steps that its run alone sees and that add nothing to it.
  if (ctx.deterministic) {
    launch_for_dim(ctx, a, kv_heads, q.dim(2), is_fp8);
    return true;
  }
  if (rows_one_by_one(inputs)) {
    attend_rows(ctx, a, kv_heads, q.dim(2), out.dim(2), is_fp8);
    return true;
  }
  a.skip_single_rows = seqs > 1;
  launch_for_dim(ctx, a, kv_heads, q.dim(2), is_fp8);
  if (seqs == 1) return true;
  // A second launch takes the decode rows of a step that also prefills.
  if (attend_lone_rows(ctx, q, k_plane, v_plane, kv_heads, rows, params, out)) return true;
  a.skip_single_rows = false;
  a.single_rows_only = true;
  a.tile_tokens = 1;
  launch_for_dim(ctx, a, kv_heads, q.dim(2), is_fp8);
  return true;
}

}  // namespace sluice::cuda
