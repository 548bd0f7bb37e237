// Rules of requests on their rows of logits, and log-probabilities:
// kernels/cpu/sampling/logit_edits.cpp on a GPU, with the same bits. Compiled without contraction.
#include "kernels/cuda/common/launch.cuh"
#include "kernels/cuda/sampling/sampling_steps.h"
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

struct Entry {
  float value;
  std::int32_t at;  // kNone: there is none
};

// Whether a comes before b: the larger value, then the lower index.
__device__ bool before(Entry a, Entry b) {
  if (a.at == kNone || b.at == kNone) return a.at != kNone;
  return a.value > b.value || (a.value == b.value && a.at < b.at);
}

// The first of all threads' entries, in all threads.
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
  mine = warp_first(mine);
  __syncthreads();  // what the call before left has been read
  if (threadIdx.x % kWarp == 0) of_warp[threadIdx.x / kWarp] = mine;
  __syncthreads();
  return warp_first(of_warp[threadIdx.x % kWarp]);
}

__device__ Mass block_mass(Mass x) {
  __shared__ Mass of_warp[kReadWarps];
  x = warp_sum(x);
  if (threadIdx.x % kWarp == 0) of_warp[threadIdx.x / kWarp] = x;
  __syncthreads();
  return warp_sum(of_warp[threadIdx.x % kWarp]);
}

// The first of this thread's entries that comes after `last`.
__device__ Entry next_of_thread(const float* row, std::int32_t n, Entry last) {
  Entry best{0, kNone};
#pragma unroll 8
  for (std::int32_t i = threadIdx.x; i < n; i += kReadThreads) {
    const Entry here{row[i], i};
    if (before(last, here) && before(here, best)) best = here;
  }
  return best;
}

// A block for each row. Every thread keeps the first of its own entries that has not been named
// yet.
__global__ void __launch_bounds__(kReadThreads)
    read_logprobs_kernel(const float* logits, std::int64_t stride, std::int32_t n,
                         const LogitEdits* logit_edits, SampledRow* sampled_rows) {
  begin_dependent();
  SampledRow& choice = sampled_rows[blockIdx.x];
  static_assert(sizeof(SampledRow) % 4 == 0);
  if (threadIdx.x < sizeof(SampledRow) / 4)
    reinterpret_cast<std::uint32_t*>(&choice)[threadIdx.x] = 0;
  const int asked = logit_edits[blockIdx.x].num_top_logprobs;
  if (asked < 0) return;
  const int wanted = min(min(asked, ops::kMaxTopLogprobs), n);
  const float* row = logits + blockIdx.x * stride;
  Entry mine{0, kNone};
  int bad = 0;
#pragma unroll 8
  for (std::int32_t i = threadIdx.x; i < n; i += kReadThreads) {
    const Entry here{row[i], i};
    bad |= !(here.value < INFINITY);  // NaN or +infinity
    if (before(here, mine)) mine = here;
  }
  bad = __syncthreads_or(bad);
  Entry first = block_first(mine);
  if (bad || first.at == kNone || first.value == -INFINITY) return;
  Mass sum = 0;
#pragma unroll 8
  for (std::int32_t i = threadIdx.x; i < n; i += kReadThreads)
    sum += draw::mass_of(draw::exp_nonpositive(row[i] - first.value));
  sum = block_mass(sum);
  const double normaliser = draw::log_of_mass(sum) + first.value;
  for (int k = 0; k < wanted; ++k) {
    if (threadIdx.x == 0)
      choice.top[k] = {first.at, static_cast<float>(static_cast<double>(first.value) - normaliser)};
    if (k + 1 == wanted) break;
    if (mine.at == first.at) mine = next_of_thread(row, n, first);
    first = block_first(mine);
  }
  if (threadIdx.x == 0) {
    choice.normaliser = normaliser;
    choice.num_top = wanted;
  }
}

// A block for each row.
__global__ void __launch_bounds__(kEditThreads)
    adjust_logits_kernel(const LogitEdits* logit_edits, LogitEdit* edit_lists,
                         std::int64_t capacity, std::int64_t slots, const std::int32_t* lengths,
                         float* logits, std::int64_t stride, std::int64_t n) {
  begin_dependent();
  const LogitEdits row_edits = logit_edits[blockIdx.x];
  if (row_edits.slot < 0) return;
  expect_below(row_edits.slot, slots);
  float* row = logits + blockIdx.x * stride;
  LogitEdit* list = edit_lists + row_edits.slot * capacity;
  const std::int32_t length = lengths[row_edits.slot];
  for (std::int32_t i = threadIdx.x; i < length; i += kEditThreads) {
    LogitEdit edit = list[i];
    expect_below(edit.token, n);
    edit.raw = row[edit.token];
    list[i].raw = edit.raw;
    row[edit.token] = draw::edited_logit(edit, row_edits);
  }
}

// A block for each row.
__global__ void __launch_bounds__(kEditThreads)
    record_sampled_rows_kernel(const std::int32_t* tokens, const float* logits, std::int64_t stride,
                               const LogitEdits* logit_edits, LogitEdit* edit_lists,
                               std::int64_t capacity, std::int64_t slots, std::int32_t* lengths,
                               SampledRow* sampled_rows) {
  begin_dependent();
  __shared__ std::int32_t found;
  const LogitEdits row_edits = logit_edits[blockIdx.x];
  const std::int32_t token = tokens[blockIdx.x];
  if (token < 0 || (row_edits.slot < 0 && row_edits.num_top_logprobs < 0)) return;
  LogitEdit* list = nullptr;
  std::int32_t length = 0;
  if (threadIdx.x == 0) found = -1;
  __syncthreads();
  if (row_edits.slot >= 0) {
    expect_below(row_edits.slot, slots);
    list = edit_lists + row_edits.slot * capacity;
    length = lengths[row_edits.slot];
    for (std::int32_t i = threadIdx.x; i < length; i += kEditThreads)
      if (list[i].token == token) found = i;  // one at most
  }
  __syncthreads();
  if (threadIdx.x != 0) return;
  const float raw = found >= 0 ? list[found].raw : logits[blockIdx.x * stride + token];
  if (row_edits.slot >= 0 && row_edits.remembers != 0) {
    if (found >= 0) {
      list[found].count = max(list[found].count, 0) + 1;
    } else if (length < capacity) {
      list[length] = LogitEdit{token, 1, 0, 0, raw};
      lengths[row_edits.slot] = length + 1;
    }
  }
  SampledRow& choice = sampled_rows[blockIdx.x];
  if (row_edits.num_top_logprobs >= 0)
    choice.logprob = static_cast<float>(static_cast<double>(raw) - choice.normaliser);
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
