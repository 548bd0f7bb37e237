// When gates and ups are one product with their activation inside (gemm_swiglu_sm90.cu), and in
// what order its tiles are taken: pure functions of shapes and facts, tested without a GPU.
#pragma once

#include <cstdint>

#include "tensor/dtype.h"

namespace sluice::cuda {

inline constexpr int kSwigluGroups = 3,
                     kSwigluCluster = 2;  // warpgroups of a block, blocks of a cluster
// The work of a cluster: rows of x, and columns of the output.
inline constexpr int kSwigluRows = 64 * kSwigluGroups * kSwigluCluster, kSwigluColumns = 128;

struct SwigluInputs {
  std::int64_t m = 0, n = 0, k = 0;  // rows of x, columns of the output and of x
  DType x = DType::kF32, w = DType::kF32, out = DType::kF32;
  bool aligned = true;  // rows of x, w and the output begin on 16 bytes
  bool biased = false;
  bool known = true;           // SiLU, or GELU by tanh
  bool deterministic = false;  // an output's order of summation may not depend on m
  int sm = 0;
  int num_sms = 1;
};
// Whether that can be, and is faster than the library's product and the activation after it.
bool fuses_swiglu(const SwigluInputs& inputs);

// What of the output the t-th piece of work is, in units of kSwigluRows and kSwigluColumns.
struct SwigluPlace {
  int row, column;
};
// Rows of tiles are taken in bands: work that runs together then shares as many rows of x as of
// weights, and the rows of a band stay in the L2 cache.
inline constexpr int kSwigluBand = 6;
constexpr SwigluPlace swiglu_place(int t, int rows, int columns) {
  const int first = t / (kSwigluBand * columns) * kSwigluBand,
            band = rows - first < kSwigluBand ? rows - first : kSwigluBand;
  const int within = t - first * columns;
  return {first + within % band, within / band};
}

}  // namespace sluice::cuda
