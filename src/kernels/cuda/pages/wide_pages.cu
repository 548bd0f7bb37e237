// Widens the pages of a prefill step from e4m3 to bfloat16 (wide_pages.h).
//
//   place_kernel   one CTA. The pages that each run sees get neighbouring places, run after run
//   widen_kernel   grid: places; parts of the keys, then of the values. A part is kPartRows slots
#include "kernels/cuda/pages/wide_pages.h"

#include <cuda_fp8.h>

#include "kernels/cuda/common/alignment.h"
#include "kernels/cuda/common/common.cuh"
#include "kernels/cuda/common/launch.cuh"
#include "kernels/cuda/common/mma.cuh"

namespace sluice::cuda {
namespace {

constexpr int kPlaceThreads = 1024, kPlaceWarps = kPlaceThreads / kWarp;
constexpr int kWidenThreads = 256, kTogether = 4;
constexpr int kPartRows = 16, kParts = static_cast<int>(kPageSize) / kPartRows;

struct PlaceArgs {
  const std::int32_t *row_seq, *positions, *page_table;
  std::int64_t table_stride, tokens, seqs, max_pages, run_pages, window;
  std::int32_t *runs, *count, *pages, *table;
};

// Sum of the values of the threads before this one; `total` is that of all threads. All threads
// call.
__device__ int sum_before(int value, int& total) {
  __shared__ int sums[kPlaceWarps];
  const int lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp;
  int sum = value;
  for (int step = 1; step < kWarp; step *= 2) {
    const int other = __shfl_up_sync(kAllLanes, sum, step);
    if (lane >= step) sum += other;
  }
  __syncthreads();  // a thread may still read the sums of the call before
  if (lane == kWarp - 1) sums[warp] = sum;
  __syncthreads();
  int before = 0;
  total = 0;
  for (int w = 0; w < kPlaceWarps; ++w) {
    if (w < warp) before += sums[w];
    total += sums[w];
  }
  return before + sum - value;
}

// Rows of a sequence are neighbours, their positions in any order. Steps:
//   1. lowest and highest position of each sequence, and the number of its rows
//   2. pages that a run sees, and the place of its first one
//   3. the page table of the places, and the page of each place
__global__ void __launch_bounds__(kPlaceThreads) place_kernel(const PlaceArgs a) {
  begin_dependent();
  const int lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp;
  for (std::int64_t s = threadIdx.x; s < a.seqs; s += kPlaceThreads) {
    a.runs[3 * s] = INT32_MAX;
    a.runs[3 * s + 1] = -1;
    a.runs[3 * s + 2] = 0;
  }
  __syncthreads();
  for (std::int64_t begin = 0; begin < a.tokens; begin += kPlaceThreads) {
    const std::int64_t t = begin + threadIdx.x;
    const bool is_row = t < a.tokens;
    const int seq = is_row ? a.row_seq[t] : -1, position = is_row ? a.positions[t] : 0;
    if (is_row) {
      expect_below(seq, a.seqs);
      expect_below(position, a.max_pages * kPageSize);
    }
    // Most warps have rows of one sequence alone.
    if (__all_sync(kAllLanes, seq == __shfl_sync(kAllLanes, seq, 0))) {
      if (seq < 0) continue;
      const int lowest = __reduce_min_sync(kAllLanes, position),
                highest = __reduce_max_sync(kAllLanes, position);
      if (lane == 0) {
        atomicMin(a.runs + 3 * seq, lowest);
        atomicMax(a.runs + 3 * seq + 1, highest);
        atomicAdd(a.runs + 3 * seq + 2, kWarp);
      }
    } else if (is_row) {
      atomicMin(a.runs + 3 * seq, position);
      atomicMax(a.runs + 3 * seq + 1, position);
      atomicAdd(a.runs + 3 * seq + 2, 1);
    }
  }
  __syncthreads();
  int placed = 0;
  for (std::int64_t begin = 0; begin < a.seqs; begin += kPlaceThreads) {
    const std::int64_t s = begin + threadIdx.x;
    int first = 0, end = 0;
    if (s < a.seqs && a.runs[3 * s + 2] > 1) {
      const std::int64_t lowest = a.runs[3 * s];
      first = a.window > 0
                  ? static_cast<int>(max(lowest - a.window + 1, std::int64_t{0}) / kPageSize)
                  : 0;
      end = static_cast<int>(a.runs[3 * s + 1] / kPageSize) + 1;
    }
    int total = 0;
    const int place = placed + sum_before(end - first, total);
    placed += total;
    expect_below(placed, a.run_pages + 1);  // the host has taken memory for so many
    if (s < a.seqs) {
      a.runs[3 * s] = first;
      a.runs[3 * s + 1] = end;
      a.runs[3 * s + 2] = place;
    }
  }
  if (threadIdx.x == 0) *a.count = placed;
  __syncthreads();
  for (std::int64_t s = warp; s < a.seqs; s += kPlaceWarps) {
    const int first = a.runs[3 * s], end = a.runs[3 * s + 1], place = a.runs[3 * s + 2];
#pragma unroll 4
    for (int page = first + lane; page < end; page += kWarp) {
      const std::int32_t stored = a.page_table[s * a.table_stride + page];
      a.table[s * a.max_pages + page] = stored < 0 ? -1 : place + page - first;
      a.pages[place + page - first] = stored;
    }
  }
}

struct WidenArgs {
  const std::uint8_t *k, *v;
  std::int64_t k_slot, v_slot, num_pages;
  const std::int32_t *pages, *count;
  Bf16 *wide_k, *wide_v;
  int columns;  // of all heads, a multiple of 16
};

// Two e4m3 numbers of the low 16 bits as bfloat16. NaN stays NaN.
__device__ std::uint32_t bf16_pair(std::uint32_t codes) {
  const __half2_raw both =
      __nv_cvt_fp8x2_to_halfraw2(static_cast<__nv_fp8x2_storage_t>(codes), __NV_E4M3);
  const float2 numbers = __half22float2(both);
  return pack_bf16(numbers.x, numbers.y);
}

__global__ void __launch_bounds__(kWidenThreads) widen_kernel(const WidenArgs a) {
  begin_dependent();
  const std::int64_t place = blockIdx.x;
  if (place >= *a.count) return;
  const std::int64_t page = a.pages[place];
  if (page < 0) return;
  expect_below(page, a.num_pages);
  const bool are_values = blockIdx.y >= kParts;
  const int row = static_cast<int>(blockIdx.y) % kParts * kPartRows;
  const std::int64_t slot = are_values ? a.v_slot : a.k_slot;
  const std::uint8_t* from = (are_values ? a.v : a.k) + (page * kPageSize + row) * slot;
  auto* to = reinterpret_cast<uint4*>((are_values ? a.wide_v : a.wide_k) +
                                      (place * kPageSize + row) * a.columns);
  // A piece is 16 columns.
  const int pieces_of_row = a.columns / 16, pieces = kPartRows * pieces_of_row;
  for (int begin = threadIdx.x; begin < pieces; begin += kTogether * kWidenThreads) {
    uint4 codes[kTogether];
#pragma unroll
    for (int j = 0; j < kTogether; ++j)
      if (const int i = begin + j * kWidenThreads; i < pieces)
        codes[j] = *reinterpret_cast<const uint4*>(from + i / pieces_of_row * slot +
                                                   i % pieces_of_row * 16);
#pragma unroll
    for (int j = 0; j < kTogether; ++j) {
      const int i = begin + j * kWidenThreads;
      if (i >= pieces) break;
      const uint4 x = codes[j];
      to[2 * i] = {bf16_pair(x.x), bf16_pair(x.x >> 16), bf16_pair(x.y), bf16_pair(x.y >> 16)};
      to[2 * i + 1] = {bf16_pair(x.z), bf16_pair(x.z >> 16), bf16_pair(x.w), bf16_pair(x.w >> 16)};
    }
  }
}

WideInputs inputs_for(const Tensor& q, std::int64_t kv_heads, const ops::PagedRows& rows) {
  return {.tokens = q.dim(0),
          .seqs = rows.page_table.dim(0),
          .max_pages = rows.page_table.dim(1),
          .run_seqs = rows.prefill.seqs,
          .run_pages = rows.prefill.pages,
          .group = q.dim(1) / kv_heads,
          .kv_heads = kv_heads,
          .dim = q.dim(2)};
}

// Whether attention_tiles_sm90.cu takes the widened planes.
bool can_be_widened(const Context& ctx, const Tensor& q, const ops::KvPlane& k_plane,
                    const ops::KvPlane& v_plane) {
  return ctx.cuda != nullptr && ctx.cuda->info().sm == 90 && !ctx.deterministic &&
         k_plane.is_fp8() && (q.dim(2) == 64 || q.dim(2) == 128) &&
         v_plane.data.dim(1) == k_plane.data.dim(1) && rows_aligned(k_plane.data) &&
         rows_aligned(v_plane.data);
}

}  // namespace

WidePlan wide_pages_of(const Context& ctx, const Tensor& q, const ops::KvPlane& k_plane,
                       const ops::KvPlane& v_plane, std::int64_t kv_heads,
                       const ops::PagedRows& rows) {
  if (!can_be_widened(ctx, q, k_plane, v_plane) || !rows.prefill.memory.defined()) return {};
  WideInputs inputs = inputs_for(q, kv_heads, rows);
  inputs.memory_bytes = rows.prefill.memory.dim(0);
  return plan_wide_pages(inputs);
}

std::int64_t wide_pages_bytes(const Context& ctx, const Tensor& q, const ops::KvPlane& k_plane,
                              const ops::KvPlane& v_plane, std::int64_t kv_heads,
                              const ops::PagedRows& rows) {
  if (!can_be_widened(ctx, q, k_plane, v_plane)) return 0;
  WideInputs inputs = inputs_for(q, kv_heads, rows);
  if (ctx.dry_run) return max_wide_bytes(inputs);
  inputs.memory_bytes = kMaxWideBytes;
  return plan_wide_pages(inputs).bytes;
}

WidePages::WidePages(const WidePlan& plan, const ops::PagedRows& rows) {
  auto* const memory = static_cast<std::byte*>(rows.prefill.memory.data);
  runs = reinterpret_cast<std::int32_t*>(memory);
  count = runs + 3 * rows.page_table.dim(0);
  pages = count + 1;
  table = pages + rows.prefill.pages;
  k = memory + plan.k_at;
  v = memory + plan.v_at;
}

void place_wide_pages(Context& ctx, const WidePages& wide, const ops::PagedRows& rows,
                      std::int64_t window) {
  const PlaceArgs args{.row_seq = rows.row_seq.ptr<std::int32_t>(),
                       .positions = rows.positions.ptr<std::int32_t>(),
                       .page_table = rows.page_table.ptr<std::int32_t>(),
                       .table_stride = rows.page_table.stride[0],
                       .tokens = rows.row_seq.dim(0),
                       .seqs = rows.page_table.dim(0),
                       .max_pages = rows.page_table.dim(1),
                       .run_pages = rows.prefill.pages,
                       .window = window,
                       .runs = wide.runs,
                       .count = wide.count,
                       .pages = wide.pages,
                       .table = wide.table};
  launch_dependent(ctx, "places of widened pages", place_kernel, 1, kPlaceThreads, 0, args);
}

void widen_pages(Context& ctx, const WidePages& wide, const ops::KvPlane& k_plane,
                 const ops::KvPlane& v_plane, const ops::PagedRows& rows, std::int64_t first,
                 std::int64_t heads, std::int64_t dim) {
  const auto head_of = [&](const ops::KvPlane& plane) {
    return static_cast<const std::uint8_t*>(plane.data.data) + first * dim;
  };
  const WidenArgs args{.k = head_of(k_plane),
                       .v = head_of(v_plane),
                       .k_slot = k_plane.data.stride[0],
                       .v_slot = v_plane.data.stride[0],
                       .num_pages = k_plane.data.dim(0) / kPageSize,
                       .pages = wide.pages,
                       .count = wide.count,
                       .wide_k = static_cast<Bf16*>(wide.k),
                       .wide_v = static_cast<Bf16*>(wide.v),
                       .columns = static_cast<int>(heads * dim)};
  launch_dependent(ctx, "widened pages", widen_kernel,
                   dim3(static_cast<unsigned>(rows.prefill.pages), 2 * kParts), kWidenThreads, 0,
                   args);
}

}  // namespace sluice::cuda
