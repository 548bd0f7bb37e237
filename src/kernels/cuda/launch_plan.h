// Which kernel a product or an attention takes and in which tiles: pure functions of shapes and facts, tested without a
// GPU.
#pragma once

#include <cstdint>
#include <string_view>

#include "tensor/dtype.h"

namespace sluice::cuda {

enum class GemmKernel : std::uint8_t {
  kRows,     // a warp for each output column, a few rows at a time: weights are streamed once for up to 8 rows
  kTiled,    // 64 x 64 tiles in shared memory, float32 arithmetic
  kLibrary,  // cuBLASLt
};
std::string_view gemm_kernel_name(GemmKernel kernel);

struct GemmFacts {
  std::int64_t m = 0, n = 0, k = 0;
  DType x = DType::kF32, w = DType::kF32;
  bool library = false;   // cuBLASLt was found
  bool aligned = true;    // rows of x, w and out begin on 16 bytes
  bool deterministic = false;   // an output's order of summation may not depend on m
};
GemmKernel choose_gemm(const GemmFacts& facts);

// Rows that kRows works on at once: a power of two up to 8 that covers m, or 8.
int gemm_rows_at_once(std::int64_t m);

// How query rows are packed: heads that share keys, times neighbouring tokens.
struct AttentionTile {
  int heads = 1;
  int tokens = 1;
  int rows() const { return heads * tokens; }
};
inline constexpr int kMaxTileRows = 8;
// `group`: heads that share a key head. Rows of one sequence that stand together share the work of reading keys, which
// pays when there are more tokens than sequences; a sparse row shares its keys with no other token.
AttentionTile choose_attention_tile(std::int64_t tokens, std::int64_t seqs, std::int64_t group, bool sparse);

// Shared memory of a block of attention, and the columns of the values that a thread holds.
struct AttentionLaunch {
  int threads = 128;
  int columns = 1;              // 1, 2, 4 or 8
  std::int64_t shared_bytes = 0;
};
AttentionLaunch plan_attention(int rows, std::int64_t key_dim, std::int64_t value_dim);

}  // namespace sluice::cuda
