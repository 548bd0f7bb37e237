// TileKernels of the quantised layouts; quant_layout.h defines their bytes and arithmetic.
#pragma once

#include "kernels/cpu/gemm/quant_layout.h"
#include "kernels/cpu/isa/tiles.h"

namespace sluice::cpu {

// The layouts of a kind on one instruction set. Weights to pack may also come as uint8 [n, bytes of
// a row]: the blocks of a GGUF file, for groups of 32; they keep their values exactly.
const TileKernels& quant_tile_kernels(CpuIsa isa, Format format);

using QuantTileProduct = void (*)(const TileProduct&, std::int64_t, std::int64_t, std::int64_t,
                                  std::int64_t);
struct QuantProducts {
  QuantTileProduct int8, int4, int4_min;
};
QuantProducts avx2_quant_products();
QuantProducts avx512_quant_products();
// AVX-512 with VNNI.
QuantProducts vnni_quant_products();
QuantProducts amx_quant_products();

struct QuantPairedRows {
  decltype(TileKernels::paired_row) int8 = nullptr, int4 = nullptr, int4_min = nullptr;
};
QuantPairedRows amx_quant_paired_rows();

}  // namespace sluice::cpu
