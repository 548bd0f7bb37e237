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

template <QuantKind kKind>
void vnni_product(const TileProduct& a, std::int64_t m0, std::int64_t m1, std::int64_t t0, std::int64_t t1) {
  if (m1 - m0 != 1) return quant_product<Vnni, kKind>(a, m0, m1, t0, t1);
  const QuantLayout layout(kKind, a.rows, a.columns, a.group);
  one_row<kKind, Ahead, Ahead>(a, layout, m0, [&](const auto& one, const auto&) {
    for (std::int64_t t = t0; t < t1;) t = one(t, t1);
  });
  add_bias(a, m0, m1, t0, t1);
}

}  // namespace
}  // namespace sluice::cpu

#pragma GCC pop_options

namespace sluice::cpu {

QuantProducts vnni_quant_products() { return {vnni_product<QuantKind::kInt8>, vnni_product<QuantKind::kInt4>, vnni_product<QuantKind::kInt4Min>}; }

}  // namespace sluice::cpu
