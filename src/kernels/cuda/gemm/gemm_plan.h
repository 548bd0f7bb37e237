// Which kernel computes a GEMM, and its launch: pure functions of shapes and device, tested without
// a GPU.
#pragma once

#include <cstdint>

#include "tensor/dtype.h"

namespace sluice::cuda {

enum class GemmKernel : std::uint8_t {
  kSkinny,          // bfloat16 on tensor cores, weights streamed once for up to 16 rows
  kRows,            // a warp for each output column; weights are streamed once for up to 8 rows
  kTiled,           // 64 x 64 tiles in shared memory, float32 arithmetic
  kSplit,           // few columns: float32 arithmetic, eight CTAs share k; Hopper
  kLibrary,         // cuBLASLt
  kBatchInvariant,  // bfloat16 on Hopper's wgmma, with the same order of summation for every m
};

struct GemmInputs {
  std::int64_t m = 0, n = 0, k = 0;
  DType x = DType::kF32, w = DType::kF32;
  bool library = false;        // cuBLASLt was found
  bool aligned = true;         // rows of x, w and out begin on 16 bytes
  bool deterministic = false;  // the order of summation must not depend on m
  std::int64_t batch = 1;
  int sm = 0;
};
GemmKernel choose_gemm(const GemmInputs& inputs);

// Rows that kRows takes at once: the smallest power of two that covers m, at most 8.
int gemm_rows_at_once(std::int64_t m);

// How kSkinny runs: kernels/cuda/gemm/gemm_skinny.cu.
struct SkinnyInputs {
  std::int64_t m = 0, n = 0, k = 0, batch = 1;  // n: gate columns only, if gated
  bool gated = false;                           // rows of w are gate and up
  bool norm = false;                            // fused norm of x, in shared memory
  bool add = false;                             // the result is added to the output
  int num_sms = 1;
  int sm = 80;
};
struct SkinnyPlan {
  // Stages of a warp's pipeline. 0: too little shared memory, or the norm costs too much.
  int stages = 0;
  bool x_in_shared = false;
  // x is in shared memory, and no tile and no turn of the warps is partial.
  bool whole = false;
  std::int64_t tiles = 0, blocks = 0, shared_bytes = 0;
};
SkinnyPlan plan_skinny(const SkinnyInputs& inputs);

}  // namespace sluice::cuda
