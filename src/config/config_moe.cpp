// Mixtures of experts: their sizes, their routers, and which layers are mixtures.
#include <algorithm>

#include "config/config_parts.h"

namespace sluice {
namespace {

template <class T>
struct Named {
  std::string_view name;
  T value;
};
constexpr Named<RouterScoring> kScorings[] = {{"softmax", RouterScoring::kSoftmax},
                                              {"sigmoid", RouterScoring::kSigmoid}};
constexpr Named<TopkMethod> kTopkMethods[] = {
    {"greedy", TopkMethod::kGreedy},
    {"group_limited_greedy", TopkMethod::kGroupLimitedGreedy},
    {"noaux_tc", TopkMethod::kNoauxTc}};

template <class T, std::size_t N>
T read_named(const ConfigReader& config, std::string_view key, const Named<T> (&rows)[N],
             T fallback, std::string_view wanted) {
  const auto name = config.find_string(key);
  if (!name) return fallback;
  for (const Named<T>& row : rows)
    if (row.name == *name) return row.value;
  config.reject(key, wanted);
}

void check_groups(const ConfigReader& config, const MoeConfig& moe) {
  require(moe.num_experts % moe.n_group == 0, "{}: n_group is {}; it must divide the {} experts",
          config.what(), moe.n_group, moe.num_experts);
  require(moe.topk_group <= moe.n_group,
          "{}: topk_group is {}; it must be from 1 to n_group, which is {}", config.what(),
          moe.topk_group, moe.n_group);
  const int group_size = moe.num_experts / moe.n_group;
  require(
      moe.top_k <= moe.topk_group * group_size,
      "{}: num_experts_per_tok is {}; it must be at most {}: topk_group {} of groups of {} experts",
      config.what(), moe.top_k, moe.topk_group * group_size, moe.topk_group, group_size);
  require(moe.topk_method != TopkMethod::kNoauxTc || moe.n_group == 1 || group_size >= 2,
          "{}: n_group is {}; a group's score is the sum of two experts, so it must be at most {}",
          config.what(), moe.n_group, moe.num_experts / 2);
}

// A number that some files repeat for every layer.
int uniform_int(const ConfigReader& config, std::string_view key) {
  const Json* value = config.find(key);
  if (value == nullptr || !value->is_array()) return config.required_int(key);
  const std::vector<int> all = config.ints(key, 1, 1 << 20, 4096);
  if (all.empty() || std::any_of(all.begin(), all.end(), [&](int n) { return n != all.front(); }))
    config.reject(key, "the layers must have equal numbers");
  return all.front();
}

// Marks a list of layers, or the layers step - 1, 2 step - 1, ...
void mark_listed(const ConfigReader& config, std::vector<bool>& is_moe) {
  const int num_layers = static_cast<int>(is_moe.size());
  if (config.find("moe_layers") != nullptr) {
    for (const int layer : config.ints("moe_layers", 0, 1 << 20, 4096))
      if (layer < num_layers) is_moe[layer] = true;
    return;
  }
  const int step = config.int_or("interleave_moe_layer_step", 1);
  for (int i = step - 1; i < num_layers; i += step) is_moe[i] = true;
}

void read_shared(const ConfigReader& config, const FamilyDefaults& family, MoeConfig& moe) {
  if (family.gated_shared_expert) {
    moe.shared_expert_intermediate_size = config.required_int("shared_expert_intermediate_size");
    moe.num_shared_experts = moe.shared_expert_intermediate_size > 0 ? 1 : 0;
    moe.shared_expert_gate = moe.num_shared_experts > 0;
    return;
  }
  moe.num_shared_experts = family.num_shared_experts;
  if (family.moe == MoeRule::kFirstDense || family.moe == MoeRule::kInterval) {
    const std::string_view key =
        config.first_of({"n_shared_experts", "num_shared_experts", "moe_num_shared_experts"});
    moe.num_shared_experts =
        config.int_or(key, config.has_key(key) ? 0 : family.num_shared_experts);
  }
  const std::int64_t width = std::int64_t{moe.num_shared_experts} * moe.moe_intermediate_size;
  require(width <= 1 << 30, "{}: {} shared experts of width {} are wider than 2^30", config.what(),
          moe.num_shared_experts, moe.moe_intermediate_size);
  moe.shared_expert_intermediate_size = static_cast<int>(width);
}

}  // namespace

std::optional<MoeConfig> read_moe(const ConfigReader& config, const FamilyDefaults& family) {
  if (family.moe == MoeRule::kNone) return std::nullopt;
  const std::string_view count_key =
      family.moe == MoeRule::kFirstDense
          ? config.first_of({"n_routed_experts", "num_experts", "num_local_experts"})
          : config.first_of(
                {family.expert_count_key, "num_experts", "num_local_experts", "n_routed_experts"});
  // An explicit null or 0 means a dense model of the family; a missing key is a mistake.
  const int num_experts = config.has_key(count_key) && config.find(count_key) == nullptr
                              ? 0
                              : uniform_int(config, count_key);
  if (num_experts == 0) return std::nullopt;

  MoeConfig moe;
  moe.num_experts = num_experts;
  moe.top_k = uniform_int(config, config.first_of({"num_experts_per_tok", "num_experts_per_token",
                                                   "moe_topk", "moe_k"}));
  moe.moe_intermediate_size = config.required_int(family.expert_width_key);
  moe.norm_topk_prob = family.reads_norm_topk_prob
                           ? config.bool_or(config.first_of({"norm_topk_prob", "moe_renormalize"}),
                                            family.norm_topk_prob)
                           : family.norm_topk_prob;
  moe.scoring = family.scoring;
  moe.topk_method = family.topk_method;
  moe.weigh_input = family.weigh_expert_input;
  if (family.topk_method == TopkMethod::kSparseMixer) {
    moe.top_k = 2;  // as in the class, whatever the file says
    moe.mixer_eps = config.number_or("router_jitter_noise", 0.01);
  }
  if (family.swiglu_limit > 0) {
    moe.swiglu_limit = config.number_or("swiglu_limit", family.swiglu_limit);
    moe.swiglu_alpha = config.number_or("swiglu_alpha", 1.702);
  }
  if (family.moe == MoeRule::kInterval) moe.topk_norm_min = config.number_or("moe_norm_min", 1e-12);
  read_shared(config, family, moe);
  if (family.moe == MoeRule::kFirstDense) {
    moe.routed_scaling_factor =
        config.number_or("routed_scaling_factor", family.routed_scaling_factor);
    moe.scoring = read_named(config, "scoring_func", kScorings, family.scoring,
                             "it must be softmax or sigmoid");
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

std::vector<bool> read_moe_layers(const ConfigReader& config, const FamilyDefaults& family,
                                  int num_layers) {
  std::vector<bool> is_moe(num_layers, false);
  if (const auto types = config.find_strings("mlp_layer_types", num_layers)) {
    for (int i = 0; i < num_layers; ++i) {
      is_moe[i] = (*types)[i] == "sparse";
      if (!is_moe[i] && (*types)[i] != "dense")
        config.reject("mlp_layer_types",
                      fmt::format("entry {} is \"{}\"; it must be dense or sparse", i,
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
    case MoeRule::kInterval: {
      const int first = config.int_or("moe_layer_start_index", 1),
                last = config.int_or("moe_layer_end_index", -1);
      const int every = config.int_or("moe_layer_interval", 1);
      for (int i = first; i < num_layers && (last < 0 || i <= last); ++i)
        is_moe[i] = (i + 1) % every == 0;
      break;
    }
    case MoeRule::kListed:
      mark_listed(config, is_moe);
      break;
    case MoeRule::kFirstDense: {
      const int first = config.int_or("first_k_dense_replace", family.first_k_dense_replace);
      if (const Json* listed = config.find("moe_layer_freq");
          listed != nullptr && listed->is_array()) {
        const std::vector<int> marks = config.ints("moe_layer_freq", 0, 1, 4096);
        if (static_cast<int>(marks.size()) != num_layers)
          config.reject(
              "moe_layer_freq",
              fmt::format("it must be a step, or have {} entries, one a layer", num_layers));
        for (int i = 0; i < num_layers; ++i) is_moe[i] = marks[i] == 1;
        break;
      }
      const int every = config.int_or("moe_layer_freq", 1);
      for (int i = first; i < num_layers; ++i) is_moe[i] = i % every == 0;
      break;
    }
  }
  return is_moe;
}

}  // namespace sluice
