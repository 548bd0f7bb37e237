#include "kernels/cuda/attention/attention_fast.h"

#include <algorithm>

#include "kernels/cuda/attention/attention_plan.h"
#include "kernels/cuda/common/alignment.h"
#include "kernels/cuda/common/session.h"
#include "kernels/cuda/pages/wide_pages.h"

namespace sluice::cuda {
namespace {

using ops::KvPlane;

// Kernels read four elements of a query at a time, and write outputs in pairs.
bool on_fours(const Tensor& q) {
  return reinterpret_cast<std::uintptr_t>(q.data) % 16 == 0 && q.stride[0] % 4 == 0 &&
         q.stride[1] % 4 == 0;
}
bool on_pairs(const Tensor& out) {
  return reinterpret_cast<std::uintptr_t>(out.data) % 8 == 0 && out.stride[0] % 2 == 0 &&
         out.stride[1] % 2 == 0;
}

AttentionChoice choice_for(const Context& ctx, const Tensor& q, const KvPlane& k_plane,
                           const KvPlane& v_plane, std::int64_t kv_heads,
                           const ops::PagedRows& rows, const Tensor& out) {
  if (ctx.cuda == nullptr) return AttentionChoice::kReference;
  const WidePlan wide = wide_pages_of(ctx, q, k_plane, v_plane, kv_heads, rows);
  return choose_attention({.tokens = q.dim(0),
                           .seqs = rows.page_table.dim(0),
                           .group = q.dim(1) / kv_heads,
                           .dim = q.dim(2),
                           .value_dim = out.dim(2),
                           .plane = k_plane.data.dtype,
                           .aligned = rows_aligned(k_plane.data) && rows_aligned(v_plane.data) &&
                                      on_fours(q) && on_pairs(out),
                           .deterministic = ctx.deterministic,
                           .is_widened = wide.heads > 0,
                           .sm = ctx.cuda->info().sm});
}

PagedArgs args_for(const Tensor& q, const KvPlane& k_plane, const KvPlane& v_plane,
                   std::int64_t kv_heads, const ops::PagedRows& rows,
                   const ops::AttentionParams& params, const Tensor& out) {
  return {.q = q.ptr<float>(),
          .q_token = q.stride[0],
          .q_head = q.stride[1],
          .k = k_plane.data.data,
          .v = v_plane.data.data,
          .is_fp8 = k_plane.is_fp8(),
          .k_scales = k_plane.head_scales(),
          .v_scales = v_plane.head_scales(),
          .k_slot = k_plane.data.stride[0],
          .v_slot = v_plane.data.stride[0],
          .out = out.data,
          .out_is_half = out.dtype == DType::kBF16,
          .out_token = out.stride[0],
          .out_head = out.stride[1],
          .page_table = rows.page_table.ptr<std::int32_t>(),
          .table_stride = rows.page_table.stride[0],
          .num_seqs = rows.page_table.dim(0),
          .max_pages = rows.page_table.dim(1),
          .num_slots = k_plane.data.dim(0),
          .row_seq = rows.row_seq.ptr<std::int32_t>(),
          .positions = rows.positions.ptr<std::int32_t>(),
          .tokens = q.dim(0),
          .group = q.dim(1) / kv_heads,
          .dim = q.dim(2),
          .window = params.window,
          .scale_log2 = params.scale * kLog2E,
          .sinks = params.sinks.defined() ? params.sinks.ptr<float>() : nullptr};
}

// The KV heads [first, first + heads) of `all`, whose keys and values lie in `wide`.
PagedArgs args_of_wide(const PagedArgs& all, const WidePages& wide, const ops::PagedRows& rows,
                       std::int64_t first, std::int64_t heads) {
  const std::int64_t q_heads = first * all.group, element = all.out_is_half ? 2 : 4;
  PagedArgs a = all;
  a.q += q_heads * a.q_head;
  a.out = static_cast<std::byte*>(a.out) + q_heads * a.out_head * element;
  a.k = wide.k, a.v = wide.v;
  a.is_fp8 = false;
  if (a.k_scales != nullptr) a.k_scales += first;
  if (a.v_scales != nullptr) a.v_scales += first;
  if (a.sinks != nullptr) a.sinks += q_heads;
  a.k_slot = a.v_slot = heads * a.dim;
  a.page_table = wide.table;
  a.table_stride = a.max_pages;
  a.num_slots = rows.prefill.pages * kPageSize;
  return a;
}

// attend_tiles() over either type of pages. Heads of e4m3 take turns in the memory of the step.
void attend_tiles_of(Context& ctx, const Tensor& q, const KvPlane& k_plane, const KvPlane& v_plane,
                     std::int64_t kv_heads, const ops::PagedRows& rows, const PagedArgs& args,
                     bool skip_single_rows, const NewHeads& new_heads = {}) {
  if (!args.is_fp8) return attend_tiles(ctx, args, kv_heads, skip_single_rows, new_heads);
  const WidePlan plan = wide_pages_of(ctx, q, k_plane, v_plane, kv_heads, rows);
  const WidePages wide(plan, rows);
  place_wide_pages(ctx, wide, rows, args.window);
  for (std::int64_t first = 0; first < kv_heads; first += plan.heads) {
    const std::int64_t heads = std::min(plan.heads, kv_heads - first);
    widen_pages(ctx, wide, k_plane, v_plane, rows, first, heads, args.dim);
    attend_tiles(ctx, args_of_wide(args, wide, rows, first, heads), heads, skip_single_rows,
                 new_heads);
  }
}

bool plain(const ops::HeadRotation& rotation) {
  const auto fits = [](const Tensor& weight) {
    return !weight.defined() || weight.dtype == DType::kF32;
  };
  return fits(rotation.q_weight) && fits(rotation.k_weight);
}

// Whether the prologue of decode attention takes these heads, of a size that it knows. A lane loads
// dim / 32 neighbouring elements together. The partners of all of them are in one lane.
bool fits_lanes(const Tensor& q, const Tensor& k, const Tensor& v,
                const ops::HeadRotation& rotation) {
  const std::int64_t elements = q.dim(2) / 32, half = rotation.cos_sin.dim(1) / 2;
  const auto weight_fits = [](const Tensor& weight) {
    return !weight.defined() || begins_on_16(weight.data);
  };
  return half % elements == 0 && (!rotation.interleaved || elements % 2 == 0) && rows_aligned(k) &&
         rows_aligned(v) && rows_aligned(rotation.cos_sin) && weight_fits(rotation.q_weight) &&
         weight_fits(rotation.k_weight);
}

NewHeads heads_for(const Tensor& k, const Tensor& v, const ops::HeadRotation& rotation,
                   const Tensor& slots, const KvPlane& k_plane, const KvPlane& v_plane,
                   const Tensor& places = {}) {
  return {.k = k.ptr<float>(),
          .v = v.ptr<float>(),
          .k_token = k.stride[0],
          .v_token = v.stride[0],
          .q_weight = rotation.q_weight.defined() ? rotation.q_weight.ptr<float>() : nullptr,
          .k_weight = rotation.k_weight.defined() ? rotation.k_weight.ptr<float>() : nullptr,
          .eps = rotation.eps,
          .cos_sin = rotation.cos_sin.ptr<float>(),
          .cos_sin_stride = rotation.cos_sin.stride[0],
          .half = static_cast<int>(rotation.cos_sin.dim(1) / 2),
          .interleaved = rotation.interleaved,
          .slots = slots.ptr<std::int64_t>(),
          .k_plane = k_plane.data.data,
          .v_plane = v_plane.data.data,
          .places = places.defined() ? places.ptr<std::int32_t>() : nullptr};
}

}  // namespace

bool tiles_rotate(const PagedArgs& args, const ops::HeadRotation& rotation) {
  const Tensor &weight = rotation.q_weight, &cos_sin = rotation.cos_sin;
  return args.group % 4 == 0 && cos_sin.dim(1) == args.dim && !rotation.interleaved &&
         rows_aligned(cos_sin) &&
         (!weight.defined() || (weight.dtype == DType::kF32 && rows_aligned(weight.data, 0, 4)));
}

bool attend_lone_rows(Context& ctx, const Tensor& q, const KvPlane& k_plane, const KvPlane& v_plane,
                      std::int64_t kv_heads, const ops::PagedRows& rows,
                      const ops::AttentionParams& params, const Tensor& out) {
  if (ctx.cuda == nullptr || !params.plain() || ctx.deterministic) return false;
  // What the kernel takes, whatever the number of rows.
  const AttentionInputs one{.tokens = 1,
                            .seqs = 1,
                            .group = q.dim(1) / kv_heads,
                            .dim = q.dim(2),
                            .value_dim = out.dim(2),
                            .plane = k_plane.data.dtype,
                            .aligned = rows_aligned(k_plane.data) && rows_aligned(v_plane.data) &&
                                       on_fours(q) && on_pairs(out),
                            .sm = ctx.cuda->info().sm};
  if (choose_attention(one) != AttentionChoice::kSingleRows) return false;
  attend_single_rows(ctx, args_for(q, k_plane, v_plane, kv_heads, rows, params, out), kv_heads,
                     true);
  return true;
}

bool attend_fast(Context& ctx, const Tensor& q, const KvPlane& k_plane, const KvPlane& v_plane,
                 std::int64_t kv_heads, const ops::PagedRows& rows,
                 const ops::AttentionParams& params, const Tensor& out) {
  if (q.dim(0) == 0) return true;
  const AttentionChoice choice = choice_for(ctx, q, k_plane, v_plane, kv_heads, rows, out);
  if (!params.plain() || choice == AttentionChoice::kReference) return false;
  const PagedArgs args = args_for(q, k_plane, v_plane, kv_heads, rows, params, out);
  if (choice == AttentionChoice::kSingleRows) {
    attend_single_rows(ctx, args, kv_heads, false);
    return true;
  }
  // In a mixed step, decode rows are runs of one row: they take the decode kernel, unless the step
  // is deterministic.
  attend_tiles_of(ctx, q, k_plane, v_plane, kv_heads, rows, args,
                  choice == AttentionChoice::kTilesAndSingleRows);
  if (choice == AttentionChoice::kTilesAndSingleRows) attend_single_rows(ctx, args, kv_heads, true);
  return true;
}

bool attend_new_rows(Context& ctx, const Tensor& q, const Tensor& k, const Tensor& v,
                     const ops::HeadRotation& rotation, const Tensor& slots, const KvPlane& k_plane,
                     const KvPlane& v_plane, std::int64_t kv_heads, const ops::PagedRows& rows,
                     const ops::AttentionParams& params, const Tensor& out) {
  // Every sequence has one row.
  const bool own_sequences = q.dim(0) > 0 && q.dim(0) == rows.page_table.dim(0);
  if (rows.runs.places.defined() && rows.runs.longest > kMaxNewRows) return false;
  if (!params.plain() || !own_sequences || !rotation.defined() || !plain(rotation)) return false;
  if (choice_for(ctx, q, k_plane, v_plane, kv_heads, rows, out) != AttentionChoice::kSingleRows ||
      !fits_lanes(q, k, v, rotation))
    return false;
  attend_single_rows(ctx, args_for(q, k_plane, v_plane, kv_heads, rows, params, out), kv_heads,
                     false, heads_for(k, v, rotation, slots, k_plane, v_plane, rows.runs.places));
  return true;
}

bool attend_and_rotate(Context& ctx, const Tensor& q, const Tensor& k, const Tensor& v,
                       const ops::HeadRotation& rotation, const Tensor& slots,
                       const KvPlane& k_plane, const KvPlane& v_plane, std::int64_t kv_heads,
                       const ops::PagedRows& rows, const ops::AttentionParams& params,
                       const Tensor& out) {
  if (!params.plain() || !rotation.defined() || !plain(rotation)) return false;
  if (ctx.deterministic)
    return false;  // in another batch the same rows might take a kernel that rotates elsewhere
  if (choice_for(ctx, q, k_plane, v_plane, kv_heads, rows, out) != AttentionChoice::kTiles)
    return false;
  const PagedArgs args = args_for(q, k_plane, v_plane, kv_heads, rows, params, out);
  if (!tiles_rotate(args, rotation)) return false;
  if (!rotate_and_store_heads(ctx, q, k, v, rotation, slots, k_plane, v_plane, kv_heads, false))
    return false;
  attend_tiles_of(ctx, q, k_plane, v_plane, kv_heads, rows, args, false,
                  heads_for(k, v, rotation, slots, k_plane, v_plane));
  return true;
}

}  // namespace sluice::cuda
