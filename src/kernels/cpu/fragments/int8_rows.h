// GEMM of rows of int8 with weights of int8 in fragments (Weight::int8_rows) on a CPU.
// kernels/types/int8_rows.h has the arithmetic.
#pragma once

#include <cstdint>

#include "kernels/types/int8_rows.h"
#include "kernels/types/int_fragments.h"
#include "tensor/context.h"

namespace sluice::cpu {

using ops::Weight;

// Rows of x in the order of the weight's bytes. A piece of 32 columns has 64 bytes: the four
// columns of a lane and step of a fragment stand twice, for rows r and r + 8 of a tile.
inline constexpr std::int64_t kInt8PieceColumns = 32, kInt8PieceBytes = 64;

struct Int8Product {
  const std::uint8_t* w = nullptr;  // tiles of 16 rows, one after the other
  std::int64_t units = 0;           // of a tile
  std::int64_t unit_bytes = 0;
  const std::int8_t* x = nullptr;        // on 64 bytes
  std::int64_t x_stride = 0;             // in bytes
  std::int64_t num_rows = 0;             // of x
  const std::int32_t* x_sums = nullptr;  // of the numbers of each row of x
};

// Writes the sums of a tile, [num_rows, 16].
using Int8Multiply = void (*)(const Int8Product& args, std::int64_t tile, std::int32_t* out);
void avx2_int8_rows(const Int8Product& args, std::int64_t tile, std::int32_t* out);
void vnni_int8_rows(const Int8Product& args, std::int64_t tile, std::int32_t* out);

// linear_fragments() of a weight with int8_rows.
void linear_int8_rows(Context& ctx, const Tensor& x, const Weight& w, const Tensor& bias,
                      const Tensor& out);

}  // namespace sluice::cpu
