#include "kernels/cuda/gemm/gemm_plan.h"

#include <algorithm>

#include "kernels/cuda/common/shared_memory.h"
#include "kernels/cuda/gemm/weight_pipeline_shape.h"

namespace sluice::cuda {
namespace {

// Maximum columns of kSplit: with more, its tiles alone keep the SMs busy. Its k: eight shares of
// four steps.
constexpr std::int64_t kSplitColumns = 512, kSplitK = 1024;
// Up to this many rows reading the weights dominates.
constexpr std::int64_t kRowsAtOnce = 8;
// From this many rows on, tiles are faster than reading the weights again for every eight rows.
constexpr std::int64_t kManyRows = 64;
// Maximum rows of kSkinny (kernels/cuda/gemm/gemm_skinny.cu). From kRowsAtOnce on the library reads
// weights as fast.
constexpr std::int64_t kSkinnyRows = 16;
// Maximum elements of x in kSkinny (because with more it waits for x, and the library does not).
constexpr std::int64_t kSkinnyElements = 80 << 10;
// Upper bound of the static shared memory of kSkinny.
constexpr std::int64_t kSkinnyDeclaredBytes = 1 << 10;
// Maximum bytes of x in shared memory. Larger x is read where it lies.
constexpr std::int64_t kMaxXBytes = 104 << 10;
// Maximum elements that kSkinny normalises (because every CTA normalises all of them; with more a
// separate launch is as fast).
constexpr std::int64_t kMaxNormElements = 16 << 10;

}  // namespace

GemmKernel choose_gemm(const GemmInputs& inputs) {
  const bool halves = inputs.x == DType::kBF16 && inputs.w == DType::kBF16;
  if (inputs.deterministic)  // the choice must not depend on m
    return halves && inputs.aligned && inputs.sm == 90 && inputs.batch == 1 && inputs.k >= 8
               ? GemmKernel::kBatchInvariant
               : GemmKernel::kRows;
  // The library takes equal types only. Our own kernels take a float32 input with bfloat16 weights.
  const bool served =
      inputs.library && inputs.aligned && inputs.x == inputs.w && inputs.n >= 16 && inputs.k >= 16;
  const bool near = !served || inputs.m * inputs.k <= kSkinnyElements;
  if (halves && inputs.aligned && inputs.k >= 8 && inputs.k % 8 == 0 &&
      inputs.m <= (served ? kRowsAtOnce : kSkinnyRows) && near)
    return GemmKernel::kSkinny;
  const std::int64_t few = inputs.x != DType::kBF16 || !served ? kManyRows : near ? kRowsAtOnce : 0;
  if (inputs.m <= few) return GemmKernel::kRows;
  if (served) return GemmKernel::kLibrary;
  const bool splits =
      inputs.sm == 90 && inputs.aligned && inputs.n <= kSplitColumns && inputs.k >= kSplitK;
  return splits ? GemmKernel::kSplit : GemmKernel::kTiled;
}

int gemm_rows_at_once(std::int64_t m) {
  for (const int rows : {1, 2, 4})
    if (m <= rows) return rows;
  return static_cast<int>(kRowsAtOnce);
}

SkinnyPlan plan_skinny(const SkinnyInputs& inputs) {
  SkinnyPlan plan;
  if (inputs.norm && (inputs.m > kRowsAtOnce || inputs.m * inputs.k > kMaxNormElements))
    return plan;
  // One CTA an SM by shared memory. GEMMs that add to a residual run between kernels whose large
  // CTAs spread them anyway.
  const std::int64_t max_bytes = max_shared_bytes(inputs.sm);
  const bool alone = !inputs.add && max_bytes >= 2 * kAloneBytes;
  const bool whole =
      inputs.m <= kRowsAtOnce && inputs.n % kPipelineRows == 0 && inputs.k % kTurnColumns == 0;
  plan.tiles = (inputs.n + kPipelineRows - 1) / kPipelineRows;
  plan.blocks = std::min(plan.tiles, std::max<std::int64_t>(inputs.num_sms / inputs.batch, 1));

  const int parts = inputs.gated ? 2 : 1;
  const int usual = inputs.gated ? kPipelineStages<2> : kPipelineStages<1>,
            few = inputs.gated ? kFewPipelineStages<2> : kFewPipelineStages<1>;
  const std::int64_t x_bytes = inputs.m * (inputs.k + kXPadding) * 2;
  for (const int stages : {alone && whole && !inputs.gated ? kAloneStages : usual, usual, few})
    for (const bool x_in_shared : {true, false}) {
      if (x_in_shared ? x_bytes > kMaxXBytes : inputs.norm || stages == kAloneStages) continue;
      const std::int64_t bytes = pipeline_bytes(parts, stages) +
                                 parts * inputs.m * kReductionBytes + (x_in_shared ? x_bytes : 0);
      if (bytes + kSkinnyDeclaredBytes > max_bytes) continue;
      plan.stages = stages;
      plan.x_in_shared = x_in_shared;
      plan.whole = whole && x_in_shared && stages != few;
      plan.shared_bytes = alone ? std::max(bytes, kAloneBytes) : bytes;
      return plan;
    }
  return plan;
}

}  // namespace sluice::cuda
