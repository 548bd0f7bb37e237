#include "kernels/cpu/gemm/quant_tiles.h"
#include "kernels/cpu/gemm/super_tiles.h"
#include "kernels/cpu/isa/isa_prelude.h"

#include "kernels/cpu/gemm/quant_avx2_lanes.h"

#include "kernels/cpu/common/streams.h"

#include "kernels/cpu/gemm/quant_row_impl.h"
#include "kernels/cpu/gemm/quant_tiles_impl.h"
#include "kernels/cpu/gemm/super_tiles_impl.h"

namespace sluice::cpu {
namespace {

struct Avx2Super : Avx2Lanes {
  static constexpr int kTilesOfManyRows = 1;
  static constexpr int kWideOffset = 0;

  static F fma_negated(F a, F b, F c) { return _mm256_fnmadd_ps(a, b, c); }
  static I multiply(I a, I b) { return _mm256_mullo_epi32(a, b); }
  static I spread_bytes(const std::byte* p) {
    return _mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p)));
  }
  static I spread_signed_bytes(const std::byte* p) {
    return _mm256_cvtepi8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p)));
  }
  static I spread_table(const std::uint8_t* bytes) {
    return _mm256_broadcastsi128_si256(_mm_loadu_si128(reinterpret_cast<const __m128i*>(bytes)));
  }
  static I look_up(I table, I nibbles) { return _mm256_shuffle_epi8(table, nibbles); }
  // Weights are below 64, so two products fit 16 bits.
  static I dot(I sum, I w, I x) {
    return add32(sum, madd(_mm256_maddubs_epi16(w, x), spread_int(0x00010001)));
  }
  // Magnitudes are at most 127, so two products fit 16 bits.
  static I dot_wide(I sum, I w, I x) {
    return dot(sum, _mm256_abs_epi8(x), _mm256_sign_epi8(w, x));
  }
};

}  // namespace

SuperProducts avx2_super_products() {
  return super_products<Avx2Super, FetchAhead<6144, 0>>();
}

}  // namespace sluice::cpu
