// The vector type of the AVX-512 kernels: 16 floats. Included by isa_avx512.cpp inside its target
// pragma. vec_avx2.h documents the members.
//
// Masked intrinsics with all lanes set compile to the plain instructions. They are used because g++
// 12 warns of uninitialised variables in the plain intrinsics.
#pragma once

namespace sluice::cpu {

struct Avx512 {
  using F = __m512;
  static constexpr int kLanes = 16;
  static constexpr int kTileRows = 6;

  static F zero() { return _mm512_setzero_ps(); }
  static F set1(float x) { return _mm512_set1_ps(x); }
  static F add(F a, F b) { return _mm512_add_ps(a, b); }
  static F sub(F a, F b) { return _mm512_sub_ps(a, b); }
  static F mul(F a, F b) { return _mm512_mul_ps(a, b); }
  static F div(F a, F b) { return _mm512_div_ps(a, b); }
  static F fma(F a, F b, F c) { return _mm512_fmadd_ps(a, b, c); }
  static F fnma(F a, F b, F c) { return _mm512_fnmadd_ps(a, b, c); }
  static F max(F a, F b) { return _mm512_maskz_max_ps(kAll, a, b); }
  static F min(F a, F b) { return _mm512_maskz_min_ps(kAll, a, b); }
  static F round(F a) {
    return _mm512_maskz_roundscale_ps(kAll, a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
  }
  static F scale_by_power(F y, F n) { return _mm512_maskz_scalef_ps(kAll, y, n); }

  static F load(const float* p) { return _mm512_loadu_ps(p); }
  static F load(const BF16* p) {
    return widen(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
  }
  static F load(const F16* p) {
    return _mm512_maskz_cvtph_ps(kAll, _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
  }
  static F load(const std::int8_t* p) {
    return widen(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
  }
  static F load(const ops::E4M3* p) {
    return widen_e4m3(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
  }
  static F low_halves(const std::byte* p) {
    return _mm512_castsi512_ps(_mm512_maskz_slli_epi32(kAll, _mm512_loadu_si512(p), 16));
  }
  static F high_halves(const std::byte* p) {
    return _mm512_castsi512_ps(
        _mm512_and_si512(_mm512_loadu_si512(p), _mm512_set1_epi32(static_cast<int>(0xFFFF0000u))));
  }
  static F load_n(const float* p, int n) { return _mm512_maskz_loadu_ps(mask(n), p); }
  static F load_n(const BF16* p, int n) { return widen(_mm256_maskz_loadu_epi16(mask(n), p)); }
  static F load_n(const std::int8_t* p, int n) { return widen(_mm_maskz_loadu_epi8(mask(n), p)); }
  static F load_n(const ops::E4M3* p, int n) {
    return widen_e4m3(_mm_maskz_loadu_epi8(mask(n), p));
  }
  static F load_n(const F16* p, int n) {
    return _mm512_maskz_cvtph_ps(kAll, _mm256_maskz_loadu_epi16(mask(n), p));
  }
  static void store(float* p, F x) { _mm512_storeu_ps(p, x); }
  static void store(BF16* p, F x) { _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), narrow(x)); }
  static void store_n(float* p, F x, int n) { _mm512_mask_storeu_ps(p, mask(n), x); }
  static void store_n(BF16* p, F x, int n) { _mm256_mask_storeu_epi16(p, mask(n), narrow(x)); }

  // Transposes pairs of elements [first, first + 32) of 16 rows. Line i at out + i * step holds
  // elements 2i and 2i + 1 of every row.
  static void transpose_pairs(const BF16* const* rows, std::int64_t first, std::byte* out,
                              std::int64_t step) {
    // Eight rows at a time in 256-bit registers: the processor shuffles twice as many of them per
    // cycle as 512-bit ones. Loading 128-bit quarters into their final places leaves two shuffle
    // steps.
    for (int half = 0; half < 16; half += 8) {
      const BF16* const* from = rows + half;
      const auto quarters = [&](int r, std::int64_t at) __attribute__((always_inline)) {
        return _mm256_inserti128_si256(
            _mm256_castsi128_si256(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from[r] + at))),
            _mm_loadu_si128(reinterpret_cast<const __m128i*>(from[4 + r] + at)), 1);
      };
      const auto put = [&](int line, __m256i x) __attribute__((always_inline)) {
        _mm256_storeu_si256(reinterpret_cast<__m256i*>(out + line * step + half * 4), x);
      };
#pragma GCC unroll 4
      for (int q = 0; q < 4; ++q) {
        const std::int64_t at = first + 8 * q;
        const __m256i a = quarters(0, at), b = quarters(1, at), c = quarters(2, at),
                      d = quarters(3, at);
        const __m256i ab0 = _mm256_unpacklo_epi32(a, b), ab2 = _mm256_unpackhi_epi32(a, b);
        const __m256i cd0 = _mm256_unpacklo_epi32(c, d), cd2 = _mm256_unpackhi_epi32(c, d);
        put(4 * q, _mm256_unpacklo_epi64(ab0, cd0));
        put(4 * q + 1, _mm256_unpackhi_epi64(ab0, cd0));
        put(4 * q + 2, _mm256_unpacklo_epi64(ab2, cd2));
        put(4 * q + 3, _mm256_unpackhi_epi64(ab2, cd2));
      }
    }
  }
  // Writes one line of 64 bytes: n <= 16 elements of a and b interleaved, then zeros.
  static void zip(const BF16* a, const BF16* b, int n, std::byte* out) {
    const __m512i low = _mm512_maskz_cvtepu16_epi32(kAll, _mm256_maskz_loadu_epi16(mask(n), a));
    const __m512i high = _mm512_maskz_cvtepu16_epi32(kAll, _mm256_maskz_loadu_epi16(mask(n), b));
    _mm512_storeu_si512(out, _mm512_or_si512(low, _mm512_maskz_slli_epi32(kAll, high, 16)));
  }

  // Writes two lines: 32 elements of a and b interleaved.
  static void zip_two(const BF16* a, const BF16* b, std::byte* out) {
    alignas(64) static constexpr std::uint16_t kInTurn[64] = {
        0,  32, 1,  33, 2,  34, 3,  35, 4,  36, 5,  37, 6,  38, 7,  39, 8,  40, 9,  41, 10, 42,
        11, 43, 12, 44, 13, 45, 14, 46, 15, 47, 16, 48, 17, 49, 18, 50, 19, 51, 20, 52, 21, 53,
        22, 54, 23, 55, 24, 56, 25, 57, 26, 58, 27, 59, 28, 60, 29, 61, 30, 62, 31, 63};
    const __m512i x = _mm512_loadu_si512(a), y = _mm512_loadu_si512(b);
    _mm512_storeu_si512(out, _mm512_permutex2var_epi16(x, _mm512_load_si512(kInTurn), y));
    _mm512_storeu_si512(out + 64, _mm512_permutex2var_epi16(x, _mm512_load_si512(kInTurn + 32), y));
  }

  // Sum of the lanes by halving: 16 -> 8 -> 4 -> 2 -> 1.
  static float sum(F a) {
    const __m128 q = quarter(a);
    const __m128 pair = _mm_add_ps(q, _mm_movehl_ps(q, q));
    return _mm_cvtss_f32(_mm_add_ss(pair, _mm_shuffle_ps(pair, pair, 1)));
  }
  static __m128 sum4(F a, F b, F c, F d) {
    __m128 q0 = quarter(a), q1 = quarter(b), q2 = quarter(c), q3 = quarter(d);
    _MM_TRANSPOSE4_PS(q0, q1, q2, q3);
    return _mm_add_ps(_mm_add_ps(q0, q2), _mm_add_ps(q1, q3));
  }
  static float max_lane(F a) {
    const __m256 half = _mm256_max_ps(lower(a), upper(a));
    const __m128 q = _mm_max_ps(_mm256_castps256_ps128(half), _mm256_extractf128_ps(half, 1));
    const __m128 pair = _mm_max_ps(q, _mm_movehl_ps(q, q));
    return _mm_cvtss_f32(_mm_max_ss(pair, _mm_shuffle_ps(pair, pair, 1)));
  }
  static float first(F a) { return _mm_cvtss_f32(_mm256_castps256_ps128(lower(a))); }

 private:
  static constexpr __mmask16 kAll = 0xFFFF;
  static __mmask16 mask(int n) { return static_cast<__mmask16>((1u << n) - 1u); }
  static F widen(__m256i halves) {
    return _mm512_castsi512_ps(
        _mm512_maskz_slli_epi32(kAll, _mm512_maskz_cvtepu16_epi32(kAll, halves), 16));
  }
  static F widen(__m128i bytes) {
    return _mm512_maskz_cvtepi32_ps(kAll, _mm512_maskz_cvtepi8_epi32(kAll, bytes));
  }
  // As Avx2::load of e4m3.
  static F widen_e4m3(__m128i bytes) {
    const __m256i code = _mm256_cvtepu8_epi16(bytes);
    const __m256i size = _mm256_and_si256(code, _mm256_set1_epi16(0x7F));
    const __m256i half = _mm256_or_si256(_mm256_slli_epi16(_mm256_xor_si256(code, size), 8),
                                         _mm256_slli_epi16(size, 7));
    const __m256i is_nan = _mm256_cmpeq_epi16(size, _mm256_set1_epi16(0x7F));
    return mul(_mm512_maskz_cvtph_ps(kAll, _mm256_or_si256(half, is_nan)), set1(256));
  }
  static __m256i narrow(F x) {
    // Round to nearest even on the integer bits; NaN stays NaN. See Avx2::store.
    const __m512i u = _mm512_castps_si512(x);
    const __m512i top = _mm512_maskz_srli_epi32(kAll, u, 16);
    const __m512i odd = _mm512_and_si512(top, _mm512_set1_epi32(1));
    const __m512i sum = _mm512_add_epi32(u, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7FFF)));
    const __m512i rounded = _mm512_maskz_srli_epi32(kAll, sum, 16);
    const __m512i nan = _mm512_or_si512(top, _mm512_set1_epi32(0x40));
    const __mmask16 is_nan = _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q);
    return _mm512_maskz_cvtepi32_epi16(kAll, _mm512_mask_mov_epi32(rounded, is_nan, nan));
  }
  static __m256 lower(F a) { return _mm512_maskz_extractf32x8_ps(0xFF, a, 0); }
  static __m256 upper(F a) { return _mm512_maskz_extractf32x8_ps(0xFF, a, 1); }
  static __m128 quarter(F a) {
    const __m256 half = _mm256_add_ps(lower(a), upper(a));
    return _mm_add_ps(_mm256_castps256_ps128(half), _mm256_extractf128_ps(half, 1));
  }
};

}  // namespace sluice::cpu
