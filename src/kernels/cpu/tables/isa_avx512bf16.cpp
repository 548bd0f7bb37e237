#include "kernels/cpu/isa/isa_prelude.h"

#pragma GCC push_options
#pragma GCC target("avx512f,avx512bw,avx512vl,avx512dq,avx512bf16,fma")
// The order matters from here on: vectors, then what is written over them.
#include "kernels/cpu/isa/vec_avx512.h"

namespace sluice::cpu {
namespace {

// The vector under a name of this file: its functions are compiled for BF16 here and must not stand
// in for the others.
struct Avx512Bf16 : Avx512 {};

}  // namespace
}  // namespace sluice::cpu

#include "kernels/cpu/elementwise/norm_impl.h"

#include "kernels/cpu/gemm/gemm_impl.h"

#include "kernels/cpu/attention/attention_impl.h"

#include "kernels/cpu/gemm/tiles_impl.h"

#include "kernels/cpu/attention/attention_bf16_impl.h"

#include "kernels/cpu/attention/attention_panels_impl.h"

#include "kernels/cpu/attention/attention_shared_impl.h"

namespace sluice::cpu {
namespace {

// vdpbf16ps: both products of a pair and the sum in one instruction, with its own rounding.
struct Bf16Dot {
  using Vector = Avx512Bf16;
  using F = __m512;
  using W = __m512bh;
  using X = __m512bh;
  static constexpr int kVectors = 1;
  static constexpr int kMaxRows = 6;
  static constexpr int max_tiles(std::int64_t) { return 4; }
  static constexpr int kStepPairs = 0;
  static constexpr bool kInHalves = false;
  static constexpr bool kOutrunsMemory = true;

  static W load(const std::byte* p) { return reinterpret_cast<W>(_mm512_loadu_si512(p)); }
  static X spread(std::uint32_t pair) {
    return reinterpret_cast<X>(_mm512_set1_epi32(static_cast<int>(pair)));
  }
  static F dot(F sum, W w, X x) { return _mm512_dpbf16_ps(sum, w, x); }
};

}  // namespace
}  // namespace sluice::cpu

#pragma GCC pop_options

namespace sluice::cpu {

const KernelTable& avx512bf16_kernels() {
  static const KernelTable table = [] {
    KernelTable made = avx512_kernels();
    made.attend[1] = attend_tile_bf16<Bf16Dot>;
    made.join_chunks = join_chunks<Avx512Bf16>;
    made.attend_shared = attend_shared<Bf16Dot>;
    made.index_scores[1] = index_scores_bf16<Bf16Dot>;
    return made;
  }();
  return table;
}
Bf16TileProduct avx512bf16_bf16_product() {
  return bf16_tile_product<Bf16Dot>;
}

}  // namespace sluice::cpu
