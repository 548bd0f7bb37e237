#include "runtime/draft_runner.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "kernels/cpu/sampling/sample.h"
#include "ops/elementwise.h"

namespace sluice {
namespace {

std::int64_t state_bytes(const DraftLimits& limits) {
  return 4 * limits.batch.max_tokens * limits.hidden_size;
}

// The drafts' logits are those of one row for each sequence.
BatchLimits pass_limits(const DraftLimits& limits) {
  BatchLimits out = limits.batch;
  out.max_logit_rows = out.max_seqs;
  return out;
}

bool has_page(const Batch& batch, std::int32_t item, std::int32_t position) {
  return std::ranges::all_of(batch.groups, [&](const PageRows& rows) {
    const std::int32_t entry = rows.offsets[item] + position / kPageSize;
    return entry < rows.offsets[item + 1] && rows.pages[static_cast<std::size_t>(entry)] >= 0;
  });
}

}  // namespace

DraftRunner::DraftRunner(const DraftLimits& limits, Model& model, AttentionBackend& attention,
                         Context& ctx)
    : limits_(limits),
      model_(model),
      attention_(attention),
      ctx_(ctx),
      buffers_(pass_limits(limits)),
      memory_(2 * state_bytes(limits) + 4 * limits.batch.max_seqs * limits.vocab_size) {
  check(ctx.device.kind == DeviceKind::kCpu && model.has_draft_layer() && limits.max_drafts > 0,
        "{} drafts of a model {} draft layer", limits.max_drafts,
        model.has_draft_layer() ? "with a" : "without a");
  for (int i = 0; i < 2; ++i)
    states_[i] = memory_.tensor(DType::kF32, {limits.batch.max_tokens, limits.hidden_size},
                                i * state_bytes(limits));
  logits_ = memory_.tensor(DType::kF32, {limits.batch.max_seqs, limits.vocab_size},
                           2 * state_bytes(limits));
}

std::int64_t DraftRunner::bytes(const DraftLimits& limits) {
  return BatchBuffers::bytes(pass_limits(limits)) + 2 * state_bytes(limits) +
         4 * limits.batch.max_seqs * limits.vocab_size;
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

void DraftRunner::draft(Tensor states, const std::vector<std::int32_t>& from) {
  if (pass_.items.empty()) return;
  const auto count = static_cast<std::int64_t>(from.size());
  std::swap(states_[0], states_[1]);
  const Tensor own = states_[0].rows(0, count);
  ops::gather_rows(ctx_, states,
                   Tensor::dense(const_cast<std::int32_t*>(from.data()), DType::kI32, {count}),
                   own);
  const ForwardBatch& fb = buffers_.fill(pass_, {});
  attention_.plan(ctx_, fb);
  const Tensor logits = logits_.rows(0, fb.logit_rows.dim(0));
  model_.draft(ctx_, fb, attention_, {.states = own, .logits = logits});
  const auto vocab = static_cast<std::size_t>(limits_.vocab_size);
  for (std::size_t i = 0; i < rows_.size(); ++i) {
    const std::span<const float> row(logits.ptr<float>() + i * vocab, vocab);
    const draw::RowMax best = draw::row_max(*ctx_.pool, row);
    rows_[i].token = best.finite ? best.first : -1;  // what is not finite ends the drafts
  }
}

void DraftRunner::run(const Batch& batch, const Tensor& states, BatchResult& result) {
  const auto num_items = static_cast<std::int32_t>(batch.items.size());
  std::vector<std::vector<std::int32_t>> drafts(static_cast<std::size_t>(num_items));
  std::vector<std::int32_t> from;
  const auto begin_pass = [&] {
    pass_ = {};
    pass_.groups.resize(batch.groups.size());
    for (PageRows& rows : pass_.groups) rows.offsets.assign(1, 0);
    from.clear();
  };
  const auto want_logits = [&](std::int32_t position) {
    pass_.logit_rows.push_back({.item = static_cast<std::int32_t>(pass_.items.size()) - 1,
                                .row = pass_.num_tokens() - 1,
                                .position = position});
  };

  begin_pass();
  rows_.clear();
  std::int32_t row = 0;
  for (std::int32_t i = 0; i < num_items; row += batch.items[static_cast<std::size_t>(i++)].count) {
    const auto index = static_cast<std::size_t>(i);
    const BatchItem& item = batch.items[index];
    const auto tokens = result.tokens_of(index);
    if (result.failed[index] != 0) continue;
    // Every slot holds the token after it: of a chunk the next one's, of a last one the sampled.
    const auto* ids = batch.token_ids.data() + row;
    std::vector<std::int32_t> next(ids + 1, ids + item.count);
    if (item.decode)
      next.assign(tokens.begin(), tokens.end());
    else if (!tokens.empty())
      next.push_back(tokens.front());
    else if (item.next_token >= 0)
      next.push_back(item.next_token);
    if (next.empty()) continue;
    const auto count = static_cast<std::int32_t>(next.size());
    add_item(batch, i, item.first, count);
    pass_.token_ids.insert(pass_.token_ids.end(), next.begin(), next.end());
    for (std::int32_t k = 0; k < count; ++k) from.push_back(row + k);
    if (tokens.empty()) continue;
    const std::int32_t position = item.first + count - 1;
    rows_.push_back({.item = i, .position = position, .state = pass_.num_tokens() - 1});
    want_logits(position);
  }
  const bool has_chunks =
      std::ranges::any_of(pass_.items, [](const BatchItem& item) { return !item.decode; });
  pass_.mode = has_chunks ? ForwardMode::kMixed : ForwardMode::kTargetVerify;
  draft(states, from);

  for (int depth = 1;; ++depth) {
    for (const Row& one : rows_)
      if (one.token >= 0) drafts[static_cast<std::size_t>(one.item)].push_back(one.token);
    std::erase_if(rows_, [&](const Row& one) {
      return one.token < 0 || !has_page(batch, one.item, one.position + 1);
    });
    if (depth == limits_.max_drafts || rows_.empty()) break;
    begin_pass();
    for (Row& one : rows_) {
      ++one.position;
      add_item(batch, one.item, one.position, 1);
      pass_.items.back().decode = true;
      pass_.token_ids.push_back(one.token);
      from.push_back(std::exchange(one.state, pass_.num_tokens() - 1));
      want_logits(one.position);
    }
    pass_.mode = ForwardMode::kDecode;
    draft(states_[0], from);
  }

  result.draft_offsets.assign(1, 0);
  result.drafts.clear();
  for (const std::vector<std::int32_t>& of_item : drafts) {
    result.drafts.insert(result.drafts.end(), of_item.begin(), of_item.end());
    result.draft_offsets.push_back(static_cast<std::int32_t>(result.drafts.size()));
  }
}

}  // namespace sluice
