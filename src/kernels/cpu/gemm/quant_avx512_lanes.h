// Vector operations shared by the AVX-512 quantised kernels. Included in each such file after its
// target pragma; the anonymous namespace keeps the functions in that file.
#pragma once

#include "kernels/cpu/isa/isa_prelude.h"

namespace sluice::cpu {
namespace {

struct Avx512Lanes {
  using F = __m512;
  using I = __m512i;
  static constexpr int kLanes = 16;
  static constexpr bool kHoldsScales = true;  // scales of a group stay in registers

  static F zero() { return _mm512_setzero_ps(); }
  static F set1(float x) { return _mm512_set1_ps(x); }
  static F mul(F a, F b) { return _mm512_mul_ps(a, b); }
  static F fma(F a, F b, F c) { return _mm512_fmadd_ps(a, b, c); }
  static F to_float(I a) { return _mm512_maskz_cvtepi32_ps(0xFFFF, a); }
  static F load_halves(const std::byte* p) {
    return _mm512_maskz_cvtph_ps(0xFFFF, _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
  }
  static F load_n(const float* p, int n) { return _mm512_maskz_loadu_ps(mask(n), p); }
  static void store_n(float* p, F x, int n) { _mm512_mask_storeu_ps(p, mask(n), x); }
  static I spread_int(std::int32_t x) { return _mm512_set1_epi32(x); }
  static I spread_quad(const std::byte* p) {
    std::int32_t quad;
    std::memcpy(&quad, p, sizeof quad);
    return _mm512_set1_epi32(quad);
  }
  static I madd(I a, I b) { return _mm512_madd_epi16(a, b); }
  static I add32(I a, I b) { return _mm512_add_epi32(a, b); }
  static I load_line(const std::byte* p) { return _mm512_loadu_si512(p); }

 private:
  static __mmask16 mask(int n) { return static_cast<__mmask16>((1u << n) - 1u); }
};

}  // namespace
}  // namespace sluice::cpu
