// Which kernel multiplies FP8 weights, and its launch: pure functions of shapes and device, tested
// without a GPU.
#pragma once

#include <cstdint>

namespace sluice::cuda {

// gemm_fp8_skinny.cu: rows of x that it reads at once, as bfloat16 or float32. 0: gemm_fp8_sm90.cu
// takes all of them, as prepared rows (kernels/types/fp8.h). The choice must not depend on m in
// deterministic runs. in_groups: scales of x for groups of columns, else for rows.
std::int64_t fp8_rows_at_once(std::int64_t m, std::int64_t k, bool in_groups, bool deterministic,
                              int sm);

// Bytes between rows of e4m3 in shared memory, for k columns: whole groups, and rows begin in
// alternating halves of the banks.
constexpr std::int64_t fp8_staged_bytes(std::int64_t k) {
  return (k + 127) / 128 * 128 + 64;
}

struct Fp8SkinnyInputs {
  std::int64_t m = 0, n = 0, k = 0;  // n: gate columns only, if gated
  bool gated = false;                // rows of w are gate and up
  int num_sms = 1;
  int sm = 90;
};
struct Fp8SkinnyPlan {
  int stages = 0;  // of a warp's pipeline; 0: too little shared memory
  std::int64_t tiles = 0, blocks = 0, shared_bytes = 0;
};
Fp8SkinnyPlan plan_fp8_skinny(const Fp8SkinnyInputs& inputs);

// Rows by columns of a CTA's tile: the first two in gemm_fp8_thin_sm90.cu, the others in
// gemm_fp8_sm90.cu. All tiles give the same bits.
enum class Fp8Tile : std::uint8_t { k8x64, k16x64, k64x64, k64x128, k128x128, k256x128 };
struct Fp8TilePlan {
  Fp8Tile tile = Fp8Tile::k64x64;
  int stages = 1;  // of the pipeline
  int blocks = 1;  // persistent CTAs; with k256x128 two CTAs are a cluster and share weights
};
// `pairs`: whether CTAs may be clusters of two.
Fp8TilePlan plan_fp8_tiles(std::int64_t m, std::int64_t n, int num_sms, bool pairs = true);

}  // namespace sluice::cuda
