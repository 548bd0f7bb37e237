// Attention over the KV pool: one interface, a row in a table for each implementation (registry.h).
//
//   backend->plan(ctx, fb);                       // once a step, on the host
//   for each layer: backend->mha(ctx, fb, args);  // or mla()
//
// plan() reads the host copies of the batch and keeps the plan that the layers read. Each call
// writes the rows' keys to their slots first and attends to the pool afterwards. So the step that
// computes a key sees it as rounded as every later step does. One thread (the rank's engine
// thread). Wrong shapes are bugs.
#pragma once

#include <memory>
#include <string_view>

#include "attention/forward_batch.h"
#include "attention/forward_method.h"
#include "attention/kv_pool.h"
#include "kernels/types/op_params.h"
#include "tensor/context.h"

namespace sluice {

// The properties of a model that its back end depends on.
struct AttentionShape {
  int num_layers = 0;
  int first_layer = 0;  // of the pool: layer i of the model is first_layer + i there
  bool mla = false;
  std::int64_t index_topk = 0;     // keys that a sparse (DSA) model selects; 0: dense
  DType gemm_dtype = DType::kF32;  // type of GEMM inputs: float32 or bfloat16
  // These select the kernels. If layers differ, the values are those of the first attention layer.
  std::int64_t head_dim = 0, value_dim = 0;
  std::int64_t group = 1;  // query heads per KV head (GQA group)
  DType kv_dtype = DType::kF32;
  // some layer has more than a scale, a window and sinks: soft caps, slopes, chunks
  bool has_score_mods = false;
  std::int64_t latent = 0, rope = 0;            // MLA
  std::int64_t index_heads = 0, index_dim = 0;  // DSA
  DType index_dtype = DType::kF32;  // type of the index keys: float32, bfloat16 or float8_e4m3fn
};

struct MhaArgs {
  int layer = 0;
  Tensor q;  // [query rows, heads, d] f32, rotated unless `rotation` says how; undefined where
             // there are none, as out
  Tensor k;  // [tokens, kv_heads, d] f32, rotated as q
  Tensor v;  // [tokens, kv_heads, dv] f32
  // Of a cache in e4m3: f32 [kv_heads], or undefined (ops::KvPlane::scales).
  Tensor k_scales = {}, v_scales = {};
  ops::AttentionParams params = {};
  ops::HeadRotation rotation = {};
  Tensor out;  // [query rows, heads, dv] f32
  // [query rows, heads, dv] bf16: if defined, the result goes here and `out` is scratch memory
  Tensor rounded = {};
};

// The halves of kv_b_proj, per head.
struct MlaWeights {
  Tensor w_uk_transposed;  // [heads, latent, nope]
  Tensor w_uv;             // [heads, v, latent]
  Tensor w_uk;  // [heads, nope, latent]; undefined when the model was loaded for absorbed attention
                // only
};

struct MlaArgs {
  int layer = 0;
  Tensor q;  // [query rows, heads, nope + rope] f32, rope part rotated; undefined where there are
             // none, as out
  Tensor latent;  // [tokens, latent] f32, normed
  Tensor k_rope;  // [tokens, rope] f32, rotated
  const MlaWeights* weights = nullptr;
  float scale = 1;
  Tensor topk_indices;  // [query rows, topk] int32: positions, ascending, then -1; undefined in
                        // dense models
  Tensor out;           // [query rows, heads, v] f32
};

class AttentionBackend {
 public:
  virtual ~AttentionBackend() = default;

  virtual std::string_view name() const = 0;
  virtual void plan(Context& ctx, const ForwardBatch& fb) = 0;

  virtual void mha(Context& ctx, const ForwardBatch& fb, const MhaArgs& args) = 0;
  // Runs each segment of the batch by the method that plan() chose. If some rows have no query, the
  // method is absorbed attention, which computes nothing for such rows.
  virtual void mla(Context& ctx, const ForwardBatch& fb, const MlaArgs& args) = 0;

  // Stores the rows' index keys [tokens, index_head_dim] f32 of a layer with an indexer.
  virtual void write_index_keys(Context& ctx, const ForwardBatch& fb, int layer,
                                const Tensor& keys) = 0;
  // The positions that each query row attends to; see ops::index_topk. q [query rows, index heads,
  // index_head_dim] f32, weights [query rows, index heads] f32, indices [query rows, topk] int32.
  virtual void select_keys(Context& ctx, const ForwardBatch& fb, int layer, const Tensor& q,
                           const Tensor& weights, const Tensor& indices) = 0;

  // A plane of a recurrent layer: [states, elements] f32. ForwardBatch::state_rows names the rows.
  virtual Tensor state_plane(int layer, std::string_view plane) const = 0;

  // How often plan() chose each method, counted per non-empty segment.
  virtual MethodCounts method_counts() const = 0;
};

}  // namespace sluice
