// Logit edits of requests (bias, bans, penalties) and log-probabilities:
// kernels/cpu/sampling/logit_edits.cpp on a GPU, with the same bits. Compiled without contraction.
//   read_rows       log-probabilities of the largest logits, before edits
//   adjust_rows     applies the edits, and keeps the raw logit of each edited token
//   mask_rows       leaves the tokens of a mask
//   remember_rows   counts the sampled token for penalties, and records its log-probability
#include "kernels/cuda/common/launch.cuh"
#include "kernels/cuda/cuda.h"
#include "kernels/types/logit_edit_math.h"

namespace sluice::cuda {
namespace {

using ops::LogitEdit;
using ops::LogitEdits;
using ops::SampledRow;
using Mass = unsigned long long;

constexpr int kReadThreads = 1024, kReadWarps = kReadThreads / kWarp;
constexpr int kEditThreads = 256;
constexpr std::int32_t kNone = 0x7fffffff;

// A logit and its token.
struct Entry {
  float value;
  std::int32_t at;  // kNone: no entry
};

// Whether a comes before b: the larger value, then the lower index.
__device__ bool before(Entry a, Entry b) {
  if (a.at == kNone || b.at == kNone) return a.at != kNone;
  return a.value > b.value || (a.value == b.value && a.at < b.at);
}

// The first entry over all threads of the CTA, in all threads.
__device__ Entry block_first(Entry mine) {
  __shared__ Entry of_warp[kReadWarps];
  const auto warp_first = [](Entry e) {
    for (int step = kWarp / 2; step > 0; step /= 2) {
      const Entry other{__shfl_xor_sync(kAllLanes, e.value, step),
                        __shfl_xor_sync(kAllLanes, e.at, step)};
      if (before(other, e)) e = other;
    }
    return e;
  };
  // The order is total, so any tree of comparisons gives the same entry.
  mine = warp_first(mine);
  __syncthreads();  // all threads have read the result of the call before
  if (threadIdx.x % kWarp == 0) of_warp[threadIdx.x / kWarp] = mine;
  __syncthreads();
  return warp_first(of_warp[threadIdx.x % kWarp]);
}

// Integer sums: any order gives the same bits.
__device__ Mass block_mass(Mass x) {
  __shared__ Mass of_warp[kReadWarps];
  x = warp_sum(x);
  if (threadIdx.x % kWarp == 0) of_warp[threadIdx.x / kWarp] = x;
  __syncthreads();
  return warp_sum(of_warp[threadIdx.x % kWarp]);
}

// The first entry of this thread after `last` in the order of before().
__device__ Entry next_of_thread(const float* row, std::int32_t n, Entry last) {
  Entry best{0, kNone};
#pragma unroll 8
  for (std::int32_t i = threadIdx.x; i < n; i += kReadThreads) {
    const Entry here{row[i], i};
    if (before(last, here) && before(here, best)) best = here;
  }
  return best;
}

// A CTA for each row. Every thread keeps the first of its own entries that was not reported yet.
// Each round reports the first over all threads, and only its owner searches its entries again.
__global__ void __launch_bounds__(kReadThreads)
    read_logprobs_kernel(const float* logits, std::int64_t stride, std::int32_t n,
                         const LogitEdits* logit_edits, SampledRow* sampled_rows) {
  begin_dependent();
  SampledRow& sampled = sampled_rows[blockIdx.x];
  // Rows without log-probabilities are zeros.
  static_assert(sizeof(SampledRow) % 4 == 0);
  if (threadIdx.x < sizeof(SampledRow) / 4)
    reinterpret_cast<std::uint32_t*>(&sampled)[threadIdx.x] = 0;
  const int num_wanted = logit_edits[blockIdx.x].num_top_logprobs;
  if (num_wanted < 0) return;
  // A negative count: the row wants no log-probabilities.
  const int wanted = min(min(num_wanted, ops::kMaxTopLogprobs), n);
  const float* row = logits + blockIdx.x * stride;
  Entry mine{0, kNone};
  int has_invalid = 0;
#pragma unroll 8
  for (std::int32_t i = threadIdx.x; i < n; i += kReadThreads) {
    const Entry here{row[i], i};
    has_invalid |= !(here.value < INFINITY);  // NaN or +infinity
    if (before(here, mine)) mine = here;
  }
  has_invalid = __syncthreads_or(has_invalid);
  Entry first = block_first(mine);
  if (has_invalid || first.at == kNone || first.value == -INFINITY) return;
  // The softmax denominator as an integer mass (sample_math.h), so the order of the sum is free.
  Mass sum = 0;
#pragma unroll 8
  for (std::int32_t i = threadIdx.x; i < n; i += kReadThreads)
    sum += draw::mass_of(draw::exp_nonpositive(row[i] - first.value));
  sum = block_mass(sum);
  // log of the softmax denominator, in double as on the CPU.
  const double normaliser = draw::log_of_mass(sum) + first.value;
  for (int k = 0; k < wanted; ++k) {
    if (threadIdx.x == 0)
      sampled.top[k] = {first.at,
                        static_cast<float>(static_cast<double>(first.value) - normaliser)};
    if (k + 1 == wanted) break;
    // Only the owner of the reported entry searches again.
    if (mine.at == first.at) mine = next_of_thread(row, n, first);
    first = block_first(mine);
  }
  if (threadIdx.x == 0) {
    sampled.normaliser = normaliser;
    sampled.num_top = wanted;
  }
}

// A CTA for each row. A token has at most one edit in its list, so threads write different logits.
__global__ void __launch_bounds__(kEditThreads)
    adjust_logits_kernel(const LogitEdits* logit_edits, LogitEdit* edit_lists,
                         std::int64_t capacity, std::int64_t slots, const std::int32_t* lengths,
                         float* logits, std::int64_t stride, std::int64_t n) {
  begin_dependent();
  const LogitEdits row_edits = logit_edits[blockIdx.x];
  // The row has no edits.
  if (row_edits.slot < 0) return;
  expect_below(row_edits.slot, slots);
  float* row = logits + blockIdx.x * stride;
  LogitEdit* list = edit_lists + row_edits.slot * capacity;
  const std::int32_t length = lengths[row_edits.slot];
  for (std::int32_t i = threadIdx.x; i < length; i += kEditThreads) {
    LogitEdit edit = list[i];
    expect_below(edit.token, n);
    // The raw logit is kept, because log-probabilities are reported before edits.
    edit.raw = row[edit.token];
    list[i].raw = edit.raw;
    row[edit.token] = draw::edited_logit(edit, row_edits);
  }
}

// Grid: pieces of a row; rows. A thread takes four neighbouring tokens at a time, whose bits are in
// one word, and kMaskLoads times so many in flight.
constexpr int kMaskLoads = 4;
constexpr std::int64_t kMaskedTokens = kMaskLoads * 4 * kEditThreads;  // of a CTA
__global__ void __launch_bounds__(kEditThreads)
    mask_logits_kernel(const std::int32_t* mask_of_row, const std::uint32_t* masks,
                       std::int64_t words, std::int64_t num_masks, float* logits,
                       std::int64_t stride, std::int64_t n, bool in_fours) {
  begin_dependent();
  const std::int32_t mask = mask_of_row[blockIdx.y];
  // The row has no mask.
  if (mask < 0) return;
  expect_below(mask, num_masks);
  float* row = logits + blockIdx.y * stride;
  const std::uint32_t* bits = masks + mask * words;
  const std::int64_t first = std::int64_t{blockIdx.x} * kMaskedTokens + 4 * threadIdx.x;
  // NaN and +infinity stay: they fail the row.
  const auto masked = [](float x, bool is_allowed) {
    return !is_allowed && x < INFINITY ? -INFINITY : x;
  };
  const auto allowed_at = [&](std::int64_t t) { return bits[t / 32] >> (t % 32) & 0xFu; };
  if (in_fours && first - 4 * threadIdx.x + kMaskedTokens <= n) {
    float4 four[kMaskLoads];
    std::uint32_t allowed[kMaskLoads];
#pragma unroll
    for (int i = 0; i < kMaskLoads; ++i) {
      const std::int64_t t = first + i * 4 * kEditThreads;
      allowed[i] = allowed_at(t);
      if (allowed[i] != 0xFu) four[i] = *reinterpret_cast<const float4*>(row + t);
    }
#pragma unroll
    for (int i = 0; i < kMaskLoads; ++i) {
      if (allowed[i] == 0xFu) continue;
      *reinterpret_cast<float4*>(row + first + i * 4 * kEditThreads) = {
          masked(four[i].x, allowed[i] & 1), masked(four[i].y, allowed[i] & 2),
          masked(four[i].z, allowed[i] & 4), masked(four[i].w, allowed[i] & 8)};
    }
    return;
  }
  for (int i = 0; i < kMaskLoads; ++i)
    for (std::int64_t t = first + i * 4 * kEditThreads, end = min(t + 4, n); t < end; ++t)
      row[t] = masked(row[t], (bits[t / 32] >> (t % 32) & 1) != 0);
}

// A CTA for each row. All threads search the list, thread 0 updates it.
__global__ void __launch_bounds__(kEditThreads)
    record_sampled_rows_kernel(const std::int32_t* tokens, const float* logits, std::int64_t stride,
                               const LogitEdits* logit_edits, LogitEdit* edit_lists,
                               std::int64_t capacity, std::int64_t slots, std::int32_t* lengths,
                               SampledRow* sampled_rows) {
  begin_dependent();
  __shared__ std::int32_t found;
  const LogitEdits row_edits = logit_edits[blockIdx.x];
  const std::int32_t token = tokens[blockIdx.x];
  // No valid token, or nothing to record.
  if (token < 0 || (row_edits.slot < 0 && row_edits.num_top_logprobs < 0)) return;
  LogitEdit* list = nullptr;
  std::int32_t length = 0;
  if (threadIdx.x == 0) found = -1;
  __syncthreads();
  if (row_edits.slot >= 0) {
    expect_below(row_edits.slot, slots);
    list = edit_lists + row_edits.slot * capacity;
    // The list of the slot; at most one entry a token.
    length = lengths[row_edits.slot];
    for (std::int32_t i = threadIdx.x; i < length; i += kEditThreads)
      if (list[i].token == token) found = i;  // at most one
  }
  __syncthreads();
  // Thread 0 changes the list after all threads have searched it.
  if (threadIdx.x != 0) return;
  // An edited logit is not the raw one any more, so the list has the raw one.
  const float raw = found >= 0 ? list[found].raw : logits[blockIdx.x * stride + token];
  if (row_edits.slot >= 0 && row_edits.remembers != 0) {
    if (found >= 0) {
      list[found].count = max(list[found].count, 0) + 1;
    } else if (length < capacity) {
      list[length] = LogitEdit{token, 1, 0, 0, raw};
      lengths[row_edits.slot] = length + 1;
    }
  }
  SampledRow& sampled = sampled_rows[blockIdx.x];
  if (row_edits.num_top_logprobs >= 0)
    sampled.logprob = static_cast<float>(static_cast<double>(raw) - sampled.normaliser);
}

}  // namespace

void read_logprobs(Context& ctx, const Tensor& logits, const Tensor& logit_edits,
                   const Tensor& sampled_rows) {
  if (logits.numel() == 0) return;
  launch_dependent(ctx, "read_logprobs", read_logprobs_kernel,
                   dim3(static_cast<unsigned>(logits.dim(0))), kReadThreads, 0, logits.ptr<float>(),
                   logits.stride[0], static_cast<std::int32_t>(logits.dim(1)),
                   ops::as_logit_edits(logit_edits), ops::as_sampled_rows(sampled_rows));
}

void adjust_logits(Context& ctx, const Tensor& logit_edits, const Tensor& edit_lists,
                   const Tensor& lengths, const Tensor& logits) {
  if (logits.numel() == 0) return;
  launch_dependent(ctx, "adjust_logits", adjust_logits_kernel,
                   dim3(static_cast<unsigned>(logits.dim(0))), kEditThreads, 0,
                   ops::as_logit_edits(logit_edits), ops::as_logit_edit_list(edit_lists),
                   edit_lists.dim(1), edit_lists.dim(0), lengths.ptr<std::int32_t>(),
                   logits.ptr<float>(), logits.stride[0], logits.dim(1));
}

void mask_logits(Context& ctx, const Tensor& mask_of_row, const Tensor& masks,
                 const Tensor& logits) {
  if (logits.numel() == 0) return;
  const dim3 grid(static_cast<unsigned>((logits.dim(1) + kMaskedTokens - 1) / kMaskedTokens),
                  static_cast<unsigned>(logits.dim(0)));
  const bool in_fours =
      logits.stride[0] % 4 == 0 && reinterpret_cast<std::uintptr_t>(logits.data) % 16 == 0;
  launch_dependent(ctx, "mask_logits", mask_logits_kernel, grid, kEditThreads, 0,
                   mask_of_row.ptr<std::int32_t>(), static_cast<const std::uint32_t*>(masks.data),
                   masks.dim(1), masks.dim(0), logits.ptr<float>(), logits.stride[0], logits.dim(1),
                   in_fours);
}

void record_sampled_rows(Context& ctx, const Tensor& tokens, const Tensor& logits,
                         const Tensor& logit_edits, const Tensor& edit_lists, const Tensor& lengths,
                         const Tensor& sampled_rows) {
  if (tokens.numel() == 0) return;
  launch_dependent(ctx, "record_sampled_rows", record_sampled_rows_kernel,
                   dim3(static_cast<unsigned>(tokens.dim(0))), kEditThreads, 0,
                   tokens.ptr<std::int32_t>(), logits.ptr<float>(), logits.stride[0],
                   ops::as_logit_edits(logit_edits), ops::as_logit_edit_list(edit_lists),
                   edit_lists.dim(1), edit_lists.dim(0), lengths.ptr<std::int32_t>(),
                   ops::as_sampled_rows(sampled_rows));
}

}  // namespace sluice::cuda
