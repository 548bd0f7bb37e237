#include "kernels/cuda/gemm/int_plan.h"

#include <algorithm>

#include "kernels/cuda/common/shared_memory.h"
#include "kernels/cuda/gemm/weight_pipeline_shape.h"

namespace sluice::cuda {
namespace {

constexpr std::int64_t kSkinnyRows = 8;
// Maximum elements of x in gemm_int_skinny.cu, because every CTA reads all of them. Tuned on H200,
// 2026-11-29: with more, tiles are faster, which fuse no activation.
constexpr std::int64_t kPlainElements = 8 << 10, kGatedElements4 = 16 << 10,
                       kGatedElements8 = 32 << 10;
// Where tiles take a gate and its up, they take them without the activation, too (linear_int.cpp).
static_assert(kPlainElements <= kGatedElements4 && kPlainElements <= kGatedElements8);
// Maximum bytes of x in shared memory, beside a pipeline and the sums of eight rows.
constexpr std::int64_t kMaxStagedBytes = 104 << 10;
constexpr std::int64_t kMaxStagedBytesElsewhere = 32 << 10;  // GPUs besides Hopper have less
constexpr std::int64_t kDeclaredBytes = 1 << 10;             // upper bound of static shared memory
constexpr std::int64_t kColumnsOfUnit = 128;
constexpr std::int64_t kTileSharedBytes = 220 << 10;  // of an SM, for the pipelines of its CTAs
constexpr int kMaxSplits = 8;
// Rows of x from which GEMMs of bfloat16 and the widening of their weights take less time than
// tiles: those of more than two tiles. On an H200 two of them take about as long as widening.
constexpr std::int64_t kWidenedFrom = 257;
constexpr std::int64_t kWidenedMultiple = 128;

std::int64_t staged_bytes(std::int64_t m, std::int64_t k) {
  return m * int_staged_stride(k) * 2;
}

}  // namespace

std::int64_t int_rows_at_once(const IntRowsInputs& inputs) {
  const auto [m, k, bits, gated, deterministic, sm] = inputs;
  const std::int64_t limit = sm == 90 ? kMaxStagedBytes : kMaxStagedBytesElsewhere;
  const std::int64_t most = std::clamp<std::int64_t>(limit / staged_bytes(1, k), 1, kSkinnyRows);
  if (sm != 90) return deterministic ? 1 : std::min(most, std::max<std::int64_t>(m, 1));
  const std::int64_t elements = !gated      ? kPlainElements
                                : bits == 4 ? kGatedElements4
                                            : kGatedElements8;
  const bool few = m == 1 || m * k <= elements;
  return deterministic || !few || m > most || staged_bytes(1, k) > kMaxStagedBytes ? 0 : m;
}

bool widens_int_weights(std::int64_t m, bool deterministic, bool library, int sm) {
  return m >= kWidenedFrom && !deterministic && library && sm == 90;
}

std::int64_t widened_at_once(std::int64_t rows, std::int64_t k, std::int64_t bytes) {
  const auto up = [](std::int64_t n) {
    return (n + kWidenedMultiple - 1) / kWidenedMultiple * kWidenedMultiple;
  };
  const std::int64_t most =
      std::max<std::int64_t>(bytes / (2 * k) / kWidenedMultiple, 1) * kWidenedMultiple;
  const std::int64_t parts = (rows + most - 1) / most;
  return std::min(up((rows + parts - 1) / std::max<std::int64_t>(parts, 1)), most);
}

IntSkinnyPlan plan_int_skinny(const IntSkinnyInputs& inputs) {
  const int parts = inputs.gated ? 2 : 1;
  const int usual = inputs.bits == 4 ? (parts == 1 ? kIntStages<4, 1> : kIntStages<4, 2>)
                                     : (parts == 1 ? kIntStages<8, 1> : kIntStages<8, 2>),
            few = inputs.bits == 4 ? (parts == 1 ? kFewIntStages<4, 1> : kFewIntStages<4, 2>)
                                   : (parts == 1 ? kFewIntStages<8, 1> : kFewIntStages<8, 2>);
  IntSkinnyPlan plan{.tiles = (inputs.n + kPipelineRows - 1) / kPipelineRows};
  const std::int64_t room = max_shared_bytes(inputs.sm), sms = std::max(inputs.num_sms, 1);
  // Two CTAs an SM wait for their x in turn. Three would leave other SMs idle.
  for (const std::int64_t ctas_per_sm : {inputs.sm == 90 ? 2 : 1, 1})
    for (const int stages : {usual, few}) {
      const std::int64_t bytes = kPipelineWarps * stages * parts * inputs.unit_bytes +
                                 parts * inputs.m * kReductionBytes +
                                 staged_bytes(inputs.m, inputs.k);
      const std::int64_t declared = ctas_per_sm == 2 ? 2 * kDeclaredBytes : kDeclaredBytes;
      if (ctas_per_sm * (bytes + declared) > room) continue;
      plan.stages = stages;
      plan.blocks = std::min(plan.tiles, ctas_per_sm * sms);
      plan.shared_bytes = ctas_per_sm == 2          ? std::max(bytes, room / 3)
                          : room >= 2 * kAloneBytes ? std::max(bytes, kAloneBytes)
                                                    : bytes;
      return plan;
    }
  return plan;
}

namespace {

// Consumer warpgroups of a CTA, and the stages that they leave room for.
struct TileForm {
  std::int64_t wide, deep;

  std::int64_t tile_rows() const { return 64 * wide; }
  int ctas_per_sm(int rows) const { return int_ctas_per_sm(rows, static_cast<int>(wide * deep)); }
  std::int64_t stage_bytes(int rows, std::int64_t unit_bytes) const {
    return deep * (rows * kColumnsOfUnit * 2 + tile_rows() / kPipelineRows * unit_bytes);
  }
  // Beside stages: the sums of all but the first warpgroup of the same rows, and the alignment of
  // swizzled tiles.
  std::int64_t other_bytes(int rows) const { return (deep - 1) * tile_rows() * rows * 4 + 1024; }
  std::int64_t stages(int rows, std::int64_t unit_bytes) const {
    return (kTileSharedBytes / ctas_per_sm(rows) - other_bytes(rows)) /
           stage_bytes(rows, unit_bytes);
  }
};

constexpr TileForm kPair{2, 1};
constexpr int kFewestStages = 3;  // of four warpgroups

// Few rows leave most of the time to the conversion of weights, so four warpgroups share it. Those
// of the same rows save sums of CTAs. More rows need the registers of two. With `deep` the order of
// summation depends on the number of rows.
TileForm tile_form(int rows, const IntTileInputs& inputs) {
  if (inputs.deterministic || rows > 64) return kPair;
  const TileForm four = rows <= 32 ? TileForm{1, 4} : TileForm{2, 2};
  return four.stages(rows, inputs.unit_bytes) >= kFewestStages ? four : kPair;
}

}  // namespace

IntTilePlan plan_int_tiles(const IntTileInputs& inputs) {
  IntTilePlan plan;
  const std::int64_t m = inputs.m;
  plan.rows = m <= 16 ? 16 : m <= 32 ? 32 : m <= 64 ? 64 : 128;
  const TileForm form = tile_form(plan.rows, inputs);
  plan.wide = static_cast<int>(form.wide), plan.deep = static_cast<int>(form.deep);
  plan.stages = static_cast<int>(
      std::clamp<std::int64_t>(form.stages(plan.rows, inputs.unit_bytes), 2, kMaxIntTileStages));
  plan.shared_bytes =
      plan.stages * form.stage_bytes(plan.rows, inputs.unit_bytes) + form.other_bytes(plan.rows);
  const std::int64_t slots =
                         std::int64_t{std::max(inputs.num_sms, 1)} * form.ctas_per_sm(plan.rows),
                     tiles = (m + plan.rows - 1) / plan.rows *
                             ((inputs.n + form.tile_rows() - 1) / form.tile_rows()),
                     columns = kColumnsOfUnit * form.deep,
                     steps = (inputs.k + columns - 1) / columns;
  // Time of the busiest CTA in units of columns. A tile costs about four of them at its ends. The
  // sums of two CTAs cost three steps, and those of further ones more where there are many rows.
  double best = 0;
  for (int splits = 1; splits <= kMaxSplits; ++splits) {
    if (splits > 1 && (inputs.deterministic || steps * form.deep / splits < 4 || splits > steps ||
                       splits * tiles * form.tile_rows() * plan.rows * 4 > inputs.scratch_bytes))
      break;
    const auto turns = static_cast<double>((tiles * splits + slots - 1) / slots),
               units = static_cast<double>((steps + splits - 1) / splits * form.deep),
               sums = splits == 1
                          ? 0
                          : 3.0 * static_cast<double>(form.deep) + (splits - 2) * plan.rows / 32.0,
               cost = turns * (units + 4 + sums);
    if (splits > 1 && cost >= best) continue;
    best = cost;
    plan.splits = splits;
  }
  plan.blocks = static_cast<int>(std::min(tiles * plan.splits, slots));
  return plan;
}

}  // namespace sluice::cuda
