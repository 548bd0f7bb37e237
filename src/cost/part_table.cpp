#include "cost/part_table.h"

#include <algorithm>
#include <array>
#include <cmath>

namespace sluice {
namespace {

constexpr double kFloatBytes = 4;  // residual stream, sums, logits
constexpr double kHalfBytes = 2;   // rows of products

using Matrices = std::vector<Matrix>;
using Kernels = std::vector<KernelWork>;

double row_bytes(const PartInputs& in, double width, double bytes = kHalfBytes) {
  return in.step.rows() * width * bytes;
}

// `add_one`, for the prompts' tokens and for those that decode.
template <class AddOne>
void add_attention(const PartInputs& in, AddOne&& add_one) {
  if (in.step.prompt.rows > 0) add_one(in.step.prompt, false);
  if (in.step.decode.rows > 0) add_one(in.step.decode, true);
}

// A product with each matrix that `add_matrices` names.
// A chained kernel of few rows loads its weights while it waits for the one before.
void add_products(const PartInputs& in, const Matrices& matrices, double rows, Kernels& out,
                  bool is_chained = false) {
  for (const Matrix& matrix : matrices) {
    const double share = rank_share(matrix, in.step.mix, in.config, in.layer);
    const double elements = matrix.outputs * matrix.inputs * share;
    const double bits = element_bits(matrix.stored, in.step.types, in.layer);
    const bool is_fp8 = in.step.types.is_fp8 && bits < 16;
    double launches = is_chained && rows <= kSkinnyRows ? 0 : matrix.launches;
    if (is_fp8 && rows > 1 && matrix.needs_fp8_rows) ++launches;
    out.push_back({.kind = KernelKind::kProduct,
                   .launches = launches,
                   .rows = rows,
                   .columns = matrix.outputs * share,
                   .weight_bytes = elements * bits / 8,
                   .converted = bits < 16 ? elements : 0,
                   .bytes = 0,
                   .operations = 2 * rows * elements,
                   .is_fp8 = is_fp8});
  }
}

double seen_keys(const PartInputs& in, const TokenRows& tokens) {
  const LayerConfig layer = in.config.layer(in.layer);
  const double span = layer.window > 0 ? layer.window : layer.chunk > 0 ? layer.chunk : 0;
  return span > 0 ? std::min(tokens.keys, span) : tokens.keys;
}

// Attention heads.

bool is_heads(const ModelConfig& config, int layer) {
  return !config.mla && !config.layer(layer).recurrent;
}

void add_heads_matrices(const ModelConfig& config, int layer, Matrices& out) {
  const double hidden = config.hidden_size, heads = config.num_heads;
  // Beside gated delta layers attention has a gate as wide as its queries.
  const bool is_gated = config.recurrent && config.recurrent->kind == RecurrentKind::kGatedDelta;
  out.push_back({.outputs = heads * config.head_dim * (is_gated ? 2 : 1),
                 .inputs = hidden,
                 .sharing = Sharing::kHeads});
  out.push_back(
      {.outputs = double(config.kv_heads_of(layer)) * (config.head_dim + config.value_dim()),
       .inputs = hidden,
       .sharing = Sharing::kKeyHeads,
       .launches = 0});
  out.push_back({.outputs = hidden,
                 .inputs = heads * config.value_dim(),
                 .sharing = Sharing::kHeads,
                 .needs_fp8_rows = true});
}

void add_heads_kernels(const PartInputs& in, Kernels& out) {
  Matrices matrices;
  add_heads_matrices(in.config, in.layer, matrices);
  add_products(in, matrices, in.step.rows(), out, true);
  const double heads = double(in.config.num_heads) / in.step.mix.attention_ranks();
  const double width = in.config.head_dim + in.config.value_dim();
  add_attention(in, [&](const TokenRows& tokens, bool) {
    const double keys = seen_keys(in, tokens);
    out.push_back({.kind = KernelKind::kAttention,
                   .bytes = tokens.sequences * keys *
                            kv_bytes_of_token(in.config, in.layer, in.step.mix, in.step.types),
                   .operations = 2 * tokens.rows * keys * heads * width});
  });
}

// Latent attention (DeepSeek-V2, section 2.1).

bool is_latent(const ModelConfig& config, int layer) {
  return config.mla.has_value() && !config.layer(layer).recurrent;
}

void add_latent_matrices(const ModelConfig& config, int, Matrices& out) {
  const MlaConfig& mla = *config.mla;
  const double hidden = config.hidden_size, heads = config.num_heads, rank = mla.kv_lora_rank;
  if (mla.q_lora_rank > 0) out.push_back({.outputs = double(mla.q_lora_rank), .inputs = hidden});
  out.push_back({.outputs = heads * mla.qk_head_dim(),
                 .inputs = mla.q_lora_rank > 0 ? mla.q_lora_rank : hidden,
                 .sharing = Sharing::kHeads});
  out.push_back({.outputs = rank + mla.qk_rope_head_dim, .inputs = hidden});
  out.push_back(
      {.outputs = heads * mla.qk_nope_head_dim, .inputs = rank, .sharing = Sharing::kHeads});
  out.push_back({.outputs = heads * mla.v_head_dim, .inputs = rank, .sharing = Sharing::kHeads});
  out.push_back({.outputs = hidden, .inputs = heads * mla.v_head_dim, .sharing = Sharing::kHeads});
}

void add_latent_kernels(const PartInputs& in, Kernels& out) {
  // Two norms, two rotations, a write into the cache, a merge; rows become operands five times.
  constexpr double kSmallKernels = 11;
  const MlaConfig& mla = *in.config.mla;
  Matrices matrices;
  add_latent_matrices(in.config, in.layer, matrices);
  add_products(in, matrices, in.step.rows(), out);
  const bool is_sparse = in.config.layer(in.layer).indexer != IndexerRole::kNone;
  const double latents = mla.kv_lora_rank + mla.qk_rope_head_dim;
  add_attention(in, [&](const TokenRows& tokens, bool is_decode) {
    const double keys =
        is_sparse ? std::min<double>(tokens.keys, in.config.indexer->topk) : seen_keys(in, tokens);
    // Prompts of dense models have keys and values of heads; all else works on the latents.
    const double width =
        is_decode || is_sparse ? latents + mla.kv_lora_rank : mla.qk_head_dim() + mla.v_head_dim;
    const double readers = is_sparse ? tokens.rows : tokens.sequences;
    out.push_back({.kind = KernelKind::kAttention,
                   .launches = 1 + kSmallKernels,
                   .bytes = readers * keys * latents * in.step.types.kv_bits / 8,
                   .operations = 2 * tokens.rows * keys * width * in.config.num_heads /
                                 in.step.mix.attention_ranks()});
  });
}

// The indexer of sparse attention: every rank scores all keys.

bool has_indexer(const ModelConfig& config, int layer) {
  return config.layer(layer).indexer == IndexerRole::kFull;
}

void add_indexer_matrices(const ModelConfig& config, int, Matrices& out) {
  const IndexerConfig& indexer = *config.indexer;
  const double hidden = config.hidden_size;
  const double inputs =
      config.mla && config.mla->q_lora_rank > 0 ? config.mla->q_lora_rank : hidden;
  const auto add = [&](double outputs, double from) {
    out.push_back({.outputs = outputs, .inputs = from, .stored = StoredAs::kIndexer});
  };
  add(double(indexer.num_heads) * indexer.head_dim, inputs);
  add(indexer.head_dim, hidden);
  add(indexer.num_heads, hidden);
}

void add_indexer_kernels(const PartInputs& in, Kernels& out) {
  // Norm, two rotations, two transforms, write of the key, scores, choice.
  constexpr double kSmallKernels = 8;
  const IndexerConfig& indexer = *in.config.indexer;
  Matrices matrices;
  add_indexer_matrices(in.config, in.layer, matrices);
  add_products(in, matrices, in.step.rows(), out);
  add_attention(in, [&](const TokenRows& tokens, bool) {
    const double scores = tokens.rows * tokens.keys;
    out.push_back(
        {.kind = KernelKind::kAttention,
         .launches = kSmallKernels,
         .bytes = tokens.sequences * tokens.keys * indexer.head_dim * in.step.types.index_bits / 8 +
                  2 * scores * kFloatBytes,
         .operations = 2 * scores * indexer.num_heads * indexer.head_dim});
  });
}

// Recurrent layers: every rank computes them whole.

bool is_recurrent(const ModelConfig& config, int layer) {
  return config.layer(layer).recurrent;
}

struct RecurrentWidths {
  double keys = 0, values = 0, heads = 0, channels = 0;
};
RecurrentWidths recurrent_widths(const ModelConfig& config) {
  const RecurrentConfig& r = *config.recurrent;
  RecurrentWidths out{.keys = double(r.num_key_heads) * r.key_head_dim,
                      .values = double(r.num_value_heads) * r.value_head_dim,
                      .heads = double(r.num_value_heads)};
  out.channels =
      r.kind == RecurrentKind::kShortConv ? double(config.hidden_size) : 2 * out.keys + out.values;
  return out;
}

void add_recurrent_matrices(const ModelConfig& config, int, Matrices& out) {
  const RecurrentConfig& r = *config.recurrent;
  const RecurrentWidths w = recurrent_widths(config);
  const double hidden = config.hidden_size;
  switch (r.kind) {
    case RecurrentKind::kShortConv:
      out.push_back({.outputs = 3 * hidden, .inputs = hidden});
      out.push_back({.outputs = hidden, .inputs = hidden});
      return;
    case RecurrentKind::kMamba2:
      out.push_back({.outputs = 2 * w.values + 2 * w.keys + w.heads, .inputs = hidden});
      break;
    case RecurrentKind::kGatedDelta:
      out.push_back({.outputs = 2 * w.keys + 2 * w.values + 2 * w.heads, .inputs = hidden});
      break;
    case RecurrentKind::kKeyDelta:
      out.push_back({.outputs = 3 * w.keys + w.heads + 2.0 * r.key_head_dim, .inputs = hidden});
      out.push_back({.outputs = 2 * w.keys, .inputs = double(r.key_head_dim)});
      break;
  }
  out.push_back({.outputs = hidden, .inputs = w.values});
}

void add_recurrent_kernels(const PartInputs& in, Kernels& out) {
  constexpr double kSmallKernels = 3;  // convolution, recurrence, gated norm
  Matrices matrices;
  add_recurrent_matrices(in.config, in.layer, matrices);
  add_products(in, matrices, in.step.rows(), out);
  out.push_back({.kind = KernelKind::kElementwise,
                 .launches = kSmallKernels,
                 .bytes = 2 * (in.step.decode.sequences + in.step.prompt.sequences) *
                              state_bytes_of_sequence(in.config, in.layer) +
                          2 * row_bytes(in, recurrent_widths(in.config).channels)});
}

// Feed-forward layers.

bool has_mlp(const ModelConfig& config, int layer) {
  return !config.layer(layer).is_moe && config.intermediate_size > 0;
}

void add_gated_mlp(double inner, double hidden, StoredAs stored, Matrices& out) {
  out.push_back(
      {.outputs = 2 * inner, .inputs = hidden, .sharing = Sharing::kColumns, .stored = stored});
  out.push_back({.outputs = hidden,
                 .inputs = inner,
                 .sharing = Sharing::kColumns,
                 .stored = stored,
                 .needs_fp8_rows = true});
}

void add_mlp_matrices(const ModelConfig& config, int, Matrices& out) {
  add_gated_mlp(config.intermediate_size, config.hidden_size, StoredAs::kMlp, out);
}

void add_mlp_kernels(const PartInputs& in, Kernels& out) {
  Matrices matrices;
  add_mlp_matrices(in.config, in.layer, matrices);
  add_products(in, matrices, in.step.all_rows, out, true);
}

bool has_experts(const ModelConfig& config, int layer) {
  return config.layer(layer).is_moe;
}

void add_router_matrices(const ModelConfig& config, int, Matrices& out) {
  out.push_back({.outputs = double(config.moe->num_experts),
                 .inputs = double(config.hidden_size),
                 .stored = StoredAs::kFloat32});
}

void add_router_kernels(const PartInputs& in, Kernels& out) {
  Matrices matrices;
  add_router_matrices(in.config, in.layer, matrices);
  add_products(in, matrices, in.step.all_rows, out);
}

void add_expert_matrices(const ModelConfig& config, int, Matrices& out) {
  const double inner = config.moe->moe_intermediate_size, hidden = config.hidden_size;
  const double count = config.moe->num_experts;
  out.push_back({.outputs = 2 * inner,
                 .inputs = hidden,
                 .sharing = Sharing::kExperts,
                 .stored = StoredAs::kExpert,
                 .count = count});
  out.push_back({.outputs = hidden,
                 .inputs = inner,
                 .sharing = Sharing::kExperts,
                 .stored = StoredAs::kExpert,
                 .count = count});
}

void add_expert_kernels(const PartInputs& in, Kernels& out) {
  const MoeConfig& moe = *in.config.moe;
  const Mix& mix = in.step.mix;
  const double chosen = busiest_experts(moe, in.step.all_rows, mix.ep);
  const double pairs = in.step.all_rows * moe.top_k;  // of a token and an expert
  Matrices matrices;
  add_expert_matrices(in.config, in.layer, matrices);
  for (const Matrix& matrix : matrices) {
    const double elements = matrix.outputs * matrix.inputs / (double(mix.tp) / mix.ep);
    const double bits = element_bits(matrix.stored, in.step.types, in.layer);
    // The busiest group has as much more of the pairs as it has of the experts.
    const double own_pairs =
        pairs * chosen / std::max(1.0, busiest_experts(moe, in.step.all_rows, 1));
    out.push_back({.kind = KernelKind::kExperts,
                   .rows = own_pairs / std::max(1.0, chosen),
                   .weight_bytes = chosen * elements * bits / 8,
                   .converted = bits < 16 ? chosen * elements : 0,
                   .bytes = own_pairs * (matrix.inputs + matrix.outputs) * kHalfBytes,
                   .operations = 2 * own_pairs * elements,
                   .is_fp8 = in.step.types.is_fp8 && bits < 16});
  }
}

bool has_shared_experts(const ModelConfig& config, int layer) {
  return has_experts(config, layer) && config.moe->shared_expert_intermediate_size > 0;
}

void add_shared_matrices(const ModelConfig& config, int, Matrices& out) {
  add_gated_mlp(config.moe->shared_expert_intermediate_size, config.hidden_size,
                StoredAs::kSharedExpert, out);
}

void add_shared_kernels(const PartInputs& in, Kernels& out) {
  Matrices matrices;
  add_shared_matrices(in.config, in.layer, matrices);
  add_products(in, matrices, in.step.all_rows, out);
}

// Norms read the branch and the residual stream, and write the stream and rows of products. Few
// rows are normed within the next product.

bool is_any(const ModelConfig&, int) {
  return true;
}

void add_no_matrices(const ModelConfig&, int, Matrices&) {}

void add_norm_kernels(const PartInputs& in, Kernels& out) {
  constexpr double kNorms = 2;
  out.push_back(
      {.kind = KernelKind::kElementwise,
       .launches = in.step.all_rows > kSkinnyRows ? kNorms : 0,
       .bytes = kNorms * row_bytes(in, in.config.hidden_size, 3 * kFloatBytes + kHalfBytes)});
}

// Sums and gatherings of a layer: of attention over its ranks, of the feed-forward layer over all.

void add_collective_kernels(const PartInputs& in, Kernels& out) {
  const Mix& mix = in.step.mix;
  const double hidden = in.config.hidden_size;
  if (!in.config.layer(in.layer).recurrent)
    out.push_back({.kind = KernelKind::kSum,
                   .message_bytes = row_bytes(in, hidden, kFloatBytes),
                   .ranks = mix.attention_ranks()});
  if (mix.sent_copies > 0) {
    // Out in FP8, back in bfloat16.
    if (has_experts(in.config, in.layer))
      for (const double bytes : {1.0, kHalfBytes})
        out.push_back({.kind = KernelKind::kSend,
                       .message_bytes = row_bytes(in, mix.sent_copies * hidden, bytes),
                       .ranks = 2});
    return;
  }
  if (mix.dp > 1)
    out.push_back({.kind = KernelKind::kGather,
                   .message_bytes = in.step.all_rows * hidden * kFloatBytes,
                   .ranks = mix.tp});
  out.push_back({.kind = KernelKind::kSum,
                 .message_bytes = in.step.all_rows * hidden * kFloatBytes,
                 .ranks = mix.tp});
}

// The ends.

void add_embedding_matrices(const ModelConfig& config, int, Matrices& out) {
  out.push_back({.outputs = double(config.vocab_size),
                 .inputs = double(config.hidden_size),
                 .stored = StoredAs::kEmbedding});
}

void add_embedding_kernels(const PartInputs& in, Kernels& out) {
  out.push_back({.kind = KernelKind::kElementwise,
                 .bytes = row_bytes(in, in.config.hidden_size, kHalfBytes + kFloatBytes)});
}

Matrix head_matrix(const ModelConfig& config) {
  return {.outputs = double(config.vocab_size),
          .inputs = double(config.hidden_size),
          .sharing = Sharing::kHeads,
          .stored = StoredAs::kHead};
}

void add_head_matrices(const ModelConfig& config, int, Matrices& out) {
  if (!config.tie_word_embeddings) out.push_back(head_matrix(config));
}

void add_head_kernels(const PartInputs& in, Kernels& out) {
  constexpr double kSampling = 3;  // the last norm, the choice of a token, its way to the host
  add_products(in, {head_matrix(in.config)}, in.step.logit_rows, out);
  const double logit_bytes = in.step.logit_rows * in.config.vocab_size * kFloatBytes;
  out.push_back({.kind = KernelKind::kGather,
                 .message_bytes = logit_bytes,
                 .ranks = in.step.mix.attention_ranks()});
  out.push_back(
      {.kind = KernelKind::kElementwise, .launches = kSampling, .bytes = 2 * logit_bytes});
}

constexpr PartRow kLayerParts[] = {
    {"attention heads", is_heads, add_heads_matrices, add_heads_kernels},
    {"latent attention", is_latent, add_latent_matrices, add_latent_kernels},
    {"indexer", has_indexer, add_indexer_matrices, add_indexer_kernels},
    {"recurrent", is_recurrent, add_recurrent_matrices, add_recurrent_kernels},
    {"dense MLP", has_mlp, add_mlp_matrices, add_mlp_kernels},
    {"router", has_experts, add_router_matrices, add_router_kernels},
    {"experts", has_experts, add_expert_matrices, add_expert_kernels},
    {"shared experts", has_shared_experts, add_shared_matrices, add_shared_kernels},
    {"norms", is_any, add_no_matrices, add_norm_kernels},
    {"collectives", is_any, add_no_matrices, add_collective_kernels},
};
constexpr PartRow kEmbedding{"embedding", is_any, add_embedding_matrices, add_embedding_kernels};
constexpr PartRow kHead{"head", is_any, add_head_matrices, add_head_kernels};

// Mean of the largest of `count` normal deviates, for the counts that mixes have.
double largest_of(int count) {
  constexpr std::array kMeans{0.0, 0.0, 0.564, 0.846, 1.029, 1.163, 1.267, 1.352, 1.424};
  constexpr double kOfSixteen = 1.766;
  return count < std::ssize(kMeans) ? kMeans[static_cast<std::size_t>(count)] : kOfSixteen;
}

}  // namespace

std::span<const PartRow> layer_parts() {
  return kLayerParts;
}
const PartRow& embedding_part() {
  return kEmbedding;
}
const PartRow& head_part() {
  return kHead;
}

double rank_share(const Matrix& matrix, const Mix& mix, const ModelConfig& config, int layer) {
  switch (matrix.sharing) {
    case Sharing::kWhole:
      return 1;
    case Sharing::kHeads:
      return 1.0 / mix.attention_ranks();
    case Sharing::kKeyHeads:
      return 1.0 / std::min(mix.attention_ranks(), std::max(1, config.kv_heads_of(layer)));
    case Sharing::kColumns:
    case Sharing::kExperts:
      break;
  }
  return 1.0 / mix.tp;
}

double kv_bytes_of_token(const ModelConfig& config, int layer, const Mix& mix,
                         const StoredTypes& types) {
  if (config.layer(layer).recurrent) return 0;
  if (config.mla) {
    const double latents = config.mla->kv_lora_rank + config.mla->qk_rope_head_dim;
    const double index = has_indexer(config, layer) ? config.indexer->head_dim : 0;
    return (latents * types.kv_bits + index * types.index_bits) / 8;
  }
  const int heads = config.kv_heads_of(layer);
  return double(heads) / std::min(mix.attention_ranks(), std::max(1, heads)) *
         (config.head_dim + config.value_dim()) * types.kv_bits / 8;
}

double state_bytes_of_sequence(const ModelConfig& config, int layer) {
  if (!config.layer(layer).recurrent) return 0;
  const RecurrentConfig& r = *config.recurrent;
  const RecurrentWidths w = recurrent_widths(config);
  return kFloatBytes * (w.channels * (r.conv_kernel - 1) + w.values * r.key_head_dim);
}

double busiest_experts(const MoeConfig& moe, double rows, int groups) {
  const double missed = std::pow(1 - double(moe.top_k) / moe.num_experts, rows);
  const double chosen = moe.num_experts * (1 - missed);
  if (groups == 1) return chosen;
  const double mean = chosen / groups;
  const double deviation =
      std::sqrt(mean * (1 - 1.0 / groups) * std::max(0.0, 1 - chosen / moe.num_experts));
  return std::min(
      {mean + largest_of(groups) * deviation, chosen, double(moe.num_experts) / groups});
}

}  // namespace sluice
