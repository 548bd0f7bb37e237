// Kernels of MLA: pure functions of shapes and device, tested without a GPU.
#pragma once

#include <cstdint>

#include "tensor/dtype.h"

namespace sluice::cuda {

inline constexpr int kMlaLatent = 512,
                     kMlaRope = 64;      // the sizes of every published DeepSeek-V2 and later model
inline constexpr int kMlaHeadTile = 64;  // heads of a CTA
inline constexpr int kMlaChunk = 64;     // keys of a step

struct MlaInputs {
  std::int64_t latent = 0, rope = 0;
  DType plane = DType::kF32;
  bool aligned = true;         // rows of the plane begin on 16 bytes, those of e4m3 on 4
  bool deterministic = false;  // one order of summation for every batch
  int sm = 0;
};
bool mla_is_fast(const MlaInputs& inputs);

// KV splits of a row, so that a few rows fill the GPU. They depend on what a captured graph keeps,
// not on lengths.
struct MlaSplitInputs {
  std::int64_t rows = 0, heads = 0, max_keys = 0;
  std::int64_t scratch_bytes = 0;  // for partial results
  int num_sms = 1;
};
int mla_splits(const MlaSplitInputs& inputs);
// Bytes of the partial results of `units` (row, head) pairs: a latent row and a log-sum-exp in
// float32.
std::int64_t mla_partial_bytes(std::int64_t units, std::int64_t splits);

}  // namespace sluice::cuda
