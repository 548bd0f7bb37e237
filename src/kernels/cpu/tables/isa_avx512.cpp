#include "kernels/cpu/isa/isa_prelude.h"

#pragma GCC push_options
#pragma GCC target("avx512f,avx512bw,avx512vl,avx512dq,fma")
// The include order matters from here on: the vector type, then the kernels written over it.
#include "kernels/cpu/isa/vec_avx512.h"

#include "kernels/cpu/elementwise/norm_impl.h"

#include "kernels/cpu/gemm/gemm_impl.h"

#include "kernels/cpu/attention/attention_impl.h"

#include "kernels/cpu/attention/attention_int8_impl.h"

#include "kernels/cpu/attention/attention_e4m3_impl.h"

#include "kernels/cpu/gemm/tiles_impl.h"

#include "kernels/cpu/attention/attention_bf16_impl.h"

#include "kernels/cpu/attention/attention_panels_impl.h"

#include "kernels/cpu/attention/attention_shared_impl.h"

#include "kernels/cpu/tables/table_impl.h"

#pragma GCC pop_options

namespace sluice::cpu {
namespace {

using Dot = WidenedDot<Avx512, 4, 4>;
constexpr KernelTable kTable = make_table<Avx512, Dot>();

}  // namespace

const KernelTable& avx512_kernels() {
  return kTable;
}
DotTileProduct avx512_bf16_product() {
  return dot_tile_product<Dot>;
}
DotTileProduct avx512_float_product() {
  return float_tile_product<Avx512>;
}

}  // namespace sluice::cpu
