// Rules of requests on their rows of logits, and log-probabilities: kernels/cpu/penalties.cpp on a GPU, with the same bits.
// Compiled without contraction.
#include "kernels/cpu/rule_math.h"
#include "kernels/cuda/common/launch.cuh"
#include "kernels/cuda/step.h"

namespace sluice::cuda {
namespace {

using ops::RowAsk;
using ops::RowChoice;
using ops::TokenRule;
using Mass = unsigned long long;

constexpr int kReadThreads = 1024, kReadWarps = kReadThreads / kWarp;
constexpr int kRuleThreads = 256;
constexpr std::int32_t kNone = 0x7fffffff;

struct Entry {
  float value;
  std::int32_t at;   // kNone: there is none
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
      const Entry other{__shfl_xor_sync(kAllLanes, e.value, step), __shfl_xor_sync(kAllLanes, e.at, step)};
      if (before(other, e)) e = other;
    }
    return e;
  };
  mine = warp_first(mine);
  __syncthreads();   // what the call before left has been read
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

// A block for each row. Every thread keeps the first of its own entries that has not been named yet.
__global__ void __launch_bounds__(kReadThreads) read_rows(const float* logits, std::int64_t stride, std::int32_t n,
                                                          const RowAsk* asks, RowChoice* choices) {
  begin_dependent();
  RowChoice& choice = choices[blockIdx.x];
  static_assert(sizeof(RowChoice) % 4 == 0);
  if (threadIdx.x < sizeof(RowChoice) / 4) reinterpret_cast<std::uint32_t*>(&choice)[threadIdx.x] = 0;
  const int asked = asks[blockIdx.x].num_top_logprobs;
  if (asked < 0) return;
  const int wanted = min(min(asked, ops::kMaxTopLogprobs), n);
  const float* row = logits + blockIdx.x * stride;
  Entry mine{0, kNone};
  int bad = 0;
#pragma unroll 8
  for (std::int32_t i = threadIdx.x; i < n; i += kReadThreads) {
    const Entry here{row[i], i};
    bad |= !(here.value < INFINITY);   // NaN or +infinity
    if (before(here, mine)) mine = here;
  }
  bad = __syncthreads_or(bad);
  Entry first = block_first(mine);
  if (bad || first.at == kNone || first.value == -INFINITY) return;
  Mass sum = 0;
#pragma unroll 8
  for (std::int32_t i = threadIdx.x; i < n; i += kReadThreads) sum += draw::mass_of(draw::exp_nonpositive(row[i] - first.value));
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
__global__ void __launch_bounds__(kRuleThreads) adjust_rows(const RowAsk* asks, TokenRule* rules, std::int64_t capacity,
                                                            std::int64_t slots, const std::int32_t* lengths, float* logits,
                                                            std::int64_t stride, std::int64_t n) {
  begin_dependent();
  const RowAsk ask = asks[blockIdx.x];
  if (ask.slot < 0) return;
  expect_below(ask.slot, slots);
  float* row = logits + blockIdx.x * stride;
  TokenRule* list = rules + ask.slot * capacity;
  const std::int32_t length = lengths[ask.slot];
  for (std::int32_t i = threadIdx.x; i < length; i += kRuleThreads) {
    TokenRule rule = list[i];
    expect_below(rule.token, n);
    rule.raw = row[rule.token];
    list[i].raw = rule.raw;
    row[rule.token] = draw::ruled_logit(rule, ask);
  }
}

// A block for each row.
__global__ void __launch_bounds__(kRuleThreads) remember_rows(const std::int32_t* tokens, const float* logits, std::int64_t stride,
                                                              const RowAsk* asks, TokenRule* rules, std::int64_t capacity,
                                                              std::int64_t slots, std::int32_t* lengths, RowChoice* choices) {
  begin_dependent();
  __shared__ std::int32_t found;
  const RowAsk ask = asks[blockIdx.x];
  const std::int32_t token = tokens[blockIdx.x];
  if (token < 0 || (ask.slot < 0 && ask.num_top_logprobs < 0)) return;
  TokenRule* list = nullptr;
  std::int32_t length = 0;
  if (threadIdx.x == 0) found = -1;
  __syncthreads();
  if (ask.slot >= 0) {
    expect_below(ask.slot, slots);
    list = rules + ask.slot * capacity;
    length = lengths[ask.slot];
    for (std::int32_t i = threadIdx.x; i < length; i += kRuleThreads)
      if (list[i].token == token) found = i;   // one at most
  }
  __syncthreads();
  if (threadIdx.x != 0) return;
  const float raw = found >= 0 ? list[found].raw : logits[blockIdx.x * stride + token];
  if (ask.slot >= 0 && ask.remembers != 0) {
    if (found >= 0) {
      list[found].count = max(list[found].count, 0) + 1;
    } else if (length < capacity) {
      list[length] = TokenRule{token, 1, 0, 0, raw};
      lengths[ask.slot] = length + 1;
    }
  }
  RowChoice& choice = choices[blockIdx.x];
  if (ask.num_top_logprobs >= 0) choice.logprob = static_cast<float>(static_cast<double>(raw) - choice.normaliser);
}

}  // namespace

void read_logprobs(Context& ctx, const Tensor& logits, const Tensor& asks, const Tensor& choices) {
  if (logits.numel() == 0) return;
  launch_dependent(ctx, "read_logprobs", read_rows, dim3(static_cast<unsigned>(logits.dim(0))), kReadThreads, 0, logits.ptr<float>(),
                   logits.stride[0], static_cast<std::int32_t>(logits.dim(1)), ops::row_asks(asks), ops::row_choices(choices));
}

void adjust_logits(Context& ctx, const Tensor& asks, const Tensor& rules, const Tensor& lengths, const Tensor& logits) {
  if (logits.numel() == 0) return;
  launch_dependent(ctx, "adjust_logits", adjust_rows, dim3(static_cast<unsigned>(logits.dim(0))), kRuleThreads, 0, ops::row_asks(asks),
                   ops::token_rules(rules), rules.dim(1), rules.dim(0), lengths.ptr<std::int32_t>(), logits.ptr<float>(),
                   logits.stride[0], logits.dim(1));
}

void remember_choices(Context& ctx, const Tensor& tokens, const Tensor& logits, const Tensor& asks, const Tensor& rules,
                      const Tensor& lengths, const Tensor& choices) {
  if (tokens.numel() == 0) return;
  launch_dependent(ctx, "remember_choices", remember_rows, dim3(static_cast<unsigned>(tokens.dim(0))), kRuleThreads, 0,
                   tokens.ptr<std::int32_t>(), logits.ptr<float>(), logits.stride[0], ops::row_asks(asks), ops::token_rules(rules),
                   rules.dim(1), rules.dim(0), lengths.ptr<std::int32_t>(), ops::row_choices(choices));
}

}  // namespace sluice::cuda
