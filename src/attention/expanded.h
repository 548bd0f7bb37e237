// The plan of MLA as ordinary multi-head attention: which cached rows are expanded together, and
// which rows attend to them.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "attention/forward_batch.h"

namespace sluice {

// One expansion and one pass of attention of all rows of the segment over it. Row t sees keys
// [begin[t], end[t]).
struct ExpandedPass {
  // slots of the keys, sequence after sequence, ascending positions
  std::vector<std::int32_t> slots;
  std::vector<std::int32_t> begin;  // [rows]
  std::vector<std::int32_t> end;    // [rows]
};

// The prefill chunks of a batch: sequences [0, num_extend_seqs).
struct ExtendSegment {
  std::span<const std::int32_t> seq_lens;  // with this step's tokens
  std::span<const std::int32_t> prefix_lens;
  const std::int32_t* page_table = nullptr;  // [seqs, max_pages]
  std::int64_t max_pages = 0;
};

// MHA one-shot: prefix and new tokens of every sequence, causal.
std::vector<ExpandedPass> plan_one_shot(const ExtendSegment& segment);

// MHA with chunked KV. The first pass covers the new tokens, causal among themselves. The next
// passes cover the prefixes, capacity / sequences tokens of each sequence at a time; every new
// token sees all of them.
std::vector<ExpandedPass> plan_chunked_kv(const ExtendSegment& segment, std::int64_t capacity);

}  // namespace sluice
