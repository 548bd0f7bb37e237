// The vector type of the AVX2 kernels: 8 floats. Included by isa_avx2.cpp after isa_prelude.h.
//
// All vector types have the same members, so that each kernel (*_impl.h) is written once. load_n
// and store_n touch n < kLanes elements; the other lanes load as zero. Narrow types are widened
// exactly. Narrowing rounds to nearest even.
#pragma once

namespace sluice::cpu {

struct Avx2 {
  using F = __m256;
  static constexpr int kLanes = 8;
  static constexpr int kTileRows = 2;  // GEMM register tile: kTileRows rows of x by 4 columns

  static F zero() { return _mm256_setzero_ps(); }
  static F set1(float x) { return _mm256_set1_ps(x); }
  static F add(F a, F b) { return _mm256_add_ps(a, b); }
  static F sub(F a, F b) { return _mm256_sub_ps(a, b); }
  static F mul(F a, F b) { return _mm256_mul_ps(a, b); }
  static F div(F a, F b) { return _mm256_div_ps(a, b); }
  static F fma(F a, F b, F c) { return _mm256_fmadd_ps(a, b, c); }    // a b + c
  static F fnma(F a, F b, F c) { return _mm256_fnmadd_ps(a, b, c); }  // c - a b
  // A NaN in b is propagated, a NaN in a is not.
  static F max(F a, F b) { return _mm256_max_ps(a, b); }
  static F min(F a, F b) { return _mm256_min_ps(a, b); }
  static F round(F a) { return _mm256_round_ps(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC); }
  // y * 2^n for integral n in [-160, 130]. Two multiplications, so that results below the normal
  // range are rounded correctly.
  static F scale_by_power(F y, F n) {
    const __m256i whole = _mm256_cvtps_epi32(n);
    const __m256i half = _mm256_srai_epi32(whole, 1);
    return mul(mul(y, power(half)), power(_mm256_sub_epi32(whole, half)));
  }

  static F load(const float* p) { return _mm256_loadu_ps(p); }
  static F load(const BF16* p) {
    return widen(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
  }
  static F load(const F16* p) {
    return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
  }
  static F load(const std::int8_t* p) {
    return _mm256_cvtepi32_ps(
        _mm256_cvtepi8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p))));
  }
  // Through float16, whose exponent has a bias 8 larger and which holds NaN as all ones.
  static F load(const ops::E4M3* p) {
    const __m128i code = _mm_cvtepu8_epi16(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p)));
    const __m128i size = _mm_and_si128(code, _mm_set1_epi16(0x7F));
    const __m128i half =
        _mm_or_si128(_mm_slli_epi16(_mm_xor_si128(code, size), 8), _mm_slli_epi16(size, 7));
    const __m128i is_nan = _mm_cmpeq_epi16(size, _mm_set1_epi16(0x7F));
    return mul(_mm256_cvtph_ps(_mm_or_si128(half, is_nan)), set1(256));
  }
  // The lower and the upper 16 bits of each 32-bit lane, as bfloat16 widened to float.
  static F low_halves(const std::byte* p) {
    return _mm256_castsi256_ps(
        _mm256_slli_epi32(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)), 16));
  }
  static F high_halves(const std::byte* p) {
    return _mm256_castsi256_ps(
        _mm256_and_si256(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)),
                         _mm256_set1_epi32(static_cast<int>(0xFFFF0000u))));
  }
  // Helpers of the GEMM inner loop that take the lower (kHalf 0) or upper (kHalf 1) bfloat16 of
  // each pair. Inline assembly keeps their order. The compiler would widen all weights first, and
  // sixteen registers do not suffice for that and twelve sums.
  alignas(32) static constexpr std::uint32_t kUpperHalves[8] = {
      0xFFFF0000u, 0xFFFF0000u, 0xFFFF0000u, 0xFFFF0000u,
      0xFFFF0000u, 0xFFFF0000u, 0xFFFF0000u, 0xFFFF0000u};
  template <int kHalf>
  static F half(F pairs) {
    if constexpr (kHalf == 0)
      asm volatile("vpslld $16, %0, %0" : "+x"(pairs));
    else
      asm volatile("vpand %1, %0, %0" : "+x"(pairs) : "m"(kUpperHalves));
    return pairs;
  }
  template <int kHalf>
  static F half_of(const std::byte* w) {
    F v;
    asm volatile("vmovdqu %1, %0" : "=x"(v) : "m"(*reinterpret_cast<const __m256i_u*>(w)));
    return half<kHalf>(v);
  }
  template <int kHalf>
  static F spread_half(const std::byte* x) {
    using Pair [[gnu::may_alias, gnu::aligned(1)]] = std::uint32_t;
    F v;
    asm volatile("vpbroadcastd %1, %0" : "=x"(v) : "m"(*reinterpret_cast<const Pair*>(x)));
    return half<kHalf>(v);
  }
  template <std::int64_t kBytesAhead>
  static void fetch(const std::byte* p) {
    asm volatile("prefetcht0 %c1(%0)" : : "r"(p), "i"(kBytesAhead));
  }
  static F spread_float(const std::byte* x) {
    using Float [[gnu::may_alias, gnu::aligned(1)]] = float;
    F v;
    asm volatile("vbroadcastss %1, %0" : "=x"(v) : "m"(*reinterpret_cast<const Float*>(x)));
    return v;
  }
  static F add_product(F sum, F w, F x) {
    asm volatile("vfmadd231ps %2, %1, %0" : "+x"(sum) : "x"(w), "x"(x));
    return sum;
  }
  static F load_n(const float* p, int n) { return _mm256_maskload_ps(p, mask(n)); }
  template <class Half>
  static F load_n(const Half* p, int n) {
    Half part[kLanes] = {};
    std::memcpy(part, p, static_cast<std::size_t>(n) * sizeof(Half));
    return load(part);
  }
  static void store(float* p, F x) { _mm256_storeu_ps(p, x); }
  static void store(BF16* p, F x) {
    const __m256i u = _mm256_castps_si256(x);
    // Round to nearest even on the integer bits: add 0x7FFF plus the lowest bit that is kept. A NaN
    // keeps its upper bits and gets a quiet bit, since rounding could turn it into infinity.
    const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(u, 16), _mm256_set1_epi32(1));
    const __m256i rounded = _mm256_srli_epi32(
        _mm256_add_epi32(u, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7FFF))), 16);
    const __m256i nan = _mm256_or_si256(_mm256_srli_epi32(u, 16), _mm256_set1_epi32(0x40));
    const __m256i is_nan = _mm256_castps_si256(_mm256_cmp_ps(x, x, _CMP_UNORD_Q));
    const __m256i bits = _mm256_blendv_epi8(rounded, nan, is_nan);
    _mm_storeu_si128(
        reinterpret_cast<__m128i*>(p),
        _mm_packus_epi32(_mm256_castsi256_si128(bits), _mm256_extracti128_si256(bits, 1)));
  }
  static void store_n(float* p, F x, int n) { _mm256_maskstore_ps(p, mask(n), x); }
  static void store_n(BF16* p, F x, int n) {
    BF16 part[kLanes];
    store(part, x);
    std::memcpy(p, part, static_cast<std::size_t>(n) * sizeof(BF16));
  }

  // Transposes pairs of elements [first, first + 16) of 16 rows. Line i at out + i * step holds
  // elements 2i and 2i + 1 of every row.
  static void transpose_pairs(const BF16* const* rows, std::int64_t first, std::byte* out,
                              std::int64_t step) {
    for (int half = 0; half < 16; half += 8)
      for (int line = 0; line < 8; line += 4) {
        // Assemble 256-bit vectors from 128-bit halves while loading. Moving a word between the
        // halves later is slow on older processors (Zen 1).
        const auto two_rows = [&](int r) __attribute__((always_inline)) {
          const auto four = [&](int row) {
            return _mm_loadu_si128(reinterpret_cast<const __m128i*>(rows[row] + first + 2 * line));
          };
          return _mm256_inserti128_si256(_mm256_castsi128_si256(four(half + r)), four(half + r + 4),
                                         1);
        };
        const auto put = [&](int i, __m256i x) __attribute__((always_inline)) {
          _mm256_storeu_si256(reinterpret_cast<__m256i*>(out + (line + i) * step + half * 4), x);
        };
        const __m256i a = two_rows(0), b = two_rows(1), c = two_rows(2), d = two_rows(3);
        const __m256i ab_low = _mm256_unpacklo_epi32(a, b), ab_high = _mm256_unpackhi_epi32(a, b);
        const __m256i cd_low = _mm256_unpacklo_epi32(c, d), cd_high = _mm256_unpackhi_epi32(c, d);
        put(0, _mm256_unpacklo_epi64(ab_low, cd_low));
        put(1, _mm256_unpackhi_epi64(ab_low, cd_low));
        put(2, _mm256_unpacklo_epi64(ab_high, cd_high));
        put(3, _mm256_unpackhi_epi64(ab_high, cd_high));
      }
  }
  // Writes one line of 64 bytes: n <= 16 elements of a and b interleaved, then zeros.
  static void zip(const BF16* a, const BF16* b, int n, std::byte* out) {
    std::uint16_t part[2][16];
    if (n < 16) {
      std::memset(part, 0, sizeof part);
      std::memcpy(part[0], a, static_cast<std::size_t>(n) * 2);
      std::memcpy(part[1], b, static_cast<std::size_t>(n) * 2);
      a = reinterpret_cast<const BF16*>(part[0]);
      b = reinterpret_cast<const BF16*>(part[1]);
    }
    for (int half = 0; half < 16; half += 8) {
      const __m256i low =
          _mm256_cvtepu16_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(a + half)));
      const __m256i high =
          _mm256_cvtepu16_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(b + half)));
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(out + half * 4),
                          _mm256_or_si256(low, _mm256_slli_epi32(high, 16)));
    }
  }
  // Writes two lines: 32 elements of a and b interleaved.
  static void zip_two(const BF16* a, const BF16* b, std::byte* out) {
    zip(a, b, 16, out);
    zip(a + 16, b + 16, 16, out + 64);
  }

  // Sum of the lanes by halving: (((0+4)+(2+6)) + ((1+5)+(3+7))). sum4 reduces four vectors at once
  // with the same tree, hence the same bits.
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
    const __m128 q = _mm_max_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
    const __m128 pair = _mm_max_ps(q, _mm_movehl_ps(q, q));
    return _mm_cvtss_f32(_mm_max_ss(pair, _mm_shuffle_ps(pair, pair, 1)));
  }
  static float first(F a) { return _mm256_cvtss_f32(a); }

 private:
  static F widen(__m128i halves) {
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(halves), 16));
  }
  static __m256i mask(int n) {
    return _mm256_cmpgt_epi32(_mm256_set1_epi32(n), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
  }
  static F power(__m256i n) {
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(n, _mm256_set1_epi32(127)), 23));
  }
  static __m128 quarter(F a) {
    return _mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
  }
};

}  // namespace sluice::cpu
