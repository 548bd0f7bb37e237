// Decode steps recorded once for each of a list of batch sizes: a step then costs the host one
// call. A batch is padded to the next size (BatchBuffers::fill_padded). Recording is as in SGLang's
// CudaGraphRunner: the largest size first, two runs before each, all over the same memory.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "batch/batch.h"
#include "tensor/stream.h"

namespace sluice {

struct GraphOptions {
  bool enabled = false;
  bool lazy = false;                // record a size when it is first wanted
  std::vector<std::int64_t> sizes;  // of batches; empty: graph_sizes(max_batch)
  std::int64_t max_batch = 0;       // 0: 256
};

// 1, 2, 4, 8, then steps of 8 up to 256 and of 32 beyond, up to `largest`, which is always the
// last.
std::vector<std::int64_t> graph_sizes(std::int64_t largest);

class DecodeGraphs {
 public:
  // Prepare fills the buffers for a batch of `size` rows of padding. Run gives such a step to the
  // stream. has_edits: the step applies logit edits (ops/logit_edits.h). recorded: the stream
  // records it.
  using Prepare = std::function<void(std::int64_t size)>;
  using Run = std::function<void(bool has_edits, bool recorded)>;

  // Sizes above max_running are left out. Error{kBadInput} for sizes below 1.
  DecodeGraphs(const GraphOptions& options, std::int64_t max_running, const Stream& stream,
               Prepare prepare, Run run);

  // Records what is not recorded yet; nothing with --lazy-cuda-graphs.
  void record_all();
  // The size that the batch is padded to; 0 when it does not run as a graph: not a plain decode
  // step, or too large.
  std::int64_t size_for(const Batch& batch) const;
  // Makes sure that the graph of this size is there. Overwrites the batch buffers when it is not.
  void ensure(std::int64_t size, bool has_edits);
  void launch(std::int64_t size, bool has_edits) const;

  const std::vector<std::int64_t>& sizes() const { return sizes_; }  // ascending
  std::string describe() const;

 private:
  std::size_t index_of(std::int64_t size, bool has_edits) const;

  const GraphOptions options_;
  const Stream& stream_;
  const Prepare prepare_;
  const Run run_;
  std::vector<std::int64_t> sizes_;
  std::vector<Graph> graphs_;  // of each size without rules, then with them
};

}  // namespace sluice
