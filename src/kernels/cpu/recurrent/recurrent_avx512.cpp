#include "kernels/cpu/isa/isa_prelude.h"
#include "kernels/cpu/recurrent/recurrent.h"

#pragma GCC push_options
#pragma GCC target("avx512f,avx512bw,avx512vl,avx512dq,fma")
// The include order matters from here on: the vector type, then the kernels written over it.
#include "kernels/cpu/isa/vec_avx512.h"

#include "kernels/cpu/elementwise/norm_impl.h"

#include "kernels/cpu/recurrent/recurrent_impl.h"

#pragma GCC pop_options

namespace sluice::cpu {

const RecurrentKernels& avx512_recurrent_kernels() {
  static constexpr RecurrentKernels kKernels = make_recurrent_kernels<Avx512>();
  return kKernels;
}

}  // namespace sluice::cpu
