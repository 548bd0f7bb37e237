// The table of attention back ends.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "attention/backend.h"

namespace sluice {

struct AttentionOptions {
  std::string name = "auto";  // of a row; "auto" takes the first row that runs here
  std::string prefill_name;   // overrides `name` for batches with prefill; empty: the same
  std::string decode_name;    // overrides `name` for batches of decode rows; empty: the same
  MlaPrefill mla_prefill = MlaPrefill::kAbsorb;
  bool deterministic = false;
  bool chunked_prefix = true;                    // expand long prefixes in chunks (mla_prefill auto)
  std::int64_t chunk_capacity = 16384;           // tokens whose keys are expanded at a time
  std::int64_t chunked_prefix_threshold = 8192;  // cached tokens from which that pays
};

// `pool` must outlive the back end. Error{kBadInput} naming the back end and the reason when it does not
// exist or does not run here.
std::unique_ptr<AttentionBackend> make_attention_backend(const AttentionOptions& options,
                                                         const AttentionShape& shape, const KVPool& pool);

// Every known name, those that do not run here included.
std::vector<std::string_view> attention_backend_names();

}  // namespace sluice
