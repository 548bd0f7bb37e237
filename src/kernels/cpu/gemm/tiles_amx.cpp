// GEMM with bfloat16 tiles on AMX, see tiles_amx_impl.h.
#include "kernels/cpu/isa/isa_prelude.h"

#pragma GCC push_options
#pragma GCC target("avx512f,avx512bw,avx512vl,avx512dq,fma,f16c,amx-tile,amx-bf16")
#include "kernels/cpu/isa/amx.h"

#include "kernels/cpu/common/streams.h"

#include "kernels/cpu/gemm/amx_steps.h"

#include "kernels/cpu/gemm/tiles_amx_impl.h"

#pragma GCC pop_options

namespace sluice::cpu {

DotTileProduct amx_bf16_product() {
  return amx_product;
}
decltype(TileKernels::paired_row) amx_bf16_paired_row() {
  return amx_paired_row;
}

}  // namespace sluice::cpu
