#include "kernels/cpu/isa_prelude.h"
#include "kernels/cpu/quant_tiles.h"

#pragma GCC push_options
#pragma GCC target("avx512f,avx512bw,avx512vl,avx512dq,avx512vnni,fma,f16c")

#include "kernels/cpu/quant_avx512_lanes.h"
#include "kernels/cpu/quant_vnni_lanes.h"

#include "kernels/cpu/streams.h"

#include "kernels/cpu/quant_tiles_impl.h"

#include "kernels/cpu/quant_row_impl.h"

namespace sluice::cpu {
namespace {

// Zen 5 reads bytes in one stream with this at 98 to 100 % of the bandwidth, in two with 2 or 3 KiB each at 95 to 99; nibbles, which
// take twice the work, at 100 and 98.
using Ahead = FetchAhead<6144, 0>;

}  // namespace
}  // namespace sluice::cpu

#pragma GCC pop_options

namespace sluice::cpu {

QuantProducts vnni_quant_products() { return quant_products<Vnni, Ahead>(); }

}  // namespace sluice::cpu
