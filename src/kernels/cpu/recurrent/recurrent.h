// What the CPU bodies of ops/recurrent.h are made of: written once, compiled for each
// instruction set (recurrent_impl.h), raw pointers in, raw pointers out, one thread.
#pragma once

#include "kernels/types/recurrent_params.h"
#include "tensor/context.h"

namespace sluice::cpu {

// One sequence, channels [first, first + count).
struct ConvArgs {
  const float* x = nullptr;  // first row of the sequence
  std::int64_t x_stride = 0;
  const float* weight = nullptr;  // [taps, channels]
  const float* bias = nullptr;    // [channels], or null
  float* state = nullptr;         // [taps - 1, channels]: the last inputs, oldest first
  std::int64_t channels = 0;
  bool fresh = false;  // first step of the sequence: inputs before the first row are zero
  bool silu = false;
  float* out = nullptr;
  std::int64_t out_stride = 0;
  std::int64_t tokens = 0;
};

// Arguments of one sequence and head, for `columns` columns of its values: one block of
// kStateColumns.
struct ScanArgs {
  const float* q = nullptr;
  std::int64_t q_stride = 0;  // from one token to the next
  const float* k = nullptr;
  std::int64_t k_stride = 0;
  const float* v = nullptr;  // from the first column of the block
  std::int64_t v_stride = 0;
  const float* decay = nullptr;
  std::int64_t decay_stride = 0;
  bool decay_by_key = false;
  const float* beta = nullptr;
  std::int64_t beta_stride = 0;
  float skip = 0;
  bool delta = false;
  bool fresh = false;
  float* state = nullptr;  // [dk, kStateColumns]
  float* out = nullptr;
  std::int64_t out_stride = 0;
  std::int64_t dk = 0;
  int columns = 0;
  std::int64_t tokens = 0;
};

struct RecurrentKernels {
  // Indexed by taps - kMinConvTaps.
  void (*conv[ops::kMaxConvTaps - ops::kMinConvTaps + 1])(const ConvArgs&, std::int64_t first,
                                                          std::int64_t count);
  void (*scan)(const ScanArgs&);
  // n elements. step may be null. max_step 0: no upper bound.
  void (*gates)(const float* x, const float* bias, const float* rate, float min_step,
                float max_step, float* step, float* decay, std::int64_t n);
  void (*sigmoid)(const float* x, float* out, std::int64_t n);
  void (*gated_mul)(ops::Gate fn, const float* x, const float* gate, float* out, std::int64_t n);
};

const RecurrentKernels& avx2_recurrent_kernels();
const RecurrentKernels& avx512_recurrent_kernels();

}  // namespace sluice::cpu
