// Rotary keys: `rope_parameters` (transformers 5, possibly one dictionary per layer type), or
// `rope_scaling` with a top-level `rope_theta`.
#include <algorithm>
#include <array>
#include <cmath>

#include "base/log.h"
#include "config/config_parts.h"

namespace sluice {
namespace {

struct TypeName {
  std::string_view name;
  RopeType type;
};
constexpr TypeName kTypes[] = {{"default", RopeType::kDefault},
                               {"linear", RopeType::kLinear},
                               {"dynamic", RopeType::kDynamic},
                               {"llama3", RopeType::kLlama3},
                               {"yarn", RopeType::kYarn},
                               {"longrope", RopeType::kLongRope},
                               {"su", RopeType::kLongRope},
                               // In plain text all positions are equal, so its sections rotate
                               // alike.
                               {"mrope", RopeType::kDefault}};

// Keys of the dictionary that are read, or that other families put there without an effect here
// (mrope: all three positions of a text token are equal).
constexpr std::string_view kKnownKeys[] = {"type",
                                           "rope_type",
                                           "rope_theta",
                                           "partial_rotary_factor",
                                           "factor",
                                           "original_max_position_embeddings",
                                           "low_freq_factor",
                                           "high_freq_factor",
                                           "beta_fast",
                                           "beta_slow",
                                           "mscale",
                                           "mscale_all_dim",
                                           "attention_factor",
                                           "attn_factor",
                                           "extrapolation_factor",
                                           "apply_yarn_scaling",
                                           "truncate",
                                           "short_factor",
                                           "long_factor",
                                           "short_mscale",
                                           "long_mscale",
                                           "llama_4_scaling_beta",
                                           "mrope_section",
                                           "mrope_interleaved",
                                           "max_position_embeddings",
                                           "finetuned"};

constexpr std::string_view kLayerTypes[] = {"full_attention", "sliding_attention",
                                            "indexed_attention", "deepseek_sparse_attention"};

RopeType read_type(const ConfigReader& rope) {
  const std::string_view key = rope.first_of({"rope_type", "type"});
  const std::string name = rope.find_string(key).value_or("default");
  for (const TypeName& row : kTypes)
    // The first files of Phi-3 call it yarn.
    if (row.name == name) return rope.has_key("long_factor") ? RopeType::kLongRope : row.type;
  rope.reject(key, "it must be default, linear, dynamic, llama3, yarn or longrope");
}

void read_yarn(const ConfigReader& rope, int max_position, RopeConfig& out) {
  // The default factor is the ratio of the two lengths.
  out.factor = rope.find_number("factor").value_or(
      std::max(1.0, static_cast<double>(max_position) / out.original_max_position));
  out.beta_fast = rope.number_or("beta_fast", 32);
  out.beta_slow = rope.number_or("beta_slow", 1);
  if (out.beta_fast < out.beta_slow) rope.reject("beta_fast", "it must not be less than beta_slow");
  out.mscale = rope.number_or("mscale", 0);
  out.mscale_all_dim = rope.number_or("mscale_all_dim", 0);
  out.truncate = rope.bool_or("truncate", true);
  (void)rope.find_number("extrapolation_factor");  // only the value 1 is supported
  out.attention_factor = rope.find_number("attention_factor");
  if (const auto multiplier = rope.find_number("attn_factor"); multiplier && !out.attention_factor)
    out.attention_factor = *multiplier * (0.1 * std::log(out.factor) + 1);
  if (!rope.bool_or("apply_yarn_scaling", true)) out.attention_factor = 1;
}

void read_longrope(const ConfigReader& config, const ConfigReader& rope, int max_position,
                   RopeConfig& out) {
  // The top level has priority, as in transformers.
  out.original_max_position =
      config.find_int("original_max_position_embeddings").value_or(out.original_max_position);
  out.factor = rope.find_number("factor").value_or(
      std::max(1.0, static_cast<double>(max_position) / out.original_max_position));
  const auto half = static_cast<std::size_t>(out.rotary_dim / 2);
  out.short_factor = rope.numbers("short_factor", half, 1e-3, 1e6);
  out.long_factor = rope.numbers("long_factor", half, 1e-3, 1e6);
  out.attention_factor = rope.find_number("attention_factor");
  out.short_mscale = rope.find_number("short_mscale");
  out.long_mscale = rope.find_number("long_mscale");
  if (out.short_mscale.has_value() != out.long_mscale.has_value())
    rope.reject(out.short_mscale ? "long_mscale" : "short_mscale",
                "short_mscale and long_mscale stand together");
}

// `rope` is the dictionary in use, or the top level if there is none.
RopeConfig read_one(const ConfigReader& config, const ConfigReader& rope,
                    const FamilyDefaults& family, int head_dim, int max_position) {
  RopeConfig out;
  out.type = read_type(rope);
  out.theta = rope.find_number("rope_theta")
                  .value_or(config.number_or(config.first_of({"rope_theta", "rotary_emb_base"}),
                                             family.rope_theta));
  out.rotary_dim = head_dim;
  if (family.mla) {
    out.interleaved = config.bool_or("rope_interleave", true);
  } else {
    out.interleaved = family.rope_interleaved;
    const double part =
        rope.find_number("partial_rotary_factor")
            .value_or(config.number_or(config.first_of({"partial_rotary_factor", "rotary_pct"}),
                                       family.partial_rotary_factor));
    out.rotary_dim = config.int_or("rotary_dim", static_cast<int>(head_dim * part));
  }
  require(out.rotary_dim >= 2 && out.rotary_dim % 2 == 0 && out.rotary_dim <= head_dim,
          "{}: {} dims of a head rotate (head_dim {}, partial_rotary_factor); it must be an even "
          "number of "
          "at least 2 and at most head_dim",
          config.what(), out.rotary_dim, head_dim);
  out.original_max_position =
      rope.find_int("original_max_position_embeddings")
          .value_or(config.int_or("original_max_position_embeddings", max_position));
  switch (out.type) {
    case RopeType::kDefault:
      out.original_max_position = max_position;
      break;
    case RopeType::kDynamic:
      // HunYuan's files call a constant scaling of the base "dynamic".
      if (const auto alpha = family.rope_alpha ? rope.find_number("alpha") : std::nullopt) {
        out.type = RopeType::kDefault;
        out.theta *= std::pow(*alpha, out.rotary_dim / (out.rotary_dim - 2.0));
        out.original_max_position = max_position;
        break;
      }
      [[fallthrough]];
    case RopeType::kLinear:
      out.factor = rope.required_number("factor");
      break;
    case RopeType::kLlama3:
      out.factor = rope.required_number("factor");
      out.low_freq_factor = rope.required_number("low_freq_factor");
      out.high_freq_factor = rope.required_number("high_freq_factor");
      if (!(out.high_freq_factor > out.low_freq_factor))
        rope.reject("high_freq_factor", "it must be greater than low_freq_factor");
      break;
    case RopeType::kYarn:
      read_yarn(rope, max_position, out);
      break;
    case RopeType::kLongRope:
      read_longrope(config, rope, max_position, out);
      break;
  }
  return out;
}

void warn_unknown_keys(const Json& dictionary, const FamilyDefaults& family, std::string_view key,
                       std::string_view what) {
  for (const auto& [name, value] : dictionary.items())
    if (std::find(std::begin(kKnownKeys), std::end(kKnownKeys), name) == std::end(kKnownKeys) &&
        !(family.rope_alpha && name == "alpha"))
      log_warning("{}: {}.{} is not known and has no effect", what, key, name.substr(0, 64));
}

bool is_nested(const Json& dictionary) {
  return !dictionary.empty() &&
         std::all_of(dictionary.begin(), dictionary.end(),
                     [](const Json& v) { return v.is_object() || v.is_null(); });
}

// One dictionary per layer type. Families with a local rotation for windowed layers take both; in
// the other families all dictionaries must be equal.
void read_by_layer_type(const ConfigReader& config, const std::string& key, const Json& dictionary,
                        const FamilyDefaults& family, int head_dim, ModelConfig& model) {
  std::optional<RopeConfig> main;
  for (const auto& [layer_type, value] : dictionary.items()) {
    if (value.is_null()) continue;
    require(std::find(std::begin(kLayerTypes), std::end(kLayerTypes), layer_type) !=
                std::end(kLayerTypes),
            "{}: {}.{} names no layer type of {}", config.what(), key, layer_type.substr(0, 64),
            family.architecture);
    const std::string path = fmt::format("{}.{}", key, layer_type);
    warn_unknown_keys(value, family, path, config.what());
    const RopeConfig rope = read_one(config, ConfigReader(value, config.what(), path + "."), family,
                                     head_dim, model.max_position_embeddings);
    if (family.local_rope && layer_type == "sliding_attention") {
      model.local_rope = rope;
      continue;
    }
    require(!main || *main == rope,
            "{}: {} differs from that of another layer type; {} has one rotation for all layers",
            config.what(), path, family.architecture);
    main = rope;
  }
  require(main.has_value(), "{}: {} says nothing about layers of full_attention", config.what(),
          key);
  model.rope = *main;
}

// rope_parameters, or rope_scaling in older files and --hf-overrides. If both exist, the keys of
// rope_scaling have priority, as in transformers. transformers then drops the base of
// rope_parameters; here it stays.
std::pair<std::string, Json> rope_dictionary(const ConfigReader& config) {
  std::pair<std::string, Json> chosen("rope_parameters", Json::object());
  for (const char* key : {"rope_parameters", "rope_scaling"}) {
    const Json* found = config.find(key);
    if (found == nullptr) continue;
    if (!found->is_object()) config.reject(key, "it must be an object");
    if (!found->empty() && is_nested(chosen.second))
      config.reject(key, "rope_parameters has an entry for each layer type; change those");
    if (found->contains("type") || found->contains("rope_type"))
      for (const char* name : {"type", "rope_type"}) chosen.second.erase(name);
    merge_json(chosen.second, *found);
    if (!found->empty()) chosen.first = key;
  }
  return chosen;
}

void read_query_scaling(const ConfigReader& rope, ModelConfig& model) {
  const auto beta = rope.find_number("llama_4_scaling_beta");
  if (beta && *beta > 0) model.query_scaling = {*beta, model.rope.original_max_position, 0};
}

}  // namespace

void read_rope(const ConfigReader& config, const FamilyDefaults& family, int head_dim,
               ModelConfig& model) {
  if (family.positions != PositionKind::kRope) return;
  const auto [key, dictionary] = rope_dictionary(config);
  if (is_nested(dictionary)) {
    read_by_layer_type(config, key, dictionary, family, head_dim, model);
  } else {
    const ConfigReader rope(dictionary, config.what(), key + ".");
    warn_unknown_keys(dictionary, family, key, config.what());
    model.rope = read_one(config, rope, family, head_dim, model.max_position_embeddings);
    if (family.query_scaling) read_query_scaling(rope, model);
  }
  if (!family.local_rope || model.local_rope) return;
  // The older spelling describes only full layers.
  RopeConfig local;
  local.theta = model.rope.theta;
  local.rotary_dim = model.rope.rotary_dim;
  local.interleaved = model.rope.interleaved;
  if (family.local_rope_theta > 0)
    local.theta = config.number_or(config.first_of({"rope_local_base_freq", "swa_rope_theta"}),
                                   family.local_rope_theta);
  local.original_max_position = model.max_position_embeddings;
  model.local_rope = local;
}

}  // namespace sluice
