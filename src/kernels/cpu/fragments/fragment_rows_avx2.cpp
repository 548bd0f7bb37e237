#include "kernels/cpu/fragments/fragment_rows.h"
#include "kernels/cpu/isa/isa_prelude.h"

#include "kernels/cpu/common/streams.h"

#include "kernels/cpu/fragments/fragment_rows_impl.h"

namespace sluice::cpu {
namespace {

struct Avx2Fragments {
  using F = __m256;
  using W = __m256;
  using X = __m256;
  using Number = float;
  static constexpr int kLanes = 8, kNumbersOfVector = 8;
  static constexpr int kBlockUnits = 2, kRows = 2, kSums = 2;
  static constexpr std::int64_t kNear = 6144, kFar = 0;
  template <Codes kCodes>
  static constexpr int kSteps = piece_columns(kCodes) / 8;
  template <Codes kCodes>
  static constexpr int kSumsOfLine = 2;

  static F zero() { return _mm256_setzero_ps(); }
  static F load(const float* p) { return _mm256_load_ps(p); }
  static void store(float* p, F x) { _mm256_store_ps(p, x); }
  static W load_w(const float* p) { return load(p); }
  static void store_w(float* p, W x) { store(p, x); }
  static F fma(F a, F b, F c) { return _mm256_fmadd_ps(a, b, c); }
  static F dot(F sum, W w, X x) { return fma(w, x, sum); }

  // Zero points.
  struct Tables {
    F of[2];
  };
  template <Codes kCodes, int kGroups>
  static Tables tables(const std::uint8_t* zeros) {
    Tables out;
    if constexpr (kCodes == Codes::kMiddle || kCodes == Codes::kZeros)
      for (int i = 0; i < 2; ++i)
        out.of[i] = kCodes == Codes::kMiddle
                        ? _mm256_set1_ps(8)
                        : by_groups<kGroups>(zeros[i], zeros[kGroups == 2 ? 16 + i : i]);
    return out;
  }

  template <Codes kCodes, int kGroups>
  static void widen(const std::uint8_t* line, const Tables& tables, W* out) {
    if constexpr (piece_columns(kCodes) == 64) {
#pragma GCC unroll 2
      for (int c = 0; c < 2; ++c) {
        const __m256i codes = load_next<__m256i>(reinterpret_cast<const std::byte*>(line + c * 32));
#pragma GCC unroll 8
        for (int nibble = 0; nibble < 8; ++nibble) {
          // register of the fragment: row and half of 16 columns; then odd columns
          const int reg = nibble % 4, odd = nibble / 4, sum = reg % 2,
                    step = (reg / 2 * 2 + odd) * 2 + c;
          out[step * 2 + sum] = number<kCodes>(codes, nibble * 4, tables.of[sum]);
        }
      }
    } else {
#pragma GCC unroll 4
      for (int step = 0; step < 4; ++step) two_rows<kCodes>(line + step * 16, out + step * 2);
    }
  }

  template <Codes kCodes, std::size_t kStep>
  static X x_step(const float* piece) {
    return load(piece + kStep * 8);
  }
  template <Codes kCodes, int kGroups>
  static F scale_of(const float* scales, int place) {
    if constexpr (kGroups == 4) {
      const __m128 four = _mm_load_ps(scales + place * 4);
      return _mm256_set_m128(four, four);
    }
    return by_groups<kGroups>(scales[place], scales[kGroups == 2 ? 16 + place : place]);
  }
  template <Codes kCodes>
  static void reduce(const F* totals, float* out) {
    for (int i = 0; i < 16; ++i) out[i % 2 * 8 + i / 2] = sum(totals[i]);
  }

 private:
  // Columns of the last two steps of four belong to the second group.
  template <int kGroups>
  static F by_groups(float first, float second) {
    if constexpr (kGroups == 1) return _mm256_set1_ps(first);
    return _mm256_blend_ps(_mm256_set1_ps(first), _mm256_set1_ps(second), 0xCC);
  }
  template <Codes kCodes>
  static F number(__m256i codes, int shift, F zero) {
    if constexpr (kCodes == Codes::kE2m1) {
      // A table of sizes by three bits, and the sign above them.
      const __m256 sizes = _mm256_permutevar8x32_ps(_mm256_setr_ps(0, 0.5f, 1, 1.5f, 2, 3, 4, 6),
                                                    _mm256_srli_epi32(codes, shift));
      const __m256i signs = _mm256_and_si256(_mm256_slli_epi32(codes, 28 - shift),
                                             _mm256_set1_epi32(static_cast<int>(0x80000000u)));
      return _mm256_xor_ps(sizes, _mm256_castsi256_ps(signs));
    }
    const __m256i q = _mm256_and_si256(_mm256_srli_epi32(codes, shift), _mm256_set1_epi32(15));
    return _mm256_sub_ps(_mm256_cvtepi32_ps(q), zero);
  }

  // A lane has, of each of two steps, two columns of row r, of row r + 8, and the same 8 columns
  // on.
  template <Codes kCodes>
  static void two_rows(const std::uint8_t* p, F* out) {
    const __m128i rows =
        _mm_shuffle_epi8(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)),
                         _mm_setr_epi8(0, 1, 4, 5, 8, 9, 12, 13, 2, 3, 6, 7, 10, 11, 14, 15));
    out[0] = numbers<kCodes>(rows);
    out[1] = numbers<kCodes>(_mm_unpackhi_epi64(rows, rows));
  }
  template <Codes kCodes>
  static F numbers(__m128i bytes) {
    if constexpr (kCodes == Codes::kE4m3) {
      // Sign, exponent and mantissa in the places of a float's: the number times 2^-120.
      const __m256i high = _mm256_slli_epi32(_mm256_cvtepu8_epi32(bytes), 24);
      const __m256i placed = _mm256_and_si256(_mm256_srai_epi32(high, 4),
                                              _mm256_set1_epi32(static_cast<int>(0x87F00000u)));
      return _mm256_mul_ps(_mm256_castsi256_ps(placed), _mm256_set1_ps(0x1p120f));
    }
    const __m128i centred = _mm_xor_si128(bytes, _mm_set1_epi8(static_cast<char>(0x80)));
    return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(centred));
  }
  static float sum(F a) {
    const __m128 q = _mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
    const __m128 pair = _mm_add_ps(q, _mm_movehl_ps(q, q));
    return _mm_cvtss_f32(_mm_add_ss(pair, _mm_shuffle_ps(pair, pair, 1)));
  }
};

}  // namespace

FragmentRows avx2_fragment_rows() {
  return {.input = DType::kF32,
          .scratch_bytes = FragmentScratch<Avx2Fragments>::bytes,
          .multiply = multiply_fragments<Avx2Fragments>};
}

}  // namespace sluice::cpu
