// What the codes of fragments (fragment_rows.h) become as bfloat16, without rounding: of four bits
// by a table of 16-bit words, of eight bits by tables of bytes. Included after
// fragment_rows_impl.h, inside a target pragma.
#pragma once

#include "kernels/types/fp4.h"

namespace sluice::cpu {
namespace {

constexpr std::uint16_t bits_of(float exact) {
  return static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(exact) >> 16);
}

// q - z for each z, then e2m1. A table repeats after 16 codes, so vpermw, which looks at five bits,
// needs no mask.
struct NibbleTables {
  alignas(64) std::uint16_t of[17][32] = {};

  constexpr NibbleTables() {
    for (int i = 0; i < 32; ++i) {
      for (int z = 0; z < 16; ++z) of[z][i] = bits_of(static_cast<float>(i % 16 - z));
      of[16][i] = bits_of(ops::kE2M1[static_cast<std::size_t>(i % 16)]);
    }
  }
};
constexpr NibbleTables kNibbles;

// Bytes of the bfloat16 of each code of seven bits: [negative][low, high].
struct ByteTables {
  alignas(64) std::uint8_t of[2][2][128] = {};

  constexpr void put(int negative, int i, std::uint16_t bits) {
    of[negative][0][i] = static_cast<std::uint8_t>(bits);
    of[negative][1][i] = static_cast<std::uint8_t>(bits >> 8);
  }
};
constexpr ByteTables kE4m3Bytes = [] {
  ByteTables made;
  for (int i = 0; i < 128; ++i) {
    const int exponent = i >> 3, mantissa = i & 7;
    if (i == 127)
      made.put(0, i, 0x7FC0);
    else if (exponent == 0)
      made.put(0, i, bits_of(static_cast<float>(mantissa) * 0x1p-9f));
    else
      made.put(0, i, static_cast<std::uint16_t>((exponent + 120) << 7 | mantissa << 4));
  }
  return made;
}();
// Codes have an offset of 128: those below it are negative.
constexpr ByteTables kInt8Bytes = [] {
  ByteTables made;
  for (int i = 0; i < 128; ++i) {
    made.put(0, i, bits_of(static_cast<float>(i)));
    made.put(1, i, bits_of(static_cast<float>(i - 128)));
  }
  return made;
}();

// Lines are fetched 8 KiB ahead into L2 and 512 bytes ahead into L1. On Zen 4 one core then reads
// FP8 at 25 GB/s and AWQ at 20; with 2 KiB and 256 bytes at 16 and 14; with 6 KiB into L1 at 15 and
// 17.
struct Bf16Fragments {
  using F = __m512;
  using W = __m512i;
  using X = __m512i;
  using Number = std::uint16_t;
  static constexpr int kLanes = 16, kNumbersOfVector = 32;
  static constexpr int kBlockUnits = 4, kRows = 3, kSums = 4;
  static constexpr std::int64_t kNear = 512, kFar = 8192;
  template <Codes kCodes>
  static constexpr int kSteps = 2;
  template <Codes kCodes>
  static constexpr int kSumsOfLine = piece_columns(kCodes) == 64 ? 2 : 1;

  static F zero() { return _mm512_setzero_ps(); }
  static F load(const float* p) { return _mm512_load_ps(p); }
  static void store(float* p, F x) { _mm512_store_ps(p, x); }
  static W load_w(const Number* p) { return _mm512_load_si512(p); }
  static void store_w(Number* p, W x) { _mm512_store_si512(p, x); }
  static F fma(F a, F b, F c) { return _mm512_fmadd_ps(a, b, c); }
  static F dot(F sum, W w, X x) {
    return _mm512_dpbf16_ps(sum, reinterpret_cast<__m512bh>(w), reinterpret_cast<__m512bh>(x));
  }

  // Of rows r and r + 8; then of the next group.
  struct Tables {
    W of[4];
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
    const W codes = load_next<W>(reinterpret_cast<const std::byte*>(line));
    if constexpr (piece_columns(kCodes) == 64) {
      // A word has the four codes of a column: of row r, of row r + 8, and the same 8 columns on.
#pragma GCC unroll 4
      for (int i = 0; i < 4; ++i) {
        const W low = _mm512_maskz_srli_epi16(kAllWords, codes, static_cast<unsigned>(i * 4));
        W number = _mm512_maskz_permutexvar_epi16(kAllWords, low, tables.of[i % 2]);
        if constexpr (kGroups == 2 &&
                      kCodes == Codes::kZeros)  // columns of the last two steps of four
          number = _mm512_mask_permutexvar_epi16(number, 0xF0F0F0F0u, low, tables.of[2 + i % 2]);
        out[i] = number;
      }
    } else {
      W low, high;
      if constexpr (kCodes == Codes::kE4m3) {
        low = look_up(codes, kE4m3Bytes.of[0][0]);
        const W sizes = look_up(codes, kE4m3Bytes.of[0][1]);
        // The sign bit of the code.
        high = _mm512_ternarylogic_epi32(sizes, codes, _mm512_set1_epi32(kSigns), 0xF8);
      } else {
        const __mmask64 is_negative = ~_mm512_movepi8_mask(codes);
        low = _mm512_mask_blend_epi8(is_negative, look_up(codes, kInt8Bytes.of[0][0]),
                                     look_up(codes, kInt8Bytes.of[1][0]));
        high = _mm512_mask_blend_epi8(is_negative, look_up(codes, kInt8Bytes.of[0][1]),
                                      look_up(codes, kInt8Bytes.of[1][1]));
      }
      out[0] = _mm512_maskz_unpacklo_epi8(kAllBytes, low, high);
      out[1] = _mm512_maskz_unpackhi_epi8(kAllBytes, low, high);
    }
  }

  // Pairs of numbers of rows r and r + 8 of a byte's step lie side by side, so both meet one of x.
  template <Codes kCodes, std::size_t kStep>
  static X x_step(const Number* piece) {
    if constexpr (piece_columns(kCodes) == 64) return _mm512_load_si512(piece + kStep * 32);
    const X x = _mm512_load_si512(piece);
    return kStep == 0 ? _mm512_maskz_unpacklo_epi32(kAllLanes, x, x)
                      : _mm512_maskz_unpackhi_epi32(kAllLanes, x, x);
  }

  template <Codes kCodes, int kGroups>
  static F scale_of(const float* scales, int place) {
    if constexpr (piece_columns(kCodes) == 32) {
      double pair;
      std::memcpy(&pair, scales + place, sizeof pair);
      return _mm512_castpd_ps(_mm512_set1_pd(pair));
    }
    if constexpr (kGroups == 4)
      return _mm512_maskz_broadcast_f32x4(kAllLanes, _mm_load_ps(scales + place * 4));
    const F first = _mm512_set1_ps(scales[place]);
    if constexpr (kGroups == 1) return first;
    return _mm512_mask_blend_ps(0xCCCC, first, _mm512_set1_ps(scales[16 + place]));
  }

  template <Codes kCodes>
  static void reduce(const F* totals, float* out) {
    for (int first = 0; first < 8; first += 4) {
      if constexpr (piece_columns(kCodes) == 64) {
        const F* of = totals + 2 * first;
        _mm_store_ps(out + first, sum4(of[0], of[2], of[4], of[6]));
        _mm_store_ps(out + 8 + first, sum4(of[1], of[3], of[5], of[7]));
      } else {
        __m128 rows[4];  // r, r + 8, and partial sums of both
        for (int i = 0; i < 4; ++i) {
          const __m128 four = quarter(totals[first + i]);
          rows[i] = _mm_add_ps(four, _mm_movehl_ps(four, four));
        }
        const __m128 ab = _mm_unpacklo_ps(rows[0], rows[1]), cd = _mm_unpacklo_ps(rows[2], rows[3]);
        _mm_store_ps(out + first, _mm_movelh_ps(ab, cd));
        _mm_store_ps(out + 8 + first, _mm_movehl_ps(cd, ab));
      }
    }
  }

 private:
  static constexpr __mmask16 kAllLanes = 0xFFFF;
  static constexpr __mmask32 kAllWords = 0xFFFFFFFFu;
  static constexpr __mmask64 kAllBytes = ~__mmask64{0};
  static constexpr int kSigns = static_cast<int>(0x80808080u);

  template <Codes kCodes>
  static W table(const std::uint8_t* zero) {
    return _mm512_load_si512(kNibbles.of[kCodes == Codes::kMiddle ? 8
                                         : kCodes == Codes::kE2m1 ? 16
                                                                  : *zero]);
  }
  static W look_up(W codes, const std::uint8_t* bytes) {
    return _mm512_maskz_permutex2var_epi8(kAllBytes, _mm512_load_si512(bytes), codes,
                                          _mm512_load_si512(bytes + 64));
  }
  static __m128 sum4(F a, F b, F c, F d) {
    __m128 q0 = quarter(a), q1 = quarter(b), q2 = quarter(c), q3 = quarter(d);
    _MM_TRANSPOSE4_PS(q0, q1, q2, q3);
    return _mm_add_ps(_mm_add_ps(q0, q2), _mm_add_ps(q1, q3));
  }
  static __m128 quarter(F a) {
    const __m256 half = _mm256_add_ps(_mm512_maskz_extractf32x8_ps(0xFF, a, 0),
                                      _mm512_maskz_extractf32x8_ps(0xFF, a, 1));
    return _mm_add_ps(_mm256_castps256_ps128(half), _mm256_extractf128_ps(half, 1));
  }
};

}  // namespace
}  // namespace sluice::cpu
