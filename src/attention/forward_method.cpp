#include "attention/forward_method.h"

namespace sluice {
namespace {

AttnForwardMethod choose_for_sparse_model(const MlaInputs& f) {
  // Multi-head attention is dense; it equals the sparse result only where every visible key would
  // be selected.
  const bool all_selected = f.max_seq <= f.index_topk;
  if (is_extend(f.mode) && all_selected && f.support.dense_mha_for_dsa && !f.kv_quantized &&
      f.sum_seq <= f.chunk_capacity)
    return AttnForwardMethod::kMhaOneShot;
  return AttnForwardMethod::kMlaSparse;
}

AttnForwardMethod choose_for_dense_model(const MlaInputs& f) {
  if (!f.support.ragged_mha || !is_extend(f.mode)) return AttnForwardMethod::kMla;
  // Without a prefix the fresh latents are expanded, which costs fewer operations than attending in
  // latent space. A short prefix is not worth expanding; a long one is again.
  const bool long_prefix = f.chunked_prefix_enabled && f.sum_prefix >= f.chunked_prefix_threshold;
  if (f.sum_prefix != 0 && !long_prefix) return AttnForwardMethod::kMla;
  return f.support.one_shot && f.sum_seq <= f.chunk_capacity ? AttnForwardMethod::kMhaOneShot
                                                             : AttnForwardMethod::kMhaChunkedKv;
}

}  // namespace

AttnForwardMethod choose_attn_forward_method(const MlaInputs& f) {
  const AttnForwardMethod absorbed =
      f.sparse_model ? AttnForwardMethod::kMlaSparse : AttnForwardMethod::kMla;
  if (f.prefill == MlaPrefill::kAbsorb || f.captured || f.deterministic) return absorbed;
  return f.sparse_model ? choose_for_sparse_model(f) : choose_for_dense_model(f);
}

}  // namespace sluice
