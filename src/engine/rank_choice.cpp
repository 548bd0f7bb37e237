#include "engine/rank_choice.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <vector>

#include "distributed/shared_region.h"

namespace sluice {
namespace {

// What `num_ranks` cannot share; empty: nothing. Experts are in `expert_groups` groups of them, and
// attention is in `dp_size` groups.
std::string undivided(const ModelConfig& config, int num_ranks, int expert_groups, int dp_size) {
  const auto shared_by = [](int ranks, int extent, std::string_view name) {
    return extent % ranks == 0
               ? std::string()
               : fmt::format("{} {} cannot be shared equally by {} ranks", extent, name, ranks);
  };
  const auto what = [&](int extent, std::string_view name) {
    return shared_by(num_ranks, extent, name);
  };
  const int attending = num_ranks / dp_size;
  std::vector<std::string> problems;
  bool attends = false, is_dense = false, has_experts = false;
  for (int i = 0; i < config.num_layers; ++i) {
    const LayerConfig layer = config.layer(i);
    (layer.is_moe ? has_experts : is_dense) = true;
    if (layer.recurrent) continue;
    attends = true;
    const int kv_heads = config.kv_heads_of(i);
    if (!config.mla && kv_heads > 0 && attending % kv_heads != 0)
      problems.push_back(shared_by(attending, kv_heads, "key heads"));
  }
  if (attends) problems.push_back(shared_by(attending, config.num_heads, "attention heads"));
  if (is_dense) problems.push_back(what(config.intermediate_size, "columns of an MLP"));
  if (has_experts) {
    problems.push_back(shared_by(num_ranks / expert_groups, config.moe->moe_intermediate_size,
                                 "columns of an expert"));
    problems.push_back(
        what(config.moe->shared_expert_intermediate_size, "columns of the shared experts"));
  }
  const auto first = std::ranges::find_if(problems, [](const auto& p) { return !p.empty(); });
  return first == problems.end() ? "" : *first;
}

// Of the layers that have experts; 0: there are none.
int experts_of(const ModelConfig& config) {
  for (int i = 0; i < config.num_layers; ++i)
    if (config.layer(i).is_moe) return config.moe->num_experts;
  return 0;
}

// Whether ranks can be grouped and share the model so.
bool passes(const ModelConfig& config, int num_ranks, int expert_groups, int dp_size) {
  return num_ranks % expert_groups == 0 && num_ranks % dp_size == 0 &&
         (expert_groups == 1 || expert_groups <= experts_of(config)) &&
         (num_ranks == 1 || undivided(config, num_ranks, expert_groups, dp_size).empty());
}

// "2, 4": the numbers of ranks of a stage that pass with these groups; empty: none.
std::string passing_ranks(const ModelConfig& config, const RankGroups& groups) {
  std::vector<int> would;
  for (int other = 2; other * groups.num_stages <= kMaxRanks; ++other)
    if (other * groups.num_stages % groups.num_nodes == 0 &&
        passes(config, other, groups.experts_of(other), groups.dp_size))
      would.push_back(other);
  return fmt::format("{}", fmt::join(would, ", "));
}

// What to change about the number of ranks or the groups, as the end of a sentence.
std::string advice_for_ranks(const ModelConfig& config, const RankGroups& groups) {
  const std::string would = passing_ranks(config, groups);
  if (!would.empty()) return fmt::format("; --tp-size {} would do", would);
  std::string experts, attention;
  if (groups.expert_groups > 1) experts = fmt::format("--ep-size {}", groups.expert_groups);
  if (groups.whole_experts) experts = "the flag --enable-expert-parallel";
  if (groups.dp_size > 1) attention = fmt::format("--dp-size {}", groups.dp_size);
  if (experts.empty() && attention.empty()) return ", and no other number divides the model";
  RankGroups without_attention = groups, without_experts = groups;
  without_attention.dp_size = 1;
  without_experts.expert_groups = 1;
  without_experts.whole_experts = false;
  RankGroups without_both = without_experts;
  without_both.dp_size = 1;
  struct Less {
    bool is_less;
    std::string_view left_out;
    const RankGroups& groups;
  };
  const bool has_both = !experts.empty() && !attention.empty();
  const std::string all = experts + (has_both ? " and " : "") + attention;
  for (const auto& [is_less, left_out, rest] :
       {Less{!attention.empty(), "--dp-size and --enable-dp-attention", without_attention},
        Less{!experts.empty(), experts, without_experts}, Less{has_both, "these", without_both}}) {
    const std::string others = is_less ? passing_ranks(config, rest) : "";
    if (!others.empty())
      return fmt::format(
          "; with {} no number divides the model, and without {} --tp-size {} would "
          "do",
          all, left_out, others);
  }
  return fmt::format(", and no other number divides the model with {}", all);
}

}  // namespace

std::string sharing_refusal(const ModelConfig& config, int num_ranks, const RankGroups& groups) {
  if (num_ranks == 1) return "";
  if (config.fallback) return "the Transformers plugin computes on one rank; leave it out";
  if (config.recurrent && config.intermediate_size == 0 && !config.moe)
    return "all layers are recurrent, and every rank would compute them whole; leave it out";
  const std::string problem =
      undivided(config, num_ranks, groups.experts_of(num_ranks), groups.dp_size);
  return problem.empty() ? "" : problem + advice_for_ranks(config, groups);
}

std::string expert_groups_refusal(const ModelConfig& config, int num_ranks,
                                  const RankGroups& groups) {
  if (config.fallback) return "the Transformers plugin computes on one rank; leave it out";
  const int experts = experts_of(config), wanted = groups.experts_of(num_ranks);
  if (experts == 0) return fmt::format("{} has no experts; leave it out", config.architecture);
  if (num_ranks % wanted == 0 && wanted <= experts) return "";
  std::vector<int> would;
  for (int other = 2; other <= num_ranks && !groups.whole_experts; ++other)
    if (passes(config, num_ranks, other, groups.dp_size)) would.push_back(other);
  RankGroups rest = groups;
  rest.expert_groups = 1;
  rest.whole_experts = false;
  const std::string ranks = passing_ranks(config, groups), alone = passing_ranks(config, rest);
  rest.whole_experts = true;
  const std::string alike = passing_ranks(config, rest);
  std::string advice = "leave it out";
  if (!would.empty())
    advice = fmt::format("--ep-size {} would do{}", fmt::join(would, ", "),
                         ranks.empty() ? "" : fmt::format(", or --tp-size {}", ranks));
  else if (!ranks.empty())
    advice = fmt::format("--tp-size {} would do", ranks);
  else if (wanted == num_ranks && !alike.empty())
    advice = fmt::format("--ep-size {} would do with --tp-size alike", alike);
  else if (!passes(config, num_ranks, 1, groups.dp_size) && !alone.empty())
    advice = fmt::format("leave it out, and give --tp-size {}", alone);
  if (num_ranks % wanted != 0)
    return fmt::format("{} ranks cannot form {} groups of equal size; {}", num_ranks, wanted,
                       advice);
  return fmt::format("{} experts cannot be dealt over {} groups of ranks; {}", experts, wanted,
                     advice);
}

std::string expert_places_refusal(const ModelConfig& config, const ExpertPlacesWanted& wanted) {
  const auto& [groups, redundant, moves] = wanted;
  if (config.fallback) return "the Transformers plugin computes on one rank; leave it out";
  const int experts = experts_of(config);
  if (experts == 0) return fmt::format("{} has no experts; leave it out", config.architecture);
  if (groups == 1)
    return "all ranks have all experts; give --ep-size or --enable-expert-parallel, too";
  const int most = experts * (groups - 1);
  // The nearest numbers that would do: multiples of the groups, and one spare place where experts
  // move.
  const int least = moves ? 1 : 0;
  const auto would = [&](int wanted_places) {
    return wanted_places >= least && wanted_places <= most &&
           (experts + wanted_places) % groups == 0;
  };
  if (would(redundant)) return "";
  int below = std::min(redundant, most), above = std::max(redundant, least);
  while (below >= 0 && !would(below)) --below;
  while (above <= most && !would(above)) ++above;
  std::vector<int> near;
  if (below >= 0) near.push_back(below);
  if (above <= most) near.push_back(above);
  const std::string advice = fmt::format("--ep-num-redundant-experts {} would do",
                                         fmt::join(near.begin(), near.end(), " or "));
  if (redundant > most)
    return fmt::format(
        "with {} redundant experts, a group would have an expert twice: {} groups "
        "have room for {} beyond one of each; {}",
        redundant, groups, most, advice);
  if (redundant < least)
    return fmt::format("experts move through places beyond one for each, and there are none; {}",
                       advice);
  return fmt::format(
      "{} experts and {} redundant ones cannot be dealt equally over {} groups of "
      "ranks; {}",
      experts, redundant, groups, advice);
}

std::string elastic_refusal(const ModelConfig& config, const ElasticWanted& wanted) {
  const int ranks = wanted.num_ranks, experts = experts_of(config);
  const auto refused = [](const std::string& why) {
    return "--elastic-ep-backend shared-memory is refused: " + why;
  };
  if (config.fallback || experts == 0)
    return refused(fmt::format("{} has no experts here; leave it out", config.architecture));
  if (!wanted.on_cpus_of_one_host)
    return refused(
        "experts are in memory that the CPUs of one host share; give --device cpu and one node, or "
        "leave it out");
  if (ranks < 2 || wanted.dp_size != ranks || wanted.expert_groups != ranks)
    return refused(
        fmt::format("each rank needs attention and experts of its own; give --tp-size {0} "
                    "--dp-size {0} --enable-dp-attention --ep-size {0}",
                    std::max(2, ranks)));
  if (config.recurrent)
    return refused(
        "a step that a loss interrupts is computed again, and recurrent layers have changed their "
        "states then; leave it out");
  if (wanted.has_places)
    return refused(
        "experts have one place each, in memory of all ranks; leave out "
        "--ep-num-redundant-experts, --enable-eplb, --init-expert-location and "
        "--enable-expert-distribution-metrics");
  if (experts % ranks == 0) return "";
  std::vector<int> would;
  for (int other = 2; other <= std::min(experts, kMaxRanks); ++other)
    if (experts % other == 0 && passes(config, other, other, other)) would.push_back(other);
  return refused(fmt::format(
      "{} experts are no equal parts for {} ranks; {}", experts, ranks,
      would.empty() ? "leave it out"
                    : fmt::format("--tp-size {0} would do, with --dp-size and --ep-size alike",
                                  fmt::join(would, ", "))));
}

std::string dp_refusal(const ModelConfig& config, int num_ranks, const RankGroups& groups) {
  if (config.fallback) return "the Transformers plugin computes on one rank; leave it out";
  if (config.recurrent && config.intermediate_size == 0 && !config.moe)
    return fmt::format("{} has no feed-forward layers that ranks could share; leave it out",
                       config.architecture);
  if (num_ranks % groups.dp_size == 0) return "";
  std::vector<int> would;
  for (int other = 2; other <= num_ranks; ++other)
    if (passes(config, num_ranks, groups.experts_of(num_ranks), other)) would.push_back(other);
  return fmt::format(
      "--tp-size is {}, the number of all ranks{}{}", num_ranks,
      num_ranks == 1 ? "" : fmt::format(", which {} groups cannot share equally", groups.dp_size),
      would.empty() ? advice_for_ranks(config, groups)
                    : fmt::format("; --dp-size {} would do", fmt::join(would, ", ")));
}

std::string stage_refusal(const ModelConfig& config, int num_stages, int num_sharers) {
  if (num_stages == 1) return "";
  if (config.fallback)
    return "the Transformers plugin computes all layers in one process; leave it out";
  if (num_stages > config.num_layers) {
    const int most = std::min(config.num_layers, kMaxRanks / num_sharers);
    return fmt::format("each stage needs a layer, and the model has {}; {}", config.num_layers,
                       most > 1 ? fmt::format("--pp-size {} would do", most) : "leave it out");
  }
  if (num_stages * num_sharers > kMaxRanks)
    return fmt::format("{} stages of {} ranks are {} processes; {} are the most", num_stages,
                       num_sharers, num_stages * num_sharers, kMaxRanks);
  return "";
}

std::string nodes_refusal(const NodesWanted& wanted) {
  if (wanted.node >= wanted.num_nodes)
    return fmt::format("there is no node {}: nodes are counted from 0 (--node-rank)", wanted.node);
  if (wanted.num_nodes == 1) return "";
  if (wanted.num_ranks % wanted.num_nodes != 0)
    return fmt::format(
        "ranks are dealt equally to nodes, and there {} {}; --tp-size {} or --pp-size {} would do",
        wanted.num_ranks == 1 ? "is" : "are", wanted.num_ranks, wanted.num_nodes, wanted.num_nodes);
  if (!wanted.has_address)
    return "nodes need an address of node 0 to meet; give --dist-init-addr HOST:PORT";
  if (!wanted.has_key)
    return "nodes know each other by a secret; give all of them the same --dist-key-file, made by: "
           "openssl rand -hex 32";
  if (!wanted.on_cpu) return "ranks of several hosts compute on CPUs; give --device cpu";
  return "";
}

}  // namespace sluice
