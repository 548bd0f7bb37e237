// Products with repacked weights: what each layout of weight_matrix.h must offer, and where it is
// found.
//
// kBf16Tiles: panels of 64 rows (the last one is as wide as there are tiles), and in a panel, for
// each pair of columns, its tiles of 16 rows side by side: 64 bytes a tile, 4 bytes a row, the
// lower column first. So a product with one row of x reads the weights as one stream, and one
// broadcast pair of x serves 16 rows. Rows and columns that do not exist are zero.
//
// Order of summation: an output element is one accumulator over ascending pairs of columns (with
// AMX over 32 columns each, see tiles_amx.cpp), whatever the rows of x, the blocking and the
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

// out[m, n] = x[x_rows ? x_rows[m] : m] . w[n] + bias[n], for one matrix.
struct TileProduct {
  const std::byte* x = nullptr;  // rows in the form that TileKernels::prepare makes
  std::int64_t x_stride = 0;     // bytes
  const std::int32_t* x_rows = nullptr;
  const std::byte* w = nullptr;  // the matrix's own bytes
  std::int64_t rows = 0;
  std::int64_t columns = 0;
  std::int64_t group = 0;
  WeightVector bias = {};
  float* out = nullptr;
  std::int64_t out_stride = 0;  // elements
};

// x w^T + bias of the first matrix of w, into `out` in float32; rows of x as the layout reads them.
TileProduct tile_product(const Tensor& x, const WeightMatrix& w, const Tensor& bias,
                         const Tensor& out);

// One layout on one instruction set. All run on the calling thread and touch nothing else.
struct TileKernels {
  DType input;  // of rows of x that need no prepare(); kU8: there are none
  std::int64_t
      tiles_at_once;    // whole panels that a thread should be given together for one row of x
  std::int64_t pieces;  // in which a thread should at least take its share of them; 0: one by one
  // Bytes of a row of x as the product reads it, and how float32 becomes columns [first, last) of
  // such a row: x is that of column `first`, a multiple of kPreparedColumns, and so is `last`
  // unless it is the end; `out` is the whole row.
  std::int64_t (*input_bytes)(const WeightMatrix& w);
  void (*prepare)(const WeightMatrix& w, const float* x, std::int64_t first, std::int64_t last,
                  std::byte* out);
  // Bytes of one matrix of the stack; only rows, columns and group of w are looked at.
  std::int64_t (*matrix_bytes)(const WeightMatrix& w);
  // Bytes of a row as blocks of a GGUF file, which pack() takes as uint8 [n, these]; 0: there are
  // none.
  std::int64_t (*block_row_bytes)(const WeightMatrix& w);
  // Puts rows [first, first + from.dim(0)) of matrix `index` into their place. Disjoint rows may be
  // packed at once by several threads. `from` [n, columns] is dense, bfloat16 or (where the layout
  // takes it) float32.
  void (*pack)(const Tensor& from, const WeightMatrix& w, std::int64_t index, std::int64_t first);
  // Row `row` of the first matrix, as float32.
  void (*read_row)(const WeightMatrix& w, std::int64_t row, float* out);
  // Rows [m0, m1) of x against tiles [t0, t1) of 16 rows.
  void (*product)(const TileProduct& args, std::int64_t m0, std::int64_t m1, std::int64_t t0,
                  std::int64_t t1);
  // Row m of x against tiles [t0, t1) and as many `apart` tiles further on, read side by side.
  // Null: that gains nothing.
  void (*paired_row)(const TileProduct& args, std::int64_t m, std::int64_t t0, std::int64_t t1,
                     std::int64_t tile_distance);

  // The most units that a thread should take together out of `count`, for m rows of x (0: as
  // parallel_for has it). Between two pieces it waits until its results are written, so for one row
  // few pieces are better, where they need not be small for the memory's sake.
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

// Every group of columns ends at a multiple of these.
inline constexpr std::int64_t kPreparedColumns = 128;

// layout is not kRows.
const TileKernels& tile_kernels(CpuIsa isa, WeightLayout layout);

inline std::int64_t num_tiles(std::int64_t rows) {
  return (rows + ops::kTileWeightRows - 1) / ops::kTileWeightRows;
}

// Of a core, for data; 32 KiB where the system does not say.
std::int64_t first_level_cache_bytes();
// Whether it has room for weights that are fetched ahead, beside those in use: 48 KiB (Zen 5, Ice
// Lake) have, 32 KiB (Zen 4) have not, and what is fetched goes into the second-level cache.
inline bool first_level_holds_fetches() {
  return first_level_cache_bytes() >= 48 << 10;
}

// The product of the bfloat16 tiles on each instruction set.
using Bf16TileProduct = void (*)(const TileProduct&, std::int64_t, std::int64_t, std::int64_t,
                                 std::int64_t);
Bf16TileProduct avx2_bf16_product();
Bf16TileProduct avx512_bf16_product();
Bf16TileProduct avx512bf16_bf16_product();
Bf16TileProduct amx_bf16_product();
decltype(TileKernels::paired_row) amx_bf16_paired_row();

}  // namespace sluice::cpu
