// Vector operations shared by the AVX2 quantised kernels. Included in each such file; the anonymous
// namespace keeps the functions in that file.
#pragma once

#include "kernels/cpu/isa/isa_prelude.h"

namespace sluice::cpu {
namespace {

struct Avx2Lanes {
  using F = __m256;
  using I = __m256i;
  static constexpr int kLanes = 8;
  static constexpr bool kHoldsScales = false;

  static F zero() { return _mm256_setzero_ps(); }
  static F set1(float x) { return _mm256_set1_ps(x); }
  static F mul(F a, F b) { return _mm256_mul_ps(a, b); }
  static F fma(F a, F b, F c) { return _mm256_fmadd_ps(a, b, c); }
  static F to_float(I a) { return _mm256_cvtepi32_ps(a); }
  static F load_halves(const std::byte* p) {
    return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
  }
  static F load_n(const float* p, int n) { return _mm256_maskload_ps(p, mask(n)); }
  static void store_n(float* p, F x, int n) { _mm256_maskstore_ps(p, mask(n), x); }
  static I spread_int(std::int32_t x) { return _mm256_set1_epi32(x); }
  static I spread_quad(const std::byte* p) {
    std::int32_t quad;
    std::memcpy(&quad, p, sizeof quad);
    return _mm256_set1_epi32(quad);
  }
  static I load_line(const std::byte* p) {
    return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
  }
  static I madd(I a, I b) { return _mm256_madd_epi16(a, b); }
  static I add32(I a, I b) { return _mm256_add_epi32(a, b); }

 private:
  static __m256i mask(int n) {
    return _mm256_cmpgt_epi32(_mm256_set1_epi32(n), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
  }
};

}  // namespace
}  // namespace sluice::cpu
