// A language model: from token ids and cached rows to logits.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "attention/backend.h"
#include "attention/forward_batch.h"
#include "attention/kv_pool.h"
#include "config/model_config.h"
#include "layers/weights/expert_layer.h"
#include "models/draft_model.h"
#include "tensor/context.h"

namespace sluice {

// Input and output of a run over layers [layer_begin, layer_end). A whole forward is [0,
// num_layers). Running [0, k) and then [k, num_layers) on the same StageIO gives the same bits as
// one run.
struct StageIO {
  int layer_begin = 0;
  int layer_end = 0;
  Tensor input_embeds;  // [tokens, hidden] float32, optional: used at layer 0 instead of embedding
                        // input_ids
  Tensor hidden;  // [tokens, hidden] float32: the residual stream, in and out (caller's memory)
  Tensor topk_indices;  // [tokens, topk] int32: keys that a later layer may reuse, in and out; DSA
                        // models only
  Tensor logits;        // [logit rows, vocab] float32: written when layer_end is the model's last
  Tensor final_hidden;  // [tokens, hidden] float32, optional: the hidden state after the last norm
  // The caller reads only the logits. If the batch has fewer logit rows than tokens, the last layer
  // computes only these rows after writing keys, values and states. Then `hidden` and topk_indices
  // are undefined.
  bool only_logits = false;
  std::vector<int> aux_layers;     // layers whose output residual stream is kept, for draft models
  std::vector<Tensor> aux_hidden;  // [tokens, hidden] float32 each, one per entry of aux_layers
};

struct EmbeddingAndHead;

class Model {
 public:
  virtual ~Model() = default;

  // Runs the layers of `io` over the batch. Embeds only at layer 0. The last norm and the head run
  // only if layer_end is num_layers, on fb.logit_rows. Temporary memory comes from ctx.arena and is
  // released. An empty batch (IDLE) is allowed and does nothing.
  virtual void forward(Context& ctx, const ForwardBatch& fb, AttentionBackend& attention,
                       StageIO& io) = 0;

  // What drafts for the model; null: nothing does. Its own layer, where ModelOptions::draft_layer
  // was set, has layer num_layers of the pool.
  virtual DraftModel* draft_model() { return nullptr; }
  // The draft, where it has weights of its own.
  virtual SeparateDraft* separate_draft() { return nullptr; }

  // Embedding and head, for drafts that share them; null where there are none.
  virtual const EmbeddingAndHead* ends() const { return nullptr; }

  // The planes that the model keeps per token. Constant.
  virtual std::vector<PageGroupSpec> kv_groups() const = 0;
  // Bytes of the weights in memory.
  virtual std::int64_t weight_bytes() const = 0;
  // Width of StageIO::topk_indices; 0 if the model has no sparse attention.
  virtual std::int64_t topk_width() const { return 0; }

  // Layers whose experts have places by a map, in the order of ExpertMaps::layers; empty: experts
  // have one place each.
  std::vector<ExpertLayer> expert_layers;
};

}  // namespace sluice
