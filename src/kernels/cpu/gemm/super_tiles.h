// TileKernels of weights in GGUF's blocks; super_layout.h defines their bytes and arithmetic.
#pragma once

#include <utility>

#include "kernels/cpu/gemm/super_layout.h"
#include "kernels/cpu/isa/tiles.h"
#include "kernels/types/super_formats.h"

namespace sluice::cpu {

using ops::is_super;

// Weights to pack come as uint8 [n, bytes of a row]: the blocks of a GGUF file, whose values they
// keep exactly. Columns are a multiple of a block's.
const TileKernels& super_tile_kernels(CpuIsa isa, Format format);

using SuperProduct = void (*)(const TileProduct&, std::int64_t, std::int64_t, std::int64_t,
                              std::int64_t);
struct SuperProducts {
  SuperProduct kinds[kNumSuperKinds];  // by SuperKind
};
SuperProducts avx2_super_products();
SuperProducts avx512_super_products();
// AVX-512 with VNNI.
SuperProducts vnni_super_products();

}  // namespace sluice::cpu
