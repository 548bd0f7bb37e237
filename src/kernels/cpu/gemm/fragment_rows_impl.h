// The product of fragment_rows.h over a vector type V. Included by fragment_rows_*.cpp inside their
// target pragmas.
//
// Each line of a unit belongs to rows r and r + 8 of the tile. Lanes of a vector are columns.
//
// V offers F with zero(), set1(), load(), store(), add(), mul(), fma() and sum(), and
// - kLanes, kMaxRows           8 or 16, and rows of x that share the reads of weights
// - words(p), nibbles(w, s)    lanes of 32 bits, and bits [s, s + 4) of each as a number
// - two_rows<kIsFp8>(p, a, b)  kLanes * 2 bytes, numbers of row r and of row r + 8
// - by_steps(a, b)             lanes 0 and 1 of each four are of a, lanes 2 and 3 of b
#pragma once

namespace sluice::cpu {

inline constexpr std::int64_t kFetchAhead = 6144;  // bytes: weights are read from memory

// Scales and negative zero points of a unit, [groups][16 rows] in the order of rows.
struct UnitScales {
  float scale[4][ops::kFragmentRows], zero[4][ops::kFragmentRows];
};

inline void read_scales(const FragmentProduct& args, const std::uint8_t* unit, UnitScales& out) {
  for (int g = 0; g < args.form.groups; ++g)
    for (int place = 0; place < ops::kFragmentRows; ++place) {
      const int row = place % 2 * 8 + place / 2;
      const std::uint8_t* from = unit + args.form.scale_at(g, row);
      float& scale = out.scale[g][row];
      if (args.form.scale_bytes == 4) {
        std::memcpy(&scale, from, sizeof scale);
      } else {
        std::uint16_t bits;
        std::memcpy(&bits, from, sizeof bits);
        scale = args.scale_is_bf16 ? std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16)
                                   : _cvtsh_ss(bits);
      }
      out.zero[g][row] = args.form.has_zeros ? -static_cast<float>(unit[args.form.zero_at(g, row)])
                                             : -static_cast<float>(args.form.middle());
    }
}

// Partial sums of rows r and r + 8 with kRows rows of x: two of each, so that additions overlap.
template <class V, int kRows>
struct LineSums {
  typename V::F of[kRows][2][2];  // [row of x][r, r + 8][way]
};

// Adds the products of one line of a piece.
template <class V, int kRows>
[[gnu::always_inline]] inline void add_nibbles(const std::uint8_t* line, const float* x,
                                               std::int64_t x_stride, LineSums<V, kRows>& sums) {
#pragma GCC unroll 2
  for (int c = 0; c < 16; c += V::kLanes) {
    const auto words = V::words(line + c * 4);
#pragma GCC unroll 8
    for (int nibble = 0; nibble < 8; ++nibble) {
      const typename V::F q = V::nibbles(words, nibble * 4);
      // register of the fragment: row and half of 16 columns; then odd columns
      const int reg = nibble % 4, odd = nibble / 4;
      const float* at = x + (reg / 2 * 2 + odd) * 16 + c;
#pragma GCC unroll 4
      for (int m = 0; m < kRows; ++m) {
        typename V::F& sum = sums.of[m][reg % 2][odd];
        sum = V::fma(q, V::load(at + m * x_stride), sum);
      }
    }
  }
}

template <class V, int kRows, bool kIsFp8>
[[gnu::always_inline]] inline void add_bytes(const std::uint8_t* line, const float* x,
                                             std::int64_t x_stride, LineSums<V, kRows>& sums) {
#pragma GCC unroll 4
  for (int c = 0; c < 32; c += V::kLanes) {
    typename V::F q[2];
    V::template two_rows<kIsFp8>(line + c * 2, q[0], q[1]);
#pragma GCC unroll 4
    for (int m = 0; m < kRows; ++m) {
      const typename V::F value = V::load(x + m * x_stride + c);
#pragma GCC unroll 2
      for (int half = 0; half < 2; ++half) {
        typename V::F& sum = sums.of[m][half][c / V::kLanes % 2];
        sum = V::fma(q[half], value, sum);
      }
    }
  }
}

// One tile with rows [m, m + kRows) of x.
template <class V, int kRows, int kBits, bool kIsFp8>
void multiply_tile(const FragmentProduct& args, std::int64_t tile, std::int64_t m) {
  constexpr int kPieceColumns = 256 / kBits, kPieces = ops::kFragmentColumns / kPieceColumns;
  const ops::FragmentUnit& form = args.form;
  // Pieces that share scales. A piece of four-bit codes may have two groups.
  const int together = std::max(1, kPieces / form.groups);
  const bool two_groups = form.groups > kPieces;
  const std::int64_t width = args.units * ops::kFragmentColumns;
  const float* x = args.x + m * args.x_stride;
  alignas(64) float total[kRows][ops::kFragmentRows][V::kLanes] = {};
  UnitScales scales;
  for (std::int64_t u = 0; u < args.units; ++u) {
    const std::uint8_t* unit = args.w + (tile * args.units + u) * form.bytes();
    read_scales(args, unit, scales);
    for (std::int64_t at = form.code_bytes(); m == 0 && at < form.bytes(); at += 64)
      __builtin_prefetch(unit + at + kFetchAhead);
    for (int p = 0; p < kPieces; p += together) {
      const std::int64_t piece = u * kPieces + p;
      const int group = p * form.groups / kPieces;
      typename V::F x_sum[kRows];
      for (int i = 0; i < kRows; ++i) {
        x_sum[i] = V::zero();
        const float* sums = x + i * args.x_stride + width + piece * 16;
        for (int s = 0; s < together * 16; s += V::kLanes)
          x_sum[i] = V::add(x_sum[i], V::load(sums + s));
      }
      for (int line = 0; line < 8; ++line) {
        const auto of_group = [&](const auto& values, int half) {
          const int row = line + 8 * half;
          const typename V::F first = V::set1(values[group][row]);
          return two_groups ? V::by_steps(first, V::set1(values[group + 1][row])) : first;
        };
        LineSums<V, kRows> sums;
        for (int half = 0; half < 2; ++half)
          for (int i = 0; i < kRows; ++i) {
            sums.of[i][half][0] =
                kBits == 4 ? V::mul(of_group(scales.zero, half), x_sum[i]) : V::zero();
            sums.of[i][half][1] = V::zero();
          }
        for (int k = 0; k < together; ++k) {
          const std::uint8_t* codes = unit + (p + k) * 512 + line * 64;
          const float* columns = x + (piece + k) * kPieceColumns;
          if (m == 0) __builtin_prefetch(codes + kFetchAhead);
          if constexpr (kBits == 4)
            add_nibbles<V, kRows>(codes, columns, args.x_stride, sums);
          else
            add_bytes<V, kRows, kIsFp8>(codes, columns, args.x_stride, sums);
        }
        for (int half = 0; half < 2; ++half) {
          const typename V::F scale = of_group(scales.scale, half);
          for (int i = 0; i < kRows; ++i) {
            float* to = total[i][line + 8 * half];
            const typename V::F sum = V::add(sums.of[i][half][0], sums.of[i][half][1]);
            V::store(to, V::fma(sum, scale, V::load(to)));
          }
        }
      }
    }
  }
  const std::int64_t first = tile * ops::kFragmentRows,
                     count = std::min(ops::kFragmentRows, args.out_rows - first);
  for (int i = 0; i < kRows; ++i)
    for (std::int64_t r = 0; r < count; ++r)
      args.out[(m + i) * args.out_stride + first + r] = V::sum(V::load(total[i][r]));
}

template <class V, int kBits, bool kIsFp8>
void multiply_tiles(const FragmentProduct& args, std::int64_t first_tile, std::int64_t last_tile) {
  for (std::int64_t tile = first_tile; tile < last_tile; ++tile) {
    std::int64_t m = 0;
    for (; m + V::kMaxRows <= args.num_rows; m += V::kMaxRows)
      multiply_tile<V, V::kMaxRows, kBits, kIsFp8>(args, tile, m);
    for (; m < args.num_rows; ++m) multiply_tile<V, 1, kBits, kIsFp8>(args, tile, m);
  }
}

template <class V>
void multiply_fragments(const FragmentProduct& args, std::int64_t first, std::int64_t last) {
  if (args.format == Format::kFp8)
    multiply_tiles<V, 8, true>(args, first, last);
  else if (args.form.bits == 8)
    multiply_tiles<V, 8, false>(args, first, last);
  else
    multiply_tiles<V, 4, false>(args, first, last);
}

}  // namespace sluice::cpu
