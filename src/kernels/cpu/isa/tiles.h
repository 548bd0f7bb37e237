// GEMMs with weights in tiles: what each format of kernels/types/weight.h must offer, and where it
// is found.
//
// Bfloat16: panels of 64 rows (the last one is as wide as there are tiles), and in a panel, for
// each pair of columns, its tiles of 16 rows side by side: 64 bytes a tile, 4 bytes a row, the
// lower column first. So a product with one row of x reads the weights as one stream, and one
// broadcast pair of x serves 16 rows. Rows and columns that do not exist are zero.
//
// Float32: the same with single columns in the place of pairs.
//
// Order of summation: an output element is one accumulator over ascending columns, or pairs of them
// (on AMX 32 columns of bfloat16 at a time, see tiles_amx_impl.h). It does not depend on M, on the
// blocking or on the threads.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "kernels/cpu/isa/kernel_table.h"
#include "kernels/types/weight.h"

namespace sluice::cpu {

using ops::Format;
using ops::Weight;

// Rows of a tile, which its layout interleaves.
inline constexpr std::int64_t kTileWeightRows = 16;
// Rows of a panel of tiles; the last one has what is left. Panels lie one after the other.
inline constexpr std::int64_t kPanelWeightRows = 4 * kTileWeightRows;

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

// x w^T + bias of the first matrix of w, into `out` in float32; rows of x as the layout reads them.
TileProduct tile_product(const Tensor& x, const Weight& w, const Tensor& bias, const Tensor& out);

// One layout on one instruction set. All functions run on the calling thread and use no pool.
struct TileKernels {
  DType input;  // of rows of x that need no prepare(); kU8: there are none
  std::int64_t
      tiles_at_once;    // whole panels that a thread should be given together for one row of x
  std::int64_t pieces;  // in which a thread should at least take its share of them; 0: one by one
  // Bytes of a row of x as the product reads it, and how float32 becomes columns [first, last) of
  // such a row: x is that of column `first`, a multiple of kPreparedColumns, and so is `last`
  // unless it is the end; `out` is the whole row.
  std::int64_t (*input_bytes)(const Weight& w);
  void (*prepare)(const Weight& w, const float* x, std::int64_t first, std::int64_t last,
                  std::byte* out);
  // Bytes of one matrix of the stack; only rows, columns and group of w are looked at.
  std::int64_t (*matrix_bytes)(const Weight& w);
  // Bytes of a row as blocks of a GGUF file, which pack() takes as uint8 [n, these]; 0: there are
  // none.
  std::int64_t (*block_row_bytes)(const Weight& w);
  // Puts rows [first, first + from.dim(0)) of matrix `index` into their place. Disjoint rows may be
  // packed at once by several threads. `from` [n, columns] is dense, bfloat16 or (where the layout
  // takes it) float32.
  void (*pack)(const Tensor& from, const Weight& w, std::int64_t index, std::int64_t first);
  // Row `row` of the first matrix, as float32.
  void (*read_row)(const Weight& w, std::int64_t row, float* out);
  // Rows [m0, m1) of x against tiles [t0, t1) of 16 rows.
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

// Of weights in tiles: kF32, kBf16 or quantised.
const TileKernels& tile_kernels(CpuIsa isa, Format format);

inline std::int64_t num_tiles(std::int64_t rows) {
  return (rows + kTileWeightRows - 1) / kTileWeightRows;
}

// L1 data cache of a core, in bytes; 32 KiB if the system does not report it.
std::int64_t first_level_cache_bytes();
// Whether L1 has room for prefetched weights beside those in use. 48 KiB has (Zen 5, Ice Lake); 32
// KiB has not (Zen 4), so weights are prefetched into L2.
inline bool first_level_holds_fetches() {
  return first_level_cache_bytes() >= 48 << 10;
}

// The bfloat16 and float32 tile GEMMs of each instruction set.
using DotTileProduct = void (*)(const TileProduct&, std::int64_t, std::int64_t, std::int64_t,
                                std::int64_t);
DotTileProduct avx2_bf16_product();
DotTileProduct avx512_bf16_product();
DotTileProduct avx512bf16_bf16_product();
DotTileProduct amx_bf16_product();
DotTileProduct avx2_float_product();
DotTileProduct avx512_float_product();
decltype(TileKernels::paired_row) amx_bf16_paired_row();

}  // namespace sluice::cpu
