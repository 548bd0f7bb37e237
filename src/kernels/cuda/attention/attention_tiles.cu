// Attention over bfloat16 pages on mma.sync tensor cores: every GPU from compute capability 8.0 on,
// every option of AttentionParams. A CTA takes up to 64 query rows: the heads of a GQA group times
// neighbouring tokens of one sequence. Each of its four warps has 16 of the rows.
//
// The phases of attend_run() (attention_tiles_phases.cuh):
//   1. locate          the keys that the run sees, and this split's share of them
//   2. load_queries    to shared memory, as bfloat16
//   3. issue_keys      cp.async of kStep keys and values, one step ahead in two stages
//   4. start_rows      the mask, maximum and sum of each row
//   for each step of keys:
//   5. scores          S = Q K^T
//   6. edit_scores     scale, soft cap, ALiBi, mask
//   7. online_softmax  row_max, row_sum, rescale
//   8. accumulate      O = rescale * O + P V
//   then:
//   9. epilogue        normalise; sinks; or store the partial result of a split
//
// If rows are single and CTAs are few, several CTAs split the keys of a row and
// kernels/cuda/attention/attention_merge.cu merges their results.
//
// Source: Dao, "FlashAttention-2", arXiv 2307.08691, algorithm 1.
#include "kernels/cuda/attention/attention_general.h"
#include "kernels/cuda/attention/attention_plan.h"
#include "kernels/cuda/attention/attention_tiles_phases.cuh"
#include "kernels/cuda/common/alignment.h"
#include "kernels/cuda/common/session.h"

namespace sluice::cuda {
namespace {

using namespace general;

template <class Shape>
__device__ void attend_run(const TileArgs& a, std::int64_t first_token, int num_tokens,
                           std::int64_t kv_head, std::int64_t first_head, int heads, int split,
                           std::uint32_t shared, unsigned char* memory) {
  TileRun<Shape> run{a, first_token, first_head, heads, split, shared, memory};
  run.locate(num_tokens, kv_head);
  run.load_queries();
  run.locate_keys();
  TileFragments<Shape> frag;
  run.start_rows(frag);
  // 3. and 5. to 8. for all steps. The first barrier of a step publishes the copies of all threads,
  // the second one frees the stage for the copy after the next.
  run.issue_keys(run.start, 0);
  int stage = 0;
  for (std::int64_t key = run.start; key < run.stop; key += Shape::kStep, stage ^= 1) {
    run.issue_keys(key + Shape::kStep, stage ^ 1);
    cp_async_wait<1>();
    __syncthreads();
    if (run.warp * 16 < run.num_rows) {  // warps without rows only copy
      const std::uint32_t keys = run.shared + Shape::kQueryBytes + stage * Shape::kStageBytes;
      float score[TileRun<Shape>::kKeyTiles][4], step_max[2] = {-INFINITY, -INFINITY}, rescale[2];
      run.scores(score, keys);
      run.edit_scores(score, step_max, frag, key);
      run.online_softmax(score, step_max, rescale, frag);
      run.accumulate(score, rescale, frag, keys);
    }
    __syncthreads();
  }
  cp_async_wait<0>();
  run.epilogue(frag);
}

// Grid: token tiles; KV heads times head blocks of a group; splits. The last tiles start first,
// because their rows see the most keys.
template <class Shape>
__global__ void __launch_bounds__(kTileThreads) tiles_kernel(const __grid_constant__ TileArgs a) {
  extern __shared__ __align__(16) unsigned char memory[];
  begin_dependent();
  const std::int64_t t_begin = std::int64_t{gridDim.x - 1 - blockIdx.x} * a.tile_tokens;
  const std::int64_t t_end = min(t_begin + a.tile_tokens, a.tokens);
  const std::int64_t kv = blockIdx.y / a.head_blocks,
                     group_head = std::int64_t{blockIdx.y % a.head_blocks} * a.tile_heads;
  const int heads = static_cast<int>(min(std::int64_t{a.tile_heads}, a.group - group_head));
  for (std::int64_t t = t_begin; t < t_end;) {
    const std::int64_t seq = a.row_seq[t];
    expect_below(seq, a.num_seqs);
    std::int64_t next = t + 1;
    while (next < t_end && a.row_seq[next] == seq) ++next;
    const bool is_single = next == t + 1 && (t == 0 || a.row_seq[t - 1] != seq) &&
                           (next == a.tokens || a.row_seq[next] != seq);
    if (is_single ? !a.skip_single_rows : !a.single_rows_only)
      attend_run<Shape>(a, t, static_cast<int>(next - t), kv, kv * a.group + group_head, heads,
                        static_cast<int>(blockIdx.z), shared_address(memory), memory);
    t = next;
  }
}

template <int kKeyDim, int kValueDim, int kStep>
void launch(Context& ctx, const TileArgs& a, std::int64_t kv_heads) {
  using Shape = TileShape<kKeyDim, kValueDim, kStep>;
  const dim3 grid(blocks_for(a.tokens, a.tile_tokens),
                  static_cast<unsigned>(kv_heads * a.head_blocks), static_cast<unsigned>(a.splits));
  launch_dependent(ctx, "attention of tiles", tiles_kernel<Shape>, grid, kTileThreads,
                   Shape::kBytes, a);
}

void launch_for_dim(Context& ctx, const TileArgs& a, std::int64_t kv_heads, std::int64_t dim) {
  switch (dim) {
    case 64:
      return launch<64, 64, 64>(ctx, a, kv_heads);
    case 96:
      return launch<96, 96, 64>(ctx, a, kv_heads);
    case 128:
      return launch<128, 128, 64>(ctx, a, kv_heads);
    case 192:
      return launch<192, 128, 32>(ctx, a, kv_heads);
    default:
      return launch<256, 256, 32>(ctx, a, kv_heads);
  }
}

// One row a CTA, with the keys of a row split over as many CTAs as keep the GPU busy.
void attend_rows(Context& ctx, TileArgs a, std::int64_t kv_heads, std::int64_t dim,
                 std::int64_t value_dim) {
  const std::int64_t heads = kv_heads * a.group;
  a.tile_tokens = 1;
  a.splits = attention_splits({.blocks = a.tokens * kv_heads * a.head_blocks,
                               .blocks_of_each = 3,
                               .max_pages = a.max_pages,
                               .split_bytes = 4 * a.tokens * heads * (value_dim + 1),
                               .scratch_bytes = ctx.cuda->scratch_bytes(),
                               .num_sms = ctx.cuda->info().num_sms});
  if (a.splits == 1) return launch_for_dim(ctx, a, kv_heads, dim);
  a.part = static_cast<float*>(ctx.cuda->scratch());
  a.part_lse = a.part + a.tokens * heads * a.splits * value_dim;
  launch_for_dim(ctx, a, kv_heads, dim);
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

bool attend_general(Context& ctx, const Tensor& q, const Tensor& k_plane, const Tensor& v_plane,
                    std::int64_t kv_heads, const PagedRows& rows, const AttentionParams& params,
                    const Tensor& out) {
  if (ctx.cuda == nullptr) return false;
  const std::int64_t seqs = rows.page_table.dim(0), group = q.dim(1) / kv_heads;
  const AttentionInputs inputs{.tokens = q.dim(0),
                               .seqs = seqs,
                               .group = group,
                               .dim = q.dim(2),
                               .value_dim = out.dim(2),
                               .plane = k_plane.dtype,
                               .aligned = rows_aligned(k_plane) && rows_aligned(v_plane),
                               .deterministic = ctx.deterministic,
                               .sm = ctx.cuda->info().sm};
  if (!tiles_are_fast(inputs)) return false;
  TileArgs a{.q = q.ptr<float>(),
             .k = k_plane.data,
             .v = v_plane.data,
             .out = out.ptr<float>(),
             .sinks = params.sinks.defined() ? params.sinks.ptr<float>() : nullptr,
             .slopes = params.slopes.defined() ? params.slopes.ptr<float>() : nullptr,
             .page_table = rows.page_table.ptr<std::int32_t>(),
             .row_seq = rows.row_seq.ptr<std::int32_t>(),
             .positions = rows.positions.ptr<std::int32_t>(),
             .q_token = q.stride[0],
             .q_head = q.stride[1],
             .k_slot = k_plane.stride[0],
             .v_slot = v_plane.stride[0],
             .out_token = out.stride[0],
             .out_head = out.stride[1],
             .table_stride = rows.page_table.stride[0],
             .num_seqs = seqs,
             .max_pages = rows.page_table.dim(1),
             .num_slots = k_plane.dim(0),
             .tokens = q.dim(0),
             .group = group,
             .window = params.window,
             .chunk = params.chunk,
             .scale = params.scale,
             .softcap = params.softcap};
  a.tile_heads = static_cast<int>(std::min<std::int64_t>(group, kRows));
  a.tile_tokens = kRows / a.tile_heads;
  a.head_blocks = static_cast<int>((group + a.tile_heads - 1) / a.tile_heads);
  if (rows_one_by_one(inputs)) {
    attend_rows(ctx, a, kv_heads, q.dim(2), out.dim(2));
    return true;
  }
  a.skip_single_rows = seqs > 1;
  launch_for_dim(ctx, a, kv_heads, q.dim(2));
  if (seqs == 1) return true;
  // A second launch takes the decode rows of a step that also prefills.
  a.skip_single_rows = false;
  a.single_rows_only = true;
  a.tile_tokens = 1;
  launch_for_dim(ctx, a, kv_heads, q.dim(2));
  return true;
}

}  // namespace sluice::cuda
