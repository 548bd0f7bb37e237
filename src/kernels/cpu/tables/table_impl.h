// The kernel table of one vector type V; D is its dot type for bfloat16 pairs. Included by
// isa_*.cpp after the other *_impl.h.
#pragma once

namespace sluice::cpu {

template <class V, class D>
constexpr KernelTable make_table() {
  return {
      .rms_norm = rms_norm_row<V>,
      .layer_norm = layer_norm_row<V>,
      .act_and_mul_f32 = act_and_mul_row<V, float>,
      .act_and_mul_bf16 = act_and_mul_row<V, BF16>,
      .activate_f32 = activate_row<V, float>,
      .activate_bf16 = activate_row<V, BF16>,
      .softcap = softcap_row<V>,
      .sigmoid_mul = sigmoid_mul_row<V>,
      .gemm = {{gemm_range<V, float, float>, gemm_range<V, float, BF16>, gemm_range<V, float, F16>},
               {gemm_range<V, BF16, float>, gemm_range<V, BF16, BF16>, gemm_range<V, BF16, F16>}},
      .attend = {attend_tile<V, float>, attend_tile_bf16<D>, attend_tile_int8<V>,
                 attend_tile_e4m3<V>},
      .merge_chunks = merge_chunks<typename D::Vector>,
      .attend_shared = attend_shared<D>,
      .widen_latents = widen_latents<V>,
      .index_scores = {index_scores_range<V, float>, index_scores_bf16<D>},
  };
}

}  // namespace sluice::cpu
