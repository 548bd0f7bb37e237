// Scales of a KV cache in e4m3, as checkpoints store them (kernels/types/kv_plane.h): by vLLM's
// names k_scale, v_scale and kv_scale beside the attention, those of ModelOpt beside k_proj and
// v_proj, and output_scale of compressed-tensors' kv_cache_scheme. A tensor has one scale for the
// layer or one a KV head.
#pragma once

#include "layers/weights/weights.h"

namespace sluice {

struct KvScales {
  Tensor k, v;  // f32 [KV heads of this rank]; undefined: 1

  // `attention` is a decoder layer's self_attn with `kv_heads` heads. Nothing unless the cache is
  // of e4m3. Error{kBadInput}: another number of scales.
  static KvScales load(const Weights& attention, std::int64_t kv_heads);
};

// Error{kBadInput}: a scale is zero, negative or no number. Takes no memory of the device. Logs
// when there are no scales.
void check_kv_scales(const WeightSource& source);

}  // namespace sluice
