#include "kernels/cpu/isa_prelude.h"
#include "kernels/cpu/quant_tiles.h"

namespace sluice::cpu {
namespace {

// AVX2, without vpmaddubsw, whose sums of two products saturate.
struct Avx2Quant {
  using F = __m256;
  using I = __m256i;
  static constexpr int kLanes = 8;
  static constexpr int kTilesOfManyRows = 1;
  static constexpr int most_rows(int tiles) { return tiles == 4 ? 0 : tiles == 2 ? 1 : 2; }

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
  static I load_line(const std::byte* p) { return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)); }

  // Bytes 0 and 2, and bytes 1 and 3, of every lane as 16-bit integers, whose products are added in pairs without loss.
  struct W {
    I even, odd;
  };
  using X = W;
  static W bytes(I line) { return {_mm256_and_si256(line, _mm256_set1_epi32(0x00FF00FF)), _mm256_srli_epi16(line, 8)}; }
  static W low_nibbles(I line) { return bytes(_mm256_and_si256(line, _mm256_set1_epi8(15))); }
  static W high_nibbles(I line) {
    return bytes(_mm256_and_si256(_mm256_srli_epi16(line, 4), _mm256_set1_epi8(15)));
  }
  static X spread(const std::byte* p) {
    std::int32_t quad;
    std::memcpy(&quad, p, sizeof quad);
    const I x = _mm256_set1_epi32(quad);
    return {_mm256_srai_epi16(_mm256_slli_epi16(x, 8), 8), _mm256_srai_epi16(x, 8)};
  }
  static I dot(I sum, W w, X x) {
    return _mm256_add_epi32(_mm256_add_epi32(sum, _mm256_madd_epi16(w.even, x.even)), _mm256_madd_epi16(w.odd, x.odd));
  }

 private:
  static __m256i mask(int n) {
    return _mm256_cmpgt_epi32(_mm256_set1_epi32(n), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
  }
};

}  // namespace
}  // namespace sluice::cpu

#include "kernels/cpu/quant_tiles_impl.h"

namespace sluice::cpu {

QuantProducts avx2_quant_products() { return quant_products<Avx2Quant>(); }

}  // namespace sluice::cpu
