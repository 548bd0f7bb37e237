#include "kernels/cpu/gemm/quant_tiles.h"
#include "kernels/cpu/isa/isa_prelude.h"

#pragma GCC push_options
#pragma GCC target("avx512f,avx512bw,avx512vl,avx512dq,fma,f16c")

#include "kernels/cpu/gemm/quant_avx512_lanes.h"

#include "kernels/cpu/gemm/quant_dots.h"

namespace sluice::cpu {
namespace {

// AVX-512 without VNNI: vpmaddubsw.
struct Avx512Quant : MaddubsQuant<Avx512Lanes> {
  static constexpr int vectors_at_once(bool nibbles) { return nibbles ? 4 : 2; }
};

}  // namespace
}  // namespace sluice::cpu

#include "kernels/cpu/common/streams.h"

#include "kernels/cpu/gemm/quant_tiles_impl.h"

#include "kernels/cpu/gemm/quant_row_impl.h"

#pragma GCC pop_options

namespace sluice::cpu {

QuantProducts avx512_quant_products() {
  return quant_products<Avx512Quant, FetchAhead<6144, 0>>();
}

}  // namespace sluice::cpu
