// Plain values of the ops of recurrent layers (ops/recurrent.h).
#pragma once

#include <cstdint>

#include "tensor/tensor.h"

namespace sluice::ops {

// The rows of a batch by sequence, and where each sequence keeps its state.
struct SequenceRows {
  Tensor start_loc;    // [seqs + 1] int32: rows of sequence s are [start_loc[s], start_loc[s + 1])
  Tensor prefix_lens;  // [seqs] int32: tokens computed before; at 0 the state is zero, whatever its
                       // slot holds
  Tensor state_slots;  // [seqs] int32: row of the state planes
};

// What multiplies in gated_mul: x * gate, x * silu(gate), x * sigmoid(gate).
enum class Gate : std::uint8_t { kLinear, kSilu, kSigmoid };

// Taps of a causal convolution.
inline constexpr std::int64_t kMinConvTaps = 2;
inline constexpr std::int64_t kMaxConvTaps = 8;

// Largest key of a recurrent head.
inline constexpr std::int64_t kMaxStateKeys = 1024;
// A head's state [dk, dv] lies in blocks of so many columns, [block][dk][column]; the last is
// filled up with zeros.
inline constexpr std::int64_t kStateColumns = 16;

// Elements of the state of `heads` heads.
constexpr std::int64_t recurrent_state_elements(std::int64_t heads, std::int64_t dk,
                                                std::int64_t dv) {
  return heads * ((dv + kStateColumns - 1) / kStateColumns * kStateColumns) * dk;
}

// The inputs of recurrent_scan.
struct ScanInputs {
  Tensor q;      // [T, hk, dk] f32, strided; stride 1 over dk
  Tensor k;      // [T, hk, dk] f32, likewise
  Tensor v;      // [T, hv, dv] f32, likewise; head m reads key head m / (hv / hk)
  Tensor decay;  // [T, hv] or [T, hv * dk] f32: factors, one a head or one a channel of its keys
  Tensor beta;   // [T, hv] f32
  Tensor skip;   // [hv] f32, or undefined
  bool delta = true;
};

}  // namespace sluice::ops
