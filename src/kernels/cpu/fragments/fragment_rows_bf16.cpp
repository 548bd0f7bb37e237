// Weights in fragments and rows of bfloat16, by vdpbf16ps.
//
// vdpbf16ps takes subnormal inputs for zeros. No weight is one: the smallest of e4m3 is 2^-9. A
// number of x below 2^-126 counts as zero.
#include "kernels/cpu/fragments/fragment_rows.h"
#include "kernels/cpu/isa/isa_prelude.h"
#include "kernels/types/fp4.h"

#pragma GCC push_options
#pragma GCC target("avx512f,avx512bw,avx512vl,avx512dq,avx512bf16,avx512vbmi,fma,f16c")

#include "kernels/cpu/common/streams.h"

#include "kernels/cpu/fragments/fragment_rows_impl.h"

#include "kernels/cpu/fragments/bf16_fragments.h"

#pragma GCC pop_options

namespace sluice::cpu {

FragmentRows bf16_fragment_rows() {
  return {.input = DType::kBF16,
          .scratch_bytes = FragmentScratch<Bf16Fragments>::bytes,
          .multiply = multiply_fragments<Bf16Fragments>};
}

}  // namespace sluice::cpu
