#include "kernels/cuda/pages/wide_plan.h"

#include <algorithm>

#include "base/page_size.h"

namespace sluice::cuda {
namespace {

// TMA reads planes from here on.
constexpr std::int64_t kAlignment = 1024;

std::int64_t index_bytes(const WideInputs& inputs) {
  return (4 * wide_index_numbers(inputs) + kAlignment - 1) / kAlignment * kAlignment;
}

// Of keys or values of one head, in bfloat16.
std::int64_t head_bytes(const WideInputs& inputs) {
  return inputs.run_pages * kPageSize * inputs.dim * 2;
}

}  // namespace

WidePlan plan_wide_pages(const WideInputs& inputs) {
  // Sequences without a run have one row each.
  const std::int64_t rows = inputs.tokens - (inputs.seqs - inputs.run_seqs);
  if (inputs.run_seqs == 0 || inputs.run_pages == 0 ||
      rows * inputs.group < kMinWideRows * inputs.run_seqs)
    return {};
  const std::int64_t first = index_bytes(inputs), each = 2 * head_bytes(inputs),
                     most = std::min(inputs.memory_bytes, kMaxWideBytes) - first;
  if (most < each) return {};
  // Equal shares of the heads, so that no launch is left with few tiles.
  const std::int64_t fit = std::min(most / each, inputs.kv_heads),
                     turns = (inputs.kv_heads + fit - 1) / fit;
  WidePlan plan{.heads = (inputs.kv_heads + turns - 1) / turns, .k_at = first};
  plan.v_at = first + plan.heads * head_bytes(inputs);
  plan.bytes = plan.v_at + plan.heads * head_bytes(inputs);
  return plan;
}

std::int64_t max_wide_bytes(const WideInputs& inputs) {
  WideInputs all = inputs;
  all.run_pages = inputs.seqs * inputs.max_pages;
  return std::min(kMaxWideBytes, index_bytes(all) + 2 * all.kv_heads * head_bytes(all));
}

}  // namespace sluice::cuda
