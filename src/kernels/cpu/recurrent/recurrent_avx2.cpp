#include "kernels/cpu/isa/isa_prelude.h"
#include "kernels/cpu/recurrent/recurrent.h"
// The include order matters from here on: the vector type, then the kernels written over it.
#include "kernels/cpu/isa/vec_avx2.h"

#include "kernels/cpu/elementwise/norm_impl.h"

#include "kernels/cpu/recurrent/recurrent_impl.h"

namespace sluice::cpu {

const RecurrentKernels& avx2_recurrent_kernels() {
  static constexpr RecurrentKernels kKernels = make_recurrent_kernels<Avx2>();
  return kKernels;
}

}  // namespace sluice::cpu
