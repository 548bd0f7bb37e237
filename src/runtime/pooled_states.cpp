// The states that requests of vectors want, behind a step (batch/pooling.h).
#include "runtime/model_runner.h"
#include "tensor/copy.h"

namespace sluice {

std::vector<float> ModelRunner::pooled_states(const Batch& batch) {
  ForwardBatch fb = buffers_->view();
  fb.logit_rows = {};
  StageIO io;
  io.layer_begin = io.layer_end = config_.num_layers;
  io.hidden = io.final_hidden = hidden_.rows(0, fb.num_tokens);
  if (topk_indices_.defined()) io.topk_indices = topk_indices_.rows(0, fb.num_tokens);
  model_->forward(ctx_, fb, *attention_, io);
  const std::int64_t width = hidden_.dim(1);
  std::int64_t total = 0;
  for (const PooledRows& rows : batch.pooled_rows) total += rows.count;
  std::vector<float> states(static_cast<std::size_t>(total * width));
  float* out = states.data();
  for (const PooledRows& rows : batch.pooled_rows) {
    copy(stream_, hidden_.rows(rows.row, rows.count),
         Tensor::dense(out, DType::kF32, {rows.count, width}));
    out += rows.count * width;
  }
  if (ctx_.device.kind != DeviceKind::kCpu) stream_.synchronize();
  return states;
}

}  // namespace sluice
