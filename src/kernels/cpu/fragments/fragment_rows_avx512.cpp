#include "kernels/cpu/fragments/fragment_rows.h"
#include "kernels/cpu/isa/isa_prelude.h"
#include "kernels/types/fp4.h"

#pragma GCC push_options
#pragma GCC target("avx512f,avx512bw,avx512vl,avx512dq,fma,f16c")

#include "kernels/cpu/common/streams.h"

#include "kernels/cpu/fragments/fragment_rows_impl.h"

namespace sluice::cpu {
namespace {

// Numbers of four bits: q - z for each z, then e2m1.
struct NibbleTables {
  alignas(64) float of[17][16] = {};

  constexpr NibbleTables() {
    for (int i = 0; i < 16; ++i) {
      for (int z = 0; z < 16; ++z) of[z][i] = static_cast<float>(i - z);
      of[16][i] = ops::kE2M1[static_cast<std::size_t>(i)];
    }
  }
};
constexpr NibbleTables kNibbles;

// Masked forms with all lanes set: see vec_avx512.h.
struct Avx512Fragments {
  using F = __m512;
  using W = __m512;
  using X = __m512;
  using Number = float;
  static constexpr int kLanes = 16, kNumbersOfVector = 16;
  static constexpr int kBlockUnits = 2, kRows = 3, kSums = 4;
  static constexpr std::int64_t kNear = 6144, kFar = 0;
  template <Codes kCodes>
  static constexpr int kSteps = piece_columns(kCodes) / 16;
  template <Codes kCodes>
  static constexpr int kSumsOfLine = 2;

  static F zero() { return _mm512_setzero_ps(); }
  static F load(const float* p) { return _mm512_load_ps(p); }
  static void store(float* p, F x) { _mm512_store_ps(p, x); }
  static W load_w(const float* p) { return load(p); }
  static void store_w(float* p, W x) { store(p, x); }
  static F fma(F a, F b, F c) { return _mm512_fmadd_ps(a, b, c); }
  static F dot(F sum, W w, X x) { return fma(w, x, sum); }

  // Of rows r and r + 8; then of the next group.
  struct Tables {
    F of[4];
  };
  template <Codes kCodes, int kGroups>
  static Tables tables(const std::uint8_t* zeros) {
    Tables out;
    if constexpr (piece_columns(kCodes) == 64) {
      for (int i = 0; i < 2; ++i) out.of[i] = table<kCodes>(zeros + i);
      if constexpr (kGroups == 2 && kCodes == Codes::kZeros)
        for (int i = 0; i < 2; ++i) out.of[2 + i] = table<kCodes>(zeros + 16 + i);
    }
    return out;
  }

  template <Codes kCodes, int kGroups>
  static void widen(const std::uint8_t* line, const Tables& tables, W* out) {
    if constexpr (piece_columns(kCodes) == 64) {
      const __m512i codes = load_next<__m512i>(reinterpret_cast<const std::byte*>(line));
#pragma GCC unroll 8
      for (int nibble = 0; nibble < 8; ++nibble) {
        // register of the fragment: row and half of 16 columns; then odd columns
        const int reg = nibble % 4, odd = nibble / 4, sum = reg % 2;
        const __m512i low = _mm512_maskz_srli_epi32(kAll, codes, static_cast<unsigned>(nibble * 4));
        F number = _mm512_maskz_permutexvar_ps(kAll, low, tables.of[sum]);
        if constexpr (kGroups == 2 &&
                      kCodes == Codes::kZeros)  // columns of the last two steps of four
          number = _mm512_mask_permutexvar_ps(number, 0xCCCC, low, tables.of[2 + sum]);
        out[(reg / 2 * 2 + odd) * 2 + sum] = number;
      }
    } else {
#pragma GCC unroll 2
      for (int step = 0; step < 2; ++step) two_rows<kCodes>(line + step * 32, out + step * 2);
    }
  }

  template <Codes kCodes, std::size_t kStep>
  static X x_step(const float* piece) {
    return load(piece + kStep * 16);
  }
  template <Codes kCodes, int kGroups>
  static F scale_of(const float* scales, int place) {
    if constexpr (kGroups == 4)
      return _mm512_maskz_broadcast_f32x4(kAll, _mm_load_ps(scales + place * 4));
    const F first = _mm512_set1_ps(scales[place]);
    if constexpr (kGroups == 1) return first;
    return _mm512_mask_blend_ps(0xCCCC, first, _mm512_set1_ps(scales[16 + place]));
  }
  template <Codes kCodes>
  static void reduce(const F* totals, float* out) {
    for (int i = 0; i < 16; ++i) out[i % 2 * 8 + i / 2] = sum(totals[i]);
  }

 private:
  static constexpr __mmask16 kAll = 0xFFFF;

  template <Codes kCodes>
  static F table(const std::uint8_t* zero) {
    return _mm512_load_ps(kNibbles.of[kCodes == Codes::kMiddle ? 8
                                      : kCodes == Codes::kE2m1 ? 16
                                                               : *zero]);
  }
  // As Avx2Fragments::two_rows, for two lanes.
  template <Codes kCodes>
  static void two_rows(const std::uint8_t* p, F* out) {
    const __m256i split =
        _mm256_shuffle_epi8(load_next<__m256i>(reinterpret_cast<const std::byte*>(p)),
                            _mm256_setr_epi8(0, 1, 4, 5, 8, 9, 12, 13, 2, 3, 6, 7, 10, 11, 14, 15,
                                             0, 1, 4, 5, 8, 9, 12, 13, 2, 3, 6, 7, 10, 11, 14, 15));
    const __m256i rows = _mm256_permute4x64_epi64(split, 0xD8);
    out[0] = numbers<kCodes>(_mm256_castsi256_si128(rows));
    out[1] = numbers<kCodes>(_mm256_extracti128_si256(rows, 1));
  }
  template <Codes kCodes>
  static F numbers(__m128i bytes) {
    if constexpr (kCodes == Codes::kE4m3) {
      const __m512i high =
          _mm512_maskz_slli_epi32(kAll, _mm512_maskz_cvtepu8_epi32(kAll, bytes), 24);
      const __m512i placed = _mm512_and_si512(_mm512_maskz_srai_epi32(kAll, high, 4),
                                              _mm512_set1_epi32(static_cast<int>(0x87F00000u)));
      return _mm512_mul_ps(_mm512_castsi512_ps(placed), _mm512_set1_ps(0x1p120f));
    }
    const __m128i centred = _mm_xor_si128(bytes, _mm_set1_epi8(static_cast<char>(0x80)));
    return _mm512_maskz_cvtepi32_ps(kAll, _mm512_maskz_cvtepi8_epi32(kAll, centred));
  }
  static float sum(F a) {
    const __m256 half = _mm256_add_ps(_mm512_maskz_extractf32x8_ps(0xFF, a, 0),
                                      _mm512_maskz_extractf32x8_ps(0xFF, a, 1));
    const __m128 q = _mm_add_ps(_mm256_castps256_ps128(half), _mm256_extractf128_ps(half, 1));
    const __m128 pair = _mm_add_ps(q, _mm_movehl_ps(q, q));
    return _mm_cvtss_f32(_mm_add_ss(pair, _mm_shuffle_ps(pair, pair, 1)));
  }
};

}  // namespace
}  // namespace sluice::cpu

#pragma GCC pop_options

namespace sluice::cpu {

FragmentRows avx512_fragment_rows() {
  return {.input = DType::kF32,
          .scratch_bytes = FragmentScratch<Avx512Fragments>::bytes,
          .multiply = multiply_fragments<Avx512Fragments>};
}

}  // namespace sluice::cpu
