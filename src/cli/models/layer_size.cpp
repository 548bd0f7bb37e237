// The numbers of one layer, matrix by matrix, under the names that the checkpoint gives them.
#include <algorithm>

#include "cli/models/model_size.h"
#include "models/recurrent_decoder.h"
#include "models/wrapped_names.h"

namespace sluice {
namespace {

using Count = std::int64_t;

struct Family {
  DecoderSpec spec;
  std::string_view recurrent = {};  // name of what recurrent layers have instead of attention
};

// Families outside the tables are built as Llama is, as far as this count goes, with the mixtures
// of DeepSeek.
Family family_of(const ModelConfig& c) {
  for (const RecurrentSpec& row : recurrent_table())
    if (row.decoder.architecture == c.architecture) return {row.decoder, row.recurrent};
  return {decoder_spec(c).value_or(
      DecoderSpec{.architecture = c.architecture, .moe = kDeepseekMoeNames})};
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

std::string joined(std::string_view outer, std::string_view inner) {
  if (outer.empty() || inner.empty()) return std::string(outer) + std::string(inner);
  return std::string(outer) + '.' + std::string(inner);
}

class LayerCount {
 public:
  LayerCount(const ModelConfig& config, int layer, const StoredMatrices* stored)
      : c_(config),
        layer_(layer),
        stored_(stored),
        family_(family_of(config)),
        spec_(family_.spec) {
    if (stored == nullptr) return;
    path_ = joined(spec_.ends.body, fmt::format("{}.{}", spec_.layers, layer));
    constexpr std::string_view kBody = "model.";
    if (stored->wrapped && path_.starts_with(kBody))
      path_ = std::string(stored->wrapped->body) + path_.substr(kBody.size());
  }

  ModelSize run() {
    const LayerConfig layer = c_.layer(layer_);
    const bool has_mlp = !c_.recurrent || c_.recurrent->kind != RecurrentKind::kMamba2;
    add_norms(has_mlp);
    if (layer.recurrent)
      add_recurrent();
    else
      c_.mla ? add_mla() : add_gqa();
    if (layer.indexer == IndexerRole::kFull) add_indexer();
    if (has_mlp) layer.is_moe ? add_moe() : add_mlp();
    return size_;
  }

 private:
  // A matrix by its name below the layer, with its ending.
  void add(WeightCount& part, const std::string& name, Count elements) {
    part.matrices += elements;
    if (stored_ != nullptr && stored_->source.leaves_plain(joined(path_, name)))
      part.plain += elements;
  }
  void add(WeightCount& part, std::string_view block, std::string_view name, Count elements) {
    if (stored_ == nullptr)
      part.matrices += elements;
    else
      add(part, joined(block, name) + ".weight", elements);
  }
  // The same of one that keeps its type whatever the form of linear layers.
  void add_plain(WeightCount& part, Count elements) {
    part.matrices += elements;
    part.plain += elements;
  }
  bool has(const std::string& name, bool by_config) const {
    return stored_ != nullptr && stored_->source.has(joined(path_, name), by_config);
  }

  void add_norms(bool has_mlp) {
    const bool shared = c_.residual == ResidualForm::kParallelOneNorm;
    Count norms =
        !spec_.attention_in.empty() + !spec_.attention_out.empty() + !spec_.mlp_out.empty();
    norms += !spec_.mlp_in.empty() && !shared;
    size_.norms.floats += (has_mlp ? norms : 1) * norm_floats(c_, spec_);
  }

  void add_gqa() {
    const AttentionSpec& names = spec_.attention_spec;
    const Count hidden = c_.hidden_size, kv_heads = c_.kv_heads_of(layer_);
    const Count q = Count{c_.num_heads} * c_.head_dim, k = kv_heads * c_.head_dim,
                v = kv_heads * c_.value_dim();
    // Beside gated delta layers attention has a gate as wide as its queries.
    const bool is_gated = c_.recurrent && c_.recurrent->kind == RecurrentKind::kGatedDelta;
    const Count q_rows = is_gated ? 2 * q : q;
    if (names.layout == QkvLayout::kSeparate) {
      add(size_.attention, spec_.attention, names.q, hidden * q_rows);
      add(size_.attention, spec_.attention, names.k, hidden * k);
      add(size_.attention, spec_.attention, names.v, hidden * v);
    } else {
      add(size_.attention, spec_.attention, names.qkv, hidden * (q_rows + k + v));
    }
    add(size_.attention, spec_.attention, names.o, hidden * c_.num_heads * c_.value_dim());
    if (c_.qkv_bias) size_.attention.floats += q + k + v;
    if (c_.layer(layer_).sinks) size_.attention.floats += c_.num_heads;
    if (c_.o_bias) size_.attention.floats += hidden;
    if (c_.qk_norm) size_.norms.floats += head_norm_floats(c_, names.head_norm.kind, kv_heads);
  }

  void add_mla() {
    const MlaConfig& m = *c_.mla;
    const Count heads = c_.num_heads, hidden = c_.hidden_size, rank = m.q_lora_rank;
    const Count latent_row = m.kv_lora_rank + m.qk_rope_head_dim;
    WeightCount& part = size_.attention;
    if (rank > 0) {
      add(part, spec_.attention, "q_a_proj", hidden * rank);
      size_.norms.floats += rank;
      if (c_.qkv_bias) part.floats += rank;
    }
    add(part, spec_.attention, rank > 0 ? "q_b_proj" : "q_proj",
        (rank > 0 ? rank : hidden) * heads * m.qk_head_dim());
    add(part, spec_.attention, "kv_a_proj_with_mqa", hidden * latent_row);
    // kv_b_proj is split into the factors of absorbed attention (layers/mla.cpp).
    add_plain(part, Count{m.kv_lora_rank} * heads * (m.qk_nope_head_dim + m.v_head_dim));
    part.expanded += Count{m.kv_lora_rank} * heads * m.qk_nope_head_dim;
    add(part, spec_.attention, "o_proj", heads * m.v_head_dim * hidden);
    size_.norms.floats += m.kv_lora_rank;
    if (c_.qkv_bias) part.floats += latent_row;
    if (c_.o_bias) part.floats += hidden;
  }

  // What a layer has that keeps a state; the numbers of one head or channel count as attention's.
  void add_recurrent() {
    const RecurrentConfig& r = *c_.recurrent;
    const Count hidden = c_.hidden_size, heads = r.num_value_heads, head = r.key_head_dim;
    const Count keys = r.num_key_heads * head, values = heads * r.value_head_dim;
    const Count channels = r.kind == RecurrentKind::kShortConv ? hidden : 2 * keys + values;
    WeightCount& part = size_.attention;
    const auto own = [&](std::string_view name, Count elements) {
      add(part, family_.recurrent, name, elements);
    };
    part.floats += channels * (r.conv_kernel + r.conv_bias);
    switch (r.kind) {
      case RecurrentKind::kShortConv:
        own("in_proj", 3 * hidden * hidden);
        own("out_proj", hidden * hidden);
        if (r.proj_bias) part.floats += 4 * hidden;
        return;
      case RecurrentKind::kMamba2:
        own("in_proj", hidden * (2 * values + 2 * keys + heads));
        own("out_proj", values * hidden);
        if (r.proj_bias) part.floats += 2 * values + 2 * keys + heads + hidden;
        part.floats += 3 * heads;
        size_.norms.floats += values;
        return;
      case RecurrentKind::kGatedDelta:
        if (has(joined(family_.recurrent, "in_proj_qkv.weight"), false)) {
          own("in_proj_qkv", hidden * (2 * keys + values));
          own("in_proj_z", hidden * values);
          own("in_proj_b", hidden * heads);
          own("in_proj_a", hidden * heads);
        } else {
          own("in_proj_qkvz", hidden * (2 * keys + 2 * values));
          own("in_proj_ba", hidden * 2 * heads);
        }
        own("out_proj", values * hidden);
        part.floats += 2 * heads;
        break;
      case RecurrentKind::kKeyDelta:
        for (const char* name : {"q_proj", "k_proj", "v_proj"}) own(name, hidden * keys);
        own("b_proj", hidden * heads);
        // The decay and the gate go through a low rank.
        for (const char* name : {"f_a_proj", "g_a_proj"}) own(name, hidden * head);
        for (const char* name : {"f_b_proj", "g_b_proj"}) own(name, keys * head);
        own("o_proj", values * hidden);
        part.floats += heads + keys;
        break;
    }
    size_.norms.floats += r.value_head_dim;
  }

  void add_indexer() {
    const IndexerConfig& x = *c_.indexer;
    const Count hidden = c_.hidden_size;
    const Count q_in = c_.mla && c_.mla->q_lora_rank > 0 ? c_.mla->q_lora_rank : hidden;
    const std::string block = joined(spec_.attention, "indexer");
    add(size_.indexer, block, "wq_b", q_in * x.num_heads * x.head_dim);
    add(size_.indexer, block, "wk", hidden * x.head_dim);
    add_plain(size_.indexer, hidden * x.num_heads);  // weights_proj
    size_.indexer.floats += 2 * Count{x.head_dim};
  }

  void add_mlp_matrices(WeightCount& part, std::string_view block, const MlpNames& names,
                        Count width) {
    const Count elements = width * c_.hidden_size;
    if (!names.gate_up.empty()) {
      add(part, block, names.gate_up, 2 * elements);
    } else {
      if (names.gated) add(part, block, names.gate, elements);
      add(part, block, names.up, elements);
    }
    add(part, block, names.down, elements);
  }

  void add_moe() {
    const MoeConfig& m = *c_.moe;
    const MoeNames& names = spec_.moe;
    const Count hidden = c_.hidden_size, width = m.moe_intermediate_size;
    size_.num_moe_layers = 1;
    size_.router.floats += m.num_experts * hidden;
    if (m.topk_method == TopkMethod::kNoauxTc) size_.router.floats += m.num_experts;
    if (m.swiglu_limit > 0) {  // gpt-oss: everything has a bias
      size_.router.floats += m.num_experts;
      size_.experts.floats += Count{m.num_experts} * (2 * width + hidden);
    }
    const std::string gate_up = joined(names.block, names.stack.gate_up);
    if (stored_ == nullptr) {
      size_.experts.matrices += Count{m.num_experts} * 3 * hidden * width;
    } else if (has(gate_up, names.stack.always)) {
      add(size_.experts, gate_up, m.num_experts * 2 * hidden * width);
      add(size_.experts, joined(names.block, names.stack.down), m.num_experts * hidden * width);
    } else {
      for (int e = 0; e < m.num_experts; ++e)
        add_mlp_matrices(size_.experts, joined(names.block, fmt::format("experts.{}", e)),
                         names.expert, width);
    }
    if (m.shared_expert_intermediate_size > 0)
      add_mlp_matrices(size_.shared_experts, joined(names.block, names.shared_experts), {},
                       m.shared_expert_intermediate_size);
    if (m.shared_expert_gate) size_.shared_experts.floats += hidden;
  }

  void add_mlp() {
    const Count width = c_.intermediate_size;
    // As models/recurrent_decoder.cpp finds it in files of Kimi-Linear.
    const bool beside_experts = has(joined(spec_.moe.block, "gate_proj.weight"), false);
    add_mlp_matrices(size_.dense_mlp, beside_experts ? spec_.moe.block : spec_.mlp, spec_.mlp_names,
                     width);
    if (c_.mlp_bias)
      size_.dense_mlp.floats += (spec_.mlp_names.gated ? 2 : 1) * width + c_.hidden_size;
    if (c_.hidden_act == Activation::kXielu) size_.dense_mlp.floats += 4;
  }

  const ModelConfig& c_;
  const int layer_;
  const StoredMatrices* const stored_;
  const Family family_;
  const DecoderSpec& spec_;
  std::string path_;  // of the layer
  ModelSize size_;
};

}  // namespace

DecoderSpec names_of(const ModelConfig& config) {
  return family_of(config).spec;
}

ModelSize layer_size(const ModelConfig& config, int layer, const StoredMatrices* stored) {
  return LayerCount(config, layer, stored).run();
}

ModelSize ends_size(const ModelConfig& config) {
  ModelSize size;
  const DecoderSpec spec = family_of(config).spec;
  const Count vocab_matrix = Count{config.vocab_size} * config.hidden_size;
  size.embedding.matrices = vocab_matrix;
  if (!config.tie_word_embeddings) size.head.matrices = vocab_matrix;
  if (config.head_bias) size.head.floats = config.vocab_size;
  if (!spec.ends.positions.empty()) {
    size.embedding.plain =
        Count{config.max_position_embeddings + spec.ends.position_offset} * config.hidden_size;
    size.embedding.matrices += size.embedding.plain;
  }
  size.norms.floats = (spec.ends.embedding_norm.empty() ? 1 : 2) * norm_floats(config, spec);
  return size;
}

}  // namespace sluice
