// GEMM with quantised tiles on AMX, see quant_amx_impl.h.
#include "kernels/cpu/gemm/quant_tiles.h"
#include "kernels/cpu/isa/isa_prelude.h"

#pragma GCC push_options
#pragma GCC target("avx512f,avx512bw,avx512vl,avx512dq,avx512vnni,fma,f16c,amx-tile,amx-int8")

#include "kernels/cpu/gemm/quant_avx512_lanes.h"

#include "kernels/cpu/gemm/quant_vnni_lanes.h"

#include "kernels/cpu/isa/amx.h"

#include "kernels/cpu/common/streams.h"

#include "kernels/cpu/gemm/quant_tiles_impl.h"

#include "kernels/cpu/gemm/quant_row_impl.h"

#include "kernels/cpu/gemm/quant_amx_impl.h"

#pragma GCC pop_options

namespace sluice::cpu {

QuantProducts amx_quant_products() {
  return {amx_product<QuantKind::kInt8>, amx_product<QuantKind::kInt4>,
          amx_product<QuantKind::kInt4Min>};
}
QuantPairedRows amx_quant_paired_rows() {
  return {amx_paired_row<QuantKind::kInt8>, amx_paired_row<QuantKind::kInt4>,
          amx_paired_row<QuantKind::kInt4Min>};
}

}  // namespace sluice::cpu
