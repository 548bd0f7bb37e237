#include "kernels/cuda/launch_plan.h"

#include <algorithm>

#include "base/error.h"

namespace sluice::cuda {
namespace {

// Up to this many rows the weights' bytes are what costs.
constexpr std::int64_t kRowsAtOnce = 8;
// From here on tiles win over reading the weights again for every eight rows.
constexpr std::int64_t kManyRows = 64;
// Keys of a chunk; kernels/cuda/attention_reference.cu.
constexpr std::int64_t kChunkKeys = 64;

}  // namespace

std::string_view gemm_kernel_name(GemmKernel kernel) {
  switch (kernel) {
    case GemmKernel::kRows: return "rows";
    case GemmKernel::kTiled: return "tiled";
    case GemmKernel::kLibrary: return "cublaslt";
  }
  return "?";
}

GemmKernel choose_gemm(const GemmFacts& facts) {
  if (facts.deterministic) return GemmKernel::kRows;
  // The library multiplies equal types only; a float32 input meets bfloat16 weights in our own kernels.
  const bool served = facts.library && facts.aligned && facts.x == facts.w && facts.n >= 16 && facts.k >= 16;
  const std::int64_t few = facts.x == DType::kBF16 && served ? kRowsAtOnce : kManyRows;
  if (facts.m <= few) return GemmKernel::kRows;
  return served ? GemmKernel::kLibrary : GemmKernel::kTiled;
}

int gemm_rows_at_once(std::int64_t m) {
  for (const int rows : {1, 2, 4})
    if (m <= rows) return rows;
  return static_cast<int>(kRowsAtOnce);
}

AttentionTile choose_attention_tile(std::int64_t tokens, std::int64_t seqs, std::int64_t group, bool sparse) {
  AttentionTile tile;
  tile.heads = static_cast<int>(std::clamp<std::int64_t>(group, 1, kMaxTileRows));
  if (!sparse && tokens > 2 * seqs) tile.tokens = std::max(1, kMaxTileRows / tile.heads);
  return tile;
}

AttentionLaunch plan_attention(int rows, std::int64_t key_dim, std::int64_t value_dim) {
  AttentionLaunch launch;
  while (launch.columns * launch.threads < value_dim) launch.columns *= 2;
  check(launch.columns <= 8, "values of {} elements are more than a block holds", value_dim);
  launch.shared_bytes = 4 * rows * (key_dim + kChunkKeys) + 8 * kChunkKeys;
  return launch;
}

}  // namespace sluice::cuda
