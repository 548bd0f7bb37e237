// Decode steps recorded once for each of a list of batch sizes: a step then costs the host one
// call. Steps that verify drafts have graphs of their own. A batch is padded to the next size
// (BatchBuffers::fill_padded). Recording is as in SGLang's CudaGraphRunner: the largest size first,
// two runs before each, all over the same memory.
#pragma once

#include <array>
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

// The same for rows of drafts: 2 to 8, 12, 16, 24, 32, ...
std::vector<std::int64_t> draft_graph_sizes(std::int64_t largest);
// The one that so many rows are padded to; 0: they are more.
std::int64_t padded_draft_rows(std::int64_t rows, std::int64_t largest);

// What a step does beside plain decoding.
struct GraphKind {
  bool has_edits = false;   // applies logit edits (ops/logit_edits.h)
  bool has_drafts = false;  // computes rows of drafts (runtime/steps/row_batch.h)
};

class DecodeGraphs {
 public:
  // Rows of a step without drafts, and of one with drafts; 0: there are none.
  struct MaxRows {
    std::int64_t plain = 0, with_drafts = 0;
    bool edits = true;  // whether there are steps with edits
  };
  // Prepare fills the buffers for a batch of `size` rows of padding. Run gives such a step to the
  // stream. recorded: the stream records it.
  using Prepare = std::function<void(std::int64_t size, bool has_drafts)>;
  using Run = std::function<void(GraphKind kind, bool recorded)>;

  // Sizes above those of max_rows are left out. Error{kBadInput} for sizes below 1.
  DecodeGraphs(const GraphOptions& options, const MaxRows& max_rows, const Stream& stream,
               Prepare prepare, Run run);

  // Records what is not recorded yet; nothing with --lazy-cuda-graphs.
  void record_all();
  // The size that the batch is padded to; 0 when it does not run as a graph: not a step of decode
  // rows alone, or too large.
  std::int64_t size_for(const Batch& batch) const;
  // Makes sure that the graph of this size is there. Overwrites the batch buffers when it is not.
  void ensure(std::int64_t size, GraphKind kind);
  void launch(std::int64_t size, GraphKind kind) const;

  // Ascending.
  const std::vector<std::int64_t>& sizes(bool has_drafts = false) const {
    return sets_[has_drafts].sizes;
  }
  std::string describe() const;

 private:
  struct Set {
    std::vector<std::int64_t> sizes;
    std::vector<Graph> graphs;  // of each size without edits, then with them
  };
  std::size_t index_of(std::int64_t size, GraphKind kind) const;

  const GraphOptions options_;
  const bool has_edits_;
  const Stream& stream_;
  const Prepare prepare_;
  const Run run_;
  std::array<Set, 2> sets_;  // without and with drafts
};

}  // namespace sluice
