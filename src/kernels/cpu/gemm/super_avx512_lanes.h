// Vector operations of super-blocks, beyond those of quant_avx512_lanes.h. Included after it,
// separately in each file.
#pragma once

namespace sluice::cpu {
namespace {

struct Avx512SuperLanes : Avx512Lanes {
  static constexpr int kTilesOfManyRows = 2;

  static F fma_negated(F a, F b, F c) { return _mm512_fnmadd_ps(a, b, c); }
  static I multiply(I a, I b) { return _mm512_mullo_epi32(a, b); }
  static I spread_table(const std::uint8_t* bytes) {
    return _mm512_maskz_broadcast_i32x4(0xFFFF,
                                        _mm_loadu_si128(reinterpret_cast<const __m128i*>(bytes)));
  }
  static I look_up(I table, I nibbles) { return _mm512_shuffle_epi8(table, nibbles); }
  static I spread_bytes(const std::byte* p) {
    return _mm512_maskz_cvtepu8_epi32(0xFFFF, _mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
  }
  static I spread_signed_bytes(const std::byte* p) {
    return _mm512_maskz_cvtepi8_epi32(0xFFFF, _mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
  }
};

}  // namespace
}  // namespace sluice::cpu
