// The first steps of a runner, before it serves requests.
#include <algorithm>
#include <numeric>

#include "runtime/model_runner.h"

namespace sluice {

// Page faults, instruction-set choices and, on a GPU, the loading of kernels and the choice of
// products happen here, not in a request: there, steps of every power of two of tokens. Only the
// first runs more layers than tell all kernels, and the last.
void ModelRunner::kernel_warmup() {
  run_prompt(1);
  if (ctx_.device.kind == DeviceKind::kCpu) return;
  layers_run_ = representative_layers();
  std::int64_t most = std::min(limits_.max_tokens, options_.model.context_length);
  for (int g = 0; g < limits_.num_groups; ++g)
    most = std::min(most, plan_.pages[static_cast<std::size_t>(g)] * kPageSize);
  for (std::int64_t tokens = 2; tokens <= most; tokens *= 2) run_prompt(tokens);
  run_prompt(most);
  layers_run_ = layers_.end;
}

int ModelRunner::representative_layers() const {
  if (limits_.has_states) return layers_.end;  // their layers differ in more than LayerConfig says
  int telling = layers_.begin;
  for (int i = layers_.begin; i < layers_.end; ++i) {
    bool is_new = true;
    for (int j = layers_.begin; j < i && is_new; ++j) is_new = config_.layer(i) != config_.layer(j);
    if (is_new) telling = i + 1;
  }
  return std::min(telling + 1, layers_.end);  // one more: what is done where two layers meet
}

// A sequence of so many tokens 0 in the first pages, which nobody holds yet.
void ModelRunner::run_prompt(std::int64_t tokens) {
  const auto count = static_cast<std::int32_t>(tokens);
  Batch batch;
  batch.mode = ForwardMode::kExtend;
  batch.items.push_back({.sequence = 0, .slot = 0, .first = 0, .count = count, .decode = false});
  batch.token_ids.assign(static_cast<std::size_t>(tokens), 0);
  batch.groups.resize(static_cast<std::size_t>(limits_.num_groups));
  if (limits_.has_states) batch.state_slots = {0};
  for (PageRows& rows : batch.groups) {
    rows.pages.resize(static_cast<std::size_t>((tokens + kPageSize - 1) / kPageSize));
    std::iota(rows.pages.begin(), rows.pages.end(), 0);
    rows.offsets = {0, static_cast<std::int32_t>(rows.pages.size())};
  }
  batch.logit_rows.push_back(
      {.item = 0, .row = count - 1, .position = count, .sample = false, .target = 0});
  Pending pending = launch(batch);
  sample(pending);
}

}  // namespace sluice
