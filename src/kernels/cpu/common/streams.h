// GEMV memory access: how one row of x streams through the panels of a weight. Every weight is read
// once, so the prefetch order decides the speed. Included inside a target pragma.
#pragma once

namespace sluice::cpu {
namespace {

// Prefetches the line kNear bytes ahead into L1. If kFar > 0 it also prefetches the line kFar bytes
// ahead into L2. load_next() then loads the current line.
//
// Inline assembly keeps this order of instructions. The compiler's order reads memory an eighth
// (Zen 5) to a quarter (Sapphire Rapids) slower. It says what it reads, and clobbers no memory: so
// sums and tables stay in registers from line to line.
template <std::int64_t kNear, std::int64_t kFar>
[[gnu::always_inline]] inline void fetch_ahead(const std::byte* line) {
  if constexpr (kFar > 0) asm volatile("prefetcht1 %c1(%0)" : : "r"(line), "i"(kFar));
  asm volatile("prefetcht0 %c1(%0)" : : "r"(line), "i"(kNear));
}
template <class V>
[[gnu::always_inline]] inline V load_next(const std::byte* at) {
  V v;
  // As bytes, because a line need not be aligned for V.
  const auto& line = *reinterpret_cast<const std::byte(*)[sizeof v]>(at);
  if constexpr (sizeof v == 64)
    asm volatile("vmovdqu64 %1, %0" : "=v"(v) : "m"(line));
  else
    asm volatile("vmovdqu %1, %0" : "=x"(v) : "m"(line));
  return v;
}
template <class V, std::int64_t kNear, std::int64_t kFar>
[[gnu::always_inline]] inline V next_line(const std::byte* line) {
  fetch_ahead<kNear, kFar>(line);
  return load_next<V>(line);
}

// Tiles [t0, t1) of panels of kPanelTiles tiles, for one row of x. Whole panels are processed two
// at a time, as two streams: panel t of the first half with panel t + half of the second. Each
// stream reads neighbouring panels, so its prefetches fetch its own next panel.
// - one(t, t1) processes the panel at tile t, up to t1 at most, and returns the tile after it.
// - two(t, u) processes the whole panels at tiles t and u.
template <std::int64_t kPanelTiles, class One, class Two>
void in_two_streams(std::int64_t t0, std::int64_t t1, const One& one, const Two& two) {
  if (t0 % kPanelTiles != 0 && t0 < t1) t0 = one(t0, t1);
  const std::int64_t half = std::max<std::int64_t>(0, t1 - t0) / kPanelTiles / 2 * kPanelTiles;
  for (std::int64_t t = t0; t < t0 + half; t += kPanelTiles) two(t, t + half);
  for (std::int64_t t = t0 + 2 * half; t < t1;) t = one(t, t1);
}

// The same for tiles [t0, t1) and for the tiles `tile_distance` further on (gate and up projections
// of the same columns). Each stream continues where the caller's next call starts.
template <std::int64_t kPanelTiles, class One, class Two>
void in_paired_streams(std::int64_t t0, std::int64_t t1, std::int64_t tile_distance, const One& one,
                       const Two& two) {
  if (t0 % kPanelTiles == 0 && tile_distance % kPanelTiles == 0)
    for (; t0 + kPanelTiles <= t1; t0 += kPanelTiles) two(t0, tile_distance + t0);
  in_two_streams<kPanelTiles>(t0, t1, one, two);
  in_two_streams<kPanelTiles>(tile_distance + t0, tile_distance + t1, one, two);
}

}  // namespace
}  // namespace sluice::cpu
