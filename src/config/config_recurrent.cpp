// Layers with a recurrent state: their indices and sizes.
//
// Sources: transformers Qwen3NextConfig, Qwen3_5TextConfig, KimiLinearConfig, Mamba2Config,
// Lfm2Config. The published files for the older spellings (linear_attn_config, full_attn_idxs,
// block_ff_dim).
#include <algorithm>
#include <cmath>

#include "config/config_parts.h"

namespace sluice {
namespace {

// The kind of every layer by `layer_types`; nothing if the file has no such list.
std::optional<std::vector<bool>> read_types(const ConfigReader& config, int num_layers,
                                            std::string_view recurrent) {
  const auto types = config.find_strings("layer_types", static_cast<std::size_t>(num_layers));
  if (!types) return std::nullopt;
  std::vector<bool> out;
  for (const std::string& type : *types) {
    if (type != recurrent && type != "full_attention")
      config.reject("layer_types",
                    fmt::format("entry {} is \"{}\"; it must be {} or full_attention", out.size(),
                                type.substr(0, 64), recurrent));
    out.push_back(type == recurrent);
  }
  return out;
}

void check_heads(const ConfigReader& config, const RecurrentConfig& recurrent,
                 std::string_view keys, std::string_view values) {
  require(recurrent.num_value_heads % recurrent.num_key_heads == 0,
          "{}: {} is {}; it must divide {}, which is {}", config.what(), keys,
          recurrent.num_key_heads, values, recurrent.num_value_heads);
}

std::vector<bool> read_gated_delta(const ConfigReader& config, ModelConfig& model) {
  model.recurrent =
      RecurrentConfig{.kind = RecurrentKind::kGatedDelta,
                      .conv_kernel = config.int_or("linear_conv_kernel_dim", 4),
                      .num_key_heads = config.required_int("linear_num_key_heads"),
                      .num_value_heads = config.required_int("linear_num_value_heads"),
                      .key_head_dim = config.required_int("linear_key_head_dim"),
                      .value_head_dim = config.required_int("linear_value_head_dim")};
  check_heads(config, *model.recurrent, "linear_num_key_heads", "linear_num_value_heads");
  if (auto types = read_types(config, model.num_layers, "linear_attention")) return *types;
  const int interval = config.int_or("full_attention_interval", 4);
  std::vector<bool> out;
  for (int i = 0; i < model.num_layers; ++i) out.push_back((i + 1) % interval != 0);
  return out;
}

// Published files keep the sizes and the layers (counted from 1) in a dictionary.
std::vector<bool> read_key_delta(const ConfigReader& config, ModelConfig& model) {
  const Json empty = Json::object();
  const Json* found = config.find("linear_attn_config");
  const ConfigReader own(found == nullptr ? empty : *found, config.what(), "linear_attn_config.");
  const auto size = [&](std::string_view here, std::string_view there, int fallback) {
    return own.find_int(here).value_or(config.int_or(there, fallback));
  };
  const int heads = size("num_heads", "linear_num_heads", 32),
            dim = size("head_dim", "linear_head_dim", 128);
  model.recurrent =
      RecurrentConfig{.kind = RecurrentKind::kKeyDelta,
                      .conv_kernel = size("short_conv_kernel_size", "linear_conv_kernel_dim", 4),
                      .num_key_heads = heads,
                      .num_value_heads = heads,
                      .key_head_dim = dim,
                      .value_head_dim = dim};
  if (auto types = read_types(config, model.num_layers, "linear_attention")) return *types;
  std::vector<bool> out;
  if (own.find("full_attn_layers") != nullptr) {
    out.assign(static_cast<std::size_t>(model.num_layers), true);
    for (const int layer : own.ints("full_attn_layers", 1, model.num_layers, 4096))
      out[static_cast<std::size_t>(layer - 1)] = false;
  } else {
    for (int i = 0; i < model.num_layers; ++i) out.push_back(i == 0 || i % 4 != 0);
  }
  return out;
}

// A bound of time_step_limit. Python writes infinity as a bare word, which the parser made a
// string, or as an object.
double read_bound(const ConfigReader& config, const Json& value) {
  if (value.is_number()) {
    const double number = value.get<double>();
    if (number >= 0 && number <= 1e30) return number;
  }
  const Json* word = &value;
  if (value.is_object() && value.contains("__float__")) word = &value["__float__"];
  if (word->is_string() && word->get<std::string>() == "Infinity") return INFINITY;
  config.reject("time_step_limit",
                "it must be two numbers that are not negative; the second may be Infinity");
}

std::vector<bool> read_mamba2(const ConfigReader& config, ModelConfig& model) {
  RecurrentConfig recurrent{.kind = RecurrentKind::kMamba2,
                            .conv_kernel = config.int_or("conv_kernel", 4),
                            .conv_bias = config.bool_or("use_conv_bias", true),
                            .proj_bias = config.bool_or("use_bias", false),
                            .num_key_heads = config.int_or("n_groups", 8),
                            .num_value_heads = config.required_int("num_heads"),
                            .key_head_dim = config.required_int("state_size"),
                            .value_head_dim = config.required_int("head_dim")};
  check_heads(config, recurrent, "n_groups", "num_heads");
  const int inner = config.int_or("expand", 2) * model.hidden_size;
  require(inner == recurrent.num_value_heads * recurrent.value_head_dim,
          "{}: expand times hidden_size is {}; it must be num_heads times head_dim, which is {}",
          config.what(), inner, recurrent.num_value_heads * recurrent.value_head_dim);
  if (const Json* limit = config.find("time_step_limit")) {
    if (!limit->is_array() || limit->size() != 2)
      config.reject("time_step_limit", "it must be a list of two numbers");
    recurrent.min_step = read_bound(config, (*limit)[0]);
    const double most = read_bound(config, (*limit)[1]);
    if (!(recurrent.min_step <= most) || std::isinf(recurrent.min_step))
      config.reject("time_step_limit", "the first bound must be finite and not above the second");
    recurrent.max_step = std::isinf(most) ? 0 : most;
  }
  model.recurrent = recurrent;
  return std::vector<bool>(static_cast<std::size_t>(model.num_layers), true);
}

std::vector<bool> read_short_conv(const ConfigReader& config, ModelConfig& model) {
  const bool bias = config.bool_or("conv_bias", false);
  model.recurrent = RecurrentConfig{.kind = RecurrentKind::kShortConv,
                                    .conv_kernel = config.int_or("conv_L_cache", 3),
                                    .conv_bias = bias,
                                    .proj_bias = bias};
  if (auto types = read_types(config, model.num_layers, "conv")) return *types;
  // Without the list of attention layers every layer attends.
  if (config.find("full_attn_idxs") == nullptr)
    return std::vector<bool>(static_cast<std::size_t>(model.num_layers), false);
  std::vector<bool> out(static_cast<std::size_t>(model.num_layers), true);
  for (const int layer : config.ints("full_attn_idxs", 0, model.num_layers - 1, 4096))
    out[static_cast<std::size_t>(layer)] = false;
  return out;
}

}  // namespace

std::vector<bool> read_recurrent(const ConfigReader& config, const FamilyDefaults& family,
                                 ModelConfig& model) {
  switch (family.recurrent) {
    case RecurrentRule::kGatedDelta:
      return read_gated_delta(config, model);
    case RecurrentRule::kKeyDelta:
      return read_key_delta(config, model);
    case RecurrentRule::kMamba2:
      return read_mamba2(config, model);
    case RecurrentRule::kShortConv:
      return read_short_conv(config, model);
    case RecurrentRule::kNone:
      break;
  }
  fail(ErrorKind::kBug, "{} has no recurrent layers", family.architecture);
}

int short_conv_mlp_width(const ConfigReader& config) {
  const int stated = config.required_int(config.first_of({"block_ff_dim", "intermediate_size"}));
  if (!config.bool_or("block_auto_adjust_ff_dim", true)) return stated;
  const std::int64_t multiple = config.int_or("block_multiple_of", 256);
  const double factor = config.number_or("block_ffn_dim_multiplier", 1);
  const auto scaled =
      static_cast<std::int64_t>(factor * static_cast<double>(2 * std::int64_t{stated} / 3));
  const std::int64_t width = (scaled + multiple - 1) / multiple * multiple;
  require(width >= 1 && width <= 1 << 24,
          "{}: the MLPs are {} wide by block_ff_dim, block_ffn_dim_multiplier and "
          "block_multiple_of; it must be from 1 to {}",
          config.what(), width, 1 << 24);
  return static_cast<int>(width);
}

}  // namespace sluice
