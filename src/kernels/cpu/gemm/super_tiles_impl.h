// GEMM with weights in GGUF's blocks (super_layout.h) over lanes D. Included by super_*.cpp inside
// their target pragma, after streams.h.
//
// D has vectors F of kLanes floats and I of kLanes 32-bit integers. dot() adds four terms of
// unsigned times signed bytes to every integer, exactly, if the unsigned ones are below 64. For
// tables with larger values there is dot_wide(), whose weights are signed, or (kWideOffset is 128)
// unsigned with that offset.
//
// Per group of 32 columns:
// 1. start values of the integer sums, from the sums of x,
// 2. the dot products of all lines, whose bits become bytes,
// 3. the sums times their scales, exact, added to the block's float32 sums.
// After its groups a block's sums are multiplied with d and d_min. One row of x waits for memory,
// so each line is prefetched in the order of memory; more rows share the bytes that were made.
#pragma once

namespace sluice::cpu {
namespace {

// One call of the inner kernel: some rows of x and some neighbouring tiles of one panel.
struct SuperPart {
  const std::byte* const* x = nullptr;
  const std::byte* block = nullptr;  // block 0 of the panel
  std::int64_t width = 0;            // tiles of the panel
  std::int64_t beside = 0;           // first tile in it
  int last_lanes = 16;               // existing rows of the last tile
  float* out = nullptr;
  std::int64_t out_stride = 0;
};

// Members of a SuperGroup are loaded one by one: each is then broadcast directly from memory.
template <class T>
[[gnu::always_inline]] inline T member_at(const std::byte* info, std::size_t offset,
                                          int index = 0) {
  T value;
  std::memcpy(&value, info + offset + static_cast<std::size_t>(index) * sizeof value, sizeof value);
  return value;
}

template <class D>
struct SuperLanes : D {
  using I = typename D::I;
  typedef std::uint32_t Words [[gnu::vector_size(sizeof(I))]];
  template <int kBits>
  static I left(I x) {
    if constexpr (kBits >= 0) return (I)((Words)x << kBits);
    return (I)((Words)x >> -kBits);
  }
  // The bytes of x shifted left by kBits (right if it is negative), with only the bits of `mask`.
  template <int kBits>
  [[gnu::always_inline]] static I bits(I x, std::int32_t mask) {
    return left<kBits>(x) & D::spread_int(mask);
  }
  // 2^(s - 128) of bytes s, of which the lowest two are subnormal.
  [[gnu::always_inline]] static typename D::F powers(const std::byte* bytes) {
    const Words s = (Words)D::spread_bytes(bytes);
    const Words normal = (s + (Words)(s > 0)) << 23, two = (Words)(s == 1) & 0x00400000,
                one = (Words)(s == 0) & 0x00200000;
    return (typename D::F)(((Words)(s > 1) & normal) | two | one);
  }
};

constexpr bool is_wide(const SuperTraits& traits) {
  return traits.values == SuperValues::kIQ4;
}
// Subtracted from the bytes of weights.
template <class D>
constexpr int offset_of(const SuperTraits& traits) {
  return is_wide(traits) ? D::kWideOffset : traits.offset;
}
// The bytes of a table's values.
struct SuperTable {
  std::uint8_t bytes[16] = {};
};
template <class D>
constexpr SuperTable table_of(const SuperTraits& traits) {
  SuperTable table;
  for (int i = 0; i < 16; ++i)
    table.bytes[i] = static_cast<std::uint8_t>(traits.value(i) + offset_of<D>(traits));
  return table;
}

// The bytes of weights in low line kLine: those of its field kField. `high` are the high lines.
template <class D, SuperKind kKind, int kLine, int kField>
[[gnu::always_inline]] inline typename D::I weights_of(typename D::I line,
                                                       const typename D::I* high) {
  using L = SuperLanes<D>;
  constexpr SuperTraits kTraits = super_traits(kKind);
  if constexpr (kTraits.low_lines == 2) {
    const typename D::I low = L::template bits<-2 * kField>(line, 0x03030303);
    if constexpr (kTraits.high_lines == 0) return low;
    return low | L::template bits<2 - kField - 4 * kLine>(high[0], 0x04040404);
  } else {
    const typename D::I low = L::template bits<-4 * kField>(line, 0x0F0F0F0F);
    if constexpr (kTraits.high_lines == 0) return low;
    if constexpr (kTraits.high_lines == 1)
      return low | L::template bits<4 - kLine - 4 * kField>(high[0], 0x10101010);
    return low | L::template bits<4 - 2 * kLine>(high[kField], 0x30303030);
  }
}

// MR rows of x, NT tiles.
template <class D, SuperKind kKind, class Ahead, int MR, int NT>
void super_part(const SuperPart& a, const SuperLayout& layout) {
  constexpr SuperTraits kTraits = super_traits(kKind);
  constexpr int kLanes = D::kLanes, kVectors = 16 / kLanes, kAll = NT * kVectors;
  // Integer sums of a group.
  constexpr int kHalves = kTraits.halves == 2 ? 2 : 1, kHigh = kTraits.high_lines;
  constexpr bool kScaled = kTraits.halves > 0, kIsTable = kTraits.values != SuperValues::kNone;
  using F = typename D::F;
  using I = typename D::I;
  F acc[MR][kAll];
#pragma GCC unroll 8
  for (int m = 0; m < MR; ++m)
#pragma GCC unroll 8
    for (int v = 0; v < kAll; ++v) acc[m][v] = D::zero();
  const std::int64_t width = a.width, line_step = width * SuperLayout::kLineBytes,
                     scale_step = SuperLayout::scale_bytes(width),
                     group_step = layout.group_bytes(width);
  const auto fetch = [&](const std::byte* at) __attribute__((always_inline)) {
    if constexpr (MR == 1) fetch_ahead<Ahead::kNear, Ahead::kFar>(at);
  };
  [[maybe_unused]] I table{};
  if constexpr (kIsTable) {
    static constexpr SuperTable kTable = table_of<D>(kTraits);
    table = D::spread_table(kTable.bytes);
  }
  const std::byte* block = a.block;
  for (std::int64_t b = 0; b < layout.blocks; ++b, block += layout.block_bytes(width)) {
    F scaled[MR][kAll], lowered[MR][kAll];
#pragma GCC unroll 8
    for (int m = 0; m < MR; ++m)
#pragma GCC unroll 8
      for (int v = 0; v < kAll; ++v) scaled[m][v] = lowered[m][v] = D::zero();
    const std::byte* halves = block + a.beside * (kTraits.power_of_two ? 16 : 32);
    for (std::int64_t at = 0; at < layout.head_bytes(width); at += 64) fetch(block + at);
    const std::byte* group = block + layout.head_bytes(width);
    for (int g = 0; g < kTraits.groups; ++g, group += group_step) {
      const std::byte* scales = group + a.beside * 16;
      const std::byte* lines = group + layout.lines_at(width) + a.beside * SuperLayout::kLineBytes;
      const std::int64_t column = b * kTraits.columns() + g * SuperLayout::kGroup;
      const std::byte* info[MR];
      for (std::int64_t at = 0; at < layout.lines_at(width); at += 64) fetch(group + at);
      // 1. Of each half of the columns where these have their own scales.
      I sum[MR][kHalves][kAll];
#pragma GCC unroll 8
      for (int m = 0; m < MR; ++m) {
        info[m] = a.x[m] + layout.x_group_at() +
                  (b * kTraits.groups + g) * static_cast<std::int64_t>(sizeof(SuperGroup));
#pragma GCC unroll 2
        for (int h = 0; h < kHalves; ++h) {
          std::int32_t first = 0;
          if constexpr (offset_of<D>(kTraits) != 0) {
            first = member_at<std::int32_t>(info[m], offsetof(SuperGroup, sum), h);
            if constexpr (kHalves == 1)
              first += member_at<std::int32_t>(info[m], offsetof(SuperGroup, sum), 1);
            first *= -offset_of<D>(kTraits);
          }
          const I start = D::spread_int(first);
#pragma GCC unroll 8
          for (int v = 0; v < kAll; ++v) sum[m][h][v] = start;
        }
      }
      // 2.
      I high[kHigh > 0 ? kAll : 1][kHigh > 0 ? kHigh : 1];
      const auto line_at = [&](int line, int v) __attribute__((always_inline)) {
        const std::byte* at = lines + line * line_step + v / kVectors * SuperLayout::kLineBytes +
                              v % kVectors * 4 * kLanes;
        if constexpr (MR > 1) return D::load_line(at);
        if (v % kVectors == 0) fetch(at);
        return load_next<I>(at);
      };
      if constexpr (kHigh > 0) {
#pragma GCC unroll 2
        for (int l = 0; l < kHigh; ++l)
#pragma GCC unroll 8
          for (int v = 0; v < kAll; ++v) high[v][l] = line_at(l, v);
      }
      const auto add_field =
          [&]<int kLine, int kField>(const I(&line)[kAll]) __attribute__((always_inline)) {
            // Nibbles of a line belong to two halves, pairs of bits to the line's.
            constexpr bool kPairs = kTraits.low_lines == 2;
            constexpr int kFirst = kPairs ? 16 * kLine + 4 * kField : 16 * kField + 4 * kLine;
            constexpr int kHalf = kHalves == 1 ? 0 : kFirst / 16;
            I x[MR];
#pragma GCC unroll 8
            for (int m = 0; m < MR; ++m) x[m] = D::spread_quad(a.x[m] + column + kFirst);
#pragma GCC unroll 8
            for (int v = 0; v < kAll; ++v) {
              I w = weights_of<D, kKind, kLine, kField>(line[v], high[kHigh > 0 ? v : 0]);
              if constexpr (kIsTable) w = D::look_up(table, w);
#pragma GCC unroll 8
              for (int m = 0; m < MR; ++m)
                sum[m][kHalf][v] = is_wide(kTraits) ? D::dot_wide(sum[m][kHalf][v], w, x[m])
                                                    : D::dot(sum[m][kHalf][v], w, x[m]);
            }
          };
      const auto add_line = [&]<int kLine>() __attribute__((always_inline)) {
        I line[kAll];
#pragma GCC unroll 8
        for (int v = 0; v < kAll; ++v) line[v] = line_at(kHigh + kLine, v);
        add_field.template operator()<kLine, 0>(line);
        add_field.template operator()<kLine, 1>(line);
        if constexpr (kTraits.low_lines == 2) {
          add_field.template operator()<kLine, 2>(line);
          add_field.template operator()<kLine, 3>(line);
        }
      };
      add_line.template operator()<0>();
      add_line.template operator()<1>();
      if constexpr (kTraits.low_lines == 4) {
        add_line.template operator()<2>();
        add_line.template operator()<3>();
      }
      // 3.
#pragma GCC unroll 8
      for (int v = 0; v < kAll; ++v) {
        if constexpr (!kScaled) {
#pragma GCC unroll 8
          for (int m = 0; m < MR; ++m) {
            const F e = D::set1(member_at<float>(info[m], offsetof(SuperGroup, scale)));
            scaled[m][v] = D::mul(D::to_float(sum[m][0][v]), e);
            if constexpr (kTraits.minima)
              lowered[m][v] = D::set1(member_at<float>(info[m], offsetof(SuperGroup, whole)));
          }
          continue;
        }
        const std::byte* at = scales + v * kLanes;
        I scale[kHalves], minimum[kHalves];
#pragma GCC unroll 2
        for (int h = 0; h < kHalves; ++h) {
          scale[h] = kTraits.minima ? D::spread_bytes(at + h * scale_step)
                                    : D::spread_signed_bytes(at + h * scale_step);
          if constexpr (kTraits.packed_minima) {
            minimum[h] = SuperLanes<D>::template left<-4>(scale[h]);
            scale[h] = scale[h] & D::spread_int(15);
          }
        }
        if constexpr (kTraits.minima && !kTraits.packed_minima)
          minimum[0] = D::spread_bytes(at + layout.minima_at(width));
#pragma GCC unroll 8
        for (int m = 0; m < MR; ++m) {
          I product = D::multiply(sum[m][0][v], scale[0]);
          if constexpr (kHalves == 2)
            product = D::add32(product, D::multiply(sum[m][1][v], scale[1]));
          const F e = D::set1(member_at<float>(info[m], offsetof(SuperGroup, scale)));
          scaled[m][v] = D::fma(D::to_float(product), e, scaled[m][v]);
          if constexpr (kTraits.minima && kHalves == 1) {
            const F whole = D::set1(member_at<float>(info[m], offsetof(SuperGroup, whole)));
            lowered[m][v] = D::fma(D::to_float(minimum[0]), whole, lowered[m][v]);
          }
          if constexpr (kTraits.minima && kHalves == 2)
#pragma GCC unroll 2
            for (int h = 0; h < 2; ++h) {
              const F half = D::set1(member_at<float>(info[m], offsetof(SuperGroup, half), h));
              lowered[m][v] = D::fma(D::to_float(minimum[h]), half, lowered[m][v]);
            }
        }
      }
    }
#pragma GCC unroll 8
    for (int v = 0; v < kAll; ++v) {
      const F d = kTraits.power_of_two ? SuperLanes<D>::powers(halves + v * kLanes)
                                       : D::load_halves(halves + v * 2 * kLanes);
#pragma GCC unroll 8
      for (int m = 0; m < MR; ++m) acc[m][v] = D::fma(scaled[m][v], d, acc[m][v]);
      if constexpr (kTraits.minima) {
        const F d_min = D::load_halves(halves + SuperLayout::half_bytes(width) + v * 2 * kLanes);
#pragma GCC unroll 8
        for (int m = 0; m < MR; ++m)
          acc[m][v] = kScaled ? D::fma_negated(lowered[m][v], d_min, acc[m][v])
                              : D::fma(lowered[m][v], d_min, acc[m][v]);
      }
    }
  }
#pragma GCC unroll 8
  for (int m = 0; m < MR; ++m)
#pragma GCC unroll 8
    for (int v = 0; v < kAll; ++v) {
      const int lanes = v / kVectors + 1 < NT
                            ? kLanes
                            : std::clamp(a.last_lanes - v % kVectors * kLanes, 0, kLanes);
      if (lanes > 0) D::store_n(a.out + m * a.out_stride + v * kLanes, acc[m][v], lanes);
    }
}

template <class D, SuperKind kKind, class Ahead, int MR>
void super_tiles(int tiles, const SuperPart& a, const SuperLayout& layout) {
  if constexpr (MR == 1) {
    if (tiles == 4) return super_part<D, kKind, Ahead, 1, 4>(a, layout);
    if (tiles == 3) return super_part<D, kKind, Ahead, 1, 3>(a, layout);
  }
  if (tiles == 2) return super_part<D, kKind, Ahead, MR, 2>(a, layout);
  super_part<D, kKind, Ahead, MR, 1>(a, layout);
}

// Rows of x that stay in L2 while the weights pass.
inline constexpr std::int64_t kSuperRowsAtOnce = 128;

template <class D, SuperKind kKind, class Ahead>
void super_product(const TileProduct& a, std::int64_t m0, std::int64_t m1, std::int64_t t0,
                   std::int64_t t1) {
  const SuperLayout layout(kKind, a.rows, a.columns);
  for (std::int64_t first = m0; first < m1; first += kSuperRowsAtOnce) {
    const std::int64_t last = std::min(m1, first + kSuperRowsAtOnce);
    for (std::int64_t t = t0; t < t1;) {
      const std::int64_t panel = t / SuperLayout::kPanelTiles,
                         beside = t % SuperLayout::kPanelTiles, width = layout.panel_width(panel);
      const std::int64_t together = m1 - m0 == 1 ? 4 : D::kTilesOfManyRows;
      const auto tiles = static_cast<int>(std::min({t1 - t, width - beside, together}));
      for (std::int64_t m = first; m < last;) {
        const std::byte* x[4];
        const std::int64_t rows = last - m >= 4 ? 4 : last - m >= 2 ? 2 : 1;
        for (std::int64_t i = 0; i < rows; ++i)
          x[i] = a.x + (a.x_rows == nullptr ? m + i : a.x_rows[m + i]) * a.x_stride;
        const SuperPart part{.x = x,
                             .block = a.w + layout.panel_at(panel),
                             .width = width,
                             .beside = beside,
                             .last_lanes = static_cast<int>(
                                 std::min<std::int64_t>(16, a.rows - (t + tiles - 1) * 16)),
                             .out = a.out + m * a.out_stride + t * 16,
                             .out_stride = a.out_stride};
        if (rows == 4)
          super_tiles<D, kKind, Ahead, 4>(tiles, part, layout);
        else if (rows == 2)
          super_tiles<D, kKind, Ahead, 2>(tiles, part, layout);
        else
          super_tiles<D, kKind, Ahead, 1>(tiles, part, layout);
        m += rows;
      }
      if (a.bias.data != nullptr)
        for (std::int64_t m = first; m < last; ++m)
          for (std::int64_t n = t * 16; n < std::min(a.rows, (t + tiles) * 16); ++n)
            a.out[m * a.out_stride + n] += bias_at<D>(a.bias, n);
      t += tiles;
    }
  }
}

template <class D, class Ahead>
constexpr SuperProducts super_products() {
  return []<std::size_t... kKinds>(std::index_sequence<kKinds...>) {
    return SuperProducts{{super_product<D, static_cast<SuperKind>(kKinds), Ahead>...}};
  }(std::make_index_sequence<kNumSuperKinds>());
}

}  // namespace
}  // namespace sluice::cpu
