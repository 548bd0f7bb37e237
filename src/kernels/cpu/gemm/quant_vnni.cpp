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

// For 32 KiB of L1, which has no room for lines that are prefetched. Prefetches go to L2 instead.
// With 4 to 8 rows Zen 4 then reads at 60 to 88 % of the memory bandwidth; with the settings of
// Vnni it reads at 40 to 55 %.
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

// GEMV prefetch distances, in per cent of the memory bandwidth:
// - Zen 5 (48 KiB of L1), bytes: 98 to 100 in one stream with 6 KiB ahead; 95 to 99 in two streams
//   with 2 or 3 KiB each. Nibbles, which take twice the work: 100 and 98.
// - Zen 4 (32 KiB of L1) with these distances: bytes 87, nibbles 77. With prefetches into L2 2 KiB
//   ahead and into L1 256 bytes ahead: both 100 (nibbles without the L1 prefetch: 91).
QuantProducts vnni_quant_products() {
  return first_level_holds_fetches() ? quant_products<Vnni, FetchAhead<6144, 0>>()
                                     : quant_products<SmallCacheVnni, FetchAhead<256, 2048>>();
}

}  // namespace sluice::cpu
