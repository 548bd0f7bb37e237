// When the gate/up projections are one GEMM with a fused activation (gemm_swiglu_sm90.cu), and the
// order of its tiles: pure functions of shapes and device, tested without a GPU.
#pragma once

#include <cstdint>

#include "tensor/dtype.h"

namespace sluice::cuda {

inline constexpr int kSwigluGroups = 3,
                     kSwigluCluster = 2;  // warpgroups of a CTA, CTAs of a cluster
// The tile of a cluster: rows of x, columns of the output.
inline constexpr int kSwigluRows = 64 * kSwigluGroups * kSwigluCluster, kSwigluColumns = 128;

struct SwigluInputs {
  std::int64_t m = 0, n = 0, k = 0;  // rows of x, columns of the output and of x
  DType x = DType::kF32, w = DType::kF32, out = DType::kF32;
  bool aligned = true;  // rows of x, w and the output begin on 16 bytes
  bool biased = false;
  bool known = true;           // SiLU, or GELU by tanh
  bool deterministic = false;  // the order of summation must not depend on m
  int sm = 0;
  int num_sms = 1;
};
// Whether the fused GEMM can run, and is faster than cuBLASLt and a separate activation.
bool fuses_swiglu(const SwigluInputs& inputs);

// The tile number t, in units of kSwigluRows and kSwigluColumns.
struct SwigluPlace {
  int row, column;
};
// Row tiles of a band. Tiles that run together then share as many rows of x as of weights, and the
// rows of a band stay in L2.
inline constexpr int kSwigluBand = 6;
constexpr SwigluPlace swiglu_place(int t, int rows, int columns) {
  const int first = t / (kSwigluBand * columns) * kSwigluBand,
            band = rows - first < kSwigluBand ? rows - first : kSwigluBand;
  const int within = t - first * columns;
  return {first + within % band, within / band};
}

}  // namespace sluice::cuda
