// The runs of a draft that grow trees.
#include <algorithm>
#include <utility>

#include "batch/draft_paths.h"
#include "ops/logit_edits.h"
#include "runtime/drafts/draft_runner.h"
#include "tensor/copy.h"

namespace sluice {

const Batch& DraftRunner::behind_right_rows(const Batch& batch, const BatchResult& result) {
  right_rows_.assign(batch.items.size(), {});
  if (!has_trees(batch)) return batch;
  seen_ = batch;
  std::int32_t row = 0, item = 0;
  for (ItemBranches& one : seen_.branches) {
    for (; item < one.item; ++item) row += batch.items[static_cast<std::size_t>(item)].count;
    if (one.parents.empty()) continue;
    const auto index = static_cast<std::size_t>(item);
    std::vector<std::int32_t>& right = right_rows_[index];
    right = right_rows(
        one.parents,
        std::span(batch.token_ids).subspan(static_cast<std::size_t>(row), one.parents.size()),
        result.tokens_of(index));
    const int branch = paths_of(one.parents).branch_of(static_cast<std::size_t>(right.back()));
    if (branch > 0) swap_with_branch(one, branch, seen_.groups);
  }
  return seen_;
}

// The rows of a level, each with the pages of its branch.
void DraftRunner::build_level(const Batch& batch) {
  begin_pass();
  rows_.clear();
  for (const DraftTrees::Entry& entry : trees_.entries()) {
    add_item(batch, entry.item, entry.position, 1);
    pass_.items.back().decode = true;
    if (entry.branch > 0) trees_.take_pages(batch, entry, pass_.groups);
    pass_.token_ids.push_back(entry.token);
    from_.push_back(entry.state);
    want_logits(entry.position);
  }
  pass_.mode = ForwardMode::kDecode;
}

// The most likely tokens of each row of the last run's logits.
std::span<const ops::SampledRow> DraftRunner::best_tokens(std::int64_t num_rows) {
  Tensor best = best_tokens_.rows(0, num_rows);
  ops::read_logprobs(ctx_, logits_.rows(0, num_rows), wanted_best_.rows(0, num_rows), best);
  if (ctx_.device.kind != DeviceKind::kCpu) {
    const Tensor host = host_best_.tensor(DType::kU8, {num_rows, best.dim(1)});
    copy(stream_, best, host);
    stream_.synchronize();
    best = host;
  }
  const std::span rows(ops::as_sampled_rows(best), static_cast<std::size_t>(num_rows));
  // A row that is not finite has none.
  if (std::ranges::any_of(rows, [](const ops::SampledRow& row) { return row.num_top == 0; }))
    warn_not_finite();
  return rows;
}

// Behind the first run.
void DraftRunner::grow_trees(const Batch& batch, int max_drafts, BatchResult& result) {
  trees_.begin();
  for (const Row& row : rows_) trees_.add(batch, row.item, row.position, row.state);
  trees_.take_level(best_tokens(std::ssize(rows_)));
  Tensor last = first_states_;
  const int levels = std::min(limits_.steps, max_drafts);
  for (int depth = 1; depth < levels && trees_.next(batch, limits_.rows()); ++depth) {
    trees_.copy_rows(ctx_, planes_);
    build_level(batch);
    run_pass(depth, last, false);
    last = next_states_[depth % 2];
    trees_.take_level(best_tokens(std::ssize(from_)));
  }
  trees_.put(max_drafts, batch.items.size(), result);
}

}  // namespace sluice
