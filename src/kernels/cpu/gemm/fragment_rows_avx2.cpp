#include "kernels/cpu/gemm/fragment_rows.h"
#include "kernels/cpu/isa/isa_prelude.h"

#include "kernels/cpu/gemm/fragment_rows_impl.h"

namespace sluice::cpu {
namespace {

struct Avx2Fragments {
  using F = __m256;
  static constexpr int kLanes = 8, kMaxRows = 2;

  static F zero() { return _mm256_setzero_ps(); }
  static F set1(float x) { return _mm256_set1_ps(x); }
  static F load(const float* p) { return _mm256_loadu_ps(p); }
  static void store(float* p, F x) { _mm256_storeu_ps(p, x); }
  static F add(F a, F b) { return _mm256_add_ps(a, b); }
  static F mul(F a, F b) { return _mm256_mul_ps(a, b); }
  static F fma(F a, F b, F c) { return _mm256_fmadd_ps(a, b, c); }
  static float sum(F a) {
    const __m128 q = _mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
    const __m128 pair = _mm_add_ps(q, _mm_movehl_ps(q, q));
    return _mm_cvtss_f32(_mm_add_ss(pair, _mm_shuffle_ps(pair, pair, 1)));
  }

  static __m256i words(const std::uint8_t* p) {
    return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
  }
  static F nibbles(__m256i words, int shift) {
    return _mm256_cvtepi32_ps(
        _mm256_and_si256(_mm256_srli_epi32(words, shift), _mm256_set1_epi32(15)));
  }
  static F by_steps(F a, F b) { return _mm256_blend_ps(a, b, 0xCC); }

  // A lane has, of each of two steps, two columns of row r, of row r + 8, and the same 8 columns
  // on.
  template <bool kIsFp8>
  static void two_rows(const std::uint8_t* p, F& low, F& high) {
    const __m128i rows =
        _mm_shuffle_epi8(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)),
                         _mm_setr_epi8(0, 1, 4, 5, 8, 9, 12, 13, 2, 3, 6, 7, 10, 11, 14, 15));
    low = numbers<kIsFp8>(rows), high = numbers<kIsFp8>(_mm_unpackhi_epi64(rows, rows));
  }

 private:
  template <bool kIsFp8>
  static F numbers(__m128i bytes) {
    if constexpr (kIsFp8) {
      // Sign, exponent and mantissa in the places of a float's: the number times 2^-120.
      const __m256i high = _mm256_slli_epi32(_mm256_cvtepu8_epi32(bytes), 24);
      const __m256i placed = _mm256_and_si256(_mm256_srai_epi32(high, 4),
                                              _mm256_set1_epi32(static_cast<int>(0x87F00000u)));
      return _mm256_mul_ps(_mm256_castsi256_ps(placed), _mm256_set1_ps(0x1p120f));
    }
    const __m128i centred = _mm_xor_si128(bytes, _mm_set1_epi8(static_cast<char>(0x80)));
    return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(centred));
  }
};

}  // namespace

FragmentRows avx2_fragment_rows() {
  return multiply_fragments<Avx2Fragments>;
}

}  // namespace sluice::cpu
