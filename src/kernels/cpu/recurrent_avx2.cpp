#include "kernels/cpu/isa_prelude.h"
#include "kernels/cpu/recurrent.h"
// The order matters from here on.
#include "kernels/cpu/vec_avx2.h"

#include "kernels/cpu/norm_impl.h"

#include "kernels/cpu/recurrent_impl.h"

namespace sluice::cpu {

const RecurrentKernels& avx2_recurrent_kernels() {
  static constexpr RecurrentKernels kKernels = make_recurrent_kernels<Avx2>();
  return kKernels;
}

}  // namespace sluice::cpu
