#include "kernels/cpu/isa_prelude.h"
// The order matters from here on: vectors, then what is written over them.
#include "kernels/cpu/vec_avx2.h"

#include "kernels/cpu/norm_impl.h"

#include "kernels/cpu/gemm_impl.h"

#include "kernels/cpu/attention_impl.h"

#include "kernels/cpu/attention_int8_impl.h"

#include "kernels/cpu/tiles_impl.h"

#include "kernels/cpu/tiles_wide_impl.h"

#include "kernels/cpu/attention_bf16_impl.h"

#include "kernels/cpu/attention_panels_impl.h"

#include "kernels/cpu/attention_shared_impl.h"

#include "kernels/cpu/table_impl.h"

namespace sluice::cpu {
namespace {

using Dot = WidenedDot<Avx2, 6, 4>;
constexpr KernelTable kTable = make_table<Avx2, Dot>();

}  // namespace

const KernelTable& avx2_kernels() { return kTable; }
Bf16TileProduct avx2_bf16_product() { return bf16_tile_product<Dot>; }

}  // namespace sluice::cpu
