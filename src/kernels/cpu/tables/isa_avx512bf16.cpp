#include "kernels/cpu/isa/isa_prelude.h"

#pragma GCC push_options
#pragma GCC target("avx512f,avx512bw,avx512vl,avx512dq,avx512bf16,fma")
// The include order matters from here on: the vector type, then the kernels written over it.
#include "kernels/cpu/isa/vec_avx512.h"

namespace sluice::cpu {
namespace {

// A type of this file's own. Template instances over it are compiled for BF16 here, and the linker
// must not merge them with the AVX-512 ones.
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

// vdpbf16ps: multiplies both halves of a pair and adds them to the sum in one instruction. It
// rounds differently from FMA, so bits differ from those of WidenedDot.
struct Bf16Dot {
  using Vector = Avx512Bf16;
  using F = __m512;
  using W = __m512bh;
  using X = __m512bh;
  static constexpr int kVectors = 1;
  static constexpr int kMaxRows = 6;
  static constexpr int max_tiles(std::int64_t) { return 4; }
  static constexpr int kStepPairs = 0;
  static constexpr int kStepColumns = 2;
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
    made.merge_chunks = merge_chunks<Avx512Bf16>;
    made.attend_shared = attend_shared<Bf16Dot>;
    made.index_scores[1] = index_scores_bf16<Bf16Dot>;
    return made;
  }();
  return table;
}
DotTileProduct avx512bf16_bf16_product() {
  return dot_tile_product<Bf16Dot>;
}

}  // namespace sluice::cpu
