// GEMM with repacked weights: the interface of each layout of weight_matrix.h.
//
// kBf16Tiles: panels of 64 weight rows; the last panel has only the tiles that are left. Within a
// panel, each pair of columns holds its tiles of 16 rows side by side. A tile is 64 bytes per pair:
// 4 bytes a row, the lower column first. So a GEMV reads the weights as one stream, and one
// broadcast pair of x serves 16 rows. Missing rows and columns are zero.
//
// Order of summation: an output element is one accumulator over ascending pairs of columns (on AMX
// 32 columns at a time, see tiles_amx.cpp). It does not depend on M, on the blocking or on the
// threads.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "kernels/cpu/isa/kernel_table.h"
#include "kernels/types/weight_matrix.h"

namespace sluice::cpu {

using ops::WeightLayout;
using ops::WeightMatrix;

// Arguments of one GEMM: out[m, n] = x[x_rows ? x_rows[m] : m] . w[n] + bias[n].
struct TileProduct {
  const std::byte* x = nullptr;  // rows in the form that TileKernels::prepare writes
  std::int64_t x_stride = 0;     // bytes
  const std::int32_t* x_rows = nullptr;
  const std::byte* w = nullptr;  // bytes of this matrix
  std::int64_t rows = 0;
  std::int64_t columns = 0;
  std::int64_t group = 0;
  WeightVector bias = {};
  float* out = nullptr;
  std::int64_t out_stride = 0;  // elements
};

// Arguments for out = x w^T + bias, in float32, with the first matrix of w. Rows of x are in the
// layout's input form.
TileProduct tile_product(const Tensor& x, const WeightMatrix& w, const Tensor& bias,
                         const Tensor& out);

// One layout on one instruction set. All functions run on the calling thread and use no pool.
struct TileKernels {
  DType input;  // dtype of x rows that need no prepare(); kU8: prepare() is always needed
  // GEMV only: tiles (whole panels) that a thread should be given together.
  std::int64_t tiles_at_once;
  // GEMV only: minimum pieces a thread splits its share into; 0: one panel at a time.
  std::int64_t pieces;
  // Bytes of a row of x in the layout's input form, and the conversion of float32 to columns
  // [first, last) of such a row. x points at column `first`; `out` is the whole row. `first` is a
  // multiple of kPreparedColumns, and so is `last` unless it is the row's end.
  std::int64_t (*input_bytes)(const WeightMatrix& w);
  void (*prepare)(const WeightMatrix& w, const float* x, std::int64_t first, std::int64_t last,
                  std::byte* out);
  // Bytes of one matrix of the stack. Uses only rows, columns and group of w.
  std::int64_t (*matrix_bytes)(const WeightMatrix& w);
  // Bytes of a row as GGUF blocks, which pack() accepts as uint8 [n, bytes]. 0: not supported.
  std::int64_t (*block_row_bytes)(const WeightMatrix& w);
  // Packs rows [first, first + from.dim(0)) of matrix `index`. Threads may pack disjoint rows at
  // once. `from` [n, columns] is dense bfloat16 or, if the layout accepts it, float32.
  void (*pack)(const Tensor& from, const WeightMatrix& w, std::int64_t index, std::int64_t first);
  // Row `row` of the first matrix, as float32.
  void (*read_row)(const WeightMatrix& w, std::int64_t row, float* out);
  // GEMM of rows [m0, m1) of x with tiles [t0, t1) of 16 weight rows.
  void (*product)(const TileProduct& args, std::int64_t m0, std::int64_t m1, std::int64_t t0,
                  std::int64_t t1);
  // GEMV of row m with tiles [t0, t1) and with the tiles `tile_distance` further on, read as two
  // streams. Null: two streams are no faster here.
  void (*paired_row)(const TileProduct& args, std::int64_t m, std::int64_t t0, std::int64_t t1,
                     std::int64_t tile_distance);

  // Maximum units that a thread takes at once out of `count`, for m rows of x. 0: the default of
  // parallel_for. A thread flushes its results between pieces. For one row use few large pieces
  // unless bandwidth needs small ones.
  std::int64_t largest_piece(std::int64_t m, std::int64_t count, std::int64_t threads) const {
    return m > 1 ? 0 : pieces == 0 ? 1 : std::max<std::int64_t>(1, count / (threads * pieces));
  }

  void paired_gemm(const TileProduct& args, std::int64_t m0, std::int64_t m1, std::int64_t t0,
                   std::int64_t t1, std::int64_t tile_distance) const {
    if (m1 - m0 == 1 && paired_row != nullptr) return paired_row(args, m0, t0, t1, tile_distance);
    product(args, m0, m1, t0, t1);
    product(args, m0, m1, tile_distance + t0, tile_distance + t1);
  }
};

// Column ranges for prepare() begin at multiples of this: every quantisation group ends at one.
inline constexpr std::int64_t kPreparedColumns = 128;

// The kernels of a layout other than kRows.
const TileKernels& tile_kernels(CpuIsa isa, WeightLayout layout);

inline std::int64_t num_tiles(std::int64_t rows) {
  return (rows + ops::kTileWeightRows - 1) / ops::kTileWeightRows;
}

// L1 data cache of a core, in bytes; 32 KiB if the system does not report it.
std::int64_t first_level_cache_bytes();
// Whether L1 has room for prefetched weights beside those in use. 48 KiB has (Zen 5, Ice Lake); 32
// KiB has not (Zen 4), so weights are prefetched into L2.
inline bool first_level_holds_fetches() {
  return first_level_cache_bytes() >= 48 << 10;
}

// The bfloat16 tile GEMM of each instruction set.
using Bf16TileProduct = void (*)(const TileProduct&, std::int64_t, std::int64_t, std::int64_t,
                                 std::int64_t);
Bf16TileProduct avx2_bf16_product();
Bf16TileProduct avx512_bf16_product();
Bf16TileProduct avx512bf16_bf16_product();
Bf16TileProduct amx_bf16_product();
decltype(TileKernels::paired_row) amx_bf16_paired_row();

}  // namespace sluice::cpu
