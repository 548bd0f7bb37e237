// The kernel of decode attention and its launch; attention_decode.cu and attention_decode_fp8.cu
// make the instances for bfloat16 and for e4m3.
//
// Single query rows over pages, with split KV. Each (row, KV head) is split over CTAs, so that a
// batch of one row keeps every SM reading.
//
// The phases of a CTA (attention_decode_phases.cuh), in the order of decode_kernel:
//   1. locate              the query row, its heads and its share of the row's pages
//   2. issue_page          cp.async of 16 keys and values of a page for each warp, kStages ahead
//   3. start               maxima and sums, with the attention sinks if there are some
//      prepare_heads       optional: norm and RoPE of new queries, new keys and values
//   4. load_queries        queries as B fragments in registers
//   for each page:
//   5. insert_newest       optional: new keys and values replace zeros of the stage
//   6. scores              S^T = K Q^T
//   7. online_softmax      running maximum and sum, P^T as B fragments
//   8. accumulate          O^T = rescale * O^T + V^T P^T
//   then:
//   9. merge_warps         the four warps' partial results in shared memory
//  10. merge_splits_in_cluster  through distributed shared memory, if the splits are one cluster
//  11. merge_splits_of_last     through global memory by the CTA that ends last, otherwise
//
// A row of a run (ops::RowRuns) sees the keys of the rows before it, which other CTAs of the launch
// write to the pool. It prepares them itself and writes its own alone, so no CTA waits for another.
// Runs have instances of their own.
//
// Steps 9 to 11 add in ascending order of warps and splits. Hence a result depends on the length of
// the row and on the number of splits alone.
#pragma once

#include "kernels/cuda/attention/attention_decode_phases.cuh"
#include "kernels/cuda/attention/attention_plan.h"

namespace sluice::cuda::decode {

// Grid: rows, KV heads times head blocks, splits.
template <int kDim, int kHeadTiles, int kStages, class Pages, bool kRuns>
__global__ void __launch_bounds__(kDecodeThreads)
    decode_kernel(const __grid_constant__ DecodeArgs args) {
  using Cta = DecodeCta<kDim, kHeadTiles, kStages, Pages, kRuns>;
  constexpr int kHeads = Cta::kHeads;
  extern __shared__ __align__(16) unsigned char memory[];
  __shared__ bool is_last;
  __shared__ PreparedHeads<kDim, kHeads> prepared;
  __shared__ __align__(16) float received[kHeads * kDim + 2 * kMaxCluster];
  __shared__ float received_lse[kMaxCluster][kHeads];
  __shared__ float warp_max[kDecodeWarps][kHeads], warp_sum[kDecodeWarps][kHeads];
  using Row = NewRow<kDim, Pages>;
  __shared__ __align__(16) Row lone_row;
  static_assert(kMaxNewRows * sizeof(Row) <= sizeof(received));
  const DecodeShared<kDim, kHeads, Pages> shared{
      is_last,  prepared,     kRuns ? reinterpret_cast<Row*>(received) : &lone_row,
      received, received_lse, warp_max,
      warp_sum};
  Cta cta{args, args.a, shared, memory, kRuns || args.heads.k != nullptr};

  // New heads come with cosines, whose kernel waits for all kernels before it. Hence the inputs of
  // the step are there already, and only prepare_heads() has to wait.
  if (!cta.has_new_heads) wait_for_earlier_kernels();
  start_next_kernel();
  if (!cta.locate()) return;
  // The first cluster barrier: all CTAs run, so their shared memory may be written. With runs it
  // comes when nobody reads new keys any more.
  if (!kRuns && args.is_cluster) cluster_arrive();
  // Empty splits go on too. An early exit would let the next kernel put two CTAs on this SM and
  // unbalance all later launches.
  cta.locate_pages();
#pragma unroll
  for (int i = 0; i < kStages; ++i) cta.issue_page(i);
  typename Cta::Fragments frag;
  cta.start(frag);
  if (cta.has_new_heads) cta.prepare_heads();
  cta.load_queries(frag);
  // 2. and 5. to 8. for all pages. A warp reads only what it copied itself, so no barrier of the
  // CTA is needed: __syncwarp() after the wait publishes the copies of the other lanes.
  for (int i = 0; i < cta.num_pages; ++i) {
    if (i > 0) {
      __syncwarp();  // all lanes have read the stage that the next copy overwrites
      cta.issue_page(i + kStages - 1);
    }
    cp_async_wait<kStages - 1>();
    __syncwarp();
    const std::uint32_t stage = cta.stages + i % kStages * Cta::Shape::kStageBytes;
    const std::int64_t first_key = (cta.page_begin + i) * kPageSize + cta.warp * kWarpKeys;
    if (first_key >= cta.end || first_key + kWarpKeys <= cta.begin) continue;
    if (cta.has_new_heads) cta.insert_newest(stage, first_key);
    typename Cta::Page page;
#pragma unroll
    for (int n = 0; n < kHeadTiles; ++n)
#pragma unroll
      for (int j = 0; j < 4; ++j) page.score[n][j] = 0;
    cta.scores(page, frag, stage);
    cta.online_softmax(page, frag, first_key);
    cta.accumulate(page, frag, stage);
  }
  cp_async_wait<0>();
  if (kRuns && args.is_cluster) cluster_arrive();

  const float* outputs = cta.store_warps(frag);
  const std::int64_t unit = cta.token * gridDim.y + blockIdx.y;
  if (args.is_cluster) cluster_wait();
  cta.merge_warps(outputs, unit);
  if (args.splits == 1) return;
  if (args.is_cluster) return cta.merge_splits_in_cluster();
  if (cta.is_last_split(unit)) cta.merge_splits_of_last(unit);
}

// False if the plan wants clusters and the GPU cannot run all of them at once. Then nothing was
// launched.
template <int kDim, int kHeadTiles, int kStages, class Pages>
bool launch(Context& ctx, DecodeArgs& args, std::int64_t kv_heads, const DecodePlan& plan) {
  using Shape = DecodeShape<kDim, 8 * kHeadTiles, kStages, Pages>;
  constexpr const char* kWhat = "attention of single rows";
  const std::int64_t units = args.a.tokens * kv_heads * plan.head_blocks;
  const dim3 grid(static_cast<unsigned>(args.a.tokens),
                  static_cast<unsigned>(kv_heads * plan.head_blocks),
                  static_cast<unsigned>(plan.splits));
  const auto kernel = args.heads.places == nullptr
                          ? decode_kernel<kDim, kHeadTiles, kStages, Pages, false>
                          : decode_kernel<kDim, kHeadTiles, kStages, Pages, true>;
  if (plan.is_cluster) {
    static_assert(kDim * 8 * kHeadTiles <= 1 << (kShareBits - 9));
    args.share = ((plan.heads_each * kDim + plan.splits - 1) / plan.splits + 1) / 2 * 2;
    args.share_inverse = ((1 << kShareBits) + args.share - 1) / args.share;
    const ClusterLaunch clusters(ctx, grid, kDecodeThreads, Shape::kBytes, dim3(1, 1, grid.z));
    if (!clusters.fits(kernel)) return false;
    clusters.run(kWhat, kernel, args);
    return true;
  }
  args.partial = static_cast<float*>(ctx.cuda->scratch());
  args.partial_lse = args.partial + units * plan.splits * 8 * kHeadTiles * kDim;
  args.counters = ctx.cuda->counters();
  launch_dependent(ctx, kWhat, kernel, grid, kDecodeThreads, Shape::kBytes, args);
  return true;
}

// Of heads of args.a.dim elements in e4m3.
bool launch_fp8(Context& ctx, DecodeArgs& args, std::int64_t kv_heads, const DecodePlan& plan);

}  // namespace sluice::cuda::decode
