// The properties that differ from layer to layer.
#include <algorithm>

#include "base/log.h"
#include "config/config_parts.h"

namespace sluice {
namespace {

template <class T>
struct Named {
  std::string_view name;
  T value;
};
constexpr Named<IndexerRole> kRoles[] = {{"full", IndexerRole::kFull},
                                         {"shared", IndexerRole::kShared},
                                         {"F", IndexerRole::kFull},
                                         {"S", IndexerRole::kShared}};

// Exaone also writes the pattern in letters: L has a window; G, the last one, does not.
int pattern_length(const ConfigReader& config, const FamilyDefaults& family) {
  constexpr std::string_view kKey = "sliding_window_pattern";
  const Json* pattern = config.find(kKey);
  if (pattern == nullptr || !pattern->is_string())
    return config.int_or(kKey, family.window_pattern);
  const auto letters = pattern->get<std::string>();
  if (letters.empty() || letters.find_first_not_of('L') != letters.size() - 1 ||
      letters.back() != 'G')
    config.reject(kKey, "it must be a number, or letters L and a last one G");
  return static_cast<int>(letters.size());
}

std::vector<int> read_windows(const ConfigReader& config, const FamilyDefaults& family,
                              int num_layers) {
  std::vector<int> windows(num_layers, 0);
  const auto layer_types = config.find_strings("layer_types", num_layers);
  if (family.window == WindowRule::kNone) {
    if (layer_types && std::find(layer_types->begin(), layer_types->end(), "sliding_attention") !=
                           layer_types->end())
      config.reject("layer_types",
                    fmt::format("{} has no sliding_attention layers", family.architecture));
    if (config.int_or("sliding_window", 0) > 0)
      log_warning("{}: sliding_window has no effect on {}", config.what(), family.architecture);
    return windows;
  }
  int window =
      config.has_key("sliding_window") ? config.int_or("sliding_window", 0) : family.sliding_window;
  // Keys of the file have priority over the row's.
  if (family.window == WindowRule::kAllButSixths)
    if (const auto before = config.find_int("sliding_window_size")) window = *before + 1;
  if (layer_types) {
    for (int i = 0; i < num_layers; ++i) {
      if ((*layer_types)[i] == "sliding_attention") {
        if (window == 0)
          config.reject("sliding_window", fmt::format("layer_types[{}] is sliding_attention", i));
        windows[i] = window;
      } else if ((*layer_types)[i] != "full_attention") {
        config.reject(
            "layer_types",
            fmt::format("entry {} is \"{}\"; it must be full_attention or sliding_attention", i,
                        (*layer_types)[i].substr(0, 64)));
      }
    }
    return windows;
  }
  const std::vector<int> marked =
      family.swa_keys ? config.ints("hybrid_layer_pattern", 0, 1, 4096) : std::vector<int>{};
  if (!marked.empty() && static_cast<int>(marked.size()) != num_layers)
    config.reject("hybrid_layer_pattern",
                  fmt::format("it must have {} entries, one a layer", num_layers));
  const auto slides = [&](int i) {
    if (!marked.empty()) return marked[static_cast<std::size_t>(i)] == 1;
    switch (family.window) {
      case WindowRule::kNone:
        return false;
      case WindowRule::kEveryLayer:
        return true;
      case WindowRule::kEvenLayers:
        return i % 2 == 0;
      case WindowRule::kAllButSixths:
        return i != 0 && (i + 1) % 6 != 0;
      case WindowRule::kPattern:
        return (i + 1) % pattern_length(config, family) != 0;
      case WindowRule::kFromLayer:
        break;
    }
    return config.bool_or("use_sliding_window", false) &&
           i >= config.int_or("max_window_layers", family.max_window_layers);
  };
  for (int i = 0; i < num_layers; ++i) windows[i] = slides(i) ? window : 0;
  return windows;
}

// Whether layers with a window, or those without one, have sinks.
bool has_sinks(const ConfigReader& config, const FamilyDefaults& family, bool windowed) {
  if (family.swa_keys)
    return windowed ? config.bool_or("add_swa_attention_sink_bias", true)
                    : config.bool_or("add_full_attention_sink_bias", false);
  return family.sinks == SinkRule::kEveryLayer;
}

// KV heads of layers with a window; 0: as many as the others.
int window_kv_heads(const ConfigReader& config, const FamilyDefaults& family,
                    const ModelConfig& model) {
  int heads = family.window_kv_heads > 1 ? family.window_kv_heads * model.num_kv_heads : 0;
  if (family.swa_keys) {
    heads = config.int_or("swa_num_key_value_heads", heads);
    for (const auto& [key, same] : {std::pair("swa_num_attention_heads", model.num_heads),
                                    std::pair("swa_head_dim", model.head_dim),
                                    std::pair("swa_v_head_dim", model.value_dim())})
      if (config.int_or(key, same) != same)
        config.reject(key,
                      fmt::format("layers with a window must have {}, as the others do", same));
  }
  require(
      heads == 0 || model.num_heads % heads == 0,
      "{}: layers with a window have {} key heads (num_key_value_heads is {}), which must divide "
      "num_attention_heads, which is {}",
      config.what(), heads, model.num_kv_heads, model.num_heads);
  return heads == model.num_kv_heads ? 0 : heads;
}

// Which layers do not rotate.
std::vector<bool> read_nope(const ConfigReader& config, const FamilyDefaults& family,
                            const std::vector<int>& windows) {
  std::vector<bool> nope(windows.size(), false);
  switch (family.nope) {
    case NopeRule::kNone:
      break;
    case NopeRule::kFullLayers: {
      const bool has_window = (config.has_key("sliding_window") ? config.int_or("sliding_window", 0)
                                                                : family.sliding_window) > 0;
      for (std::size_t i = 0; i < windows.size(); ++i) nope[i] = has_window && windows[i] == 0;
      break;
    }
    case NopeRule::kByList: {
      const std::vector<int> rotates = config.ints("no_rope_layers", 0, 1, 4096);
      if (!rotates.empty() && rotates.size() != windows.size())
        config.reject("no_rope_layers",
                      fmt::format("it must have {} entries, one a layer", windows.size()));
      const int every = config.int_or("no_rope_layer_interval", family.nope_interval);
      for (std::size_t i = 0; i < windows.size(); ++i)
        nope[i] = rotates.empty() ? (static_cast<int>(i) + 1) % every == 0 : rotates[i] == 0;
      break;
    }
  }
  return nope;
}

// Chunk of each layer, 0 for none: by `layer_types`, else in the layers that rotate.
std::vector<int> read_chunks(const ConfigReader& config, const FamilyDefaults& family,
                             const std::vector<bool>& nope) {
  std::vector<int> chunks(nope.size(), 0);
  if (family.chunk == 0) return chunks;
  const int chunk = config.has_key("attention_chunk_size")
                        ? config.int_or("attention_chunk_size", 0)
                        : family.chunk;
  const auto layer_types = config.find_strings("layer_types", nope.size());
  for (std::size_t i = 0; i < nope.size(); ++i) {
    const bool has_one = layer_types ? (*layer_types)[i] == "chunked_attention" : !nope[i];
    if (layer_types && !has_one && (*layer_types)[i] != "full_attention")
      config.reject(
          "layer_types",
          fmt::format("entry {} is \"{}\"; it must be full_attention or chunked_attention", i,
                      (*layer_types)[i].substr(0, 64)));
    if (has_one) chunks[i] = chunk;
  }
  return chunks;
}

// The priority of the three forms and the formula are those of vLLM and of GlmMoeDsaConfig in
// transformers.
std::vector<IndexerRole> read_roles(const ConfigReader& config, int num_layers) {
  std::vector<std::string> names;
  const std::string_view key = config.first_of({"indexer_types", "index_topk_pattern"});
  if (const Json* pattern = config.find(key); pattern != nullptr && pattern->is_string()) {
    for (const char c : pattern->get<std::string>()) names.emplace_back(1, c);
    if (static_cast<int>(names.size()) != num_layers)
      config.reject(key, fmt::format("it must have {} letters, one a layer", num_layers));
  } else if (pattern != nullptr) {
    names = *config.find_strings(key, num_layers);
  }

  std::vector<IndexerRole> roles(num_layers, IndexerRole::kFull);
  if (!names.empty()) {
    for (int i = 0; i < num_layers; ++i) {
      const auto row = std::find_if(std::begin(kRoles), std::end(kRoles),
                                    [&](const auto& r) { return r.name == names[i]; });
      if (row == std::end(kRoles))
        config.reject(key, fmt::format("entry {} is \"{}\"; it must be full or shared", i,
                                       names[i].substr(0, 64)));
      roles[i] = row->value;
    }
  } else {
    const int every = std::max(config.int_or("index_topk_freq", 1), 1);
    const int offset = config.int_or("index_skip_topk_offset", 2);
    for (int i = 0; i < num_layers; ++i)
      if (std::max(i - offset + 1, 0) % every != 0) roles[i] = IndexerRole::kShared;
  }
  require(roles.front() == IndexerRole::kFull,
          "{}: layer 0 shares the indexer of an earlier layer, but there is none (indexer_types, "
          "index_topk_pattern or "
          "index_skip_topk_offset)",
          config.what());
  return roles;
}

}  // namespace

std::vector<LayerConfig> read_layers(const ConfigReader& config, const FamilyDefaults& family,
                                     const ModelConfig& model) {
  std::vector<LayerConfig> layers(model.num_layers);
  const std::vector<int> windows = read_windows(config, family, model.num_layers);
  const std::vector<bool> nope = read_nope(config, family, windows);
  const std::vector<int> chunks = read_chunks(config, family, nope);
  const int windowed_heads = window_kv_heads(config, family, model);
  for (int i = 0; i < model.num_layers; ++i) {
    layers[i].window = windows[i];
    layers[i].chunk = chunks[i];
    layers[i].sinks = has_sinks(config, family, windows[i] > 0);
    if (windows[i] > 0) layers[i].num_kv_heads = windowed_heads;
    layers[i].rope = nope[i]                               ? LayerRope::kNone
                     : family.local_rope && windows[i] > 0 ? LayerRope::kLocal
                                                           : LayerRope::kMain;
  }
  if (model.moe) {
    const std::vector<bool> is_moe = read_moe_layers(config, family, model.num_layers);
    for (int i = 0; i < model.num_layers; ++i) layers[i].is_moe = is_moe[i];
  }
  if (model.indexer) {
    const std::vector<IndexerRole> roles = read_roles(config, model.num_layers);
    for (int i = 0; i < model.num_layers; ++i) layers[i].indexer = roles[i];
  }
  return layers;
}

}  // namespace sluice
