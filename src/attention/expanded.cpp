#include "attention/expanded.h"

#include <algorithm>

namespace sluice {
namespace {

// Appends the slots of positions [first, last) of sequence s.
void append_slots(const ExtendSegment& segment, std::size_t s, std::int32_t first,
                  std::int32_t last, std::vector<std::int32_t>& slots) {
  for (std::int32_t position = first; position < last; ++position) {
    const std::int64_t entry =
        static_cast<std::int64_t>(s) * segment.max_pages + position / kPageSize;
    slots.push_back(segment.page_table[entry] * kPageSize + position % kPageSize);
  }
}

// Expands positions [first(s), seq_len) of every sequence. A row sees the positions up to its own.
template <class First>
ExpandedPass causal_pass(const ExtendSegment& segment, First first) {
  ExpandedPass pass;
  for (std::size_t s = 0; s < segment.seq_lens.size(); ++s) {
    const auto origin = static_cast<std::int32_t>(pass.slots.size());
    append_slots(segment, s, first(s), segment.seq_lens[s], pass.slots);
    for (std::int32_t position = segment.prefix_lens[s]; position < segment.seq_lens[s];
         ++position) {
      pass.begin.push_back(origin);
      pass.end.push_back(origin + position - first(s) + 1);
    }
  }
  return pass;
}

}  // namespace

std::vector<ExpandedPass> plan_one_shot(const ExtendSegment& segment) {
  return {causal_pass(segment, [](std::size_t) { return 0; })};
}

std::vector<ExpandedPass> plan_chunked_kv(const ExtendSegment& segment, std::int64_t capacity) {
  std::vector<ExpandedPass> passes = {
      causal_pass(segment, [&](std::size_t s) { return segment.prefix_lens[s]; })};
  const auto num_seqs = static_cast<std::int64_t>(segment.seq_lens.size());
  if (num_seqs == 0) return passes;
  const auto step = static_cast<std::int32_t>(std::max<std::int64_t>(1, capacity / num_seqs));
  const std::int32_t longest =
      *std::max_element(segment.prefix_lens.begin(), segment.prefix_lens.end());
  for (std::int32_t from = 0; from < longest; from += step) {
    ExpandedPass& pass = passes.emplace_back();
    for (std::size_t s = 0; s < segment.seq_lens.size(); ++s) {
      const auto origin = static_cast<std::int32_t>(pass.slots.size());
      append_slots(segment, s, std::min(from, segment.prefix_lens[s]),
                   std::min(from + step, segment.prefix_lens[s]), pass.slots);
      const auto num_rows = static_cast<std::size_t>(segment.seq_lens[s] - segment.prefix_lens[s]);
      pass.begin.insert(pass.begin.end(), num_rows, origin);
      pass.end.insert(pass.end.end(), num_rows, static_cast<std::int32_t>(pass.slots.size()));
    }
  }
  return passes;
}

}  // namespace sluice
