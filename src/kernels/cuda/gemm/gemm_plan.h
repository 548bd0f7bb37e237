// Which kernel computes a GEMM, and its launch: pure functions of shapes and device, tested without
// a GPU.
#pragma once

#include <cstdint>
#include <string_view>

#include "tensor/dtype.h"

namespace sluice::cuda {

enum class GemmKernel : std::uint8_t {
  kSkinny,  // bfloat16 on tensor cores, weights streamed once for up to 16 rows
  kRows,    // a warp for each output column, a few rows at a time: weights are streamed once for up
            // to 8 rows
  kTiled,   // 64 x 64 tiles in shared memory, float32 arithmetic
  kLibrary,         // cuBLASLt
  kBatchInvariant,  // bfloat16 on Hopper's warpgroup products, with an order of summation that is
                    // the same for every m
};
std::string_view gemm_kernel_name(GemmKernel kernel);

struct GemmInputs {
  std::int64_t m = 0, n = 0, k = 0;
  DType x = DType::kF32, w = DType::kF32;
  bool library = false;        // cuBLASLt was found
  bool aligned = true;         // rows of x, w and out begin on 16 bytes
  bool deterministic = false;  // an output's order of summation may not depend on m
  std::int64_t batch = 1;
  int sm = 0;
};
GemmKernel choose_gemm(const GemmInputs& inputs);

// Rows that kRows works on at once: a power of two up to 8 that covers m, or 8.
int gemm_rows_at_once(std::int64_t m);

// How kSkinny runs: kernels/cuda/gemm/gemm_skinny.cu.
struct SkinnyInputs {
  std::int64_t m = 0, n = 0, k = 0, batch = 1;  // n: of gates alone where they are gated
  bool gated = false;                           // rows of w are gates and ups
  bool norm = false;                            // x is normalised first, in shared memory
  bool add = false;                             // the product is added to what is there
  int num_sms = 1;
  int sm = 80;
};
struct SkinnyPlan {
  int stages = 0;  // units in the ring of a warp; 0: there is not enough shared memory, or the norm
                   // costs too much
  bool x_in_shared = false;
  bool whole = false;  // x lies in shared memory, and neither a tile nor a turn of the warps is a
                       // part of one
  std::int64_t tiles = 0, blocks = 0, shared_bytes = 0;
};
SkinnyPlan plan_skinny(const SkinnyInputs& inputs);

}  // namespace sluice::cuda
