// How each device holds and multiplies each format of weights: one row of functions for each
// (device, format, layout).
//
// A quantised GEMM on a new device is its kernel file and one row here. The fused entries are
// optional: where one is null, ops/fused.cpp runs the plain operations one after the other.
#pragma once

#include <span>
#include <string_view>

#include "kernels/types/op_params.h"
#include "kernels/types/weight.h"
#include "tensor/context.h"

namespace sluice::ops {

// Rows of x as a GEMM reads them.
struct PreparedRows {
  DType dtype = DType::kF32;
  std::int64_t elements = 0;  // of a row

  // Whether the rows are the numbers of x, rounded to dtype.
  bool are_numbers(const Weight& w) const {
    return !is_quantised(w.format) || (dtype == w.input && elements == w.columns);
  }
};

struct WeightOps {
  DeviceKind device;
  Format format;
  Layout layout;
  std::string_view name;

  // Why a weight of this format, with its group and input, cannot be held so; empty: it can. The
  // first row of a device and format that accepts a weight gives its layout.
  std::string_view (*accepts)(const Weight& w);

  // Packing (ops/packing.h). Null: numbers lie as they are stored.
  std::int64_t (*packed_bytes)(const Context& ctx, const Weight& w) = nullptr;
  // Of a row as blocks of a GGUF file, which pack() takes as well; 0: there are none.
  std::int64_t (*block_row_bytes)(const Context& ctx, const Weight& w) = nullptr;
  void (*pack)(const Context& ctx, const Tensor& from, const Weight& w, std::int64_t index,
               std::int64_t first) = nullptr;
  std::int64_t tile_rows = 1;   // rows that the layout interleaves
  std::int64_t panel_rows = 1;  // rows whose bytes lie together; panels follow one another

  // Rows of x for a GEMM of `rows` rows. Null: rows of w.input.
  PreparedRows (*prepared_shape)(const Context& ctx, const Weight& w, std::int64_t rows) = nullptr;
  void (*prepare)(Context& ctx, const Tensor& x, const Weight& w, const Tensor& out) = nullptr;

  // The operations of ops/gemm.h, ops/elementwise.h and ops/moe.h. Null embed or experts: no table
  // of embeddings, or no experts, are held so.
  void (*linear)(Context& ctx, const Tensor& x, const Weight& w, const Tensor& bias,
                 const Tensor& out);
  void (*embed)(Context& ctx, const Tensor& ids, const Weight& table, const Tensor& out) = nullptr;
  void (*experts)(Context& ctx, const Tensor& x, const Weight& w13, const Weight& w2,
                  const Tensor& weights, const Tensor& ids, const ExpertParams& params,
                  const MoeWorkspace& workspace, const Tensor& out) = nullptr;

  // Fused operations. `normed`, `both` and `branch` are memory for what lies in between.
  void (*norm_linear)(Context& ctx, const Tensor& x, const RowNorm& norm, const Weight& w,
                      const Tensor& bias, const Tensor& normed, const Tensor& out) = nullptr;
  void (*linear_add)(Context& ctx, const Tensor& x, const Weight& w, const Tensor& bias,
                     const Tensor& branch, const Tensor& sum) = nullptr;
  void (*norm_gate_up)(Context& ctx, const Tensor& x, const RowNorm& norm, const Weight& w,
                       const Tensor& bias, Activation activation, const Tensor& normed,
                       const Tensor& both, const Weight& next, const Tensor& out) = nullptr;
  // Without a norm; `next` is a weight of the same device and layout, which reads `out`.
  void (*gate_up)(Context& ctx, const Tensor& x, const Weight& w, const Tensor& bias,
                  Activation activation, const Tensor& both, const Weight& next,
                  const Tensor& out) = nullptr;
  void (*norm_route)(Context& ctx, const Tensor& x, const RowNorm& norm, const Weight& router,
                     const Tensor& router_bias, const Tensor& correction_bias,
                     const RouterParams& params, const Tensor& normed, const Tensor& logits,
                     const Tensor& rounded, const Tensor& weights, const Tensor& ids) = nullptr;
  void (*experts_add)(Context& ctx, const Tensor& x, const Weight& w13, const Weight& w2,
                      const Tensor& weights, const Tensor& ids, const ExpertParams& params,
                      const MoeWorkspace& workspace, const Tensor& branch,
                      const Tensor& sum) = nullptr;
  // Whether experts_add takes biases and clamped activations, or activation_only() alone.
  bool adds_every_expert = false;
};

// The rows of a device in this build.
std::span<const WeightOps> weight_rows(DeviceKind device);
// The row of a weight. Error{kBug} when there is none.
const WeightOps& weight_ops(const Context& ctx, const Weight& w);

}  // namespace sluice::ops
