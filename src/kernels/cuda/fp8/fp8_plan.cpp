#include "kernels/cuda/fp8/fp8_plan.h"

#include <algorithm>

#include "kernels/cuda/common/shared_memory.h"
#include "kernels/cuda/gemm/weight_pipeline_shape.h"
#include "kernels/types/fp8.h"

namespace sluice::cuda {
namespace {

constexpr std::int64_t kSkinnyRows = 8;
// Maximum elements of x in gemm_fp8_skinny.cu: every CTA rounds all of them. Tuned on H200,
// 2026-11-29: with more, rounding in a launch of its own and tiles are faster. Without groups that
// holds from two rows on, because they are read twice.
constexpr std::int64_t kSkinnyElements = 8 << 10;
// Maximum rows in gemm_fp8_thin_sm90.cu. Tuned on H200, 2026-11-27: with 32 or 64, tiles are as
// fast or faster.
constexpr std::int64_t kThinRows = 16;
// Maximum bytes of x in shared memory, beside a pipeline of three stages with two parts and the
// sums of eight rows.
constexpr std::int64_t kMaxStagedBytes = 104 << 10;
constexpr std::int64_t kMaxStagedBytesElsewhere = 24 << 10;  // GPUs besides Hopper have less
constexpr std::int64_t kDeclaredBytes = 2 << 10;             // upper bound of static shared memory

struct Size {
  Fp8Tile tile;
  std::int64_t rows, columns;  // of a CTA, or of a cluster of two
  int blocks;                  // CTAs of a tile
  int stages;                  // of a pipeline of about 190 KiB
  double share;                // of the MMA rate that the largest tiles reach
};
constexpr Size kSizes[] = {{Fp8Tile::k64x64, 64, 64, 1, 12, 0.4},
                           {Fp8Tile::k64x128, 64, 128, 1, 8, 0.65},
                           {Fp8Tile::k128x128, 128, 128, 1, 6, 0.9},
                           {Fp8Tile::k256x128, 256, 128, 2, 6, 1.0}};

std::int64_t tiles_of(std::int64_t m, std::int64_t n, const Size& size) {
  return (m + size.rows - 1) / size.rows * ((n + size.columns - 1) / size.columns);
}

// Time of the busiest SM, in output elements at the rate of the largest tiles.
double cost_of(std::int64_t m, std::int64_t n, const Size& size, int num_sms) {
  const std::int64_t slots = std::max(num_sms / size.blocks, 1),
                     turns = (tiles_of(m, n, size) + slots - 1) / slots;
  return static_cast<double>(turns * size.rows * size.columns / size.blocks) / size.share;
}

std::int64_t staged_bytes(std::int64_t m, std::int64_t k) {
  return m * (fp8_staged_bytes(k) + 2 * 4 * (ops::fp8_groups(k, ops::kFp8Group) + 1));
}

}  // namespace

std::int64_t fp8_rows_at_once(std::int64_t m, std::int64_t k, bool in_groups, bool deterministic,
                              int sm) {
  const std::int64_t limit = sm == 90 ? kMaxStagedBytes : kMaxStagedBytesElsewhere;
  const std::int64_t most = std::clamp<std::int64_t>(limit / staged_bytes(1, k), 1, kSkinnyRows);
  if (sm != 90) return deterministic ? 1 : std::min(most, std::max<std::int64_t>(m, 1));
  const bool few = m == 1 || (in_groups && m * k <= kSkinnyElements);
  return deterministic || !few || m > most || staged_bytes(1, k) > kMaxStagedBytes ? 0 : m;
}

Fp8SkinnyPlan plan_fp8_skinny(const Fp8SkinnyInputs& inputs) {
  const int parts = inputs.gated ? 2 : 1;
  const int usual = inputs.gated ? kPipelineStages<2> : kPipelineStages<1>,
            few = inputs.gated ? kFewPipelineStages<2> : kFewPipelineStages<1>;
  Fp8SkinnyPlan plan{.tiles = (inputs.n + kPipelineRows - 1) / kPipelineRows};
  plan.blocks = std::min<std::int64_t>(plan.tiles, std::max(inputs.num_sms, 1));
  for (const int stages : {usual, few}) {
    const std::int64_t bytes =
        pipeline_bytes(parts, stages) + std::int64_t{kPipelineWarps} * stages * parts * 4 +
        parts * inputs.m * kReductionBytes + staged_bytes(inputs.m, inputs.k);
    if (bytes + kDeclaredBytes > max_shared_bytes(inputs.sm)) continue;
    plan.stages = stages;
    plan.shared_bytes =
        max_shared_bytes(inputs.sm) >= 2 * kAloneBytes ? std::max(bytes, kAloneBytes) : bytes;
    break;
  }
  return plan;
}

Fp8TilePlan plan_fp8_tiles(std::int64_t m, std::int64_t n, int num_sms, bool pairs) {
  if (m <= kThinRows) {
    const bool few = m <= 8;
    return {.tile = few ? Fp8Tile::k8x64 : Fp8Tile::k16x64,
            .stages = few ? 20 : 18,
            .blocks = static_cast<int>(std::min<std::int64_t>((n + 63) / 64, num_sms))};
  }
  const Size* best = &kSizes[0];
  for (const Size& size : kSizes) {
    if ((m <= 64 && size.rows > 64) || (size.blocks > 1 && !pairs)) continue;
    if (cost_of(m, n, size, num_sms) < cost_of(m, n, *best, num_sms)) best = &size;
  }
  const std::int64_t most = std::max<std::int64_t>(num_sms / best->blocks, 1);
  return {.tile = best->tile,
          .stages = best->stages,
          .blocks = static_cast<int>(std::min(tiles_of(m, n, *best), most)) * best->blocks};
}

}  // namespace sluice::cuda
