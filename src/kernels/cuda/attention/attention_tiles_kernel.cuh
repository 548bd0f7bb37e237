// The kernel of attention on mma.sync tensor cores, and its launch; attention_tiles.cu and
// attention_tiles_fp8.cu make the instances for pages of bfloat16 and e4m3. Every GPU from compute
// capability 8.0 on, every option of AttentionParams. A CTA takes up to 64 query rows: the heads of
// a GQA group times neighbouring tokens of one sequence. Each of its four warps has 16 of the rows.
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
#pragma once

#include "kernels/cuda/attention/attention_tiles_phases.cuh"

namespace sluice::cuda::general {

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

template <int kKeyDim, int kValueDim, int kStep, class Pages>
void launch(Context& ctx, const TileArgs& a, std::int64_t kv_heads) {
  using Shape = TileShape<kKeyDim, kValueDim, kStep, Pages>;
  const dim3 grid(blocks_for(a.tokens, a.tile_tokens),
                  static_cast<unsigned>(kv_heads * a.head_blocks), static_cast<unsigned>(a.splits));
  launch_dependent(ctx, "attention of tiles", tiles_kernel<Shape>, grid, kTileThreads,
                   Shape::kBytes, a);
}

// Of keys of `dim` elements in e4m3.
void launch_fp8(Context& ctx, const TileArgs& a, std::int64_t kv_heads, std::int64_t dim);

}  // namespace sluice::cuda::general
