// The AMX kernel table: the AVX-512 table, except for the kernels that read bfloat16 keys.
#include "kernels/cpu/isa/isa_prelude.h"

#pragma GCC push_options
#pragma GCC target("avx512f,avx512bw,avx512vl,avx512dq,fma,amx-tile,amx-bf16")
#include "kernels/cpu/isa/vec_avx512.h"

#include "kernels/cpu/isa/amx.h"

#include "kernels/cpu/gemm/amx_steps.h"

namespace sluice::cpu {
namespace {

// A type of this file's own. Template instances over it are compiled for AMX here, and the linker
// must not merge them with the AVX-512 ones.
struct Avx512OfAmx : Avx512 {};

}  // namespace
}  // namespace sluice::cpu

#include "kernels/cpu/elementwise/norm_impl.h"

#include "kernels/cpu/gemm/gemm_impl.h"

#include "kernels/cpu/attention/attention_impl.h"

#include "kernels/cpu/gemm/tiles_impl.h"

#include "kernels/cpu/attention/attention_bf16_impl.h"

#include "kernels/cpu/attention/attention_panels_impl.h"

#include "kernels/cpu/attention/attention_shared_impl.h"

#include "kernels/cpu/attention/attention_amx_impl.h"

#include "kernels/cpu/attention/attention_amx_decode.h"

namespace sluice::cpu {
namespace {

// Dot products on the vector units in AMX's order of summation.
using Pairs = WidenedDot<Avx512OfAmx, 4, 2, static_cast<int>(kStepColumns / 2)>;

// One tile of attention. Panels with few rows per head: vector units (bound by memory). Panels with
// many rows: AMX. Rows of a plane: repack, then AMX.
template <class D>
void attend_tile_amx(const AttendTile& t) {
  using V = typename D::Vector;
  const FlushDenormals flush;
  if (t.panels && DecodeProducts<V>::fits(t)) {
    DecodeProducts<V> products(t);
    attend_with<V>(t, products);
  } else if (t.panels) {
    AmxProducts<V> products(t);
    attend_with<V>(t, products);
  } else {
    PackedProducts<D> products(t);
    attend_with<V>(t, products);
  }
}

void merge_chunks_flushed(const AttendTile& t) {
  const FlushDenormals flush;
  merge_chunks<Avx512OfAmx>(t);
}

void attend_shared_flushed(SharedTile& t, SharedPhase phase, int part, int parts) {
  const FlushDenormals flush;
  attend_shared<Pairs>(t, phase, part, parts);
}

}  // namespace
}  // namespace sluice::cpu

#pragma GCC pop_options

namespace sluice::cpu {

const KernelTable& amx_kernels() {
  static const KernelTable table = [] {
    KernelTable made = avx512_kernels();
    made.attend[1] = attend_tile_amx<Pairs>;
    made.merge_chunks = merge_chunks_flushed;
    made.attend_shared = attend_shared_flushed;
    made.index_scores[1] = index_scores_amx<Pairs>;
    return made;
  }();
  return table;
}

}  // namespace sluice::cpu
