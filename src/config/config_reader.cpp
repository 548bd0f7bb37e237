#include "config/config_reader.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>

#include "config/end_tokens.h"

namespace sluice {
namespace {

constexpr double kMaxDim = 1 << 20;  // widths
constexpr double kMaxHeads = 1 << 14;
constexpr double kMaxHeadDim = 1 << 14;
constexpr double kMaxLayers = 4096;
constexpr double kMaxExperts = 1 << 16;
constexpr double kMaxPosition = 1 << 28;
constexpr double kMaxId = 0x7FFFFFFF;

struct KeyRange {
  std::string_view key;
  bool integer;
  double min;
  double max;
};
constexpr KeyRange kRanges[] = {
    {"vocab_size", true, 1, 1 << 24},
    {"draft_vocab_size", true, 1, 1 << 24},
    {"hidden_size", true, 1, kMaxDim},
    {"target_hidden_size", true, 1, kMaxDim},
    {"num_hidden_layers", true, 1, kMaxLayers},
    {"num_attention_heads", true, 1, kMaxHeads},
    {"num_key_value_heads", true, 1, kMaxHeads},
    {"head_dim", true, 1, kMaxHeadDim},
    {"intermediate_size", true, 1, 1 << 24},
    {"rms_norm_eps", false, 1e-20, 0.1},
    {"norm_eps", false, 1e-20, 0.1},
    {"layer_norm_epsilon", false, 1e-20, 0.1},
    {"max_position_embeddings", true, 1, kMaxPosition},
    {"model_max_length", true, 1, kMaxPosition},
    {"initializer_range", false, 0, 10},
    {"sliding_window", true, 0, kMaxId},
    {"max_window_layers", true, 0, kMaxId},
    {"num_nextn_predict_layers", true, 0, 64},
    {"block_size", true, 2, 64},
    {"mask_token_id", true, 0, 1 << 24},
    {"num_target_layers", true, 1, kMaxLayers},
    {"sliding_window_pattern", true, 1, kMaxLayers},
    {"no_rope_layer_interval", true, 1, kMaxLayers},
    {"attention_chunk_size", true, 0, kMaxPosition},
    {"attn_scale", false, 0, 1e3},
    {"floor_scale", true, 1, kMaxPosition},
    {"sliding_window_size", true, 0, kMaxPosition},
    {"attention_value_scale", false, 1e-6, 1e6},
    {"intermediate_size_mlp", true, 1, 1 << 24},
    {"swa_rope_theta", false, 1, 1e15},
    {"swa_num_attention_heads", true, 1, kMaxHeads},
    {"swa_num_key_value_heads", true, 1, kMaxHeads},
    {"swa_head_dim", true, 1, kMaxHeadDim},
    {"swa_v_head_dim", true, 1, kMaxHeadDim},
    {"num_ln_in_parallel_attn", true, 1, 2},
    // Older names of sizes.
    {"n_embd", true, 1, kMaxDim},
    {"n_embed", true, 1, kMaxDim},
    {"word_embed_proj_dim", true, 1, kMaxDim},
    {"n_layer", true, 1, kMaxLayers},
    {"n_head", true, 1, kMaxHeads},
    {"num_kv_heads", true, 1, kMaxHeads},
    {"n_head_kv", true, 1, kMaxHeads},
    {"n_inner", true, 1, 1 << 24},
    {"ffn_dim", true, 1, 1 << 24},
    {"ffn_hidden_size", true, 1, 1 << 24},
    {"n_positions", true, 1, kMaxPosition},
    {"seq_length", true, 1, kMaxPosition},
    {"layer_norm_eps", false, 1e-20, 0.1},
    {"layernorm_epsilon", false, 1e-20, 0.1},
    {"norm_epsilon", false, 1e-20, 0.1},
    // Factors.
    {"embedding_multiplier", false, 1e-6, 1e6},
    {"residual_multiplier", false, 1e-6, 1e6},
    {"attention_multiplier", false, 1e-6, 1e6},
    {"logits_scaling", false, 1e-6, 1e6},
    {"logit_scale", false, 1e-6, 1e6},
    {"query_pre_attn_scalar", false, 1e-6, 1e6},
    {"attn_logit_softcapping", false, 0, 1e6},
    {"final_logit_softcapping", false, 0, 1e6},
    {"clip_qkv", false, 1e-6, 1e6},
    // Experts.
    {"num_experts", true, 0, kMaxExperts},
    {"num_local_experts", true, 0, kMaxExperts},
    {"n_routed_experts", true, 0, kMaxExperts},
    {"num_experts_per_tok", true, 1, 1024},
    {"num_experts_per_token", true, 1, 1024},
    {"moe_topk", true, 1, 1024},
    {"moe_k", true, 1, 1024},
    {"moe_num_experts", true, 0, kMaxExperts},
    {"moe_num_shared_experts", true, 0, 1024},
    {"moe_norm_min", false, 0, 1},
    {"moe_layer_start_index", true, 0, kMaxLayers},
    {"moe_layer_end_index", true, -1, kMaxLayers},
    {"moe_layer_interval", true, 1, kMaxLayers},
    {"interleave_moe_layer_step", true, 1, kMaxLayers},
    {"router_jitter_noise", false, 0, 1},
    {"swiglu_limit", false, 1e-3, 1e6},
    {"swiglu_alpha", false, 1e-3, 1e3},
    {"moe_intermediate_size", true, 1, 1 << 24},
    {"n_shared_experts", true, 0, 1024},
    {"num_shared_experts", true, 0, 1024},
    {"shared_expert_intermediate_size", true, 0, 1 << 24},
    {"routed_scaling_factor", false, 1e-6, 1e6},
    {"first_k_dense_replace", true, 0, kMaxLayers},
    {"moe_layer_freq", true, 1, kMaxLayers},
    {"decoder_sparse_step", true, 1, kMaxLayers},
    {"n_group", true, 1, kMaxExperts},
    {"topk_group", true, 1, kMaxExperts},
    // Latent attention and its indexer.
    {"q_lora_rank", true, 1, kMaxDim},
    {"kv_lora_rank", true, 1, kMaxDim},
    {"qk_nope_head_dim", true, 1, kMaxHeadDim},
    {"qk_rope_head_dim", true, 2, kMaxHeadDim},
    {"v_head_dim", true, 1, kMaxHeadDim},
    {"index_n_heads", true, 1, kMaxHeads},
    {"index_head_dim", true, 1, kMaxHeadDim},
    {"index_topk", true, 1, kMaxPosition},
    {"index_topk_freq", true, 0, kMaxLayers},
    {"index_skip_topk_offset", true, 0, kMaxLayers},
    {"num_expert_group", true, 1, kMaxExperts},
    // Recurrent layers.
    {"full_attention_interval", true, 1, kMaxLayers},
    {"linear_conv_kernel_dim", true, 2, 8},
    {"linear_num_key_heads", true, 1, kMaxHeads},
    {"linear_num_value_heads", true, 1, kMaxHeads},
    {"linear_key_head_dim", true, 1, 1024},
    {"linear_value_head_dim", true, 1, kMaxHeadDim},
    {"linear_num_heads", true, 1, kMaxHeads},
    {"linear_head_dim", true, 1, 1024},
    {"short_conv_kernel_size", true, 2, 8},
    {"num_heads", true, 1, kMaxHeads},
    {"conv_kernel", true, 2, 8},
    {"conv_L_cache", true, 2, 8},
    {"n_groups", true, 1, kMaxHeads},
    {"state_size", true, 1, 1024},
    {"expand", true, 1, 64},
    {"block_ff_dim", true, 1, 1 << 24},
    {"block_multiple_of", true, 1, 1 << 20},
    {"block_ffn_dim_multiplier", false, 1e-3, 1e3},
    // Quantised weights.
    {"bits", true, 1, 64},
    {"w_bit", true, 1, 64},
    {"num_bits", true, 1, 64},
    {"group_size", true, -1, 1 << 20},
    {"q_group_size", true, -1, 1 << 20},
    // Rotary embedding.
    {"rope_theta", false, 1, 1e15},
    {"rotary_emb_base", false, 1, 1e15},
    {"rope_local_base_freq", false, 1, 1e15},
    {"partial_rotary_factor", false, 1e-3, 1},
    {"rotary_pct", false, 1e-3, 1},
    {"rotary_dim", true, 2, kMaxHeadDim},
    {"llama_4_scaling_beta", false, 0, 1e3},
    {"factor", false, 1, 1e6},
    {"original_max_position_embeddings", true, 1, kMaxPosition},
    {"low_freq_factor", false, 1e-6, 1e6},
    {"high_freq_factor", false, 1e-6, 1e6},
    {"beta_fast", false, 1e-6, 1e6},
    {"beta_slow", false, 1e-6, 1e6},
    {"mscale", false, 0, 1e3},
    {"mscale_all_dim", false, 0, 1e3},
    {"short_mscale", false, 1e-3, 1e3},
    {"long_mscale", false, 1e-3, 1e3},
    {"alpha", false, 1e-3, 1e9},
    {"attention_factor", false, 1e-3, 1e3},
    {"attn_factor", false, 1e-3, 1e3},
    {"extrapolation_factor", false, 1, 1},
    // generation_config.json.
    {"temperature", false, 0, 100},
    {"top_p", false, 0, 1},
    {"top_k", true, -1, kMaxId},
    {"min_p", false, 0, 1},
    {"repetition_penalty", false, 1e-3, 100},
    {"max_new_tokens", true, 1, kMaxId},
};

const KeyRange& range_of(std::string_view key) {
  for (const KeyRange& range : kRanges)
    if (range.key == key) return range;
  fail(ErrorKind::kBug, "no range is declared for the key {}", key);
}

std::string number_text(double value) {
  return value == std::floor(value) && std::fabs(value) < 1e15 ? fmt::format("{:.0f}", value)
                                                               : fmt::format("{}", value);
}

std::string wanted_text(const KeyRange& range) {
  return fmt::format("it must be {} from {} to {}", range.integer ? "an integer" : "a number",
                     number_text(range.min), number_text(range.max));
}

bool is_number_char(char c) {
  return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '+' ||
         c == '-' || c == '.';
}

// A bare word outside strings that is not valid JSON: Python's NaN and Infinity, or a number beyond
// a double.
bool is_non_finite(std::string_view word) {
  if (word == "NaN" || word == "Infinity" || word == "-Infinity") return true;
  const std::size_t first = word.starts_with('-') ? 1 : 0;
  if (first >= word.size() || word[first] < '0' || word[first] > '9') return false;
  const std::string text(word);
  char* end = nullptr;
  const double value = std::strtod(text.c_str(), &end);
  return *end == '\0' && std::isinf(value);
}

std::string quote_non_finite(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (std::size_t i = 0; i < text.size();) {
    if (text[i] == '"') {
      std::size_t end = i + 1;
      while (end < text.size() && text[end] != '"') end += text[end] == '\\' ? 2 : 1;
      end = std::min(end + 1, text.size());
      out.append(text.substr(i, end - i));
      i = end;
    } else if (is_number_char(text[i])) {
      std::size_t end = i + 1;
      while (end < text.size() && is_number_char(text[end])) ++end;
      const std::string_view word = text.substr(i, end - i);
      const bool quote = is_non_finite(word);
      if (quote) out += '"';
      out.append(word);
      if (quote) out += '"';
      i = end;
    } else {
      out += text[i++];
    }
  }
  return out;
}

// ", and its entry 2 is 99": which one of a list is wrong.
std::string entry_text(const Json& list, const Json& item) {
  if (!list.is_array()) return "";
  const auto at = std::distance(
      list.begin(), std::ranges::find_if(list, [&](const Json& other) { return &other == &item; }));
  return fmt::format(", and its entry {} is {}", at, dump_json(item).substr(0, 80));
}

}  // namespace

ConfigReader::ConfigReader(const Json& object, std::string what, std::string prefix)
    : object_(object), what_(std::move(what)), prefix_(std::move(prefix)) {
  require(object_.is_object(), "{}: {} must be a JSON object", what_,
          prefix_.empty() ? "the top level" : prefix_);
}

const Json* ConfigReader::find(std::string_view key) const {
  const auto it = object_.find(key);
  return it == object_.end() || it->is_null() ? nullptr : &*it;
}

void ConfigReader::reject(std::string_view key, std::string_view wanted) const {
  const auto it = object_.find(key);
  if (it == object_.end())
    fail(ErrorKind::kBadInput, "{}: {}{} is missing; {}", what_, prefix_, key, wanted);
  std::string seen;
  if (it->is_structured()) {
    seen = fmt::format("{} of {} entries", it->type_name(), it->size());
  } else {
    seen = dump_json(*it);
    if (seen.size() > 80) seen = seen.substr(0, 77) + "...";
  }
  fail(ErrorKind::kBadInput, "{}: {}{} is {}; {}", what_, prefix_, key, seen, wanted);
}

std::optional<double> ConfigReader::find_number(std::string_view key) const {
  const KeyRange& range = range_of(key);
  const Json* value = find(key);
  if (value == nullptr) return std::nullopt;
  if (!(range.integer ? value->is_number_integer() : value->is_number()))
    reject(key, wanted_text(range));
  const double number = value->get<double>();
  if (!(number >= range.min && number <= range.max)) reject(key, wanted_text(range));
  return number;
}

std::optional<int> ConfigReader::find_int(std::string_view key) const {
  check(range_of(key).integer, "{} is not an integer key", key);
  // the table limits it to int, so the cast is exact
  const std::optional<double> number = find_number(key);
  return number ? std::optional<int>(static_cast<int>(*number)) : std::nullopt;
}

double ConfigReader::required_number(std::string_view key) const {
  const std::optional<double> number = find_number(key);
  if (!number) reject(key, wanted_text(range_of(key)));
  return *number;
}

int ConfigReader::required_int(std::string_view key) const {
  const std::optional<int> number = find_int(key);
  if (!number) reject(key, wanted_text(range_of(key)));
  return *number;
}

bool ConfigReader::bool_or(std::string_view key, bool fallback) const {
  const Json* value = find(key);
  if (value == nullptr) return fallback;
  if (!value->is_boolean()) reject(key, "it must be true or false");
  return value->get<bool>();
}

std::optional<std::string> ConfigReader::find_string(std::string_view key) const {
  const Json* value = find(key);
  if (value == nullptr) return std::nullopt;
  if (!value->is_string()) reject(key, "it must be a string");
  return value->get<std::string>();
}

std::string_view ConfigReader::first_of(std::initializer_list<std::string_view> keys) const {
  for (const std::string_view key : keys)
    if (find(key) != nullptr) return key;
  return *keys.begin();
}

std::optional<std::vector<std::string>> ConfigReader::find_strings(std::string_view key,
                                                                   std::size_t size) const {
  const Json* value = find(key);
  if (value == nullptr) return std::nullopt;
  const std::string wanted = fmt::format("it must be a list of {} strings, one a layer", size);
  if (!value->is_array() || value->size() != size) reject(key, wanted);
  std::vector<std::string> strings;
  for (const Json& item : *value) {
    if (!item.is_string()) reject(key, wanted);
    strings.push_back(item.get<std::string>());
  }
  return strings;
}

std::vector<double> ConfigReader::numbers(std::string_view key, std::size_t size, double min,
                                          double max) const {
  const std::string wanted = fmt::format("it must be a list of {} numbers from {} to {}", size,
                                         number_text(min), number_text(max));
  const Json* value = find(key);
  if (value == nullptr || !value->is_array() || value->size() != size) reject(key, wanted);
  std::vector<double> numbers;
  for (const Json& item : *value) {
    if (!item.is_number() || !(item.get<double>() >= min && item.get<double>() <= max))
      reject(key, wanted + entry_text(*value, item));
    numbers.push_back(item.get<double>());
  }
  return numbers;
}

std::vector<int> ConfigReader::ints(std::string_view key, int min, int max,
                                    std::size_t max_size) const {
  const Json* value = find(key);
  if (value == nullptr) return {};
  const std::string wanted = fmt::format(
      "it must be an integer from {} to {}, or a list of at most {} of them", min, max, max_size);
  std::vector<int> numbers;
  const auto add = [&](const Json& item) {
    if (!item.is_number_integer()) reject(key, wanted + entry_text(*value, item));
    const double number = item.get<double>();
    if (!(number >= min && number <= max)) reject(key, wanted + entry_text(*value, item));
    numbers.push_back(static_cast<int>(number));
  };
  if (!value->is_array()) {
    add(*value);
    return numbers;
  }
  if (value->size() > max_size) reject(key, wanted);
  for (const Json& item : *value) add(item);
  return numbers;
}

std::optional<int> read_token_id(const ConfigReader& config, std::string_view key) {
  const Json* value = config.find(key);
  const std::vector<int> ids =
      value == nullptr || value->is_array() ? std::vector<int>{} : usable_ids(*value);
  return ids.empty() ? std::nullopt : std::optional(ids.front());
}

std::vector<int> read_token_ids(const ConfigReader& config, std::string_view key) {
  const Json* value = config.find(key);
  return value == nullptr ? std::vector<int>{} : usable_ids(*value);
}

Json parse_config_text(std::string_view text, std::string_view what) {
  return parse_json_or_throw(quote_non_finite(text), what);
}

void merge_json(Json& base, const Json& patch) {
  // Both were parsed under JsonLimits::max_depth, which bounds this recursion.
  if (!base.is_object() || !patch.is_object()) {
    base = patch;
    return;
  }
  for (const auto& [key, value] : patch.items()) {
    if (base.contains(key)) {
      merge_json(base[key], value);
    } else {
      base[key] = value;
    }
  }
}

}  // namespace sluice
