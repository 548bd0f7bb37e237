#include "kernels/cpu/isa_prelude.h"
#include "kernels/cpu/quant_tiles.h"

#pragma GCC push_options
#pragma GCC target("avx512f,avx512bw,avx512vl,avx512dq,avx512vnni,fma,f16c")

#include "kernels/cpu/quant_avx512_lanes.h"
#include "kernels/cpu/quant_vnni_lanes.h"

#include "kernels/cpu/quant_tiles_impl.h"

#pragma GCC pop_options

namespace sluice::cpu {

QuantProducts vnni_quant_products() { return quant_products<Vnni>(); }

}  // namespace sluice::cpu
