#include "kernels/cpu/isa/isa_prelude.h"
#include "kernels/cpu/roofline/roofline_loops.h"

#pragma GCC push_options
#pragma GCC target("avx2,fma")
#include "kernels/cpu/roofline/roofline_vector_impl.h"
#pragma GCC pop_options

namespace sluice::cpu {

VectorLoops avx2_loops() {
  struct Registers {
    using F = __m256;
    using I = __m256i;
  };
  return VectorLoop<Registers>::loops();
}

}  // namespace sluice::cpu
