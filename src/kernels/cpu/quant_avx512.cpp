#include "kernels/cpu/isa_prelude.h"
#include "kernels/cpu/quant_tiles.h"

#pragma GCC push_options
#pragma GCC target("avx512f,avx512bw,avx512vl,avx512dq,fma,f16c")

#include "kernels/cpu/quant_avx512_lanes.h"

namespace sluice::cpu {
namespace {

// AVX-512 without VNNI.
struct Avx512Quant : Avx512Lanes {
  static constexpr int most_rows(int tiles) { return tiles == 4 ? 2 : 4; }

  // Bytes 0 and 2, and bytes 1 and 3, of every lane as 16-bit integers, whose products are added in pairs without loss.
  struct W {
    I even, odd;
  };
  using X = W;
  static W bytes(I line) { return {_mm512_and_si512(line, _mm512_set1_epi32(0x00FF00FF)), _mm512_srli_epi16(line, 8)}; }
  static W low_nibbles(I line) { return bytes(_mm512_and_si512(line, _mm512_set1_epi8(15))); }
  static W high_nibbles(I line) {
    return bytes(_mm512_and_si512(_mm512_srli_epi16(line, 4), _mm512_set1_epi8(15)));
  }
  static X spread(const std::byte* p) {
    std::int32_t quad;
    std::memcpy(&quad, p, sizeof quad);
    const I x = _mm512_set1_epi32(quad);
    return {_mm512_srai_epi16(_mm512_slli_epi16(x, 8), 8), _mm512_srai_epi16(x, 8)};
  }
  static I dot(I sum, W w, X x) {
    return _mm512_add_epi32(_mm512_add_epi32(sum, _mm512_madd_epi16(w.even, x.even)), _mm512_madd_epi16(w.odd, x.odd));
  }
};

}  // namespace
}  // namespace sluice::cpu

#include "kernels/cpu/quant_tiles_impl.h"

#pragma GCC pop_options

namespace sluice::cpu {

QuantProducts avx512_quant_products() { return quant_products<Avx512Quant>(); }

}  // namespace sluice::cpu
