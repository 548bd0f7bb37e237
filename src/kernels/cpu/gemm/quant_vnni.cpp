#include "kernels/cpu/gemm/quant_tiles.h"
#include "kernels/cpu/isa/isa_prelude.h"

#pragma GCC push_options
#pragma GCC target("avx512f,avx512bw,avx512vl,avx512dq,avx512vnni,fma,f16c")

#include "kernels/cpu/gemm/quant_avx512_lanes.h"
#include "kernels/cpu/gemm/quant_vnni_lanes.h"

#include "kernels/cpu/common/streams.h"

#include "kernels/cpu/gemm/quant_tiles_impl.h"

#include "kernels/cpu/gemm/quant_row_impl.h"

namespace sluice::cpu {
namespace {

// For 32 KiB of first-level cache, which has no room for lines that are fetched ahead: with what
// Vnni does, Zen 4 reads 40 to 55 % of the bandwidth with 4 to 8 rows, and 60 to 88 % so.
struct SmallCacheVnni : Vnni {
  static constexpr auto kFetchHint = _MM_HINT_T1;
  static constexpr bool fetches_by_line(std::int64_t parts) { return parts == 1; }
  static constexpr std::int64_t groups_ahead(std::int64_t parts) { return parts == 1 ? 1 : 0; }
  static constexpr std::int64_t block_bytes() { return 48 << 10; }
  static constexpr int kTilesOfManyRows = 4;
};

}  // namespace
}  // namespace sluice::cpu

#pragma GCC pop_options

namespace sluice::cpu {

// Zen 5 (48 KiB) reads bytes in one stream with 6 KiB ahead at 98 to 100 % of the bandwidth, in two
// with 2 or 3 KiB each at 95 to 99; nibbles, which take twice the work, at 100 and 98. Zen 4 (32
// KiB) reads bytes so at 87 % and nibbles at 77; at 100 both with lines that come into the
// second-level cache 2 KiB ahead and into the first 256 bytes ahead (nibbles without that at 91).
QuantProducts vnni_quant_products() {
  return first_level_holds_fetches() ? quant_products<Vnni, FetchAhead<6144, 0>>()
                                     : quant_products<SmallCacheVnni, FetchAhead<256, 2048>>();
}

}  // namespace sluice::cpu
