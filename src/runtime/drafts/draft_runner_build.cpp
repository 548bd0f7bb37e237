// What the runs of a draft compute: slots of sequences, their tokens and pages.
#include <algorithm>
#include <utility>

#include "runtime/drafts/draft_runner.h"

namespace sluice {
namespace {

bool has_page(const Batch& batch, std::int32_t item, std::int32_t position) {
  return std::ranges::all_of(batch.groups, [&](const PageRows& rows) {
    const std::int32_t entry = rows.offsets[item] + position / kPageSize;
    return entry < rows.offsets[item + 1] && rows.pages[static_cast<std::size_t>(entry)] >= 0;
  });
}

}  // namespace

void DraftRunner::begin_pass() {
  const std::size_t num_groups = pass_.groups.size();
  pass_ = {};
  pass_.groups.resize(num_groups);
  for (PageRows& rows : pass_.groups) rows.offsets.assign(1, 0);
  from_.clear();
  ends_.clear();
}

// Slots [first, first + count) of an item of the step.
void DraftRunner::add_item(const Batch& batch, std::int32_t item, std::int32_t first,
                           std::int32_t count) {
  BatchItem& added = pass_.items.emplace_back(batch.items[static_cast<std::size_t>(item)]);
  added.first = first;
  added.count = count;
  for (std::size_t g = 0; g < batch.groups.size(); ++g) {
    const PageRows& from = batch.groups[g];
    PageRows& to = pass_.groups[g];
    to.pages.insert(to.pages.end(), from.pages.begin() + from.offsets[item],
                    from.pages.begin() + from.offsets[item + 1]);
    to.offsets.push_back(static_cast<std::int32_t>(to.pages.size()));
  }
}

void DraftRunner::want_logits(std::int32_t position) {
  pass_.logit_rows.push_back({.item = static_cast<std::int32_t>(pass_.items.size()) - 1,
                              .row = pass_.num_tokens() - 1,
                              .position = position});
}

bool DraftRunner::build_first(const Batch& batch, const BatchResult& result) {
  pass_.groups.resize(batch.groups.size());
  begin_pass();
  rows_.clear();
  const bool reads_states = shape_.target_width > 0;
  std::int32_t row = 0;
  for (std::int32_t i = 0; i < static_cast<std::int32_t>(batch.items.size());
       row += batch.items[static_cast<std::size_t>(i++)].count) {
    const auto index = static_cast<std::size_t>(i);
    const BatchItem& item = batch.items[index];
    const auto tokens = result.tokens_of(index);
    if (!item.decode) backlog_.restart(item.sequence, item.first);
    if (result.failed[index] != 0 || backlog_.has_holes(item.sequence)) continue;
    // Every slot holds the token after it: of a chunk the next one's, of a last one the sampled.
    const auto* ids = batch.token_ids.data() + row;
    std::vector<std::int32_t> next(ids + 1, ids + item.count);
    if (item.decode)
      next.assign(tokens.begin(), tokens.end());
    else if (!tokens.empty())
      next.push_back(tokens.front());
    else if (item.next_token >= 0)
      next.push_back(item.next_token);
    std::int32_t first = item.first;
    if (!reads_states) {
      // Slots hold their own tokens: that of the first row, and of those behind it. The step before
      // has left the first one where it was not known when this step was planned.
      if (ids[0] == kTokenFromSlot)
        ++first;
      else
        next.insert(next.begin(), ids[0]);
      if (!has_page(batch, i, first + static_cast<std::int32_t>(next.size()) - 1)) next.pop_back();
    }
    if (next.empty()) continue;
    const auto count = static_cast<std::int32_t>(next.size());
    add_item(batch, i, first, count);
    pass_.token_ids.insert(pass_.token_ids.end(), next.begin(), next.end());
    const std::vector<std::int32_t>& right = right_rows_[index];
    for (std::int32_t k = 0; k < count; ++k)
      from_.push_back(row +
                      (std::cmp_less(k, right.size()) ? right[static_cast<std::size_t>(k)] : k));
    // The last slot must be that of the last token.
    const std::int32_t last = first + count - 1;
    const std::int32_t wanted =
        item.decode ? item.first + static_cast<std::int32_t>(tokens.size()) - 1 + !reads_states
                    : item.first + item.count - 1 + !reads_states;
    if (tokens.empty() || last != wanted) continue;
    rows_.push_back({.item = i,
                     .position = last,
                     .state = pass_.num_tokens() - 1,
                     .chosen = static_cast<std::int32_t>(rows_.size()),
                     .token = tokens.back()});
    if (shape_.block_size == 0) want_logits(last);
  }
  const bool has_chunks =
      std::ranges::any_of(pass_.items, [](const BatchItem& item) { return !item.decode; });
  pass_.mode = has_chunks ? ForwardMode::kMixed : ForwardMode::kTargetVerify;
  return !pass_.items.empty();
}

bool DraftRunner::build_next(const Batch& batch) {
  std::erase_if(rows_,
                [&](const Row& one) { return !has_page(batch, one.item, one.position + 1); });
  if (rows_.empty()) return false;
  begin_pass();
  for (Row& one : rows_) {
    ++one.position;
    add_item(batch, one.item, one.position, 1);
    pass_.items.back().decode = true;
    pass_.items.back().slot = one.chosen;
    pass_.token_ids.push_back(kTokenFromSlot);
    from_.push_back(std::exchange(one.state, pass_.num_tokens() - 1));
    want_logits(one.position);
  }
  pass_.mode = ForwardMode::kDecode;
  return true;
}

void DraftRunner::add_block(const Batch& batch, const Row& row, int most) {
  const std::int32_t first = row.position + 1;  // of the last known token
  std::int32_t count = 0;
  while (count < limits_.rows_of_draft(shape_) && has_page(batch, row.item, first + count)) ++count;
  if (count < 2) return;
  add_item(batch, row.item, first, count);
  pass_.items.back().decode = true;
  for (std::int32_t i = 0; i < count; ++i) {
    pass_.token_ids.push_back(i == 0 ? row.token : shape_.mask_token);
    ends_.push_back(first + count - 1);
    if (i == 0 || i > most) continue;
    want_logits(first + i);
    choices_[0].push_back({.item = row.item, .row = static_cast<std::int32_t>(choices_[0].size())});
  }
}

// Whether an item has the pages of slots [first, end), and those that the draft's layers read.
bool DraftRunner::can_fill(const Batch& batch, std::int32_t item, std::int64_t first,
                           std::int64_t end) const {
  for (std::size_t g = 0; g < batch.groups.size(); ++g) {
    const PageRows& rows = batch.groups[g];
    const auto index = static_cast<std::size_t>(item);
    const auto pages = std::span(rows.pages)
                           .subspan(static_cast<std::size_t>(rows.offsets[index]),
                                    static_cast<std::size_t>(rows.offsets[index + 1]) -
                                        static_cast<std::size_t>(rows.offsets[index]));
    const bool is_read = g < planes_.size() && !planes_[g].empty();
    const std::int64_t from = is_read ? limits_.groups.at(g).keep_from(first) : first;
    for (std::int64_t entry = from / kPageSize; entry <= (end - 1) / kPageSize; ++entry)
      if (std::cmp_greater_equal(entry, pages.size()) || pages[static_cast<std::size_t>(entry)] < 0)
        return false;
  }
  return true;
}

}  // namespace sluice
