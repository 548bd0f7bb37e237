#include "checkpoint/gguf/gguf_config.h"

#include <algorithm>
#include <array>
#include <string>

#include "base/error.h"
#include "checkpoint/gguf/gguf_config_writer.h"
#include "checkpoint/gguf/gguf_rope.h"
#include "checkpoint/gguf/gguf_tokens.h"

namespace sluice {
namespace {

constexpr std::int64_t kMaxLayers = 4096;

}  // namespace

GgufConfigWriter::GgufConfigWriter(const GgufFile& gguf)
    : file(gguf), architecture(gguf_architecture(gguf)), arch(architecture.name) {}

Json GgufConfigWriter::run() {
  require(file.find_integer("split.count").value_or(1) <= 1,
          "{}: the file is one of {} parts; join them first (llama-gguf-split --merge)",
          file.name(), file.find_integer("split.count").value_or(1));
  write_sizes();
  if (integer("attention.kv_lora_rank"))
    write_latent_attention();
  else if (integer("attention.head_count").value_or(1) > 0)
    write_heads();
  write_feed_forward();
  write_rope();
  write_tokens();
  if (architecture.configure != nullptr) architecture.configure(*this);
  return std::move(out);
}

std::vector<std::int64_t> GgufConfigWriter::by_layer(std::string_view name) const {
  const auto count = static_cast<std::size_t>(num_layers);
  if (!file.has(key(name))) return {};
  if (!file.is_array(key(name))) return std::vector<std::int64_t>(count, required(name));
  std::vector<std::int64_t> values = *file.find_flags(key(name));
  require(values.size() >= count, "{}: {} has {} entries; there are {} layers", file.name(),
          key(name), values.size(), count);
  values.resize(count);  // others are of layers that predict further tokens
  return values;
}

void GgufConfigWriter::copy_number(std::string_view name, const std::string& hf) {
  if (const auto value = number(name)) out[hf] = *value;
}

void GgufConfigWriter::copy_integer(std::string_view name, const std::string& hf) {
  if (const auto value = integer(name)) out[hf] = *value;
}

// The type with the largest number of bytes among the matrices; blocks are computed in bfloat16.
std::string GgufConfigWriter::dtype() const {
  std::array<std::uint64_t, 3> bytes{};
  constexpr std::array<DType, 3> kTypes = {DType::kF32, DType::kF16, DType::kBF16};
  for (const GgufTensor& tensor : file.tensors()) {
    if (tensor.shape.size() < 2) continue;
    if (tensor.blocks) return "bfloat16";
    bytes[static_cast<std::size_t>(std::find(kTypes.begin(), kTypes.end(), tensor.dtype) -
                                   kTypes.begin())] += tensor.bytes;
  }
  const auto most = std::max_element(bytes.begin(), bytes.end()) - bytes.begin();
  return std::string(dtype_name(kTypes[static_cast<std::size_t>(most)]));
}

void GgufConfigWriter::write_sizes() {
  const GgufTensor* embedding = file.find_tensor("token_embd.weight");
  require(embedding != nullptr, "{}: there is no tensor token_embd.weight", file.name());
  out["architectures"] = Json::array({std::string(architecture.hf)});
  out["vocab_size"] = embedding->rows();
  out["hidden_size"] = required("embedding_length");
  // Layers that predict further tokens count as layers.
  const std::int64_t all = required("block_count"),
                     further = integer("nextn_predict_layers").value_or(0);
  require(further == 0 || (further > 0 && further < all), "{}: {} is {} of {} layers", file.name(),
          key("nextn_predict_layers"), further, all);
  out["num_hidden_layers"] = all - further;
  // Others are refused by the reader of the configuration.
  num_layers = std::clamp<std::int64_t>(all - further, 0, kMaxLayers);
  if (further > 0) out["num_nextn_predict_layers"] = further;
  out["max_position_embeddings"] = required("context_length");
  const char* eps = "attention.layer_norm_rms_epsilon";
  if (!number(eps) && number("attention.layer_norm_epsilon")) eps = "attention.layer_norm_epsilon";
  const auto value = number(eps);
  require(value.has_value(), "{}: the key {} is missing; it must be a number", file.name(),
          key(eps));
  out["rms_norm_eps"] = *value;
  out["tie_word_embeddings"] = file.find_tensor("output.weight") == nullptr;
  out["dtype"] = dtype();
  // Families call the flags of biases by different names.
  const bool o_bias = file.find_tensor("blk.0.attn_output.bias") != nullptr;
  const bool mlp_bias = file.find_tensor("blk.0.ffn_up.bias") != nullptr;
  out["mlp_bias"] = out["use_bias"] = out["bias"] = mlp_bias;
  const bool qkv_bias = file.find_tensor("blk.0.attn_q.bias") != nullptr ||
                        file.find_tensor("blk.0.attn_qkv.bias") != nullptr;
  out["use_qkv_bias"] = qkv_bias;
  out["attention_bias"] = qkv_bias || o_bias;
  out["attention_out_bias"] = o_bias;
  out["lm_head_bias"] = file.find_tensor("output.bias") != nullptr;
}

void GgufConfigWriter::write_heads() {
  const std::int64_t heads = required("attention.head_count");
  out["num_attention_heads"] = heads;
  // Layers without attention have no heads.
  const std::vector<std::int64_t> kv_heads = by_layer("attention.head_count_kv");
  if (!kv_heads.empty()) {
    const std::int64_t most = *std::ranges::max_element(kv_heads);
    require(most >= 1, "{}: {} is {}; it must be at least 1", file.name(),
            key("attention.head_count_kv"), most);
    require(architecture.varies_heads || std::ranges::count(kv_heads, most) == num_layers,
            "{}: {} differs from layer to layer, which {} cannot", file.name(),
            key("attention.head_count_kv"), arch);
    out["num_key_value_heads"] = most;
  }
  const std::int64_t hidden = out["hidden_size"].get<std::int64_t>();
  std::int64_t head_dim = 0;
  if (const auto stated = integer("attention.key_length")) {
    head_dim = *stated;
    const std::int64_t value_dim = integer("attention.value_length").value_or(head_dim);
    out["v_head_dim"] = value_dim;
    require(value_dim == head_dim || architecture.hf == "MiMoV2FlashForCausalLM",
            "{}: {} is {} and {} is {}; they must be equal", file.name(),
            key("attention.key_length"), head_dim, key("attention.value_length"), value_dim);
  } else {
    require(heads >= 1 && hidden % heads == 0,
            "{}: {} is {}; it must divide {}, which is {}, unless {} is there", file.name(),
            key("attention.head_count"), heads, key("embedding_length"), hidden,
            key("attention.key_length"));
    head_dim = hidden / heads;
  }
  out["head_dim"] = head_dim;
  const std::int64_t rotary = integer("rope.dimension_count").value_or(head_dim);
  require(architecture.pairs_rotate ? rotary == head_dim : rotary >= 1 && rotary <= head_dim,
          "{}: {} is {}; it must be {}the {} dims of a head", file.name(),
          key("rope.dimension_count"), rotary, architecture.pairs_rotate ? "" : "at most ",
          head_dim);
  out["rotary_dim"] = rotary;
  out["sliding_window"] = nullptr;  // llama.cpp attends to all, unless a family has windows
  out["use_sliding_window"] = false;
}

// Since 2025 files have the lengths of the absorbed heads, and *_mla keys for the plain heads.
void GgufConfigWriter::write_latent_attention() {
  out["num_attention_heads"] = required("attention.head_count");
  out["kv_lora_rank"] = required("attention.kv_lora_rank");
  out["q_lora_rank"] = nullptr;
  copy_integer("attention.q_lora_rank", "q_lora_rank");
  const std::int64_t rope = required("rope.dimension_count");
  out["qk_rope_head_dim"] = rope;
  const bool is_new = integer("attention.key_length_mla").has_value();
  const std::int64_t qk = required(is_new ? "attention.key_length_mla" : "attention.key_length");
  require(rope >= 0 && qk > rope, "{}: a head has {} dims of which {} rotate; some must not rotate",
          file.name(), qk, rope);
  out["qk_nope_head_dim"] = qk - rope;
  out["v_head_dim"] = required(is_new ? "attention.value_length_mla" : "attention.value_length");
}

std::int64_t GgufConfigWriter::width_of_experts() const {
  if (const std::int64_t columns = gguf_columns_of(file, "ffn_down_exps")) return columns;
  const std::string ending = ".ffn_up_exps.weight";
  for (const GgufTensor& tensor : file.tensors())
    if (tensor.name.ends_with(ending) && tensor.shape.size() >= 2)
      return tensor.shape[tensor.shape.size() - 2];
  return required("expert_feed_forward_length");
}

// Widths are those of the tensors: converters write other ones for some families.
void GgufConfigWriter::write_feed_forward() {
  const std::int64_t dense = gguf_columns_of(file, "ffn_down");
  if (!architecture.has_experts) {
    out["intermediate_size"] = dense > 0 ? dense : required("feed_forward_length");
    return;
  }
  out["num_experts"] = required("expert_count");
  out["num_experts_per_tok"] = required("expert_used_count");
  const std::int64_t width = width_of_experts();
  out["moe_intermediate_size"] = width;
  // If every layer has experts, files may lack the width of a dense layer.
  out["intermediate_size"] = dense > 0 ? dense : integer("feed_forward_length").value_or(width);
  Json is_dense = Json::array();
  bool any = false;
  for (std::int64_t i = 0; i < num_layers; ++i) {
    const std::string layer = fmt::format("blk.{}.", i);
    const bool has_dense = file.find_tensor(layer + "ffn_down.weight") != nullptr &&
                           file.find_tensor(layer + "ffn_gate_inp.weight") == nullptr;
    is_dense.push_back(has_dense ? "dense" : "sparse");
    any = any || has_dense;
  }
  if (any) out["mlp_layer_types"] = is_dense;
  if (const auto normed = flag("expert_weights_norm")) out["norm_topk_prob"] = *normed;
}

void GgufConfigWriter::write_rope() {
  const double theta = number("rope.freq_base").value_or(10000);
  out["rope_theta"] = theta;
  out["rope_scaling"] = gguf_rope_scaling(file, arch, theta);
}

void GgufConfigWriter::write_tokens() {
  const auto count = out["vocab_size"].get<std::int64_t>();
  const auto id = [&](const char* name) { return gguf_token_id(file, name, count); };
  if (const auto bos = id("bos_token_id")) out["bos_token_id"] = *bos;
  if (const auto pad = id("padding_token_id")) out["pad_token_id"] = *pad;
  Json ends = Json::array();  // the end of a turn and of a message also end the generation
  for (const char* name : {"eos_token_id", "eot_token_id", "eom_token_id"})
    if (const auto end = id(name); end && std::find(ends.begin(), ends.end(), *end) == ends.end())
      ends.push_back(*end);
  out["eos_token_id"] = ends;
}

Json gguf_config(const GgufFile& file) {
  return GgufConfigWriter(file).run();
}

}  // namespace sluice
