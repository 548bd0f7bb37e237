// Dot products of bytes with VNNI. Included after quant_avx512_lanes.h, separately in each file.
#pragma once

namespace sluice::cpu {
namespace {

// vpdpbusd: four multiplications and their sum per lane in one instruction, without saturation.
struct VnniDots {
  using W = __m512i;
  using X = __m512i;
  using Part = __m512i;
  static constexpr int kLinesAtOnce = 4;
  static constexpr bool kSettles = false;

  static W bytes(__m512i line) { return line; }
  static W low_nibbles(__m512i line) {
    return _mm512_and_si512(line, _mm512_set1_epi32(0x0F0F0F0F));
  }
  static W high_nibbles(__m512i line) {
    return low_nibbles(_mm512_maskz_srli_epi32(0xFFFF, line, 4));
  }
  static X spread(const std::byte* p) { return Avx512Lanes::spread_quad(p); }
  static Part begin(__m512i sum) { return sum; }
  static Part dot(Part part, W w, X x) { return _mm512_dpbusd_epi32(part, w, x); }
  static __m512i settle(__m512i, Part part) { return part; }
};

struct Vnni : Avx512Lanes {
  template <bool>
  using Dots = VnniDots;
  template <bool>
  using RowDots = VnniDots;
  static constexpr auto kFetchHint = _MM_HINT_T0;
  static constexpr bool fetches_by_line(std::int64_t) { return false; }
  static constexpr std::int64_t groups_ahead(std::int64_t) { return 0; }
  static std::int64_t block_bytes() { return first_level_cache_bytes() / 4 * 3; }
  static constexpr int kTilesOfManyRows = 2;
  static constexpr int max_rows(int tiles) { return tiles == 4 ? 3 : 6; }
  static constexpr int vectors_at_once(bool) { return 4; }
};

}  // namespace
}  // namespace sluice::cpu
