#include "checkpoint/gguf/gguf_config.h"

#include <algorithm>
#include <array>
#include <string>

#include "base/error.h"
#include "checkpoint/gguf/gguf_names.h"
#include "checkpoint/gguf/gguf_rope.h"
#include "checkpoint/gguf/gguf_tokens.h"

namespace sluice {
namespace {

constexpr std::int64_t kSigmoidGate = 2;  // value of expert_gating_func; 1 is softmax

class ConfigWriter {
 public:
  explicit ConfigWriter(const GgufFile& file)
      : file_(file), architecture_(gguf_architecture(file)), arch_(architecture_.name) {}

  Json run() {
    require(file_.find_integer("split.count").value_or(1) <= 1,
            "{}: the file is one of {} parts; join them first (llama-gguf-split --merge)",
            file_.name(), file_.find_integer("split.count").value_or(1));
    const GgufTensor* embedding = file_.find_tensor("token_embd.weight");
    require(embedding != nullptr, "{}: there is no tensor token_embd.weight", file_.name());
    out_["architectures"] = Json::array({std::string(architecture_.hf)});
    out_["vocab_size"] = embedding->rows();
    copy("embedding_length", "hidden_size");
    copy("block_count", "num_hidden_layers");
    copy("attention.head_count", "num_attention_heads");
    copy("context_length", "max_position_embeddings");
    out_["rms_norm_eps"] = number("attention.layer_norm_rms_epsilon");
    out_["tie_word_embeddings"] = file_.find_tensor("output.weight") == nullptr;
    out_["dtype"] = dtype();
    if (arch_ == "deepseek2")
      write_latent_attention();
    else
      write_heads();
    out_["attention_bias"] = file_.find_tensor("blk.0.attn_output.bias") != nullptr;
    out_["mlp_bias"] = file_.find_tensor("blk.0.ffn_up.bias") != nullptr;
    write_feed_forward();
    write_rope();
    write_tokens();
    return std::move(out_);
  }

 private:
  std::string key(std::string_view name) const { return arch_ + '.' + std::string(name); }
  std::optional<std::int64_t> integer(std::string_view name) const {
    return file_.find_integer(key(name));
  }
  void copy(std::string_view gguf, const std::string& hf) {
    out_[hf] = file_.required_integer(key(gguf));
  }
  bool copy_if(std::string_view gguf, const std::string& hf) {
    const auto value = integer(gguf);
    if (value) out_[hf] = *value;
    return value.has_value();
  }
  double number(std::string_view name) const {
    const auto value = file_.find_number(key(name));
    require(value.has_value(), "{}: the key {} is missing; it must be a number", file_.name(),
            key(name));
    return *value;
  }

  // The type with the largest number of bytes among the matrices; blocks are computed in bfloat16.
  std::string dtype() const {
    std::array<std::uint64_t, 3> bytes{};
    constexpr std::array<DType, 3> kTypes = {DType::kF32, DType::kF16, DType::kBF16};
    for (const GgufTensor& tensor : file_.tensors()) {
      if (tensor.shape.size() < 2) continue;
      if (tensor.blocks) return "bfloat16";
      bytes[static_cast<std::size_t>(std::find(kTypes.begin(), kTypes.end(), tensor.dtype) -
                                     kTypes.begin())] += tensor.bytes;
    }
    const auto most = std::max_element(bytes.begin(), bytes.end()) - bytes.begin();
    return std::string(dtype_name(kTypes[static_cast<std::size_t>(most)]));
  }

  void write_heads() {
    copy_if("attention.head_count_kv", "num_key_value_heads");
    if (const auto head_dim = integer("attention.key_length")) {
      require(integer("attention.value_length").value_or(*head_dim) == *head_dim,
              "{}: {} is {} and {} is {}; they must be equal", file_.name(),
              key("attention.key_length"), *head_dim, key("attention.value_length"),
              integer("attention.value_length").value_or(0));
      out_["head_dim"] = *head_dim;
    } else {
      const std::int64_t hidden = out_["hidden_size"].get<std::int64_t>();
      const std::int64_t heads = out_["num_attention_heads"].get<std::int64_t>();
      require(heads >= 1 && hidden % heads == 0,
              "{}: {} is {}; it must divide {}, which is {}, unless {} is there", file_.name(),
              key("attention.head_count"), heads, key("embedding_length"), hidden,
              key("attention.key_length"));
      out_["head_dim"] = hidden / heads;
    }
    const std::int64_t head_dim = out_["head_dim"].get<std::int64_t>();
    require(integer("rope.dimension_count").value_or(head_dim) == head_dim,
            "{}: {} is {}; it must be the {} dims of a head", file_.name(),
            key("rope.dimension_count"), integer("rope.dimension_count").value_or(0), head_dim);
    out_["sliding_window"] = nullptr;  // converters drop it, and llama.cpp attends to all
    out_["use_sliding_window"] = false;
  }

  // Since 2025 files have the lengths of the absorbed heads, and *_mla keys for the plain heads.
  void write_latent_attention() {
    copy("attention.kv_lora_rank", "kv_lora_rank");
    if (!copy_if("attention.q_lora_rank", "q_lora_rank")) out_["q_lora_rank"] = nullptr;
    copy("rope.dimension_count", "qk_rope_head_dim");
    const bool is_new = integer("attention.key_length_mla").has_value();
    const std::int64_t qk =
        file_.required_integer(key(is_new ? "attention.key_length_mla" : "attention.key_length"));
    const std::int64_t rope = out_["qk_rope_head_dim"].get<std::int64_t>();
    require(rope >= 0 && qk > rope,
            "{}: a head has {} dims of which {} rotate; some must not rotate", file_.name(), qk,
            rope);
    out_["qk_nope_head_dim"] = qk - rope;
    copy(is_new ? "attention.value_length_mla" : "attention.value_length", "v_head_dim");
  }

  void write_feed_forward() {
    if (!architecture_.has_experts) return copy("feed_forward_length", "intermediate_size");
    copy("expert_count", architecture_.hf == "MixtralForCausalLM" ? "num_local_experts"
                         : arch_ == "deepseek2"                   ? "n_routed_experts"
                                                                  : "num_experts");
    copy("expert_used_count", "num_experts_per_tok");
    const std::int64_t expert_width = width_of("ffn_up_exps", "expert_feed_forward_length");
    // If every layer has experts, files may lack the width of a dense layer.
    out_["intermediate_size"] = integer("feed_forward_length").value_or(expert_width);
    if (architecture_.hf == "MixtralForCausalLM") {
      out_["intermediate_size"] = expert_width;
      return;
    }
    out_["moe_intermediate_size"] = expert_width;
    if (arch_ == "qwen3moe")
      out_["norm_topk_prob"] = true;  // llama.cpp always divides, and files have no key
    if (arch_ == "qwen2moe") {
      out_["norm_topk_prob"] = file_.find_bool(key("expert_weights_norm")).value_or(false);
      out_["shared_expert_intermediate_size"] =
          width_of("ffn_up_shexp", "expert_shared_feed_forward_length");
    }
    if (arch_ == "deepseek2") write_deepseek_experts();
  }

  // From the tensors of any layer, else from the key.
  std::int64_t width_of(std::string_view part, std::string_view name) const {
    for (const GgufTensor& tensor : file_.tensors())
      if (tensor.name.starts_with("blk.") &&
          tensor.name.ends_with("." + std::string(part) + ".weight") && tensor.shape.size() >= 2)
        return tensor.shape[tensor.shape.size() - 2];
    return file_.required_integer(key(name));
  }

  void write_deepseek_experts() {
    const bool has_correction = std::any_of(
        file_.tensors().begin(), file_.tensors().end(),
        [](const GgufTensor& tensor) { return tensor.name.ends_with(".exp_probs_b.bias"); });
    const bool is_sigmoid = integer("expert_gating_func").value_or(1) == kSigmoidGate;
    require(is_sigmoid == has_correction,
            "{}: {} is {}, but the experts {} correction biases (exp_probs_b); supported are "
            "sigmoid (2) with them and "
            "softmax (1) without",
            file_.name(), key("expert_gating_func"), integer("expert_gating_func").value_or(1),
            has_correction ? "have" : "have no");
    const std::int64_t groups = integer("expert_group_count").value_or(1);
    if (is_sigmoid) out_["architectures"] = Json::array({"DeepseekV3ForCausalLM"});
    out_["scoring_func"] = is_sigmoid ? "sigmoid" : "softmax";
    out_["topk_method"] = is_sigmoid ? "noaux_tc" : groups > 1 ? "group_limited_greedy" : "greedy";
    out_["n_group"] = groups;
    out_["topk_group"] = integer("expert_group_used_count").value_or(groups);
    out_["norm_topk_prob"] = file_.find_bool(key("expert_weights_norm")).value_or(false);
    out_["routed_scaling_factor"] = file_.find_number(key("expert_weights_scale")).value_or(1);
    out_["n_shared_experts"] = integer("expert_shared_count").value_or(0);
    out_["first_k_dense_replace"] = integer("leading_dense_block_count").value_or(0);
  }

  void write_rope() {
    const double theta = file_.find_number(key("rope.freq_base")).value_or(10000);
    out_["rope_theta"] = theta;
    out_["rope_scaling"] = gguf_rope_scaling(file_, arch_, theta);
  }

  void write_tokens() {
    const auto count = out_["vocab_size"].get<std::int64_t>();
    const auto id = [&](const char* name) { return gguf_token_id(file_, name, count); };
    if (const auto bos = id("bos_token_id")) out_["bos_token_id"] = *bos;
    if (const auto pad = id("padding_token_id")) out_["pad_token_id"] = *pad;
    Json ends = Json::array();  // the end of a turn and of a message also end the generation
    for (const char* name : {"eos_token_id", "eot_token_id", "eom_token_id"})
      if (const auto end = id(name); end && std::find(ends.begin(), ends.end(), *end) == ends.end())
        ends.push_back(*end);
    out_["eos_token_id"] = ends;
  }

  const GgufFile& file_;
  const GgufArchitecture& architecture_;
  const std::string arch_;
  Json out_ = Json::object();
};

}  // namespace

Json gguf_config(const GgufFile& file) {
  return ConfigWriter(file).run();
}

}  // namespace sluice
