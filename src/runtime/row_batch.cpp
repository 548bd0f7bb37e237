#include "runtime/row_batch.h"

#include "base/error.h"

namespace sluice {

const Batch& RowBatch::of(const Batch& batch) {
  check(batch.mode == ForwardMode::kTargetVerify && batch.state_slots.empty(),
        "a step of mode {} with {} states is laid out as decode rows", static_cast<int>(batch.mode),
        batch.state_slots.size());
  rows_.mode = batch.mode;
  rows_.deterministic = batch.deterministic;
  rows_.token_ids = batch.token_ids;
  rows_.items.clear();
  for (const BatchItem& item : batch.items)
    for (std::int32_t i = 0; i < item.count; ++i) {
      BatchItem& row = rows_.items.emplace_back(item);
      row.first = item.first + i;
      row.count = 1;
    }
  rows_.groups.resize(batch.groups.size());
  for (std::size_t g = 0; g < batch.groups.size(); ++g) {
    const PageRows& from = batch.groups[g];
    PageRows& to = rows_.groups[g];
    to.offsets.assign(1, 0);
    to.pages.clear();
    for (std::size_t i = 0; i < batch.items.size(); ++i)
      for (std::int32_t row = 0; row < batch.items[i].count; ++row) {
        to.pages.insert(to.pages.end(), from.pages.begin() + from.offsets[i],
                        from.pages.begin() + from.offsets[i + 1]);
        to.offsets.push_back(static_cast<std::int32_t>(to.pages.size()));
      }
  }
  rows_.logit_rows = batch.logit_rows;
  for (LogitRow& row : rows_.logit_rows) row.item = row.row;
  return rows_;
}

}  // namespace sluice
