#include "kernels/cpu/attention/attention_rows.h"

#include "base/error.h"

namespace sluice::cpu {

void check_pages(const PagedRows& rows, const AttentionParams& params, std::int64_t num_slots) {
  const std::int64_t pages = num_slots / kPageSize;
  std::int64_t seen_seq = -1, seen_begin = 0, seen_end = 0;
  for (std::int64_t t = 0; t < rows.positions.dim(0); ++t) {
    const RowRange r = visible(rows, params, t);
    check(r.seq >= 0 && r.seq < rows.page_table.dim(0), "row {} belongs to sequence {} of {}", t,
          r.seq, rows.page_table.dim(0));
    check(r.end >= 1 && r.end <= rows.page_table.dim(1) * kPageSize,
          "row {} is at position {}, the page table holds {} pages", t, r.end - 1,
          rows.page_table.dim(1));
    std::int64_t first = r.begin / kPageSize;
    const std::int64_t last = (r.end - 1) / kPageSize;
    // Rows of a sequence are neighbours: check only the pages that the previous row did not see.
    if (r.seq == seen_seq && first >= seen_begin && first <= seen_end) first = seen_end;
    for (std::int64_t p = first; p <= last; ++p) {
      const std::int32_t page = pages_of(rows, r.seq)[p];
      check(page >= 0 && page < pages, "row {} needs page {} of sequence {}, which is {} of {}", t,
            p, r.seq, page, pages);
    }
    seen_begin = r.seq == seen_seq ? std::min(seen_begin, first) : first;
    seen_end = r.seq == seen_seq ? std::max(seen_end, last) : last;
    seen_seq = r.seq;
  }
}

}  // namespace sluice::cpu
