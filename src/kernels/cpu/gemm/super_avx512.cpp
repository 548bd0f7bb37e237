#include "kernels/cpu/gemm/quant_tiles.h"
#include "kernels/cpu/gemm/super_tiles.h"
#include "kernels/cpu/isa/isa_prelude.h"

#pragma GCC push_options
#pragma GCC target("avx512f,avx512bw,avx512vl,avx512dq,fma,f16c")

#include "kernels/cpu/gemm/quant_avx512_lanes.h"
#include "kernels/cpu/gemm/super_avx512_lanes.h"

#include "kernels/cpu/common/streams.h"

#include "kernels/cpu/gemm/quant_tiles_impl.h"

#include "kernels/cpu/gemm/quant_row_impl.h"

#include "kernels/cpu/gemm/super_tiles_impl.h"

namespace sluice::cpu {
namespace {

struct Avx512Super : Avx512SuperLanes {
  static constexpr int kWideOffset = 0;

  // Weights are below 64, so two products fit 16 bits.
  static I dot(I sum, I w, I x) {
    return add32(sum, madd(_mm512_maddubs_epi16(w, x), spread_int(0x00010001)));
  }
  // Magnitudes are at most 127, so two products fit 16 bits.
  static I dot_wide(I sum, I w, I x) {
    const I signed_x = _mm512_mask_sub_epi8(x, _mm512_movepi8_mask(w), spread_int(0), x);
    return dot(sum, _mm512_maskz_abs_epi8(~__mmask64{0}, w), signed_x);
  }
};

}  // namespace
}  // namespace sluice::cpu

#pragma GCC pop_options

namespace sluice::cpu {

SuperProducts avx512_super_products() {
  return super_products<Avx512Super, FetchAhead<6144, 0>>();
}

}  // namespace sluice::cpu
