#include "kernels/cpu/isa_prelude.h"
#include "kernels/cpu/quant_tiles.h"

#pragma GCC push_options
#pragma GCC target("avx512f,avx512bw,avx512vl,avx512dq,avx512vnni,fma,f16c")

namespace sluice::cpu {
namespace {

// vpdpbusd: four products and their sum in one instruction, without saturation.
struct Vnni {
  using F = __m512;
  using I = __m512i;
  static constexpr int kLanes = 16;
  static constexpr int kTilesOfManyRows = 2;
  static constexpr int most_rows(int tiles) { return tiles == 4 ? 3 : 6; }

  static F zero() { return _mm512_setzero_ps(); }
  static F set1(float x) { return _mm512_set1_ps(x); }
  static F mul(F a, F b) { return _mm512_mul_ps(a, b); }
  static F fma(F a, F b, F c) { return _mm512_fmadd_ps(a, b, c); }
  static F to_float(I a) { return _mm512_maskz_cvtepi32_ps(0xFFFF, a); }
  static F load_halves(const std::byte* p) {
    return _mm512_maskz_cvtph_ps(0xFFFF, _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
  }
  static F load_n(const float* p, int n) { return _mm512_maskz_loadu_ps(mask(n), p); }
  static void store_n(float* p, F x, int n) { _mm512_mask_storeu_ps(p, mask(n), x); }
  static I spread_int(std::int32_t x) { return _mm512_set1_epi32(x); }
  static I load_line(const std::byte* p) { return _mm512_loadu_si512(p); }

  using W = I;
  using X = I;
  static W bytes(I line) { return line; }
  static W low_nibbles(I line) { return _mm512_and_si512(line, _mm512_set1_epi32(0x0F0F0F0F)); }
  static W high_nibbles(I line) { return low_nibbles(_mm512_maskz_srli_epi32(0xFFFF, line, 4)); }
  static X spread(const std::byte* p) {
    std::int32_t quad;
    std::memcpy(&quad, p, sizeof quad);
    return _mm512_set1_epi32(quad);
  }
  static I dot(I sum, W w, X x) { return _mm512_dpbusd_epi32(sum, w, x); }

 private:
  static __mmask16 mask(int n) { return static_cast<__mmask16>((1u << n) - 1u); }
};

}  // namespace
}  // namespace sluice::cpu

#include "kernels/cpu/quant_tiles_impl.h"

#pragma GCC pop_options

namespace sluice::cpu {

QuantProducts vnni_quant_products() { return quant_products<Vnni>(); }

}  // namespace sluice::cpu
