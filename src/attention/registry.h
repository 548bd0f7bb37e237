// The table of attention back ends.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "attention/backend.h"

namespace sluice {

struct AttentionOptions {
  std::string name = "auto";  // of a row; "auto" takes the first row that can do this model here
  std::string prefill_name;   // overrides `name` for batches with prefill; empty: the same
  std::string decode_name;    // overrides `name` for batches of decode rows; empty: the same
  DeviceKind device = DeviceKind::kCpu;
  int sm = 0;  // compute capability of a GPU, x 10
  MlaPrefill mla_prefill = MlaPrefill::kAbsorb;
  bool deterministic = false;
  bool chunked_prefix = true;           // expand long prefixes in chunks (mla_prefill auto)
  std::int64_t chunk_capacity = 16384;  // tokens whose keys are expanded at a time
  std::int64_t chunked_prefix_threshold = 8192;  // cached tokens from which that pays
};

// Who computes attention, and why.
struct AttentionPick {
  std::string_view prefill, decode;  // names of rows
  std::string reason;  // for the log: what serves it, and where a choice was made why each other
                       // row was not taken
};

// The rows for a model, from facts alone. Error{kBadInput} when a name is unknown (with the known
// ones), or its row cannot do this model on this device: with the reason and the rows that can.
AttentionPick pick_attention_backend(const AttentionOptions& options, const AttentionShape& shape);

// `pool` must outlive the back end. Errors of pick_attention_backend().
std::unique_ptr<AttentionBackend> make_attention_backend(const AttentionOptions& options,
                                                         const AttentionShape& shape,
                                                         const KVPool& pool);

// Every known name, those that never run included.
std::vector<std::string_view> attention_backend_names();

}  // namespace sluice
