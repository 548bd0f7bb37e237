// What the stages of a pipeline pass on: the residual stream and, where a layer attends to the keys
// that an earlier one has chosen, these.
#include "runtime/model_runner.h"

namespace sluice {

bool ModelRunner::inherits_keys(int layer) const {
  return model_->topk_width() > 0 && config_.layer(layer).indexer == IndexerRole::kShared;
}

void ModelRunner::receive_rows(std::int64_t count) {
  if (links_.previous == nullptr || !is_linked_ || count == 0) return;
  links_.previous->receive(hidden_.rows(0, count));
  if (inherits_keys(layers_.begin)) links_.previous->receive(topk_indices_.rows(0, count));
}

void ModelRunner::send_rows(std::int64_t count) {
  if (links_.next == nullptr || !is_linked_ || count == 0) return;
  links_.next->send(hidden_.rows(0, count));
  if (inherits_keys(layers_.end)) links_.next->send(topk_indices_.rows(0, count));
}

}  // namespace sluice
