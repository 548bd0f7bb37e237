#include "kernels/cpu/isa_prelude.h"
#include "kernels/cpu/quant_tiles.h"

#include "kernels/cpu/quant_dots.h"

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
  static I load_line(const std::byte* p) { return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)); }

  static I low_nibbles(I line) { return _mm256_and_si256(line, _mm256_set1_epi8(15)); }
  static I high_nibbles(I line) { return low_nibbles(_mm256_srli_epi16(line, 4)); }
  // Bytes 0 and 2, or 1 and 3, of every lane as 16-bit integers.
  static I even_bytes(I line) { return _mm256_and_si256(line, _mm256_set1_epi32(0x00FF00FF)); }
  static I odd_bytes(I line) { return _mm256_srli_epi16(line, 8); }
  static I even_signed(I x) { return _mm256_srai_epi16(_mm256_slli_epi16(x, 8), 8); }
  static I odd_signed(I x) { return _mm256_srai_epi16(x, 8); }
  // In one piece: the compiler would put all products before the sums, and have no registers for them.
  static I add_maddubs(I sum, I w, I x) {
    I products;
    asm("vpmaddubsw %3, %2, %1\n\tvpaddw %1, %0, %0" : "+x"(sum), "=&x"(products) : "x"(w), "x"(x));
    return sum;
  }
  static I madd(I a, I b) { return _mm256_madd_epi16(a, b); }
  static I add32(I a, I b) { return _mm256_add_epi32(a, b); }

 private:
  static __m256i mask(int n) {
    return _mm256_cmpgt_epi32(_mm256_set1_epi32(n), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
  }
};

struct Avx2Quant : Avx2Lanes {
  template <bool kNibbles>
  using Dots = std::conditional_t<kNibbles, NibbleDots<Avx2Lanes>, ByteDots<Avx2Lanes>>;
  template <bool kNibbles>
  using RowDots = std::conditional_t<kNibbles, NibbleDots<Avx2Lanes>, WordDots<Avx2Lanes>>;
  static constexpr bool kSpreadsFetches = true;
  static constexpr int kTilesOfManyRows = 4;
  static constexpr int most_rows(int) { return 6; }
  // Sixteen registers: twelve sums of 16 bits.
  static constexpr int vectors_at_once(bool nibbles) { return nibbles ? 2 : 1; }
};

}  // namespace
}  // namespace sluice::cpu

#include "kernels/cpu/streams.h"

#include "kernels/cpu/quant_tiles_impl.h"

#include "kernels/cpu/quant_row_impl.h"

namespace sluice::cpu {

QuantProducts avx2_quant_products() { return quant_products<Avx2Quant, FetchAhead<6144, 0>>(); }

}  // namespace sluice::cpu
