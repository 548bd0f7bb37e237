// Attention of many rows over bfloat16 pages, on Hopper's wgmma with TMA. Pages of e4m3 come
// widened (kernels/cuda/pages/wide_pages.h); their scales are part of the queries and of the
// epilogue.
//
// A tile has 64 query rows for each consumer warpgroup: the heads of a GQA group times neighbouring
// tokens of one sequence. CTAs are persistent and take one tile after the other. The warps:
//   1. TmaLoader, one warp     keys of a step and values of the step before, into two pipelines
//   2. Fetcher, three warps    the queries of the next tile, with norm and RoPE
//   3. MmaConsumer             one or two warpgroups. For each tile:
//      3.1 load_queries        to registers: from shared memory they would take its whole bandwidth
//      3.2 start_scores        S = Q K^T of a step, asynchronous
//      3.3 start_values        O += P V of the step before, asynchronous
//      3.4 online_softmax      exponentials of the step, while the values' wgmma still runs
//      3.5 store               epilogue
//
// With two consumer warpgroups, one issues wgmma while the other takes exponentials ("ping-pong").
//
// Fragments (PTX ISA, wgmma m64nNk16; lane = 4 g + t): accumulator element 4 j + 2 r + c of a lane
// is row g + 8 r of the warp's 16 rows, column 8 j + 2 t + c.
//
// Maxima and sums as in FlashAttention-2 (arXiv 2307.08691), the roles of warpgroups as in
// FlashAttention-3 (arXiv 2407.08608). The order of summation of a row depends on its position
// alone.
#include "kernels/cuda/attention/attention_out.cuh"
#include "kernels/cuda/attention/attention_sm90_loader.cuh"
#include "kernels/cuda/common/launch.cuh"
#include "kernels/cuda/common/tensor_map.h"

namespace sluice::cuda {
namespace {

using namespace tiles;

// 3. A consumer warpgroup.
template <class Shape>
class MmaConsumer {
 public:
  __device__ MmaConsumer(const TilesArgs& args, Control<Shape>& control, std::uint32_t shared)
      : args_(args),
        control_(control),
        at_(shared),
        warpgroup_(threadIdx.x / kGroupThreads),
        lane_(threadIdx.x % kWarp),
        row_(threadIdx.x / kWarp * 16 + lane_ / 4) {}

  // False when there is no more work.
  __device__ bool attend(int parity) {
    mbarrier_wait(shared_address(&control_.job_filled), parity);
    const Job job = control_.job;
    if (job.steps == 0) return false;
    row_end_[0] = control_.row_end[row_], row_end_[1] = control_.row_end[row_ + 8];
    std::uint32_t query[kSteps][4];
    load_queries(query);
    // Every thread read the job, so every thread arrives. Stages are released once a warp.
    mbarrier_arrive(shared_address(&control_.job_emptied));

    float out[Shape::kDim / 2], score[kScores], rescale[2];
    std::uint32_t weight[Shape::kKeys / 16][4];
#pragma unroll
    for (int i = 0; i < Shape::kDim / 2; ++i) out[i] = 0;
    row_max_[0] = row_max_[1] = -INFINITY;
    row_sum_[0] = row_sum_[1] = 0;

    await(control_.keys_filled[keys_.stage], keys_.parity);
    pin_registers(score);
    wgmma_fence();
    start_scores(score, query);
    wgmma_wait<0>();
    pin_registers(score);
    release(control_.keys_emptied[keys_.stage]);
    keys_.advance();
    online_softmax(score, rescale, job, job.first_key);
    pack(score, weight);
    // The scores of a step and the values of the step before are in flight together.
    for (int step = 1; step < job.steps; ++step) {
      await(control_.keys_filled[keys_.stage], keys_.parity);
      if constexpr (Shape::kTurns) await_turn(warpgroup_);
      pin_registers(score);
      pin_registers(out);
      wgmma_fence();
      start_scores(score, query);
      await(control_.values_filled[values_.stage], values_.parity);
      start_values(out, weight);
      if constexpr (Shape::kTurns) give_turn(warpgroup_ ^ 1);
      // The scores are complete, the values may still run.
      wgmma_wait<1>();
      pin_registers(score);
      release(control_.keys_emptied[keys_.stage]);
      keys_.advance();
      online_softmax(score, rescale, job, job.first_key + step * Shape::kKeys);
      pin_registers(score);
      // Hazard: one wait before the branch would let the compiler move the exponentials behind it.
      // The branch is uniform in a warp, not in the warpgroup; on sm_90 a wait acts for each warp.
      if (__any_sync(kAllLanes, rescale[0] != 1.0f || rescale[1] != 1.0f)) {
        wgmma_wait<0>();
        pin_registers(out);
#pragma unroll
        for (int j = 0; j < Shape::kDim / 2; ++j) out[j] *= rescale[j / 2 % 2];
      } else {
        wgmma_wait<0>();
        pin_registers(out);
      }
      release(control_.values_emptied[values_.stage]);
      values_.advance();
      pack(score, weight);
    }
    await(control_.values_filled[values_.stage], values_.parity);
    pin_registers(out);
    wgmma_fence();
    start_values(out, weight);
    wgmma_wait<0>();
    pin_registers(out);
    release(control_.values_emptied[values_.stage]);
    values_.advance();
    store(out, job);
    return true;
  }

 private:
  static constexpr int kSteps = Shape::kDim / 16, kScores = Shape::kKeys / 2;
  // Weights may grow to 2^kSlack before O and the sum are rescaled. float32 has room for that, and
  // most steps then skip the rescale.
  static constexpr float kSlack = 8;

  __device__ static void await(std::uint64_t& barrier, int parity) {
    mbarrier_wait(shared_address(&barrier), parity);
  }
  __device__ void release(std::uint64_t& barrier) const {
    if (lane_ == 0) mbarrier_arrive(shared_address(&barrier));
  }

  // 3.1 A fragments of the warp's 16 rows.
  __device__ void load_queries(std::uint32_t (&query)[kSteps][4]) const {
    const int row = threadIdx.x / kWarp % 4 * 16 + lane_ % 16;
#pragma unroll
    for (int s = 0; s < kSteps; ++s)
      ldmatrix_x4(query[s], at_.queries + (warpgroup_ * Shape::kParts + s / 4) * kBlockBytes +
                                swizzled(row, s % 4 * 2 + lane_ / 16));
  }

  // 3.2 score = Q K^T for a step.
  __device__ void start_scores(float (&score)[kScores],
                               const std::uint32_t (&query)[kSteps][4]) const {
    const std::uint32_t stage = at_.keys + keys_.stage * Shape::kStageBytes;
#pragma unroll
    for (int s = 0; s < kSteps; ++s)
      wgmma_rs(score, query[s], tile_descriptor(stage + s / 4 * Shape::kPartBytes + s % 4 * 32, 16),
               s > 0);
    wgmma_commit();
  }

  // 3.3 acc += P V for a step. P comes from registers.
  __device__ void start_values(float (&out)[Shape::kDim / 2],
                               const std::uint32_t (&weight)[Shape::kKeys / 16][4]) const {
    const std::uint32_t stage = at_.values + values_.stage * Shape::kStageBytes;
#pragma unroll
    for (int s = 0; s < Shape::kKeys / 16; ++s)
      wgmma_rs_mn(out, weight[s],
                  tile_descriptor(stage + s * 16 * kSwizzleBytes, Shape::kPartBytes));
    wgmma_commit();
  }

  // 3.4 Scores become weights relative to row_max_, which may lag behind the true maximum by
  // kSlack. `rescale` is the factor of what was summed before. `key`: first key of the step.
  __device__ void online_softmax(float (&score)[kScores], float (&rescale)[2], const Job& job,
                                 int key) {
    if (key < job.unmasked_begin || key + Shape::kKeys > job.unmasked_end) {
      const std::int64_t window = args_.a.window;
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        const int from = key + lane_ % 4 * 2;
        const int begin = window > 0
                              ? static_cast<int>(max(row_end_[r] - window, std::int64_t{0})) - from
                              : 0,
                  end = row_end_[r] - from;
#pragma unroll
        for (int j = 0; j < kScores / 4; ++j)
#pragma unroll
          for (int c = 0; c < 2; ++c) {
            const int at = j * 8 + c;
            if (at >= end || (window > 0 && at < begin)) score[4 * j + 2 * r + c] = -INFINITY;
          }
      }
    }
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      float step_max = -INFINITY;
#pragma unroll
      for (int j = 0; j < kScores / 4; ++j)
        step_max = fmaxf(step_max, fmaxf(score[4 * j + 2 * r], score[4 * j + 2 * r + 1]));
      step_max = fmaxf(step_max, __shfl_xor_sync(kAllLanes, step_max, 1));
      step_max = fmaxf(step_max, __shfl_xor_sync(kAllLanes, step_max, 2));
      const float new_max = step_max > row_max_[r] + kSlack ? step_max : row_max_[r];
      // Without a visible key so far the base is 0: exp2(-inf + inf) would be NaN.
      const float base = new_max == -INFINITY ? 0.0f : new_max;
      rescale[r] = exp2_fast(row_max_[r] - base);
      row_max_[r] = new_max;
      float sum[2] = {0, 0};
#pragma unroll
      for (int j = 0; j < kScores / 4; ++j)
#pragma unroll
        for (int c = 0; c < 2; ++c)
          sum[c] += score[4 * j + 2 * r + c] = exp2_fast(score[4 * j + 2 * r + c] - base);
      row_sum_[r] = fmaf(row_sum_[r], rescale[r], sum[0] + sum[1]);
    }
  }

  // Two neighbouring accumulator tiles are one A fragment, without a shuffle.
  __device__ static void pack(const float (&score)[kScores],
                              std::uint32_t (&weight)[Shape::kKeys / 16][4]) {
#pragma unroll
    for (int j = 0; j < kScores / 4; ++j)
#pragma unroll
      for (int r = 0; r < 2; ++r)
        weight[j / 2][j % 2 * 2 + r] = pack_bf16(score[4 * j + 2 * r], score[4 * j + 2 * r + 1]);
  }

  // 3.5 The four lanes of a quad share a row.
  __device__ void store(const float (&out)[Shape::kDim / 2], const Job& job) {
    const PagedArgs& a = args_.a;
    const int group = static_cast<int>(a.group);
    const float scale = a.v_scales == nullptr ? 1.0f : a.v_scales[job.kv];
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      row_sum_[r] += __shfl_xor_sync(kAllLanes, row_sum_[r], 1);
      row_sum_[r] += __shfl_xor_sync(kAllLanes, row_sum_[r], 2);
      if (row_end_[r] == 0) continue;
      const int at = row_ + 8 * r;
      const std::int64_t head = std::int64_t{job.kv} * group + at % group;
      // A sink adds to the sum alone. It may be far above all scores: then the weights become 0.
      if (a.sinks != nullptr) row_sum_[r] += exp2_fast(a.sinks[head] * kLog2E - row_max_[r]);
      const float inverse = row_sum_[r] == 0 ? 0.0f : scale / row_sum_[r];
      const std::int64_t to =
          (job.begin + at / group) * a.out_token + head * a.out_head + lane_ % 4 * 2;
#pragma unroll
      for (int j = 0; j < Shape::kDim / 8; ++j)
        store_two(a, to + j * 8, out[4 * j + 2 * r] * inverse, out[4 * j + 2 * r + 1] * inverse);
    }
  }

  const TilesArgs& args_;
  Control<Shape>& control_;
  Places<Shape> at_;
  int warpgroup_, lane_;
  int row_;  // the first of the lane's two rows; the second is row_ + 8
  int row_end_[2];
  float row_max_[2], row_sum_[2];
  PipelinePlace<Shape::kStages> keys_, values_;
};

template <class Shape>
__global__ void __launch_bounds__(Shape::kThreads, 1)
    // Grid: persistent CTAs, at most one an SM. A "filled" barrier has one arrival with the byte
    // count of the TMA, an "emptied" barrier has one arrival for each consumer warp.
    tiles_kernel(const __grid_constant__ TilesArgs args) {
  extern __shared__ unsigned char shared[];
  __shared__ Control<Shape> control;
  unsigned char* aligned = shared + (1024 - shared_address(shared) % 1024) % 1024;
  if (threadIdx.x == 0) {
    constexpr int kReaders = Shape::kGroups * kGroupThreads / kWarp;
    for (int i = 0; i < Shape::kStages; ++i) {
      mbarrier_init(shared_address(&control.keys_filled[i]), 1);
      mbarrier_init(shared_address(&control.values_filled[i]), 1);
      mbarrier_init(shared_address(&control.keys_emptied[i]), kReaders);
      mbarrier_init(shared_address(&control.values_emptied[i]), kReaders);
    }
    mbarrier_init(shared_address(&control.job_filled), kFetchingWarps * kWarp);
    mbarrier_init(shared_address(&control.job_emptied), Shape::kGroups * kGroupThreads);
    mbarrier_init(shared_address(&control.page_came), 1);
    mbarrier_init(shared_address(&control.queries_came), 1);
    fence_mbarrier_init();
    prefetch_tensor_map(args.keys);
    prefetch_tensor_map(args.values);
  }
  __syncthreads();
  wait_for_earlier_kernels();
  start_next_kernel();
  const int warp = threadIdx.x / kWarp - Shape::kGroups * 4;  // of the producer warpgroup
  if (warp >= 0) {
    setmaxnreg_dec<Shape::kCopyRegisters>();
    if (warp == 0) {
      TmaLoader<Shape> loader(args, control, shared_address(aligned));
      for_each_run<Shape>(args, control.ends[warp], [&](const Run& run) { loader.copy(run); });
    } else {
      Fetcher<Shape> fetcher(args, control, aligned);
      for_each_run<Shape>(args, control.ends[warp], [&](const Run& run) { fetcher.fetch(run); });
      fetcher.end();
    }
  } else {
    setmaxnreg_inc<Shape::kConsumerRegisters>();
    MmaConsumer<Shape> consumer(args, control, shared_address(aligned));
    // The first turn belongs to warpgroup 0.
    if (Shape::kTurns && threadIdx.x / kGroupThreads == 1) give_turn(0);
    for (int parity = 0; consumer.attend(parity); parity ^= 1) {
    }
  }
}

template <class Shape>
void launch(Context& ctx, const PagedArgs& a, std::int64_t kv_heads, bool skip_single_rows,
            const NewHeads& heads) {
  // With --deterministic, decode rows come here too.
  const AttentionInputs inputs{
      .tokens = a.tokens, .seqs = ctx.deterministic ? a.num_seqs : 0, .group = a.group};
  const int tile_tokens =
      cuda::tile_tokens(inputs, Shape::kRows, kv_heads, ctx.cuda->info().num_sms);
  const TilesArgs args{.keys = map_of_boxes(a.k, a.num_slots, kv_heads * a.dim, a.k_slot, kPage),
                       .values = map_of_boxes(a.v, a.num_slots, kv_heads * a.dim, a.v_slot, kPage),
                       .a = a,
                       .tile_tokens = tile_tokens,
                       .tiles = static_cast<int>(blocks_for(a.tokens, tile_tokens)),
                       .kv_heads = static_cast<int>(kv_heads),
                       .skip_single_rows = skip_single_rows,
                       .q_weight = heads.q_weight,
                       .cos_sin = heads.cos_sin,
                       .cos_sin_stride = heads.cos_sin_stride,
                       .eps = heads.eps};
  const int blocks = std::min(args.tiles * args.kv_heads, ctx.cuda->info().num_sms);
  launch_dependent(ctx, "attention of tiles", tiles_kernel<Shape>,
                   dim3(static_cast<unsigned>(blocks)), Shape::kThreads, Shape::kBytes, args);
}

}  // namespace

void attend_tiles(Context& ctx, const PagedArgs& a, std::int64_t kv_heads, bool skip_single_rows,
                  const NewHeads& heads) {
  if (a.dim == 64)
    launch<TilesShape<64, 3, 1, 4, false>>(ctx, a, kv_heads, skip_single_rows, heads);
  else
    launch<TilesShape<128, 2, 2, 2, true>>(ctx, a, kv_heads, skip_single_rows, heads);
}

}  // namespace sluice::cuda
