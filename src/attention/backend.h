// Attention over the KV pool: one interface, a row in a table for each implementation (registry.h).
//
//   backend->plan(ctx, fb);                       // once a step, on the host
//   for each layer: backend->mha(ctx, fb, args);  // or mla()
//
// plan() reads the host copies of the batch and keeps what the layers need; the other calls only
// read that. Each call first writes the rows' keys to their slots and then attends to what the pool
// holds, so the step that computes a key sees it rounded like every later step. One thread (the
// rank's engine thread). Wrong shapes are bugs.
#pragma once

#include <memory>
#include <string_view>

#include "attention/forward_batch.h"
#include "attention/forward_method.h"
#include "attention/kv_pool.h"
#include "attention/output_rows.h"
#include "kernels/types/op_params.h"
#include "tensor/context.h"

namespace sluice {

// What a back end must know of the model.
struct AttentionShape {
  int num_layers = 0;
  bool mla = false;
  std::int64_t index_topk = 0;     // keys that a sparse (DSA) model selects; 0: dense
  DType gemm_dtype = DType::kF32;  // of the inputs of matrix products: float32 or bfloat16
  // What kernels are chosen by. Of models whose layers differ, those of the first that attends.
  std::int64_t head_dim = 0, value_dim = 0;
  std::int64_t group = 1;  // heads of queries that share one of keys
  DType kv_dtype = DType::kF32;
  // some layer has more than a scale and a window: soft caps, sinks, slopes, chunks
  bool has_score_mods = false;
  std::int64_t latent = 0, rope = 0;            // MLA
  std::int64_t index_heads = 0, index_dim = 0;  // DSA
  DType index_dtype = DType::kF32;              // of index keys: float32, bfloat16 or float8_e4m3fn
};

struct MhaArgs {
  int layer = 0;
  OutputRows wanted = {};  // the rows of q and out; k and v have one for each token
  Tensor q;  // [wanted, heads, d] f32, rotated unless `rotation` says how; undefined where none is
             // wanted, as out
  Tensor k;  // [tokens, kv_heads, d] f32, likewise
  Tensor v;  // [tokens, kv_heads, dv] f32
  ops::AttentionParams params = {};
  ops::HeadRotation rotation = {};
  Tensor out;  // [wanted, heads, dv] f32
  // [wanted, heads, dv] bf16: the result is wanted there, and `out` is overwritten
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
  OutputRows wanted = {};  // the rows of q, topk_indices and out; there is a latent for each token
  Tensor q;  // [wanted, heads, nope + rope] f32, rope part rotated; undefined where none is wanted,
             // as out
  Tensor latent;  // [tokens, latent] f32, normed
  Tensor k_rope;  // [tokens, rope] f32, rotated
  const MlaWeights* weights = nullptr;
  float scale = 1;
  Tensor topk_indices;  // [wanted, topk] int32: positions, ascending, then -1; undefined in dense
                        // models
  Tensor out;           // [wanted, heads, v] f32
};

class AttentionBackend {
 public:
  virtual ~AttentionBackend() = default;

  virtual std::string_view name() const = 0;
  virtual void plan(Context& ctx, const ForwardBatch& fb) = 0;

  virtual void mha(Context& ctx, const ForwardBatch& fb, const MhaArgs& args) = 0;
  // Each segment of the batch by the method that plan() chose for it; where not all rows are
  // wanted, those by the absorbed one, which needs nothing of rows that are not.
  virtual void mla(Context& ctx, const ForwardBatch& fb, const MlaArgs& args) = 0;

  // Stores the rows' index keys [tokens, index_head_dim] f32 of a layer with an indexer.
  virtual void write_index_keys(Context& ctx, const ForwardBatch& fb, int layer,
                                const Tensor& keys) = 0;
  // The positions that each wanted row attends to; see ops::index_topk. q [wanted, index heads,
  // index_head_dim] f32, weights [wanted, index heads] f32, indices [wanted, topk] int32.
  virtual void select_keys(Context& ctx, const ForwardBatch& fb, int layer,
                           const OutputRows& wanted, const Tensor& q, const Tensor& weights,
                           const Tensor& indices) = 0;

  // What a recurrent layer keeps: [states, elements] f32, the rows that ForwardBatch::state_slots
  // names.
  virtual Tensor state_plane(int layer, std::string_view plane) const = 0;

  // How often plan() chose each method: one a non-empty segment.
  virtual MethodCounts method_counts() const = 0;
};

}  // namespace sluice
