#include "cli/models/model_size.h"

#include <algorithm>
#include <cmath>

#include "models/recurrent_decoder.h"

namespace sluice {

std::vector<WeightCount> ModelSize::parts() const {
  std::vector<WeightCount> out;
  for (const WeightCount& part :
       {embedding, attention, indexer, dense_mlp, router, experts, shared_experts, norms, head})
    if (part.total() > 0) out.push_back(part);
  return out;
}

void ModelSize::add(const ModelSize& other) {
  for (WeightCount ModelSize::* part :
       {&ModelSize::embedding, &ModelSize::attention, &ModelSize::indexer, &ModelSize::dense_mlp,
        &ModelSize::router, &ModelSize::experts, &ModelSize::shared_experts, &ModelSize::norms,
        &ModelSize::head}) {
    WeightCount& own = this->*part;
    own.matrices += (other.*part).matrices;
    own.floats += (other.*part).floats;
    own.plain += (other.*part).plain;
    own.expanded += (other.*part).expanded;
  }
  num_moe_layers += other.num_moe_layers;
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

ModelSize model_size(const ModelConfig& config, const StoredMatrices* stored) {
  ModelSize size = ends_size(config);
  for (int i = 0; i < config.num_layers; ++i) size.add(layer_size(config, i, stored));
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
    read -=
        embedding_bits / 8 *
        static_cast<double>(size.embedding.matrices - std::int64_t{config.hidden_size} * tokens);
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

std::int64_t window_bytes_per_token(const std::vector<PageGroupSpec>& groups) {
  std::int64_t page = 0;
  for (const PageGroupSpec& group : groups)
    if (group.retention == Retention::kWindow || group.retention == Retention::kChunk)
      page += group.bytes_per_page();
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
    const ModelSize size = layer_size(c, i);
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
