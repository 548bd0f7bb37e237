// The types of a model's arithmetic, and of what it caches of each token. They are decided once,
// from the options, the configuration and the device (engine/serving_plan.h). Layers and models
// read them.
#pragma once

#include <cstdint>
#include <optional>

#include "kernels/types/weight.h"
#include "tensor/dtype.h"

namespace sluice {

struct Numerics {
  DType compute = DType::kF32;  // kF32, kBF16 or kF16
  // Matrices are quantised while they are loaded. kInt8 or kInt4, on a CPU: those of linear layers
  // and experts, with one scale for `quantization_group` columns, 32 or 128. kFp8: those of linear
  // layers but the head, with groups as ops::Weight has them, 0 or 128 (on a CPU 128). kNvFp4:
  // random weights alone.
  std::optional<ops::Format> quantization = {};
  std::int64_t quantization_group = 32;
  // Random weights of a W8A8 checkpoint: those of linear layers have a scale a row, and multiply
  // rows of int8 (ops::Weight::int8_rows). With `quantization` of kInt8.
  bool int8_rows = false;
  // Matrices of linear layers that a file stores as e4m3 keep their form
  // (layers/weights/fp8_weights.h); false: they are widened.
  bool keep_fp8 = false;
  // e4m3 of linear layers, stored or rounded, lies in fragments (layers/weights/fragment_weights.h)
  // and multiplies rows of bfloat16, which are not rounded to e4m3: on a CPU.
  bool fp8_fragments = false;
  // Integers of linear layers lie in fragments (layers/weights/fragment_weights.h): those that a
  // file stores, and those of `quantization`, which then says nothing of other layers. MXFP4 and
  // NVFP4 of linear layers and experts, too.
  bool int_fragments = false;
  // Experts are rounded to this format and get fragments, in groups of `quantization_group`
  // (kFp8: 128, kMxFp4: 32, kNvFp4: 16): with `quantization`, but for the tiles of integers of a
  // CPU; and random weights of a checkpoint that stores them so.
  std::optional<ops::Format> experts_rounded_to = {};
  // Blocks of a GGUF file keep their form unless `quantization` sets another; false: they are
  // widened. On a GPU, with int_fragments, they lie in fragments.
  bool keep_blocks = false;

  // Type of the KV cache if it differs from GEMM inputs: kF32, kBF16, kI8 or kF8E4M3.
  std::optional<DType> kv_stored = {};
  // Type of index keys (DSA) if it differs from the KV cache: kBF16 or kF8E4M3.
  std::optional<DType> index_stored = {};

  // On a GPU: results do not depend on the batch. On a CPU they never do.
  bool deterministic = false;

  // Type of GEMM inputs. The CPU has no float16 GEMM: float16 weights are multiplied with float32
  // inputs.
  DType gemm() const { return compute == DType::kBF16 ? DType::kBF16 : DType::kF32; }
  DType kv() const { return kv_stored.value_or(gemm()); }
  // Latents in 8 bits leave index keys as they are.
  DType index() const { return index_stored.value_or(dtype_size(kv()) == 1 ? gemm() : kv()); }
};

}  // namespace sluice
