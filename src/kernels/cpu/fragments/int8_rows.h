// GEMM of rows of int8 with weights of int8 in fragments (Weight::int8_rows) on a CPU.
// kernels/types/int8_rows.h has the arithmetic.
#pragma once

#include <array>
#include <cstdint>

#include "kernels/types/int8_rows.h"
#include "kernels/types/int_fragments.h"
#include "tensor/context.h"

namespace sluice::cpu {

using ops::Weight;

// A piece is 32 columns. The four columns of a lane and step of a fragment stay together.
inline constexpr std::int64_t kInt8PieceColumns = 32;

// How the pieces of rows of x lie, in the order of the weight's bytes.
enum class Int8Order : std::uint8_t {
  kTwice,  // [row][piece] of 64 bytes: four columns stand twice, for rows r and r + 8 of a tile
  kTiles,  // [16 rows][two pieces][row] of 64 bytes: tiles of AMX
};

struct Int8Product {
  const Weight* weight = nullptr;
  const std::uint8_t* w = nullptr;  // tiles of 16 rows, one after the other
  std::int64_t units = 0;           // of a tile
  std::int64_t unit_bytes = 0;
  const std::int8_t* x = nullptr;        // on 64 bytes
  std::int64_t x_stride = 0;             // bytes of a row, or of 16 rows in tiles
  std::int64_t num_rows = 0;             // of x
  const std::int32_t* x_sums = nullptr;  // of the numbers of each row of x
  const float* x_scales = nullptr;       // of each row of x
  float* out = nullptr;
  std::int64_t out_stride = 0;  // in floats
};

// Writes columns of `out` for the tiles [first, last) of the weight.
using Int8Multiply = void (*)(const Int8Product& args, std::int64_t first, std::int64_t last);
void avx2_int8_rows(const Int8Product& args, std::int64_t first, std::int64_t last);
void vnni_int8_rows(const Int8Product& args, std::int64_t first, std::int64_t last);
void amx_int8_rows(const Int8Product& args, std::int64_t first, std::int64_t last);

// Rows of x that are rounded at once, without AMX: each block of them reads the weights again.
inline constexpr std::int64_t kInt8BlockRows = 96;

struct Int8Kernel {
  Int8Multiply multiply = nullptr;
  Int8Order order = Int8Order::kTwice;
};
Int8Kernel int8_kernel(CpuIsa isa, std::int64_t num_rows);

// The scales of a tile's rows.
std::array<float, ops::kFragmentRows> int8_scales(const Int8Product& args, std::int64_t tile);

// linear_fragments() of a weight with int8_rows.
void linear_int8_rows(Context& ctx, const Int8Kernel& kernel, const Tensor& x, const Weight& w,
                      const Tensor& bias, const Tensor& out);

}  // namespace sluice::cpu
