// dot_tile_product() for a dot type D with kInHalves (AVX2). Rows of x are widened to float once
// per panel and block of columns. In the inner loop x then costs one broadcast. Included by
// isa_avx2.cpp after tiles_impl.h and norm_impl.h.
#pragma once

namespace sluice::cpu {

template <class D>
void wide_tile_product(const TileProduct& a, std::int64_t m0, std::int64_t m1, std::int64_t t0,
                       std::int64_t t1) {
  using V = typename D::Vector;
  // Pairs of columns per block; a widened row of a block takes 2 KiB.
  constexpr std::int64_t kPairs = 256;
  alignas(64) float x[D::kMaxRows][2 * kPairs];
  const std::byte* rows_of_x[D::kMaxRows];
  for (int i = 0; i < D::kMaxRows; ++i) rows_of_x[i] = reinterpret_cast<const std::byte*>(x[i]);
  const std::int64_t tiles = (a.rows + 15) / 16, pairs = (a.columns + 1) / 2,
                     groups = (m1 - m0 + D::kMaxRows - 1) / D::kMaxRows;
  for (std::int64_t t = t0; t < t1;) {
    const std::int64_t panel = t / kPanelTiles, beside = t % kPanelTiles,
                       width = std::min(kPanelTiles, tiles - panel * kPanelTiles);
    // Passes over one block of weights: once per group of rows and per set of tiles.
    const std::int64_t count = std::min(t1 - t, width - beside), most = D::max_tiles(m1 - m0),
                       passes = groups * ((count + most - 1) / most);
    // The first passes over a block prefetch the next block, 1 or 2 lines with each pair of
    // columns.
    const int ahead = passes <= 3 ? 2 : 1;
    for (std::int64_t p = 0; p == 0 || p < pairs; p += kPairs) {
      const std::int64_t some_pairs = std::min(kPairs, pairs - p),
                         columns = std::min(2 * some_pairs, a.columns - 2 * p);
      TileBlock b;
      b.x = rows_of_x;
      b.w_step = width * kTileBytes;
      b.resume = p > 0;
      b.pair_end = some_pairs;
      b.out_stride = a.out_stride;
      const std::byte* w = a.w + (panel * kPanelTiles * pairs + p * width + beside) * kTileBytes;
      // The next block follows directly in memory; its prefetch is spread over the passes of this
      // one.
      const std::byte *next = w + some_pairs * b.w_step,
                      *end = next + some_pairs * count * kTileBytes;
      for (std::int64_t g = 0; g < groups; ++g) {
        // Rows are split into groups of equal size.
        const std::int64_t m = m0 + (m1 - m0) * g / groups,
                           rows = m0 + (m1 - m0) * (g + 1) / groups - m;
        for (std::int64_t i = 0; i < rows; ++i) {
          const auto* row =
              reinterpret_cast<const BF16*>(a.x + (a.x_rows == nullptr ? m + i : a.x_rows[m + i]) *
                                                      a.x_stride) +
              2 * p;
          for_lanes<V>(columns, [&](std::int64_t at, auto lanes) {
            lanes.store(x[i] + at, lanes.load(row + at));
          });
          // An odd last column becomes a pair whose upper half is zero.
          if (columns % 2 != 0) x[i][columns] = 0;
        }
        for (std::int64_t tile = 0; tile < count; tile += most) {
          const auto wide = static_cast<int>(std::min(most, count - tile));
          b.w = w + tile * kTileBytes;
          b.out = a.out + m * a.out_stride + (t + tile) * 16;
          b.last_lanes =
              static_cast<int>(std::min<std::int64_t>(16, a.rows - (t + tile + wide - 1) * 16));
          b.ahead = next;
          if (next >= end || m1 - m0 == 1)
            tile_block_any<D, 0, true>(static_cast<int>(rows), wide, b);
          else if (ahead == 2)
            tile_block_any<D, 2, true>(static_cast<int>(rows), wide, b);
          else
            tile_block_any<D, 1, true>(static_cast<int>(rows), wide, b);
          next += ahead * some_pairs * kTileBytes;
        }
      }
    }
    if (a.bias.data != nullptr)
      for (std::int64_t m = m0; m < m1; ++m)
        for (std::int64_t n = t * 16; n < std::min(a.rows, (t + count) * 16); ++n)
          a.out[m * a.out_stride + n] += weight_at<V>(a.bias, n);
    t += count;
  }
}

}  // namespace sluice::cpu
