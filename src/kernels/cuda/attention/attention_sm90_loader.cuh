// Producers of attention_tiles_sm90.cu: the warps that fill shared memory.
//   1. TmaLoader: keys and values by TMA, one thread of one warp issues
//   2. Fetcher: queries, and the description of the next run
#pragma once

#include "kernels/cuda/attention/attention_sm90_schedule.cuh"
#include "kernels/cuda/common/head_rows.cuh"
#include "kernels/cuda/common/mma.cuh"
#include "kernels/cuda/common/tma.cuh"

namespace sluice::cuda::tiles {

// 1. Keys of a step, then values of the step before: the consumers need them in this order.
template <class Shape>
class TmaLoader {
 public:
  __device__ TmaLoader(const TilesArgs& args, Control<Shape>& control, std::uint32_t shared)
      : args_(args), control_(control), at_(shared), lane_(threadIdx.x % kWarp) {}

  __device__ void copy(const Run& run) {
    const auto pages_of = [&](int step) {  // in the first lanes
      const int page = run.first_page + step * Shape::kPages + lane_;
      return lane_ < Shape::kPages && run.wants(page) ? run.table[page] : 0;
    };
    // Page numbers load one step ahead of the copies.
    int now = 0, coming = pages_of(0);
    for (int step = 0; step <= run.steps; ++step) {
      const int before = now;
      now = coming;
      if (step + 1 < run.steps) coming = pages_of(step + 1);
      if (step < run.steps) copy_keys(run, step, now);
      if (step > 0) copy_values(run, step - 1, before);
    }
  }

 private:
  // A page is kParts boxes of 64 columns. Lane 0 issues, all lanes call.
  __device__ void copy_page(const CUtensorMap& map, const Run& run, int page, std::uint32_t to,
                            std::uint32_t barrier) const {
    expect_below(page, args_.a.num_slots / kPage);
    if (lane_ != 0) return;
#pragma unroll
    for (int part = 0; part < Shape::kParts; ++part)
      tma_load(map, run.kv * Shape::kDim + part * kSwizzleColumns, page * kPage,
               to + part * Shape::kPartBytes, barrier);
  }

  // One mbarrier phase a step, with the bytes of all wanted pages.
  __device__ void copy_keys(const Run& run, int step, int pages) {
    const int first = run.first_page + step * Shape::kPages;
    const std::uint32_t filled = shared_address(&control_.keys_filled[keys_.stage]);
    mbarrier_wait(shared_address(&control_.keys_emptied[keys_.stage]), keys_.parity ^ 1);
    int wanted = 0;
#pragma unroll
    for (int p = 0; p < Shape::kPages; ++p) wanted += run.wants(first + p);
    if (lane_ == 0) mbarrier_arrive_expect_tx(filled, wanted * Shape::kParts * kBoxBytes);
#pragma unroll
    for (int p = 0; p < Shape::kPages; ++p) {
      const int page = __shfl_sync(kAllLanes, pages, p);
      // A page outside the window is not read: its scores are masked, whatever the stage holds.
      if (run.wants(first + p))
        copy_page(args_.keys, run, page,
                  at_.keys + keys_.stage * Shape::kStageBytes + p * kBoxBytes, filled);
    }
    keys_.advance();
  }

  // Values that were never written become zeros, because 0 * NaN would be NaN.
  __device__ void copy_values(const Run& run, int step, int pages) {
    const int first = run.first_page + step * Shape::kPages;
    const std::uint32_t filled = shared_address(&control_.values_filled[values_.stage]);
    const std::uint32_t stage = at_.values + values_.stage * Shape::kStageBytes;
    mbarrier_wait(shared_address(&control_.values_emptied[values_.stage]), values_.parity ^ 1);
    const auto rows_there = [&](int p) {
      return run.wants(first + p) ? min(run.written_end - (first + p) * kPage, kPage) : 0;
    };
    // A page that is only partly written cannot go straight to the stage: its stale rows could hold
    // NaN, and 0 * NaN is NaN. It is copied, waited for, and its stale rows are cleared.
    int whole = 0;
    bool cleared = false;
#pragma unroll
    for (int p = 0; p < Shape::kPages; ++p) {
      const int page = __shfl_sync(kAllLanes, pages, p), rows = rows_there(p);
      if (rows == kPage) {
        ++whole;
        continue;
      }
      if (rows > 0) {
        const std::uint32_t came = shared_address(&control_.page_came);
        if (lane_ == 0) mbarrier_arrive_expect_tx(came, Shape::kParts * kBoxBytes);
        __syncwarp();
        copy_page(args_.values, run, page, stage + p * kBoxBytes, came);
        mbarrier_wait(came, page_parity_);
        page_parity_ ^= 1;
      }
      for (int part = 0; part < Shape::kParts; ++part)
        for (int i = rows * kSwizzleBytes + lane_ * 16; i < kBoxBytes; i += kWarp * 16)
          clear16(stage + part * Shape::kPartBytes + p * kBoxBytes + i);
      cleared = true;
    }
    // The generic-proxy zeros must be visible to wgmma before the stage is filled.
    if (cleared) {
      fence_async_proxy();
      __syncwarp();
    }
    // Whole pages go straight to the stage.
    if (lane_ == 0) mbarrier_arrive_expect_tx(filled, whole * Shape::kParts * kBoxBytes);
#pragma unroll
    for (int p = 0; p < Shape::kPages; ++p) {
      const int page = __shfl_sync(kAllLanes, pages, p);
      if (rows_there(p) == kPage) copy_page(args_.values, run, page, stage + p * kBoxBytes, filled);
    }
    values_.advance();
  }

  // Writes 16 bytes of zeros.
  __device__ static void clear16(std::uint32_t to) {
    asm volatile("st.shared.v4.b32 [%0], {%1, %1, %1, %1};" ::"r"(to), "r"(0) : "memory");
  }

  const TilesArgs& args_;
  Control<Shape>& control_;
  Places<Shape> at_;
  int lane_, page_parity_ = 0;
  PipelinePlace<Shape::kStages> keys_, values_;
};

// 2. Queries times the scale, and that of their keys, after norm and RoPE if the launch has new
// heads, and the Job of a run. float32 queries arrive in a raw buffer and stay there until the
// consumers have loaded the queries of the run before. Barriers: queries_came (TMA bytes),
// job_emptied (consumers), job_filled.
template <class Shape>
class Fetcher {
 public:
  __device__ Fetcher(const TilesArgs& args, Control<Shape>& control, unsigned char* shared)
      : args_(args),
        control_(control),
        queries_(shared),
        raw_(shared + (Places<Shape>(0).raw)),
        thread_(threadIdx.x % kGroupThreads - kWarp),
        column_(thread_ % kLanes * 4),
        weight_(args.q_weight == nullptr ? float4{} : four_at(args.q_weight + column_)) {}

  // Steps: issue the raw queries, wait for the consumers, describe the run, prepare the queries.
  __device__ void fetch(const Run& run) {
    const PagedArgs& a = args_.a;
    const float scale = a.k_scales == nullptr ? a.scale_log2 : a.scale_log2 * a.k_scales[run.kv];
    issue(run);
    mbarrier_wait(shared_address(&control_.queries_came), parity_);
    mbarrier_wait(shared_address(&control_.job_emptied), parity_ ^ 1);
    parity_ ^= 1;
    // The Job is written between two consumers' reads: job_emptied guards it.
    for (int r = thread_; r < Shape::kRows; r += kThreads) {
      const int token = token_of(run, r);
      control_.row_end[r] = token >= 0 ? a.positions[run.begin + token] + 1 : 0;
    }
    if (thread_ == 0)
      // Keys [unmasked_begin, unmasked_end) need no mask, because every row sees them.
      control_.job = {
          .begin = run.begin,
          .steps = run.steps,
          .first_key = run.first_page * kPage,
          .unmasked_begin =
              a.window > 0 ? static_cast<int>(max(run.highest - a.window + 1, std::int64_t{0})) : 0,
          .unmasked_end = run.lowest + 1,
          .kv = run.kv};
    // With angles, four neighbouring rows are heads of one token (tiles_rotate()).
    const bool has_rope = args_.cos_sin != nullptr;  // then four rows are heads of one token
    float4 cosine{}, sine{};
    const auto fetch_angles = [&](int begin) {
      const int token = begin < Shape::kRows ? token_of(run, begin) : -1;
      if (!has_rope || token < 0) return;
      const float* angles =
          args_.cos_sin + (run.begin + token) * args_.cos_sin_stride + column_ % (2 * kLanes);
      cosine = four_at(angles), sine = four_at(angles + 2 * kLanes);
    };
    constexpr int kStep = kThreads / kLanes * kTogether;
    const int mine = thread_ / kLanes * kTogether;
    const int rows_end = (run.first + run.count) * static_cast<int>(a.group);
    // Angles load one group of rows ahead.
    fetch_angles(mine);
    // Rows outside the run may hold anything: their outputs are not stored. The bound is the same
    // for all lanes of a warp: a lane without a row still takes part in shuffles.
    for (int begin = mine; begin - mine < rows_end; begin += kStep) {
      const float4 c = cosine, s = sine;
      fetch_angles(begin + kStep);
#pragma unroll
      for (int j = 0; j < kTogether; ++j) {
        const int r = begin + j;
        float4 x{};
        if (r < Shape::kRows && token_of(run, r) >= 0)
          x = four_at(reinterpret_cast<const float*>(raw_) + r * Shape::kDim + column_);
        if (has_rope) {
          if (args_.q_weight != nullptr) x = norm_four<kLanes>(x, weight_, args_.eps);
          x = rotate_four<kLanes>(x, c, s);
        }
        if (r < Shape::kRows) put(r, x, scale);
      }
    }
    mbarrier_arrive(shared_address(&control_.job_filled));
    asm volatile("bar.sync 10, %0;" ::"n"(kThreads)
                 : "memory");  // all fetching warps have read the raw queries
  }

  // No more work: a Job without steps ends the consumers.
  __device__ void end() {
    mbarrier_wait(shared_address(&control_.job_emptied), parity_ ^ 1);
    if (thread_ == 0) control_.job.steps = 0;
    mbarrier_arrive(shared_address(&control_.job_filled));
  }

 private:
  // kLanes lanes have a head, four elements each.
  static constexpr int kThreads = kFetchingWarps * kWarp, kLanes = Shape::kDim / 4, kTogether = 4;

  // The token of row r within the tile, or -1 if that token is not in the run.
  __device__ int token_of(const Run& run, int r) const {
    const int token = r / static_cast<int>(args_.a.group);
    return token >= run.first && token < run.first + run.count ? token : -1;
  }

  // Bulk copies issue one thread at a time, so all warps share them. Heads that are contiguous in
  // memory are one copy for each token.
  __device__ void issue(const Run& run) const {
    const PagedArgs& a = args_.a;
    const int group = static_cast<int>(a.group), each = a.q_head == Shape::kDim ? group : 1;
    const int begin = run.first * group, end = (run.first + run.count) * group;
    const std::uint32_t came = shared_address(&control_.queries_came);
    if (thread_ == 0) mbarrier_arrive_expect_tx(came, (end - begin) * Shape::kDim * 4);
    for (int r = begin + thread_ * each; r < end; r += kThreads * each)
      tma_load_bytes(a.q + (run.begin + r / group) * a.q_token +
                         (std::int64_t{run.kv} * group + r % group) * a.q_head,
                     each * Shape::kDim * 4, shared_address(raw_) + r * Shape::kDim * 4, came);
  }

  // Element order of wgmma: 64-row blocks of 64 columns, swizzled.
  __device__ void put(int r, const float4& x, float scale) const {
    unsigned char* block =
        queries_ + (r / 64 * Shape::kParts + column_ / kSwizzleColumns) * kBlockBytes;
    *reinterpret_cast<uint2*>(block + swizzled(r % 64, column_ % kSwizzleColumns / 8) +
                              column_ % 8 * 2) = {pack_bf16(x.x * scale, x.y * scale),
                                                  pack_bf16(x.z * scale, x.w * scale)};
  }

  const TilesArgs& args_;
  Control<Shape>& control_;
  unsigned char *queries_, *raw_;
  int thread_, column_, parity_ = 0;
  float4 weight_;
};

}  // namespace sluice::cuda::tiles
