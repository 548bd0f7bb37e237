// What drafts the tokens that follow those of a target model: a layer of the target itself
// (multi-token prediction), a head that reads the target's states, or a small model.
//
// A draft keeps cached rows of its own. Slot i of a sequence holds the target's state of position i
// and token i + 1; or token i alone where the draft reads no states; or the state alone where one
// pass drafts a block.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "attention/backend.h"
#include "attention/forward_batch.h"
#include "attention/kv_pool.h"
#include "tensor/context.h"

namespace sluice {

struct DraftShape {
  // Elements of a target's state: of its last norm, or of the streams that enter target_layers, one
  // behind the other. 0: the draft reads tokens alone.
  std::int64_t target_width = 0;
  std::vector<int> target_layers = {};  // ascending; empty: the states after the last norm
  std::int64_t hidden_size = 0;         // elements of the draft's own state
  std::int64_t vocab_size = 0;          // of its logits
  // Rows of a pass that drafts at once: the last known token and masks. 0: a pass for each draft.
  int block_size = 0;
  std::int32_t mask_token = 0;
};

// Row i of the batch is a slot; ForwardBatch::input_ids holds its token.
struct DraftIO {
  // [tokens, target_width] f32: the target's states. Undefined: `states` has the draft's own, which
  // an earlier call left. May be `states` where both have one width.
  Tensor target;
  Tensor states;  // [tokens, hidden_size] f32, out: the draft's states, for the next depth
  Tensor logits;  // [logit rows, vocab_size] f32, out: what follows the token of the row; of a
                  // block: the row's own token
  // [tokens] int32: the last position that each row attends to, in a block; undefined: its own.
  Tensor last_seen = {};
};

class DraftModel {
 public:
  virtual ~DraftModel() = default;

  virtual const DraftShape& draft_shape() const = 0;
  // Runs the draft over the batch. Temporary memory comes from ctx.arena.
  virtual void draft(Context& ctx, const ForwardBatch& fb, AttentionBackend& attention,
                     const DraftIO& io) = 0;
  // The target's token of each token of the logits; empty: they are the same.
  virtual std::span<const std::int32_t> target_tokens() const { return {}; }
};

// Of a draft that every rank has whole: nothing is exchanged.
inline Context without_ranks(Context ctx) {
  ctx.communicator = nullptr;
  ctx.rank = 0;
  return ctx;
}

// A draft with weights of its own. It attends by a back end of its own, in page groups of its own.
class SeparateDraft : public DraftModel {
 public:
  // Its layers are `first_layer` and the following ones of the pool.
  virtual const AttentionShape& attention_shape() const = 0;
  virtual std::vector<PageGroupSpec> kv_groups() const = 0;
  virtual std::int64_t weight_bytes() const = 0;
};

// The groups of a model whose layers lie behind `first_layer` others in the pool.
std::vector<PageGroupSpec> draft_page_groups(std::vector<PageGroupSpec> groups, int first_layer);

}  // namespace sluice
