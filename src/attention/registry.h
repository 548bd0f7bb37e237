// The table of attention back ends.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "attention/backend.h"

namespace sluice {

struct AttentionOptions {
  // name of a row; "auto" takes the first row that can run this model on this device
  std::string name = "auto";
  std::string prefill_name;  // overrides `name` for batches with prefill; empty: the same
  std::string decode_name;   // overrides `name` for batches of decode rows; empty: the same
  DeviceKind device = DeviceKind::kCpu;
  int sm = 0;  // compute capability of the GPU x 10
  MlaPrefill mla_prefill = MlaPrefill::kAbsorb;
  bool deterministic = false;
  bool chunked_prefix = true;           // expand long prefixes in chunks (mla_prefill auto)
  std::int64_t chunk_capacity = 16384;  // tokens whose keys are expanded at once
  std::int64_t chunked_prefix_threshold = 8192;  // minimum cached tokens for chunked expansion
};

// The chosen rows of the table, and the reason.
struct AttentionPick {
  std::string_view prefill, decode;  // names of rows
  std::string kernels;               // for the log: a short line
  std::string reason;                // the same; after a choice, why each other row was not taken
};

// The rows for a model, as a pure function. Error{kBadInput} when a name is unknown (the message
// lists the known ones), or when its row cannot run this model on this device (with the reason and
// the rows that can).
AttentionPick pick_attention_backend(const AttentionOptions& options, const AttentionShape& shape);

// `pool` must outlive the back end. Errors of pick_attention_backend().
std::unique_ptr<AttentionBackend> make_attention_backend(const AttentionOptions& options,
                                                         const AttentionShape& shape,
                                                         const KVPool& pool);

// Every known name, also of rows that never run.
std::vector<std::string_view> attention_backend_names();
// Names of rows that serve some model on some device.
std::vector<std::string_view> served_attention_backend_names();
// Those of rows that serve some model on some device.
std::vector<std::string_view> served_attention_backend_names();

}  // namespace sluice
