// The device views of one step, which models and attention back ends read. runtime/ fills fixed
// buffers with them.
//
// Rows are grouped by sequence: tokens of sequence s are rows [extend_start_loc[s],
// extend_start_loc[s + 1]). Prefill chunks come first, then decode rows. So a MIXED batch has two
// segments: sequences [0, num_extend_seqs) and the rest.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "attention/dp_groups.h"
#include "attention/output_rows.h"
#include "batch/batch.h"
#include "kernels/types/op_params.h"
#include "kernels/types/recurrent_params.h"
#include "tensor/tensor.h"

namespace sluice {

// The pages of the batch in one page group of the pool.
struct GroupView {
  Tensor page_table;       // [seqs, max_pages] int32; -1: no page
  Tensor out_cache_loc;    // [tokens] int64: slot page * kPageSize + offset that a row writes
  Tensor host_page_table;  // page_table as the host reads it, for plan(); undefined if page_table
                           // is in host memory
  // [moves] int64, or undefined: what rows wrote to slots `branch_from` is written to `branch_to`
  // too, before any row reads. So a row of a draft tree lies in the pages of all its branches. Only
  // with ForwardBatch::has_draft_rows. Padding moves a slot to itself.
  Tensor branch_from = {}, branch_to = {};
};

struct ForwardBatch {
  std::int64_t num_query_rows() const { return query_rows.count(num_tokens); }

  ForwardMode mode = ForwardMode::kIdle;
  std::int64_t num_tokens = 0;
  std::int64_t num_seqs = 0;
  std::int64_t num_extend_seqs = 0;  // sequences that are prefill chunks; the others decode
  // Known tokens and drafts as decode rows: every row counts as a sequence, with the pages of the
  // real one. Rows may read keys that other rows of the step write.
  bool has_draft_rows = false;
  // Which those are, where they are the rows before a row in its run. Undefined where a step has
  // none, or where it may have trees.
  ops::RowRuns row_runs = {};

  Tensor input_ids;            // [tokens] int32
  Tensor positions;            // [tokens] int32, absolute
  Tensor row_seq;              // [tokens] int32: the sequence of a row
  Tensor seq_lens;             // [seqs] int32, with this step's tokens
  Tensor extend_prefix_lens;   // [seqs] int32: tokens computed before
  Tensor extend_start_loc;     // [seqs + 1] int32
  Tensor logit_rows;           // [logit rows] int32: rows whose logits are computed
  OutputRows query_rows = {};  // rows of queries and outputs; fewer than all in a last layer only
  // What recurrent layers see; undefined without. Each draft is a sequence that continues the one
  // before it, and has a state of its own.
  ops::SequenceRows state_rows;
  std::vector<GroupView> groups;
  // The groups of data-parallel attention; null: all ranks have this batch. Then a batch without
  // tokens takes part in the feed-forward layers of the others.
  const DpGroups* dp = nullptr;
  bool is_idle() const { return num_tokens == 0 && dp == nullptr; }

  // Host copies, for decisions in plan().
  std::span<const std::int32_t> host_seq_lens;            // [seqs]
  std::span<const std::int32_t> host_extend_prefix_lens;  // [seqs]
  std::span<const std::int32_t> host_extend_start_loc;    // [seqs + 1]
  std::int64_t max_seq_len = 0;
  std::int64_t max_extend_len = 0;
};

}  // namespace sluice
