// Common parts of recurrent layers: their names in the KV pool, their short convolution, and the
// loading of their vectors.
#pragma once

#include <initializer_list>
#include <string_view>

#include "attention/backend.h"
#include "config/model_config.h"
#include "layers/linear.h"
#include "ops/recurrent.h"

namespace sluice {

inline constexpr std::string_view kConvPlane = "conv";      // the last inputs of the convolution
inline constexpr std::string_view kMatrixPlane = "matrix";  // the state of the heads

// A depthwise causal convolution with its stored past inputs. `parts` are tensors "<name>.weight"
// [rows, 1, taps] whose channels stand side by side.
struct ShortConvolution {
  Tensor weight;  // [taps, channels] f32
  Tensor bias;    // [channels] f32, or undefined
  bool silu = true;

  static ShortConvolution load(const Weights& weights, std::initializer_list<WeightPart> parts,
                               std::int64_t taps, bool bias, bool silu);
  std::int64_t channels() const { return weight.dim(1); }
  std::int64_t state_elements() const { return (weight.dim(0) - 1) * weight.dim(1); }
  // x, out [T, channels] f32; out may be x.
  void forward(Context& ctx, const ForwardBatch& fb, const AttentionBackend& backend, int layer,
               const Tensor& x, const Tensor& out) const {
    ops::causal_conv(ctx, x, weight, bias, silu, fb.state_rows,
                     backend.state_plane(layer, kConvPlane), out);
  }
};

// -exp(A_log) of each head, repeated `width` times: the factor of steps in ops::decay_gates.
// `shape` is the shape in the file.
Tensor load_decay_rates(const Weights& weights, std::int64_t heads, std::int64_t width,
                        std::vector<std::int64_t> shape);

// One number for each of n elements.
Tensor uniform_vector(const Weights& weights, std::int64_t n, double value);

}  // namespace sluice
