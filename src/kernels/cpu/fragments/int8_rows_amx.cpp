#include "kernels/cpu/fragments/amx_blocks.h"
#include "kernels/cpu/fragments/int8_rows.h"
#include "kernels/cpu/isa/isa_prelude.h"

#pragma GCC push_options
#pragma GCC target("avx512f,avx512bw,avx512vl,avx512dq,fma,f16c,amx-tile,amx-int8")
#include "kernels/cpu/isa/amx.h"

#include "kernels/cpu/common/streams.h"

#include "kernels/cpu/fragments/int8_rows_amx_impl.h"

#pragma GCC pop_options

namespace sluice::cpu {

void amx_int8_rows(const Int8Product& args, std::int64_t first, std::int64_t last) {
  multiply_int8_on_amx(args, first, last);
}

}  // namespace sluice::cpu
