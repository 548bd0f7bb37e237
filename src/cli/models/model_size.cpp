#include "cli/models/model_size.h"

#include <algorithm>
#include <cmath>

#include "models/decoder_spec.h"
#include "models/recurrent_decoder.h"

namespace sluice {
namespace {

using Count = std::int64_t;

// Families outside the table of decoders are built as Llama is, as far as this count goes.
DecoderSpec spec_of(const ModelConfig& c) {
  return decoder_spec(c).value_or(DecoderSpec{});
}

// Numbers of one norm over the hidden size.
Count norm_floats(const ModelConfig& c, const DecoderSpec& spec) {
  return (spec.norm.has_weight + spec.norm.bias) * Count{c.hidden_size};
}

// Of the norms of queries and keys together.
Count head_norm_floats(const ModelConfig& c, HeadNormKind kind, Count kv_heads) {
  switch (kind) {
    case HeadNormKind::kRms:
      return 2 * Count{c.head_dim};
    case HeadNormKind::kUnit:
      return 0;
    case HeadNormKind::kRow:
    case HeadNormKind::kLayer:
    case HeadNormKind::kLayerList:
      break;
  }
  return (c.num_heads + kv_heads) * c.head_dim;
}

void add_norms(const ModelConfig& c, const DecoderSpec& spec, ModelSize& size) {
  const bool shared = c.residual == ResidualForm::kParallelOneNorm;
  Count norms = !spec.attention_in.empty() + !spec.attention_out.empty() + !spec.mlp_out.empty();
  norms += !spec.mlp_in.empty() && !shared;
  const bool has_mlp = !c.recurrent || c.recurrent->kind != RecurrentKind::kMamba2;
  size.norms.floats += (has_mlp ? norms : 1) * norm_floats(c, spec);
}

void add_gqa(const ModelConfig& c, const DecoderSpec& spec, int layer, ModelSize& size) {
  const Count q = Count{c.num_heads} * c.head_dim, kv_heads = c.kv_heads_of(layer);
  const Count qkv = q + kv_heads * (c.head_dim + c.value_dim());
  size.attention.matrices += Count{c.hidden_size} * (qkv + Count{c.num_heads} * c.value_dim());
  // Beside gated delta layers attention has a gate as wide as its queries.
  if (c.recurrent && c.recurrent->kind == RecurrentKind::kGatedDelta)
    size.attention.matrices += c.hidden_size * q;
  if (c.qkv_bias) size.attention.floats += qkv;
  if (c.layer(layer).sinks) size.attention.floats += c.num_heads;
  if (c.o_bias) size.attention.floats += c.hidden_size;
  if (c.qk_norm)
    size.norms.floats += head_norm_floats(c, spec.attention_spec.head_norm.kind, kv_heads);
}

void add_mla(const ModelConfig& c, ModelSize& size) {
  const MlaConfig& m = *c.mla;
  const Count heads = c.num_heads, hidden = c.hidden_size;
  const Count q_in = m.q_lora_rank > 0 ? m.q_lora_rank : hidden;
  if (m.q_lora_rank > 0) {
    size.attention.matrices += hidden * m.q_lora_rank;
    size.norms.floats += m.q_lora_rank;
    if (c.qkv_bias) size.attention.floats += m.q_lora_rank;
  }
  const Count latent_row = m.kv_lora_rank + m.qk_rope_head_dim;
  size.attention.matrices += q_in * heads * m.qk_head_dim() + hidden * latent_row +
                             Count{m.kv_lora_rank} * heads * (m.qk_nope_head_dim + m.v_head_dim) +
                             heads * m.v_head_dim * hidden;
  size.norms.floats += m.kv_lora_rank;
  if (c.qkv_bias) size.attention.floats += latent_row;
  if (c.o_bias) size.attention.floats += hidden;
}

// What a layer has that keeps a state; the numbers of one head or channel count as attention's.
void add_recurrent(const ModelConfig& c, ModelSize& size) {
  const RecurrentConfig& r = *c.recurrent;
  const Count hidden = c.hidden_size, heads = r.num_value_heads;
  const Count keys = Count{r.num_key_heads} * r.key_head_dim, values = heads * r.value_head_dim;
  const Count channels = r.kind == RecurrentKind::kShortConv ? hidden : 2 * keys + values;
  size.attention.floats += channels * (r.conv_kernel + r.conv_bias);
  switch (r.kind) {
    case RecurrentKind::kShortConv:
      size.attention.matrices += 4 * hidden * hidden;
      if (r.proj_bias) size.attention.floats += 4 * hidden;
      return;
    case RecurrentKind::kMamba2:
      size.attention.matrices += hidden * (2 * values + 2 * keys + heads) + values * hidden;
      if (r.proj_bias) size.attention.floats += 2 * values + 2 * keys + heads + hidden;
      size.attention.floats += 3 * heads;
      size.norms.floats += values;
      return;
    case RecurrentKind::kGatedDelta:
      size.attention.matrices += hidden * (2 * keys + 2 * values + 2 * heads) + values * hidden;
      size.attention.floats += 2 * heads;
      break;
    case RecurrentKind::kKeyDelta:
      // The decay and the gate go through a low rank.
      size.attention.matrices += hidden * (3 * keys + heads + 2 * r.key_head_dim) +
                                 2 * keys * r.key_head_dim + values * hidden;
      size.attention.floats += heads + keys;
      break;
  }
  size.norms.floats += r.value_head_dim;
}

void add_indexer(const ModelConfig& c, ModelSize& size) {
  const IndexerConfig& x = *c.indexer;
  const Count q_in = c.mla && c.mla->q_lora_rank > 0 ? c.mla->q_lora_rank : c.hidden_size;
  size.indexer.matrices +=
      q_in * x.num_heads * x.head_dim + Count{c.hidden_size} * (x.head_dim + x.num_heads);
  size.indexer.floats += 2 * Count{x.head_dim};
}

void add_moe(const ModelConfig& c, ModelSize& size) {
  const MoeConfig& m = *c.moe;
  const Count hidden = c.hidden_size;
  ++size.num_moe_layers;
  size.router.floats += m.num_experts * hidden;
  if (m.topk_method == TopkMethod::kNoauxTc) size.router.floats += m.num_experts;
  if (m.swiglu_limit > 0) {  // gpt-oss: everything has a bias
    size.router.floats += m.num_experts;
    size.experts.floats += Count{m.num_experts} * (2 * m.moe_intermediate_size + hidden);
  }
  size.experts.matrices += Count{m.num_experts} * 3 * hidden * m.moe_intermediate_size;
  size.shared_experts.matrices += 3 * hidden * m.shared_expert_intermediate_size;
  if (m.shared_expert_gate) size.shared_experts.floats += hidden;
}

void add_mlp(const ModelConfig& c, const DecoderSpec& spec, ModelSize& size) {
  const Count inner = (spec.mlp_names.gated ? 2 : 1) * Count{c.intermediate_size};
  size.dense_mlp.matrices += (inner + c.intermediate_size) * c.hidden_size;
  if (c.mlp_bias) size.dense_mlp.floats += inner + c.hidden_size;
  if (c.hidden_act == Activation::kXielu) size.dense_mlp.floats += 4;
}

}  // namespace

std::vector<WeightCount> ModelSize::parts() const {
  std::vector<WeightCount> out;
  for (const WeightCount& part :
       {embedding, attention, indexer, dense_mlp, router, experts, shared_experts, norms, head})
    if (part.total() > 0) out.push_back(part);
  return out;
}

std::int64_t ModelSize::matrices() const {
  std::int64_t sum = 0;
  for (const WeightCount& part : parts()) sum += part.matrices;
  return sum;
}

std::int64_t ModelSize::floats() const {
  std::int64_t sum = 0;
  for (const WeightCount& part : parts()) sum += part.floats;
  return sum;
}

std::int64_t ModelSize::bytes(double matrix_bits) const {
  return std::llround(static_cast<double>(matrices()) * matrix_bits / 8) + floats() * 4;
}

ModelSize model_size(const ModelConfig& config) {
  ModelSize size;
  const Count vocab_matrix = Count{config.vocab_size} * config.hidden_size;
  size.embedding.matrices = vocab_matrix;
  if (!config.tie_word_embeddings) size.head.matrices = vocab_matrix;
  if (config.head_bias) size.head.floats = config.vocab_size;
  const DecoderSpec spec = spec_of(config);
  if (!spec.ends.positions.empty())
    size.embedding.matrices +=
        Count{config.max_position_embeddings + spec.ends.position_offset} * config.hidden_size;
  size.norms.floats = (spec.ends.embedding_norm.empty() ? 1 : 2) * norm_floats(config, spec);
  for (int i = 0; i < config.num_layers; ++i) {
    const LayerConfig layer = config.layer(i);
    const bool has_mlp = !config.recurrent || config.recurrent->kind != RecurrentKind::kMamba2;
    add_norms(config, spec, size);
    if (layer.recurrent)
      add_recurrent(config, size);
    else
      config.mla ? add_mla(config, size) : add_gqa(config, spec, i, size);
    if (layer.indexer == IndexerRole::kFull) add_indexer(config, size);
    if (has_mlp) layer.is_moe ? add_moe(config, size) : add_mlp(config, spec, size);
  }
  return size;
}

double expected_experts(const MoeConfig& moe, int tokens) {
  const double missed = std::pow(1 - static_cast<double>(moe.top_k) / moe.num_experts, tokens);
  return moe.num_experts * (1 - missed);
}

double product_bits(const ModelConfig& config, double weight_bytes, double embedding_bits) {
  const ModelSize size = model_size(config);
  const double embedding =
      config.tie_word_embeddings ? 0 : static_cast<double>(size.embedding.matrices);
  const double products = static_cast<double>(size.matrices()) - embedding;
  return (8 * (weight_bytes - 4 * static_cast<double>(size.floats())) -
          embedding * embedding_bits) /
         products;
}

double weight_bytes_read(const ModelConfig& config, int tokens, double weight_bytes,
                         double embedding_bits) {
  const ModelSize size = model_size(config);
  double read = weight_bytes;
  // A tied embedding is the head, which every step reads.
  if (!config.tie_word_embeddings)
    read -= embedding_bits / 8 *
            static_cast<double>(size.embedding.matrices - Count{config.hidden_size} * tokens);
  if (config.moe)
    read -= product_bits(config, weight_bytes, embedding_bits) / 8 *
            static_cast<double>(size.experts.matrices) *
            (1 - expected_experts(*config.moe, tokens) / config.moe->num_experts);
  return read;
}

std::vector<PageGroupSpec> kv_page_groups(const ModelConfig& config, DType dtype,
                                          std::optional<DType> index) {
  if (config.recurrent) return recurrent_page_groups(config, 1, dtype);
  if (!config.mla) return gqa_page_groups(config, 1, dtype);
  PlaneSpec latent = latent_plane(dtype, config.mla->kv_lora_rank, config.mla->qk_rope_head_dim);
  PlaneSpec index_k =
      index_key_plane(index.value_or(dtype), config.indexer ? config.indexer->head_dim : 0);
  for (int i = 0; i < config.num_layers; ++i) {
    latent.layers.push_back(i);
    if (config.layer(i).indexer == IndexerRole::kFull) index_k.layers.push_back(i);
  }
  PageGroupSpec full{{.name = "full", .retention = Retention::kFull, .span = 0}, {latent}};
  if (!index_k.layers.empty()) full.planes.push_back(index_k);
  return {full};
}

std::int64_t kv_bytes_per_token(const std::vector<PageGroupSpec>& groups) {
  std::int64_t page = 0;
  for (std::int64_t g = 0; g < num_page_groups(groups); ++g)
    page += groups[static_cast<std::size_t>(g)].bytes_per_page();
  return page / kPageSize;
}

std::int64_t state_bytes(const std::vector<PageGroupSpec>& groups) {
  return num_page_groups(groups) == static_cast<std::int64_t>(groups.size())
             ? 0
             : groups.back().bytes_per_page();
}

std::int64_t kv_bytes_read(const ModelConfig& config, DType dtype, std::int64_t length) {
  std::int64_t bytes = 0;
  for (const PageGroupSpec& group : kv_page_groups(config, dtype))
    for (const PlaneSpec& plane : group.planes)
      for (const int layer : plane.layers) {
        std::int64_t rows = group.span > 0 ? std::min(group.span, length) : length;
        if (group.retention == Retention::kState) rows = 1;
        if (plane.name == "latent" && config.layer(layer).indexer != IndexerRole::kNone)
          rows = std::min<std::int64_t>(rows, config.indexer->topk);
        bytes += rows * plane.row_elements * dtype_size(plane.dtype);
      }
  return bytes;
}

namespace {

// Elements of matrices that a token's row is multiplied with between embedding and head.
double products_of_token(const ModelConfig& c) {
  const ModelSize size = model_size(c);
  auto elements = static_cast<double>(size.matrices() - size.embedding.matrices -
                                      size.head.matrices + size.router.floats);
  if (c.moe)
    elements -= static_cast<double>(size.experts.matrices) *
                (1 - static_cast<double>(c.moe->top_k) / c.moe->num_experts);
  return elements;
}

// Of those of a layer, what makes the keys, values and states that later tokens read.
double kept_products(const ModelConfig& c, int i) {
  const LayerConfig layer = c.layer(i);
  const auto hidden = static_cast<double>(c.hidden_size);
  if (layer.recurrent) {
    ModelSize size;
    add_recurrent(c, size);
    const RecurrentConfig& r = *c.recurrent;
    const double mixed = r.kind == RecurrentKind::kShortConv
                             ? hidden
                             : static_cast<double>(r.num_value_heads) * r.value_head_dim;
    // All but the way back, and the gate of low rank.
    const double gate = r.kind == RecurrentKind::kKeyDelta ? mixed * r.key_head_dim : 0;
    return static_cast<double>(size.attention.matrices) - mixed * hidden - gate;
  }
  double width = c.mla ? c.mla->kv_lora_rank + c.mla->qk_rope_head_dim
                       : c.kv_heads_of(i) * double(c.head_dim + c.value_dim());
  if (layer.indexer == IndexerRole::kFull) width += c.indexer->head_dim;
  return hidden * width;
}

// Keys that the first `tokens` tokens of a sequence see in a layer, together.
double keys_seen(const ModelConfig& c, const LayerConfig& layer, double tokens) {
  if (layer.chunk > 0) {
    const double whole = std::floor(tokens / layer.chunk), rest = tokens - whole * layer.chunk;
    return whole * layer.chunk * (layer.chunk + 1.0) / 2 + rest * (rest + 1) / 2;
  }
  double span = layer.window > 0 ? layer.window : tokens;
  if (layer.indexer != IndexerRole::kNone) span = c.indexer->topk;
  span = std::min(span, tokens);
  return span * (span + 1) / 2 + (tokens - span) * span;
}

}  // namespace

double prefill_operations(const ModelConfig& config, std::int64_t length) {
  const auto tokens = static_cast<double>(length);
  const int last = config.num_layers - 1;
  ModelConfig before_last = config;
  before_last.num_layers = last;
  // Of the last layer only the last token goes beyond keys, values and states.
  const double all_layers = products_of_token(config),
               kept = products_of_token(before_last) + kept_products(config, last);
  double sum = kept * tokens + all_layers - kept;  // multiply-adds
  for (int i = 0; i <= last; ++i) {
    const LayerConfig layer = config.layer(i);
    if (layer.recurrent) {
      // Each token reads a head's state twice and writes it once.
      const RecurrentConfig& r = *config.recurrent;
      sum += tokens * 3 * r.num_value_heads * r.key_head_dim * r.value_head_dim;
      continue;
    }
    const auto of_queries = [&](auto&& seen) {
      return i < last ? seen(tokens) : seen(tokens) - seen(tokens - 1);
    };
    // Absorbed MLA scores against the latent row and mixes latents.
    const double width = config.mla ? 2.0 * config.mla->kv_lora_rank + config.mla->qk_rope_head_dim
                                    : config.head_dim + config.value_dim();
    sum += of_queries([&](double n) { return keys_seen(config, layer, n); }) * config.num_heads *
           width;
    if (layer.indexer == IndexerRole::kFull)
      sum += of_queries([](double n) { return n * (n + 1) / 2; }) * config.indexer->num_heads *
             config.indexer->head_dim;
  }
  return 2 * (sum + static_cast<double>(config.vocab_size) * config.hidden_size);
}

}  // namespace sluice
