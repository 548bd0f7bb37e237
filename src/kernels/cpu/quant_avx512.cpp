#include "kernels/cpu/isa_prelude.h"
#include "kernels/cpu/quant_tiles.h"

#pragma GCC push_options
#pragma GCC target("avx512f,avx512bw,avx512vl,avx512dq,fma,f16c")

#include "kernels/cpu/quant_avx512_lanes.h"

#include "kernels/cpu/quant_dots.h"

namespace sluice::cpu {
namespace {

using Lanes = ByteLanes<Avx512Lanes>;

// AVX-512 without VNNI.
struct Avx512Quant : Lanes {
  template <bool kNibbles>
  using Dots = std::conditional_t<kNibbles, NibbleDots<Lanes>, ByteDots<Lanes>>;
  template <bool kNibbles>
  using RowDots = std::conditional_t<kNibbles, NibbleDots<Lanes>, WordDots<Lanes>>;
  static constexpr auto kFetchHint = _MM_HINT_T0;
  static constexpr bool fetches_by_line(std::int64_t) { return true; }
  static constexpr std::int64_t groups_ahead(std::int64_t parts) { return parts == 1 ? 4 : 0; }
  static std::int64_t block_bytes() { return first_level_cache_bytes() / 4 * 3; }
  static constexpr int kTilesOfManyRows = 4;
  static constexpr int most_rows(int) { return 6; }
  static constexpr int vectors_at_once(bool nibbles) { return nibbles ? 4 : 2; }
};

}  // namespace
}  // namespace sluice::cpu

#include "kernels/cpu/streams.h"

#include "kernels/cpu/quant_tiles_impl.h"

#include "kernels/cpu/quant_row_impl.h"

#pragma GCC pop_options

namespace sluice::cpu {

QuantProducts avx512_quant_products() { return quant_products<Avx512Quant, FetchAhead<6144, 0>>(); }

}  // namespace sluice::cpu
