// The products of bytes by VNNI. Included after quant_avx512_lanes.h, in each file anew like it.
#pragma once

namespace sluice::cpu {
namespace {

// vpdpbusd: four products and their sum in one instruction, without saturation.
struct Vnni : Avx512Lanes {
  static constexpr int most_rows(int tiles) { return tiles == 4 ? 3 : 6; }

  using W = I;
  using X = I;
  static W bytes(I line) { return line; }
  static W low_nibbles(I line) { return _mm512_and_si512(line, _mm512_set1_epi32(0x0F0F0F0F)); }
  static W high_nibbles(I line) { return low_nibbles(_mm512_maskz_srli_epi32(0xFFFF, line, 4)); }
  static X spread(const std::byte* p) {
    std::int32_t quad;
    std::memcpy(&quad, p, sizeof quad);
    return _mm512_set1_epi32(quad);
  }
  static I dot(I sum, W w, X x) { return _mm512_dpbusd_epi32(sum, w, x); }
};

}  // namespace
}  // namespace sluice::cpu
