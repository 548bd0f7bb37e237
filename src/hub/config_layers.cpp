// Experts, and the facts that differ from layer to layer.
#include <algorithm>

#include "base/log.h"
#include "hub/config_parts.h"

namespace sluice {
namespace {

template <class T>
struct Named {
  std::string_view name;
  T value;
};
constexpr Named<MoeScoring> kScorings[] = {{"softmax", MoeScoring::kSoftmax},
                                           {"sigmoid", MoeScoring::kSigmoid}};
constexpr Named<TopkMethod> kTopkMethods[] = {{"greedy", TopkMethod::kGreedy},
                                              {"group_limited_greedy", TopkMethod::kGroupLimitedGreedy},
                                              {"noaux_tc", TopkMethod::kNoauxTc}};
constexpr Named<IndexerRole> kRoles[] = {{"full", IndexerRole::kFull},
                                         {"shared", IndexerRole::kShared},
                                         {"F", IndexerRole::kFull},
                                         {"S", IndexerRole::kShared}};

template <class T, std::size_t N>
T read_named(const ConfigReader& config, std::string_view key, const Named<T> (&rows)[N], T fallback,
             std::string_view wanted) {
  const auto name = config.find_string(key);
  if (!name) return fallback;
  for (const Named<T>& row : rows)
    if (row.name == *name) return row.value;
  config.reject(key, wanted);
}

void check_groups(const ConfigReader& config, const MoeConfig& moe) {
  require(moe.num_experts % moe.n_group == 0, "{}: n_group is {}; it must divide the {} experts",
          config.what(), moe.n_group, moe.num_experts);
  require(moe.topk_group <= moe.n_group, "{}: topk_group is {}; it must be from 1 to n_group, which is {}",
          config.what(), moe.topk_group, moe.n_group);
  const int group_size = moe.num_experts / moe.n_group;
  require(moe.top_k <= moe.topk_group * group_size,
          "{}: num_experts_per_tok is {}; it must be at most {}: topk_group {} of groups of {} experts",
          config.what(), moe.top_k, moe.topk_group * group_size, moe.topk_group, group_size);
  require(moe.topk_method != TopkMethod::kNoauxTc || moe.n_group == 1 || group_size >= 2,
          "{}: n_group is {}; a group's score is the sum of two experts, so it must be at most {}",
          config.what(), moe.n_group, moe.num_experts / 2);
}

std::vector<int> read_windows(const ConfigReader& config, const FamilyDefaults& family, int num_layers) {
  std::vector<int> windows(num_layers, 0);
  const auto layer_types = config.find_strings("layer_types", num_layers);
  if (family.window == WindowRule::kNone) {
    if (layer_types &&
        std::find(layer_types->begin(), layer_types->end(), "sliding_attention") != layer_types->end())
      config.reject("layer_types", fmt::format("{} has no sliding_attention layers", family.architecture));
    if (config.int_or("sliding_window", 0) > 0)
      log_warning("{}: sliding_window has no effect on {}", config.what(), family.architecture);
    return windows;
  }
  const int window =
      config.has_key("sliding_window") ? config.int_or("sliding_window", 0) : family.sliding_window;
  if (layer_types) {
    for (int i = 0; i < num_layers; ++i) {
      if ((*layer_types)[i] == "sliding_attention") {
        if (window == 0)
          config.reject("sliding_window", fmt::format("layer_types[{}] is sliding_attention", i));
        windows[i] = window;
      } else if ((*layer_types)[i] != "full_attention") {
        config.reject("layer_types",
                      fmt::format("entry {} is \"{}\"; it must be full_attention or sliding_attention", i,
                                  (*layer_types)[i].substr(0, 64)));
      }
    }
    return windows;
  }
  int first = 0;
  if (family.window == WindowRule::kFromLayer)
    first = config.bool_or("use_sliding_window", false)
                ? std::min(config.int_or("max_window_layers", family.max_window_layers), num_layers)
                : num_layers;
  std::fill(windows.begin() + first, windows.end(), window);
  return windows;
}

std::vector<bool> read_moe_layers(const ConfigReader& config, const FamilyDefaults& family, int num_layers) {
  std::vector<bool> is_moe(num_layers, false);
  if (const auto types = config.find_strings("mlp_layer_types", num_layers)) {
    for (int i = 0; i < num_layers; ++i) {
      is_moe[i] = (*types)[i] == "sparse";
      if (!is_moe[i] && (*types)[i] != "dense")
        config.reject("mlp_layer_types", fmt::format("entry {} is \"{}\"; it must be dense or sparse", i,
                                                     (*types)[i].substr(0, 64)));
    }
    return is_moe;
  }
  switch (family.moe) {
    case MoeRule::kNone:
      break;
    case MoeRule::kEveryLayer:
      is_moe.assign(num_layers, true);
      break;
    case MoeRule::kSparseStep: {
      const int step = config.int_or("decoder_sparse_step", 1);
      for (int i = 0; i < num_layers; ++i) is_moe[i] = (i + 1) % step == 0;
      for (const int dense : config.ints("mlp_only_layers", 0, 1 << 20, 4096))
        if (dense < num_layers) is_moe[dense] = false;
      break;
    }
    case MoeRule::kFirstDense: {
      const int first = config.int_or("first_k_dense_replace", family.first_k_dense_replace);
      const int every = config.int_or("moe_layer_freq", 1);
      for (int i = first; i < num_layers; ++i) is_moe[i] = i % every == 0;
      break;
    }
  }
  return is_moe;
}

// The priority of the three forms and the formula are those of vLLM and of transformers' GlmMoeDsaConfig.
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
        config.reject(
            key, fmt::format("entry {} is \"{}\"; it must be full or shared", i, names[i].substr(0, 64)));
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

std::optional<MoeConfig> read_moe(const ConfigReader& config, const FamilyDefaults& family) {
  if (family.moe == MoeRule::kNone) return std::nullopt;
  const std::string_view count_key =
      family.moe == MoeRule::kFirstDense
          ? config.first_of({"n_routed_experts", "num_experts", "num_local_experts"})
          : config.first_of({family.moe == MoeRule::kEveryLayer ? "num_local_experts" : "num_experts",
                             "num_experts", "num_local_experts", "n_routed_experts"});
  // An explicit null or 0 makes a dense model of the family; a key that is missing altogether is a mistake.
  const int num_experts =
      config.has_key(count_key) ? config.int_or(count_key, 0) : config.required_int(count_key);
  if (num_experts == 0) return std::nullopt;

  MoeConfig moe;
  moe.num_experts = num_experts;
  moe.top_k =
      config.required_int(config.first_of({"num_experts_per_tok", "num_experts_per_token", "moe_topk"}));
  moe.moe_intermediate_size = config.required_int(family.expert_width_key);
  moe.norm_topk_prob =
      family.reads_norm_topk_prob
          ? config.bool_or(config.first_of({"norm_topk_prob", "moe_renormalize"}), family.norm_topk_prob)
          : family.norm_topk_prob;
  if (family.gated_shared_expert) {
    moe.shared_expert_intermediate_size = config.required_int("shared_expert_intermediate_size");
    moe.num_shared_experts = moe.shared_expert_intermediate_size > 0 ? 1 : 0;
    moe.shared_expert_gate = moe.num_shared_experts > 0;
  }
  if (family.moe == MoeRule::kFirstDense) {
    const std::string_view shared_key = config.first_of({"n_shared_experts", "num_shared_experts"});
    moe.num_shared_experts =
        config.int_or(shared_key, config.has_key(shared_key) ? 0 : family.num_shared_experts);
    const std::int64_t width = std::int64_t{moe.num_shared_experts} * moe.moe_intermediate_size;
    require(width <= 1 << 30, "{}: {} shared experts of width {} are wider than 2^30", config.what(),
            moe.num_shared_experts, moe.moe_intermediate_size);
    moe.shared_expert_intermediate_size = static_cast<int>(width);
    moe.routed_scaling_factor = config.number_or("routed_scaling_factor", family.routed_scaling_factor);
    moe.scoring =
        read_named(config, "scoring_func", kScorings, family.scoring, "it must be softmax or sigmoid");
    moe.topk_method = read_named(config, "topk_method", kTopkMethods, family.topk_method,
                                 "it must be greedy, group_limited_greedy or noaux_tc");
    // null says "no groups"; a missing key is the class default.
    const std::string_view group_key = config.first_of({"n_group", "num_expert_group"});
    moe.n_group = config.int_or(group_key, config.has_key(group_key) ? 1 : family.n_group);
    moe.topk_group =
        config.int_or("topk_group", config.has_key("topk_group") ? moe.n_group : family.topk_group);
  }
  check_groups(config, moe);
  return moe;
}

std::vector<LayerConfig> read_layers(const ConfigReader& config, const FamilyDefaults& family,
                                     const ModelConfig& model) {
  std::vector<LayerConfig> layers(model.num_layers);
  const std::vector<int> windows = read_windows(config, family, model.num_layers);
  for (int i = 0; i < model.num_layers; ++i) layers[i].window = windows[i];
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
