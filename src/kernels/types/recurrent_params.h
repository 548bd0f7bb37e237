// Plain structs of the ops of recurrent layers (ops/recurrent.h).
#pragma once

#include <cstdint>

#include "tensor/tensor.h"

namespace sluice::ops {

// Rows of a batch by sequence, and the state slot of each sequence.
struct SequenceRows {
  Tensor start_loc;    // [seqs + 1] int32: rows of sequence s are [start_loc[s], start_loc[s + 1])
  Tensor prefix_lens;  // [seqs] int32: tokens computed before; 0: the state starts at zero,
                       // whatever its slot holds
  Tensor state_slots;  // [seqs] int32: row of the state planes
  // [seqs] int32: the slot with the state before the rows of a sequence. That is its own, or that
  // of the sequence before it, which it continues: the draft behind a token. Undefined: its own.
  Tensor state_sources = {};
};

// Gate function of gated_mul: x * gate, x * silu(gate), x * sigmoid(gate).
enum class Gate : std::uint8_t { kLinear, kSilu, kSigmoid };

// Limits of the taps of a causal convolution.
inline constexpr std::int64_t kMinConvTaps = 2;
inline constexpr std::int64_t kMaxConvTaps = 8;

// Maximum key dimension of a recurrent head.
inline constexpr std::int64_t kMaxStateKeys = 1024;
// A head's state [dk, dv] is stored in blocks of this many columns, [block][dk][column]. The last
// block is padded with zeros.
inline constexpr std::int64_t kStateColumns = 16;

// State elements of `heads` heads.
constexpr std::int64_t recurrent_state_elements(std::int64_t heads, std::int64_t dk,
                                                std::int64_t dv) {
  return heads * ((dv + kStateColumns - 1) / kStateColumns * kStateColumns) * dk;
}

// Inputs of recurrent_scan.
struct ScanInputs {
  Tensor q;      // [T, hk, dk] f32, strided; stride 1 over dk
  Tensor k;      // [T, hk, dk] f32, likewise
  Tensor v;      // [T, hv, dv] f32, likewise; head m reads key head m / (hv / hk)
  Tensor decay;  // [T, hv] or [T, hv * dk] f32: factors, one per head or one per key channel
  Tensor beta;   // [T, hv] f32
  Tensor skip;   // [hv] f32, or undefined
  bool delta = true;
};

}  // namespace sluice::ops
