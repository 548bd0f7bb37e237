#include "kernels/cpu/gemm/quant_tiles.h"
#include "kernels/cpu/isa/isa_prelude.h"

#include "kernels/cpu/gemm/quant_avx2_lanes.h"

#include "kernels/cpu/gemm/quant_dots.h"

namespace sluice::cpu {
namespace {

struct Avx2Quant : MaddubsQuant<Avx2Lanes> {
  // Sixteen registers, twelve of them for 16-bit sums.
  static constexpr int vectors_at_once(bool nibbles) { return nibbles ? 2 : 1; }
};

}  // namespace
}  // namespace sluice::cpu

#include "kernels/cpu/common/streams.h"

#include "kernels/cpu/gemm/quant_tiles_impl.h"

#include "kernels/cpu/gemm/quant_row_impl.h"

namespace sluice::cpu {

QuantProducts avx2_quant_products() {
  return quant_products<Avx2Quant, FetchAhead<6144, 0>>();
}

}  // namespace sluice::cpu
