// The sums of int8_rows.h over a set of instructions V. Included by int8_rows_*.cpp inside their
// target pragmas.
//
// A line of 64 bytes holds codes of rows r and r + 8 of a tile, in a piece of 32 columns. V has
// vectors W of codes and I of 32-bit sums, whose lanes belong to rows r and r + 8 in turn, and
// - kBytes        of a vector
// - kRows, kFew   register tiles: rows of x by four lines, or by all eight
// - kIsRaised     sums have 128 times the sum of the row of x more
// - codes(line)   in the order of x
// - dot(sum, w, x)
// - reduce(sum, out)   out[0], out[1]: rows r and r + 8
#pragma once

namespace sluice::cpu {
namespace {

constexpr int kInt8Lines = 8, kInt8LineBytes = 64;

// kLines lines of a tile from `line` on, with kRows rows of x from row m on.
template <class V, int kRows, int kLines>
void multiply_int8(const Int8Product& args, std::int64_t tile, std::int64_t m, int line,
                   std::int32_t* out) {
  using I = typename V::I;
  constexpr int kPieces = static_cast<int>(ops::kFragmentColumns / kInt8PieceColumns),
                kPieceBytes = kInt8Lines * kInt8LineBytes, kParts = kInt8LineBytes / V::kBytes;
  I sums[kRows][kLines];
#pragma GCC unroll 8
  for (auto& row : sums)
#pragma GCC unroll 8
    for (I& sum : row) sum = V::zero();
  const std::int8_t* x = args.x + m * args.x_stride;
  const std::uint8_t* unit = args.w + tile * args.units * args.unit_bytes + line * kInt8LineBytes;
  for (std::int64_t u = 0; u < args.units; ++u, unit += args.unit_bytes) {
#pragma GCC unroll 1
    for (int p = 0; p < kPieces; ++p, x += kInt8LineBytes) {
#pragma GCC unroll 2
      for (int part = 0; part < kParts; ++part) {
        const int at = part * V::kBytes;
#pragma GCC unroll 8
        for (int n = 0; n < kLines; ++n) {
          const std::uint8_t* const codes = unit + p * kPieceBytes + n * kInt8LineBytes + at;
          if constexpr (kLines == kInt8Lines)
            fetch_ahead<V::kNear, 0>(reinterpret_cast<const std::byte*>(codes));
          const typename V::W w = V::codes(codes);
#pragma GCC unroll 8
          for (int i = 0; i < kRows; ++i)
            sums[i][n] = V::dot(sums[i][n], w, x + i * args.x_stride + at);
        }
      }
    }
  }
#pragma GCC unroll 8
  for (int i = 0; i < kRows; ++i) {
    std::int32_t* const of_row = out + (m + i) * ops::kFragmentRows + line;
    const std::int32_t raised = V::kIsRaised ? 128 * args.x_sums[m + i] : 0;
#pragma GCC unroll 8
    for (int n = 0; n < kLines; ++n) {
      std::int32_t two[2];
      V::reduce(sums[i][n], two);
      of_row[n] = two[0] - raised;
      of_row[n + kInt8Lines] = two[1] - raised;
    }
  }
}

// Rows of x from m on. Returns how many.
template <class V>
int multiply_some(const Int8Product& args, std::int64_t tile, std::int64_t m, std::int32_t* out) {
  const auto left = static_cast<int>(std::min<std::int64_t>(args.num_rows - m, V::kRows));
  const auto in_halves = [&]<int kRows>() {
    for (const int line : {0, 4}) multiply_int8<V, kRows, 4>(args, tile, m, line, out);
    return kRows;
  };
  const auto whole = [&]<int kRows>() {
    multiply_int8<V, kRows, kInt8Lines>(args, tile, m, 0, out);
    return kRows;
  };
  if constexpr (V::kRows >= 6) {
    if (left == 6) return in_halves.template operator()<6>();
    if (left == 5) return in_halves.template operator()<5>();
    if (left == 4) return in_halves.template operator()<4>();
  }
  if constexpr (V::kFew >= 3)
    if (left >= 3) return whole.template operator()<3>();
  if constexpr (V::kFew >= 2) {
    if (left >= 2) return whole.template operator()<2>();
  } else if (left >= 2) {
    return in_halves.template operator()<2>();
  }
  return whole.template operator()<1>();
}

// Multiplies the sums of a tile [num_rows, 16] by both scales.
inline void scale_int8_tile(const Int8Product& args, std::int64_t tile, const std::int32_t* sums) {
  const auto scales = int8_scales(args, tile);
  const std::int64_t n = tile * ops::kFragmentRows,
                     count = std::min(ops::kFragmentRows, args.weight->rows - n);
  for (std::int64_t m = 0; m < args.num_rows; ++m, sums += ops::kFragmentRows) {
    float* const to = args.out + m * args.out_stride + n;
    for (std::int64_t i = 0; i < count; ++i)
      to[i] =
          static_cast<float>(sums[i]) * (args.x_scales[m] * scales[static_cast<std::size_t>(i)]);
  }
}

template <class V>
void multiply_int8_tiles(const Int8Product& args, std::int64_t first, std::int64_t last) {
  alignas(64) std::int32_t sums[kInt8BlockRows * ops::kFragmentRows];
  for (std::int64_t tile = first; tile < last; ++tile) {
    for (std::int64_t m = 0; m < args.num_rows;) m += multiply_some<V>(args, tile, m, sums);
    scale_int8_tile(args, tile, sums);
  }
}

}  // namespace
}  // namespace sluice::cpu
