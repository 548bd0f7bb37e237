#include "kernels/cpu/gemm/fragment_rows.h"
#include "kernels/cpu/isa/isa_prelude.h"

#pragma GCC push_options
#pragma GCC target("avx512f,avx512bw,avx512vl,avx512dq,fma,f16c")

#include "kernels/cpu/gemm/fragment_rows_impl.h"

namespace sluice::cpu {
namespace {

// Masked forms with all lanes set: see vec_avx512.h.
struct Avx512Fragments {
  using F = __m512;
  static constexpr int kLanes = 16, kMaxRows = 4;

  static F zero() { return _mm512_setzero_ps(); }
  static F set1(float x) { return _mm512_set1_ps(x); }
  static F load(const float* p) { return _mm512_loadu_ps(p); }
  static void store(float* p, F x) { _mm512_storeu_ps(p, x); }
  static F add(F a, F b) { return _mm512_add_ps(a, b); }
  static F mul(F a, F b) { return _mm512_mul_ps(a, b); }
  static F fma(F a, F b, F c) { return _mm512_fmadd_ps(a, b, c); }
  static float sum(F a) {
    const __m256 half = _mm256_add_ps(_mm512_maskz_extractf32x8_ps(0xFF, a, 0),
                                      _mm512_maskz_extractf32x8_ps(0xFF, a, 1));
    const __m128 q = _mm_add_ps(_mm256_castps256_ps128(half), _mm256_extractf128_ps(half, 1));
    const __m128 pair = _mm_add_ps(q, _mm_movehl_ps(q, q));
    return _mm_cvtss_f32(_mm_add_ss(pair, _mm_shuffle_ps(pair, pair, 1)));
  }

  static __m512i words(const std::uint8_t* p) { return _mm512_loadu_si512(p); }
  static F nibbles(__m512i words, int shift) {
    const __m512i low = _mm512_maskz_srli_epi32(kAll, words, static_cast<unsigned>(shift));
    return _mm512_maskz_cvtepi32_ps(kAll, _mm512_and_si512(low, _mm512_set1_epi32(15)));
  }
  static F by_steps(F a, F b) { return _mm512_mask_blend_ps(0xCCCC, a, b); }

  // As Avx2Fragments::two_rows, for two lanes.
  template <bool kIsFp8>
  static void two_rows(const std::uint8_t* p, F& low, F& high) {
    const __m256i split =
        _mm256_shuffle_epi8(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)),
                            _mm256_setr_epi8(0, 1, 4, 5, 8, 9, 12, 13, 2, 3, 6, 7, 10, 11, 14, 15,
                                             0, 1, 4, 5, 8, 9, 12, 13, 2, 3, 6, 7, 10, 11, 14, 15));
    const __m256i rows = _mm256_permute4x64_epi64(split, 0xD8);
    low = numbers<kIsFp8>(_mm256_castsi256_si128(rows));
    high = numbers<kIsFp8>(_mm256_extracti128_si256(rows, 1));
  }

 private:
  static constexpr __mmask16 kAll = 0xFFFF;

  template <bool kIsFp8>
  static F numbers(__m128i bytes) {
    if constexpr (kIsFp8) {
      const __m512i high =
          _mm512_maskz_slli_epi32(kAll, _mm512_maskz_cvtepu8_epi32(kAll, bytes), 24);
      const __m512i placed = _mm512_and_si512(_mm512_maskz_srai_epi32(kAll, high, 4),
                                              _mm512_set1_epi32(static_cast<int>(0x87F00000u)));
      return _mm512_mul_ps(_mm512_castsi512_ps(placed), _mm512_set1_ps(0x1p120f));
    }
    const __m128i centred = _mm_xor_si128(bytes, _mm_set1_epi8(static_cast<char>(0x80)));
    return _mm512_maskz_cvtepi32_ps(kAll, _mm512_maskz_cvtepi8_epi32(kAll, centred));
  }
};

}  // namespace
}  // namespace sluice::cpu

#pragma GCC pop_options

namespace sluice::cpu {

FragmentRows avx512_fragment_rows() {
  return multiply_fragments<Avx512Fragments>;
}

}  // namespace sluice::cpu
