// How MLA attention is computed for a run of rows: absorbed over latents, or expanded to ordinary
// multi-head attention.
//
// With either method a token leaves the same row [latent | k_pe] in the cache. So a request may be
// prefilled by one method and decoded by the other. The choice is one pure function of MlaInputs.
// Source: SGLang `forward_methods` of DeepSeek V2 (`AttnForwardMethod`, the handlers of its
// attention back ends).
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

#include "batch/batch.h"

namespace sluice {

enum class AttnForwardMethod : std::uint8_t {
  kMha,           // the model's own multi-head attention over cached keys and values: not MLA
  kMla,           // absorbed: queries and outputs in latent space, one shared key head
  kMlaSparse,     // absorbed, over the keys that the indexer chose
  kMhaOneShot,    // prefix and new latents expanded together, one pass of multi-head attention
  kMhaChunkedKv,  // the new tokens by multi-head attention, the prefix expanded in chunks, partial
                  // results merged
};
inline constexpr std::array<std::string_view, 5> kAttnForwardMethodNames = {
    "mha", "mla", "mla_sparse", "mha_one_shot", "mha_chunked_kv"};
using MethodCounts = std::array<std::int64_t, kAttnForwardMethodNames.size()>;

enum class MlaPrefill : std::uint8_t {
  kAbsorb,  // always absorbed: a request's logits do not depend on how its prefill was cut
  kAuto,    // the table below, chosen for speed
};

// The MLA methods that a back end supports.
struct MlaSupport {
  bool ragged_mha = true;  // multi-head attention over expanded keys at all
  bool one_shot = true;    // ... over prefix and new tokens in one call
  // expanded attention also for a sparse model whose rows see no more keys than the indexer would
  // select
  bool dense_mha_for_dsa = true;
};

// The inputs of the choice for one segment of a batch: its prefill chunks, or its decode rows.
struct MlaInputs {
  MlaPrefill prefill = MlaPrefill::kAbsorb;
  MlaSupport support;
  ForwardMode mode = ForwardMode::kDecode;  // mode of the segment: kExtend or kDecode for the
                                            // halves of a MIXED batch
  bool sparse_model = false;                // DSA
  bool captured = false;       // inside a captured graph, where shapes must not depend on the batch
  bool deterministic = false;  // results may not depend on how a prefill was cut
  bool kv_quantized = false;   // latents are stored in fewer than 16 bits
  bool chunked_prefix_enabled = true;
  std::int64_t sum_prefix = 0;  // tokens computed before, over the segment
  std::int64_t sum_seq = 0;     // prefix and new tokens, over the segment
  std::int64_t max_seq = 0;
  std::int64_t index_topk = 0;                // keys that a sparse model selects
  std::int64_t chunk_capacity = 0;            // tokens whose expanded keys fit the workspace
  std::int64_t chunked_prefix_threshold = 0;  // a shorter prefix is not worth expanding
};

// Never kMha.
AttnForwardMethod choose_attn_forward_method(const MlaInputs& inputs);

}  // namespace sluice
