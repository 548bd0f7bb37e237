// How one row of x goes through panels of weights, which it reads once: lines fetched ahead, and
// panels side by side. Included inside a target pragma.
#pragma once

namespace sluice::cpu {
namespace {

// Fetches the lines kNear bytes further on and, into the second-level cache, kFar bytes (0: none),
// and then loads what lies at `line`. The compiler puts these instructions in another order, in
// which processors read memory an eighth (Zen 5) to a quarter (Sapphire Rapids) slower.
template <std::int64_t kNear, std::int64_t kFar>
[[gnu::always_inline]] inline void fetch_ahead(const std::byte* line) {
  if constexpr (kFar > 0) asm volatile("prefetcht1 %c1(%0)" : : "r"(line), "i"(kFar));
  asm volatile("prefetcht0 %c1(%0)" : : "r"(line), "i"(kNear));
}
template <class V>
[[gnu::always_inline]] inline V load_next(const std::byte* at) {
  V v;
  if constexpr (sizeof v == 64)
    asm volatile("vmovdqu64 (%1), %0" : "=v"(v) : "r"(at) : "memory");
  else
    asm volatile("vmovdqu (%1), %0" : "=x"(v) : "r"(at) : "memory");
  return v;
}
template <class V, std::int64_t kNear, std::int64_t kFar>
[[gnu::always_inline]] inline V next_line(const std::byte* line) {
  fetch_ahead<kNear, kFar>(line);
  return load_next<V>(line);
}

// Tiles [t0, t1) of panels of kPanelTiles for one row of x, two panels side by side where there are
// two: one(t, t1) takes what is left before t1 of the panel at tile t and returns the tile after
// it, two(t, u) takes the whole panels at t and at u. Either stream has neighbouring panels, so
// that what it fetches ahead is what it reads next.
template <std::int64_t kPanelTiles, class One, class Two>
void in_two_streams(std::int64_t t0, std::int64_t t1, const One& one, const Two& two) {
  if (t0 % kPanelTiles != 0 && t0 < t1) t0 = one(t0, t1);
  const std::int64_t half = std::max<std::int64_t>(0, t1 - t0) / kPanelTiles / 2 * kPanelTiles;
  for (std::int64_t t = t0; t < t0 + half; t += kPanelTiles) two(t, t + half);
  for (std::int64_t t = t0 + 2 * half; t < t1;) t = one(t, t1);
}

// The same for tiles [t0, t1) and as many `apart` tiles further on: either stream goes on where the
// caller's next tiles are.
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
