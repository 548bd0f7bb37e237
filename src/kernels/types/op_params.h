// Plain structs shared by ops and their kernels on every device.
#pragma once

#include <cstdint>

#include "base/page_size.h"
#include "kernels/types/model_enums.h"
#include "tensor/tensor.h"

namespace sluice::ops {

// What the host knows of the runs of a prefill step: sequences with several neighbouring rows. All
// other sequences have one row. Zeros: nothing is known.
struct PrefillRuns {
  std::int64_t seqs = 0;
  std::int64_t pages = 0;  // at least as many as hold the keys that their rows see
  // [n] u8 on a GPU, on 64 bytes: at least prefill_bytes() (ops/attention.h) for the fastest
  // kernels; or undefined. Later work on the rank's stream may use it again.
  Tensor memory = {};
};

// Rows that each have a row of the page table although neighbours are of one sequence (those of
// drafts). The rows of a run are at consecutive positions. Each sees the keys of those before it.
struct RowRuns {
  Tensor places = {};  // [T] int32: rows of its run before a row; undefined: no row is of a run
  std::int64_t longest = 1;  // rows that a run may have, in any step of these shapes
};

// Keys that the rows of a batch see: row t sees positions 0..positions[t] of sequence row_seq[t].
// The key at position p is in slot page_table[row_seq[t]][p / 64] * 64 + p % 64 of the plane.
struct PagedRows {
  Tensor page_table;  // [seqs, max_pages] int32; -1: no page (never read for a visible key)
  Tensor row_seq;     // [T] int32
  Tensor positions;   // [T] int32
  PrefillRuns prefill = {};
  RowRuns runs = {};  // rotate_write_and_attend() reads them
};

// How paged attention turns dot products q . k into probabilities. Plain values and small tensors,
// so that a further score mod is a further field.
struct AttentionParams {
  float scale = 1;          // multiplies q . k; > 0
  std::int64_t window = 0;  // sliding window, the row itself included; 0: no window
  // Local attention: a row at position p sees no key before p / chunk * chunk. 0: no limit.
  // Excludes a window.
  std::int64_t chunk = 0;
  Tensor sinks = {};   // [h] f32, attention sinks: a logit in each row's softmax that has no value;
                       // undefined: none
  float softcap = 0;   // c > 0: a scaled score s becomes c * tanh(s / c), within 4 eps c
  Tensor slopes = {};  // [h] f32, ALiBi: adds slope * (key position - row position) after that;
                       // undefined: none

  // Scores are scaled products: no chunk, soft cap or slopes.
  bool plain() const { return chunk == 0 && softcap == 0 && !slopes.defined(); }
  // First position that a row at `position` sees.
  std::int64_t first_key(std::int64_t position) const {
    if (window > 0) return position >= window ? position - window + 1 : 0;
    return chunk > 0 ? position / chunk * chunk : 0;
  }
};

// Sampling parameters of one row of logits. sampling/host_sampler.h defines the filters.
struct SampleRow {
  float temperature = kLeftOut;  // 0: greedy; kLeftOut: row not sampled, the token is 0
  float top_p = 1, min_p = 0;
  std::int32_t top_k = -1;
  double uniform = 0;  // random number in [0, 1)

  static constexpr float kLeftOut = -1;
  bool greedy() const { return temperature == 0 || top_k == 1; }
};
// View of a tensor [rows, sizeof(SampleRow)] u8.
inline SampleRow* as_sample_rows(const Tensor& sample_rows) {
  return static_cast<SampleRow*>(sample_rows.data);
}

// Preparation of the heads of q and k before attention: an RMSNorm of each head if there is a
// weight, then RoPE of its first elements.
struct HeadRotation {
  Tensor q_weight, k_weight;  // [d] f32, bf16 or f16; undefined: not normalised
  float eps = 0;
  Tensor cos_sin;  // [T, r] f32, r <= d: rope_cos_sin(); undefined: neither norm nor RoPE
  bool interleaved = false;

  bool defined() const { return cos_sin.defined(); }
};

// View of rows [T, heads * d] as heads [T, heads, d].
inline Tensor heads_of_rows(const Tensor& rows, std::int64_t heads) {
  Tensor view = rows;
  view.rank = 3;
  view.shape = {rows.shape[0], heads, rows.shape[1] / heads, 0};
  view.stride = {rows.stride[0], rows.shape[1] / heads, 1, 0};
  return view;
}

// Maximum rows of the GPU kernels that fuse operations of few rows (ops/fused.h).
inline constexpr std::int64_t kMaxFusedRows = 8;

// RMSNorm parameters of a row.
struct RowNorm {
  Tensor weight;  // [n] f32, bf16 or f16
  float eps = 0;
};

// Keys per chunk of attention. Chunks are counted from position 0 (in a sparse list: from its first
// entry).
inline constexpr std::int64_t kKeyChunk = 256;
// Maximum latent + rope row of MLA, and maximum value (or latent) row of any attention.
inline constexpr std::int64_t kMaxKeyDim = 1152;
inline constexpr std::int64_t kMaxValueDim = 1024;

// Elements of a row of a plane. In an int8 plane a head is `dim` bytes q and then one unaligned
// float32 scale s: element i is q[i] * s, with s = max |x| / 127 over the head.
inline constexpr std::int64_t kKvScaleBytes = 4;
constexpr std::int64_t kv_row_elements(DType dtype, std::int64_t heads, std::int64_t dim) {
  return heads * (dim + (dtype == DType::kI8 ? kKvScaleBytes : 0));
}

// Limits of route().
inline constexpr std::int64_t kMaxExperts = 1024;
inline constexpr int kMaxGroups = 64;

// How a token selects its experts (DeepSeek-V3, arXiv 2412.19437, section 2.1.2, and similar
// models). Functions below return the settings of known models.
struct RouterParams {
  RouterScoring scoring = RouterScoring::kSoftmax;
  TopkMethod method = TopkMethod::kGreedy;
  int top_k = 1;
  int n_group = 1;  // <= 1: no groups
  int topk_group = 1;
  bool renormalise = false;      // weights / (sum + renormalise_eps)
  float renormalise_eps = 0.0f;  // DeepSeek: 1e-20
  float renormalise_min = 0.0f;  // ERNIE: lower bound of the sum
  float mixer_eps = 0.0f;        // kSparseMixer: router_jitter_noise
  float scaling = 1.0f;          // finally, weights * scaling
};

// Mixtral (renormalise), Qwen2-MoE and Qwen3-MoE (norm_topk_prob): softmax over all experts, then
// the k best.
inline RouterParams softmax_router(int top_k, bool renormalise) {
  return {.top_k = top_k, .renormalise = renormalise};
}

// DeepSeek-V2: with norm_topk_prob (and k > 1) the weights are normalised and not scaled, otherwise
// scaled.
inline RouterParams deepseek_v2_router(int top_k, int n_group, int topk_group, bool norm_topk_prob,
                                       float scaling) {
  const bool normalise = norm_topk_prob && top_k > 1;
  return {.method = n_group > 1 ? TopkMethod::kGroupLimitedGreedy : TopkMethod::kGreedy,
          .top_k = top_k,
          .n_group = n_group,
          .topk_group = topk_group,
          .renormalise = normalise,
          .renormalise_eps = 1e-20f,
          .scaling = normalise ? 1.0f : scaling};
}

// DeepSeek-V3, V3.2, Kimi-K2, GLM: normalised if norm_topk_prob, always scaled.
inline RouterParams deepseek_v3_router(int top_k, int n_group, int topk_group, bool norm_topk_prob,
                                       float scaling) {
  return {.scoring = RouterScoring::kSigmoid,
          .method = TopkMethod::kNoauxTc,
          .top_k = top_k,
          .n_group = n_group,
          .topk_group = topk_group,
          .renormalise = norm_topk_prob,
          .renormalise_eps = 1e-20f,
          .scaling = scaling};
}

// ERNIE 4.5: softmax over all experts; the bias affects only the selection; weights are normalised.
// Source: transformers Ernie4_5_MoeTopKRouter.
inline RouterParams ernie_router(int top_k, float norm_min) {
  return {.method = TopkMethod::kNoauxTc,
          .top_k = top_k,
          .renormalise = true,
          .renormalise_min = norm_min};
}

// Llama 4: the best logits; an expert's weight is its sigmoid. Source: transformers Llama4Router.
inline RouterParams llama4_router(int top_k) {
  return {.scoring = RouterScoring::kSigmoid, .top_k = top_k};
}

// PhiMoE. Source: transformers `sparsemixer` (models/phimoe), arXiv 2409.12136.
inline RouterParams sparse_mixer(float jitter_eps) {
  return {.method = TopkMethod::kSparseMixer, .top_k = 2, .mixer_eps = jitter_eps};
}

// Variations of an expert's MLP. An Activation alone means act(gate) * up.
struct ExpertParams {
  ExpertParams(Activation gate_function = Activation::kSilu) : activation(gate_function) {}

  Activation activation;
  // Rows 2i and 2i + 1 of w13 are gate and up of column i. Otherwise all gate rows come first, then
  // all up rows.
  bool interleaved = false;
  // > 0: (up' + 1) * gate' * sigmoid(alpha * gate') instead of the activation. gate' = min(gate,
  // clamp), up' = up limited to [-clamp, clamp] (transformers GptOssExperts).
  float clamp = 0;
  float alpha = 1.702f;
  bool weigh_input = false;  // the pair's weight multiplies the expert's input, not its result
                             // (transformers Llama4TextMoe)
  int groups = 1;    // of ranks that share a layer's experts: about one pair in so many is not -1
  Tensor up_bias;    // [E, 2 I] f32, added to the w13 GEMM, in w13's row order; or undefined
  Tensor down_bias;  // [E, H] f32, added to the w2 GEMM; or undefined

  bool activation_only() const {
    return !interleaved && clamp == 0 && !weigh_input && !up_bias.defined() && !down_bias.defined();
  }
};

// Workspace of fused_experts; see ops/moe.h.
struct MoeWorkspace {
  Tensor gate_up;  // [pairs, 2 I] f32
  Tensor hidden;   // [pairs, I] f32, or bf16 when x is bf16
  Tensor down;     // [pairs, H] f32
  Tensor order;    // [2 * pairs + E + 1] int32
};

}  // namespace sluice::ops
