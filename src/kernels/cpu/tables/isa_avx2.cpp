#include "kernels/cpu/isa/isa_prelude.h"
// The include order matters from here on: the vector type, then the kernels written over it.
#include "kernels/cpu/isa/vec_avx2.h"

#include "kernels/cpu/elementwise/norm_impl.h"

#include "kernels/cpu/gemm/gemm_impl.h"

#include "kernels/cpu/attention/attention_impl.h"

#include "kernels/cpu/attention/attention_int8_impl.h"

#include "kernels/cpu/attention/attention_e4m3_impl.h"

#include "kernels/cpu/gemm/tiles_impl.h"

#include "kernels/cpu/gemm/tiles_wide_impl.h"

#include "kernels/cpu/attention/attention_bf16_impl.h"

#include "kernels/cpu/attention/attention_panels_impl.h"

#include "kernels/cpu/attention/attention_shared_impl.h"

#include "kernels/cpu/tables/table_impl.h"

namespace sluice::cpu {
namespace {

using Dot = WidenedDot<Avx2, 6, 4>;
constexpr KernelTable kTable = make_table<Avx2, Dot>();

}  // namespace

const KernelTable& avx2_kernels() {
  return kTable;
}
DotTileProduct avx2_bf16_product() {
  return dot_tile_product<Dot>;
}
DotTileProduct avx2_float_product() {
  return float_tile_product<Avx2>;
}

}  // namespace sluice::cpu
