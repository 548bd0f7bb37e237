// Which kernel multiplies integer weights in fragments, and its launch: pure functions of shapes
// and device, tested without a GPU.
#pragma once

#include <cstdint>

namespace sluice::cuda {

// gemm_int_skinny.cu: rows of x that it reads at once. 0: gemm_int_sm90.cu takes all of them. The
// choice must not depend on m in deterministic runs.
struct IntRowsInputs {
  std::int64_t m = 0, k = 0;
  int bits = 4;
  bool gated = false;  // act(gate) * up is fused
  bool deterministic = false;
  int sm = 90;
};
std::int64_t int_rows_at_once(const IntRowsInputs& inputs);

// Elements between rows of x in shared memory, for k columns: whole units, and eight rows begin in
// eight different groups of four banks.
constexpr std::int64_t int_staged_stride(std::int64_t k) {
  return (k + 127) / 128 * 128 + 8;
}

// Whether weights become bfloat16 for a GEMM of m rows (linear_widened.cpp). The choice must not
// depend on m in deterministic runs. `library`: cuBLASLt was found.
bool widens_int_weights(std::int64_t m, bool deterministic, bool library, int sm);
// Rows of bfloat16 of k columns that are in `bytes` at once, of `rows` in all: parts of about equal
// size, of a multiple of 128 rows.
std::int64_t widened_at_once(std::int64_t rows, std::int64_t k, std::int64_t bytes);

struct IntSkinnyInputs {
  std::int64_t m = 0, n = 0, k = 0;  // n: gate columns only, if gated
  int bits = 4;
  std::int64_t unit_bytes = 0;
  bool gated = false;  // rows of w are gate and up
  int num_sms = 1;
  int sm = 90;
};
struct IntSkinnyPlan {
  int stages = 0;  // of a warp's pipeline; 0: too little shared memory
  std::int64_t tiles = 0, blocks = 0, shared_bytes = 0;
};
IntSkinnyPlan plan_int_skinny(const IntSkinnyInputs& inputs);

// Units in flight of each warp, for each part of a tile.
template <int kBits, int kParts>
inline constexpr int kIntStages = (kBits == 4 ? 8 : 6) / kParts;
template <int kBits, int kParts>
inline constexpr int kFewIntStages = kBits == 4 && kParts == 1   ? 4
                                     : kBits == 8 && kParts == 1 ? 3
                                                                 : 2;

// A CTA of gemm_int_sm90.cu takes 64 `wide` rows of weights and `rows` rows of x, and a part of the
// columns: the sums of `splits` CTAs are added in ascending order. `deep` warpgroups of the same
// rows take units of columns in turn.
struct IntTilePlan {
  int rows = 16;  // 16, 32, 64 or 128
  int wide = 2, deep = 1;
  int splits = 1;
  int stages = 1;
  int blocks = 1;  // persistent CTAs
  std::int64_t shared_bytes = 0;
};
struct IntTileInputs {
  std::int64_t m = 0, n = 0, k = 0;
  std::int64_t unit_bytes = 0;
  int num_sms = 1;
  std::int64_t scratch_bytes = 0;  // for the sums of CTAs
  bool deterministic = false;      // the order of summation must not depend on m
};
IntTilePlan plan_int_tiles(const IntTileInputs& inputs);

// Two CTAs of few rows and two consumer warpgroups fit on an SM.
constexpr int int_ctas_per_sm(int rows, int warpgroups) {
  return rows <= 32 && warpgroups == 2 ? 2 : 1;
}
inline constexpr int kIntTileRows = 128;  // of weights, of two warpgroups
inline constexpr int kMaxIntTileStages = 16;

}  // namespace sluice::cuda
