// Runs a draft behind each step: a draft layer of the model, or a draft model of its own.
//
//   DraftRunner drafts(limits, draft, *attention, ctx, stream, logits);
//   ... the step's forward, which leaves the states that the draft reads, and its sampling ...
//   drafts.run(batch, states, result);        // fills result.drafts
//
// A slot of the draft's cached rows holds the state of a position and the token after it
// (models/draft_model.h). Behind a step come the slots of its rows whose next token is known. The
// last one gives the first draft. Each further draft takes one slot more, with the draft's own
// state. The slots of drafts are computed again once their tokens are known.
//
// The slots lie in the pages of the step's items. Where an item has no page for a slot, its drafts
// end. All depths are given to the stream before the host waits for their tokens; of trees it waits
// for those of each depth. One thread.
//
// A draft of blocks (DraftShape::block_size) takes two passes: one fills the slots, one has all
// drafts. The rows of its block lie behind the filled slots, and are written over later.
// A tree of drafts has the best `topk` nodes of each depth as rows of a run, in the pages of the
// item's branches (runtime/drafts/draft_trees.h).
//
// Behind a step that wants no drafts (Batch::max_drafts) nothing runs. Its states are kept, and its
// slots are filled before the next drafts: a whole chunk in one run.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "attention/backend.h"
#include "batch/batch.h"
#include "batch/page_group.h"
#include "batch/step_result.h"
#include "models/draft_model.h"
#include "runtime/drafts/draft_backlog.h"
#include "runtime/drafts/draft_trees.h"
#include "runtime/steps/batch_buffers.h"
#include "runtime/steps/decode_graphs.h"
#include "runtime/steps/row_batch.h"
#include "sampling/device_rounds.h"
#include "tensor/buffer.h"
#include "tensor/context.h"
#include "tensor/stream.h"

namespace sluice {

struct DraftLimits {
  BatchLimits batch;                   // of the target's steps
  std::int64_t max_sequences = 1;      // of a step
  int max_drafts = 1;                  // of a sequence
  int topk = 1;                        // drafts behind each token; 1: chains
  int steps = 0;                       // depth of a tree
  std::vector<PageGroup> groups = {};  // of pages, as Batch::groups
  // Of a chain's run behind decode rows, where runs are recorded, or padded as those are; 0: none.
  std::int64_t row_runs = 0;
  std::string name = "the draft";  // of a warning

  bool has_trees() const { return topk > 1; }
  int passes() const { return has_trees() ? steps : max_drafts; }
  std::int64_t row_runs_of(const DraftShape& shape) const {
    return has_trees() || shape.block_size > 0 ? 0 : row_runs;
  }
  // Of the first one, which computes the logits of every row, and not of each sequence's last one.
  std::int64_t first_run_rows() const { return std::min<std::int64_t>(row_runs, 16); }
  // Rows of a sequence in a run that drafts.
  int rows_of_draft(const DraftShape& shape) const {
    return shape.block_size > 0 ? std::min(shape.block_size, max_drafts + 1) : 1;
  }
  // Of a run behind the first.
  std::int64_t rows() const {
    return has_trees()
               ? std::max(max_sequences, std::min(max_sequences * topk, batch.max_logit_rows))
               : max_sequences;
  }
};

class DraftRunner {
 public:
  // `planes`: of the draft's layers, copied where trees branch. All other arguments outlive the
  // runner. `logits`: dense f32 memory for limits.rows() rows of the draft's logits, free while
  // run() is under way. Error{kBadInput}: the draft has too few tokens.
  DraftRunner(const DraftLimits& limits, DraftModel& model, AttentionBackend& attention,
              Context& ctx, const Stream& stream, const Tensor& logits, DraftPlanes planes = {});
  // Memory that it takes on the device.
  static std::int64_t bytes(const DraftLimits& limits, const DraftShape& shape,
                            std::size_t num_target_tokens);

  // Whether run() needs the states of a batch. On a CPU prompts behind which no drafts are wanted
  // are lost to the draft: to make up for them costs as much as the draft's run.
  bool wants_states(const Batch& batch) const;
  // The same of a round (Batch::is_round), before its result is known: what it drafts goes to the
  // slots of the sequences, and later to the host. At most one more round is run before.
  struct Sent {
    std::vector<const std::int32_t*> tokens;  // [depth]: of the rows of a run
    std::vector<std::vector<std::int32_t>> copies;
    std::size_t turn = 0;
  };
  Sent run_round(const Batch& batch);
  // Fills the drafts of the round's result.
  void collect_round(const Batch& batch, const Sent& sent, BatchResult& result);
  // Rows of a step that can be a round, at most; 0: there are no rounds.
  std::int64_t max_round_rows() const;
  // Records the runs of chains behind decode rows, so that one costs the host one call. `states`:
  // those that run() is given, of all rows of a step. `spare_pages`: by group, for padding.
  // `rounds`: null where there are none.
  void record(const GraphOptions& options, const Tensor& states,
              std::span<const std::int32_t> spare_pages, std::int64_t context_length,
              const DeviceRounds* rounds);
  std::size_t num_graphs() const;
  // `states` [tokens of the batch, target_width]: the target's; undefined where the draft reads
  // none, or the batch needs none. `result`: of the batch.
  void run(const Batch& batch, const Tensor& states, BatchResult& result);
  // Of a batch behind which no drafts are wanted (Batch::max_drafts is 0), instead of run(): keep()
  // takes a copy of the states before another step overwrites them, and leave_out() notes the
  // tokens once they are known.
  struct Kept {
    bool has_states = false;
    std::optional<std::int32_t> first;  // row of the copy; nothing: there is no room
  };
  Kept keep(const Batch& batch, const Tensor& states);
  void leave_out(const Batch& batch, const Kept& kept, BatchResult& result);
  // Of a batch that copies its states itself, before its forward, instead of keep(): row i goes to
  // row first + i of kept_states(), which has limits.batch.kept_rows rows and one for padding.
  Kept reserve(const Batch& batch);
  const Tensor& kept_states() const { return left_out_states_; }
  // Rows of kept states, for steps of so many tokens.
  static std::int64_t max_kept(std::int64_t max_tokens);

 private:
  struct Layout;
  // A sequence that gets drafts.
  struct Row {
    std::int32_t item = 0;      // of the step
    std::int32_t position = 0;  // of its last slot
    std::int32_t state = 0;     // row of the last pass's states
    std::int32_t chosen = 0;    // place of the last pass's token
    std::int32_t token = 0;     // the last known one
  };

  // Row `row` of a depth's tokens is a draft of the item.
  struct Choice {
    std::int32_t item = 0, row = 0;
  };

  void begin_pass();
  void add_item(const Batch& batch, std::int32_t item, std::int32_t first, std::int32_t count);
  void want_logits(std::int32_t position);
  // The slots that follow from the step; false: there are none.
  bool build_first(const Batch& batch, const BatchResult& result);
  // One slot more of each sequence that has a page for it; false: none has.
  bool build_next(const Batch& batch);
  // One run of the draft over `pass_`; from_ are its rows of `states`. Depth passes(): slots that
  // were left out before.
  void run_pass(int depth, const Tensor& states, bool are_targets);
  BatchBuffers& row_buffers(int depth);
  const Batch& as_rows();
  // run_pass() of decode rows, from a graph where it is recorded; false: not this pass.
  bool replay(int depth);
  // The run over the view of row_buffers(); a `recorded` one loads its inputs itself.
  void run_rows(int depth, bool recorded);
  // Where the device puts the tokens of a recorded run, in turn; and of the last one.
  Tensor host_box(int depth, std::int64_t side) const;
  const std::int32_t* last_box(int depth);
  void build_round(const Batch& batch);
  void send(int depth, Sent& sent);
  // The rows of a run, where the device may place them.
  void place_rows(int depth);
  // What the places of sequences hold, as the target knows it.
  Tensor known_tokens() const {
    return target_tokens_.defined() ? known_.reshape({known_.dim(0)}) : chosen_;
  }
  // The best token of each row of the last run's logits.
  void choose(int depth, const Tensor& logits);
  // The step as it is behind its right rows: their pages are the item's own, and the others are
  // branches.
  const Batch& behind_right_rows(const Batch& batch, const BatchResult& result);
  std::span<const ops::SampledRow> best_tokens(std::int64_t num_rows);
  void grow_trees(const Batch& batch, int max_drafts, BatchResult& result);
  void build_level(const Batch& batch);
  bool can_fill(const Batch& batch, std::int32_t item, std::int64_t first, std::int64_t end) const;
  // The draft will know the sequences of the step no further.
  void lose_states(const Batch& batch);
  // Fills the slots that the sequences of the step lack.
  void make_up(const Batch& batch);
  // The drafts of `rows_`, `most` of each at most, from blocks of as many sequences at once as
  // there is memory for logits.
  void run_blocks(const Batch& batch, int most);
  // The block of a sequence into `pass_`, where it has pages for one.
  void add_block(const Batch& batch, const Row& row, int most);
  void run_block_pass();
  // Says once that logits of the draft are not finite, which end the drafts of a sequence.
  void warn_not_finite();
  // The drafts of the passes before `depths`, by item.
  void collect(int depths, std::size_t num_items, BatchResult& result);

  const DraftLimits limits_;
  DraftModel& model_;
  const DraftShape shape_;
  AttentionBackend& attention_;
  Context& ctx_;
  const Stream& stream_;
  DraftBacklog backlog_;
  // By depth, and the last for slots that were left out before.
  std::vector<std::unique_ptr<BatchBuffers>> buffers_;
  Buffer memory_, host_tokens_, host_best_;
  Tensor target_;           // [tokens, target_width] f32; undefined without states
  Tensor first_states_;     // [tokens, hidden] f32: of the first pass
  Tensor next_states_[2];   // [rows of a pass, hidden] f32: of the others in turn
  Tensor left_out_states_;  // [rows of backlog_ + 1, target_width] f32
  Tensor from_rows_;        // [tokens] int32
  Tensor logits_;           // [sequences, vocab] f32
  Tensor last_seen_;        // [rows of a pass] int32: DraftIO::last_seen
  Tensor greedy_, places_;  // [rows of a pass, ...]: how each row is chosen, and 0, 1, 2 ...
  Tensor tokens_;           // [max_drafts, sequences] int32: what was chosen at each depth
  Tensor chosen_;           // [sequences] int32: the last ones, 0 where there is none
  Tensor target_tokens_;    // [vocab, 1] int32, or undefined
  Tensor known_;            // [sequences, 1] int32: the last ones as the target knows them
  // Of trees, [rows of a pass, ...]: how many tokens of each row are read, and which they are.
  Tensor wanted_best_, best_tokens_;
  const DraftPlanes planes_;
  DraftTrees trees_;
  Batch seen_;                                         // behind_right_rows()
  std::vector<std::vector<std::int32_t>> right_rows_;  // [item] of trees; empty: the first ones
  Batch pass_;
  std::vector<std::int32_t> from_, ends_;
  std::vector<Row> rows_;
  std::vector<std::vector<Choice>> choices_;  // [depth], or of blocks [0]
  // Of runs that are recorded.
  std::unique_ptr<BatchBuffers> first_rows_;           // of the first one; null: there are none
  std::vector<std::unique_ptr<DecodeGraphs>> graphs_;  // [depth]; empty on a CPU
  RowBatch row_batch_;
  Tensor all_states_;  // record()
  Tensor counters_;    // [depth] int64
  std::vector<std::int32_t> spare_pages_;
  std::int64_t context_length_ = 0;
  bool recorded_deterministic_ = false;
  const DeviceRounds* rounds_ = nullptr;
  std::vector<std::int32_t> round_slots_;  // of the rows of a run in a round
  std::array<StreamEvent, 2> round_done_;
  std::size_t round_turn_ = 0;
  bool has_warned_ = false;
  std::vector<char> is_on_host_;  // [depth]: the device has written the tokens to host_tokens_
};

}  // namespace sluice
