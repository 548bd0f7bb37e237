// Weights in fragments and rows of bfloat16 on AMX, see fragment_rows_amx_impl.h.
#include "kernels/cpu/fragments/amx_blocks.h"
#include "kernels/cpu/fragments/fragment_rows.h"
#include "kernels/cpu/isa/isa_prelude.h"
#include "kernels/types/fp4.h"

#pragma GCC push_options
#pragma GCC target( \
    "avx512f,avx512bw,avx512vl,avx512dq,avx512bf16,avx512vbmi,fma,f16c,amx-tile,amx-bf16")

#include "kernels/cpu/isa/amx.h"

#include "kernels/cpu/common/streams.h"

#include "kernels/cpu/fragments/fragment_rows_impl.h"

#include "kernels/cpu/fragments/bf16_fragments.h"

#include "kernels/cpu/fragments/fragment_rows_amx_impl.h"

#pragma GCC pop_options

namespace sluice::cpu {

FragmentRows amx_fragment_rows() {
  return {.input = DType::kBF16, .to_tiles = rows_to_tiles, .multiply = multiply_fragments_on_amx};
}

}  // namespace sluice::cpu
