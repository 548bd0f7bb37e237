#include "kernels/cpu/gemm/quant_tiles.h"
#include "kernels/cpu/gemm/super_tiles.h"
#include "kernels/cpu/isa/isa_prelude.h"

#pragma GCC push_options
#pragma GCC target("avx512f,avx512bw,avx512vl,avx512dq,avx512vnni,fma,f16c")

#include "kernels/cpu/gemm/quant_avx512_lanes.h"
#include "kernels/cpu/gemm/super_avx512_lanes.h"

#include "kernels/cpu/common/streams.h"

#include "kernels/cpu/gemm/quant_tiles_impl.h"

#include "kernels/cpu/gemm/quant_row_impl.h"

#include "kernels/cpu/gemm/super_tiles_impl.h"

namespace sluice::cpu {
namespace {

struct VnniSuper : Avx512SuperLanes {
  static constexpr int kWideOffset = 128;

  static I dot(I sum, I w, I x) { return _mm512_dpbusd_epi32(sum, w, x); }
  static I dot_wide(I sum, I w, I x) { return dot(sum, w, x); }
};

}  // namespace
}  // namespace sluice::cpu

#pragma GCC pop_options

namespace sluice::cpu {

// As those of nibbles: 32 KiB of L1 has no room for lines far ahead (quant_vnni.cpp).
SuperProducts vnni_super_products() {
  return first_level_holds_fetches() ? super_products<VnniSuper, FetchAhead<6144, 0>>()
                                     : super_products<VnniSuper, FetchAhead<256, 2048>>();
}

}  // namespace sluice::cpu
