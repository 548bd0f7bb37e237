// The fixed memory behind a ForwardBatch, made once, filled for every step. For a GPU it is filled
// in pinned host memory and copied to a twin on the device in one piece; addresses there depend on
// the numbers of tokens and sequences alone. There are two host sides that take turns: one is
// filled while the copy of the other may still wait in the stream. Steps that are recorded have two
// sides of their own, which the device reads by itself (ops/graph_io.h).
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "attention/forward_batch.h"
#include "batch/batch.h"
#include "kernels/types/sampling_rows.h"
#include "runtime/steps/row_batch.h"
#include "sampling/row_sampling.h"
#include "tensor/buffer.h"
#include "tensor/stream.h"

namespace sluice {

struct BatchLimits {
  std::int64_t max_tokens = 0;      // of a step
  std::int64_t max_seqs = 0;        // sequences of a step
  std::int64_t max_seq_pages = 0;   // pages of one sequence
  std::int64_t max_logit_rows = 0;  // rows of logits computed at once
  int num_groups = 1;               // of pages
  bool has_states = false;          // sequences have a state in recurrent layers
  bool draft_rows = false;          // steps of kTargetVerify come as rows (row_batch.h)
  std::int64_t run_rows = 0;        // of a sequence in such a step; 0: not known
  std::int64_t tree_rows = 0;       // of a tree of drafts; 0: there are no trees
  std::int64_t kept_rows = 0;       // states of rows that a draft keeps; 0: none
  bool has_sources = false;         // rows read states (RowInfo::sources)
  bool has_rounds = false;          // the device may place rows of drafts (ops/tokens.h)
};

class BatchBuffers {
 public:
  // `stream` (null on the CPU) takes the copies; a third fill() may begin once it has passed those
  // of the first.
  explicit BatchBuffers(const BatchLimits& limits, Device device = {},
                        const Stream* stream = nullptr);

  // The groups of data-parallel attention, which all views from now on name.
  void share(const DpGroups& groups) { view_.dp = &groups; }

  // Views of the batch; valid until the next fill. Logit rows [0, max_logit_rows) at most: see
  // set_logit_rows. `moves`: rows of trees, which then read keys that other rows of the step write.
  const ForwardBatch& fill(const Batch& batch, const RowInfo& info,
                           const BranchMoves* moves = nullptr);
  // A step of kDecode or kTargetVerify with `num_seqs` rows whose first rows are the batch. There
  // each item has its one row and its row of logits. The others compute token 0 at position 0 in
  // the spare page of each group (the last of `spare_pages` is a state where there are states,
  // which all of them begin anew and overwrite); nobody reads what comes out. Lengths that only
  // plans look at are the largest: the views depend on num_seqs alone. Where drafts may be trees,
  // rows of drafts have max_branch_moves() moves: `moves`, and others that move nothing.
  // `recorded`: the step is a graph's, whose first kernel loads step_inputs(); replayed() when it
  // was launched.
  const ForwardBatch& fill_padded(const Batch& batch, const RowInfo& info, std::int64_t num_seqs,
                                  std::span<const std::int32_t> spare_pages,
                                  std::int64_t context_length, bool recorded = false,
                                  const BranchMoves* moves = nullptr);
  // How the device gets a padded step's inputs: of the last fill_padded(), and of every one of its
  // size.
  ops::StepInputs step_inputs(const Tensor& counter, const Tensor& slot_tokens) const;
  void replayed() { ++num_replayed_; }
  std::int64_t num_replayed() const { return num_replayed_; }
  // Points logit_rows at rows [first, first + count) of batch.logit_rows. Nobody samples them on
  // the device.
  const ForwardBatch& set_logit_rows(const Batch& batch, std::int64_t first, std::int64_t count);
  // The largest step that the limits allow, without contents: for measuring memory. `decode`:
  // max_seqs rows that each see a full context; otherwise max_tokens rows, all but the last few of
  // one sequence.
  const ForwardBatch& fill_largest(bool decode, std::int64_t context_length);

  const ForwardBatch& view() const { return view_; }
  // Beside view().logit_rows, on the device.
  const SamplingTensors& sampling() const { return sampling_; }
  // [rows] int64 of a padded step, on the device: the row of kept states of each row. Those of
  // padding, and of steps that keep none, are limits.kept_rows. Undefined where that is 0.
  const Tensor& kept_slots() const { return kept_slots_; }
  // [rows] int32 of a padded step, on the device: RowInfo::sources, and 0 of padding. Undefined
  // without has_sources.
  const Tensor& sources() const { return sources_; }
  // Of rows of drafts, where the limits have rounds: how the device places them, and [rows] int32
  // the slots of those in a round, else -1.
  ops::RowPlaces places() const;
  const Tensor& round_slots() const { return round_slots_; }
  static std::int64_t bytes(const BatchLimits& limits);

 private:
  // A step's tensors, one behind the other; `number` is that of a recorded step. A recorded step
  // copies the first head_bytes, and of the page tables and slots only the rows in use.
  struct Layout {
    Tensor number, input_ids, positions, row_seq, seq_lens, prefix_lens, start_loc, logit_rows,
        logit_slots, sample_rows, logit_edits;
    // Rows by state: of recurrent layers. The number of sequences is that of fill().
    Tensor state_starts, state_prefixes, state_slots, state_sources;
    Tensor kept_slots, sources, round_slots, moved_slots, row_keys;
    Tensor run_places;  // ops::RowRuns::places
    std::vector<Tensor> page_tables, out_cache_locs, branch_from, branch_to;  // by group
    std::int64_t head_bytes = 0;  // of what comes before the page tables
    std::int64_t bytes = 0;
  };
  static Layout lay_out(const BatchLimits& limits, std::int64_t tokens, std::int64_t seqs,
                        std::int64_t logit_rows, std::int64_t moves, const Buffer* buffer);
  bool has_draft_rows(const Batch& batch) const {
    return limits_.draft_rows && batch.mode == ForwardMode::kTargetVerify;
  }
  void fill_rows(const Batch& batch, const RowInfo& info);
  void put_states(const Batch& batch);
  void set_state_views(std::int64_t seqs, bool has_drafts);
  void put_logit_rows(const Batch& batch, std::int64_t first, std::int64_t count,
                      const RowInfo& info);
  std::int64_t max_moves(std::int64_t rows) const;
  void set_moves(const BranchMoves* moves, std::span<const std::int32_t> spare_pages);
  void set_logit_views(std::int64_t count);
  void put_kept_slots(const RowInfo& info, std::int64_t num_rows);
  void put_sources(const RowInfo& info);
  void put_rounds(const Batch& batch, const RowInfo& info, std::int64_t num_rows);
  void put_run_places(const Batch& batch, const BranchMoves* moves);
  void set_views(std::int64_t tokens, std::int64_t seqs, std::int64_t logit_rows,
                 std::int64_t moves, std::size_t side);
  std::size_t next_side();
  // What the device reads in place of `host`.
  Tensor twin(const Tensor& host) const;
  void upload(const Tensor& host) const;
  void upload_all() const;

  BatchLimits limits_;
  Device device_;
  const Stream* stream_ = nullptr;
  // on the host; on the CPU, where nothing is copied, all but the first are empty
  std::array<Buffer, 4> buffers_;
  std::size_t turn_ = 0;           // of the first two
  std::int64_t num_replayed_ = 0;  // says which of the last two is next
  std::size_t side_ = 0;           // of the current step
  Layout host_;                    // of the current step, in buffers_[side_]
  Buffer on_device_;               // of equal size; empty on the CPU
  ForwardBatch view_;
  SamplingTensors sampling_;
  Tensor kept_slots_, sources_, round_slots_;
};

}  // namespace sluice
