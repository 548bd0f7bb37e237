// Expert MLPs of Qwen3-30B-A3B in each format that a GPU multiplies.
#include <algorithm>
#include <iterator>
#include <random>

#include "gpu/kernels.h"
#include "kernels/types/int_fragments.h"
#include "ops/moe.h"

namespace sluice {
namespace {

constexpr std::int64_t kExperts = 128, kTopK = 8, kHidden = 2048, kWidth = 768;

// `bytes`: of an element.
void time_experts(Bench& bench, const ops::Weight& w13, const ops::Weight& w2, const char* name,
                  double bytes) {
  Arena arena(std::int64_t{1} << 30, bench.machine.ctx.device);
  for (const std::int64_t tokens : {1, 2, 8, 32, 64, 128, 512, 4096}) {
    const Tensor x = bench.take(DType::kBF16, {tokens, kHidden}),
                 out = bench.take(DType::kF32, {tokens, kHidden}, false);
    const Tensor weights = bench.take(DType::kF32, {tokens, kTopK});
    // Eight sets of routed experts, so that a token's experts differ from those of the previous
    // launch.
    std::vector<Tensor> ids;
    std::mt19937 random(3);
    double used = 0;
    for (int s = 0; s < 16; ++s) {
      std::vector<std::int32_t> chosen;
      std::vector<bool> seen(kExperts);
      for (std::int64_t t = 0; t < tokens; ++t) {
        std::vector<std::int32_t> all(kExperts), some;
        for (int e = 0; e < kExperts; ++e) all[static_cast<std::size_t>(e)] = e;
        std::sample(all.begin(), all.end(), std::back_inserter(some), kTopK, random);
        for (const std::int32_t e : some) seen[static_cast<std::size_t>(e)] = true;
        chosen.insert(chosen.end(), some.begin(), some.end());
      }
      used += static_cast<double>(std::count(seen.begin(), seen.end(), true)) / 16;
      ids.push_back(bench.integers(
          {tokens, kTopK}, [&](std::int64_t i) { return chosen[static_cast<std::size_t>(i)]; }));
    }
    Arena::Scope scope(arena);
    const ops::MoeWorkspace workspace = ops::take_moe_workspace(
        arena, tokens, kTopK, kExperts, kHidden, kWidth, {DType::kBF16, kWidth});
    const double each = 3.0 * kWidth * kHidden;
    bench.time("fused_experts", fmt::format("{} x qwen3-30b {}", tokens, name), bytes * used * each,
               2.0 * each * static_cast<double>(tokens * kTopK), 16, [&](int i) {
                 ops::fused_experts(bench.machine.ctx, x, w13, w2, weights,
                                    ids[static_cast<std::size_t>(i)], Activation::kSilu, workspace,
                                    out);
               });
  }
}

std::int64_t group_of(ops::Format format) {
  return format == ops::Format::kMxFp4   ? 32
         : format == ops::Format::kNvFp4 ? 16
                                         : ops::kFragmentColumns;
}

// Random bytes, among them scales: times do not depend on the numbers.
ops::Weight stack_of(Bench& bench, ops::Format format, std::int64_t rows, std::int64_t columns) {
  ops::Weight w;
  w.format = format, w.layout = ops::Layout::kFragments, w.group = group_of(format);
  w.input = DType::kBF16;
  w.count = kExperts, w.rows = rows, w.columns = columns;
  const Tensor data = bench.take(DType::kBF16, {kExperts, ops::fragment_bytes(w) / 2});
  w.data = Tensor::dense(data.data, DType::kU8, {kExperts, ops::fragment_bytes(w)}, data.device);
  return w;
}

}  // namespace

void experts(Bench& bench) {
  time_experts(bench, bench.take(DType::kBF16, {kExperts, 2 * kWidth, kHidden}),
               bench.take(DType::kBF16, {kExperts, kHidden, kWidth}), "bf16", 2);
  bench.clear();
  struct Kind {
    const char* name;
    ops::Format format;
  };
  for (const Kind& kind :
       {Kind{"fp8", ops::Format::kFp8}, Kind{"int4", ops::Format::kInt4},
        Kind{"mxfp4", ops::Format::kMxFp4}, Kind{"nvfp4", ops::Format::kNvFp4}}) {
    const double bytes =
        static_cast<double>(ops::fragment_unit(kind.format, group_of(kind.format)).bytes()) /
        static_cast<double>(ops::kFragmentRows * ops::kFragmentColumns);
    time_experts(bench, stack_of(bench, kind.format, 2 * kWidth, kHidden),
                 stack_of(bench, kind.format, kHidden, kWidth), kind.name, bytes);
    bench.clear();
  }
}

}  // namespace sluice
