// Whether the parts of a model can be shared by a number of ranks.
#pragma once

#include <string>

#include "config/model_config.h"

namespace sluice {

// How ranks are grouped. Experts are dealt over groups of a stage's ranks, and attention over
// others; both divide the ranks.
struct RankGroups {
  int expert_groups = 1;
  int dp_size = 1;
  bool whole_experts = false;  // as many groups of experts as ranks, whatever their number
  int num_stages = 1;          // each with as many ranks
  int num_nodes = 1;           // that have equally many ranks
  int experts_of(int num_ranks) const { return whole_experts ? num_ranks : expert_groups; }
};

// Empty: `num_ranks` can share the model's matrices. Else what stands against it, and which numbers
// would do, as the end of a sentence: "24 attention heads cannot ...; --tp-size 2, 3 or 4 would".
// All numbers that are named pass, also with the other groups.
std::string sharing_refusal(const ModelConfig& config, int num_ranks,
                            const RankGroups& groups = {});
// The same for the number of groups of experts; also of one, which a model without experts has not.
std::string expert_groups_refusal(const ModelConfig& config, int num_ranks,
                                  const RankGroups& groups);

// Places of experts beyond one for each.
struct ExpertPlacesWanted {
  int groups = 1;     // of ranks
  int redundant = 0;  // places beyond the experts
  bool moves = false;
};
// The same for these.
std::string expert_places_refusal(const ModelConfig& config, const ExpertPlacesWanted& wanted);

// Ranks whose loss the server is to outlive.
struct ElasticWanted {
  int num_ranks = 1, expert_groups = 1, dp_size = 1;
  bool has_places = false;  // of experts, by a map
  bool on_cpus_of_one_host = true;
};
// Empty: it can. Else the whole message.
std::string elastic_refusal(const ModelConfig& config, const ElasticWanted& wanted);

// The same for the number of groups with attention of their own.
std::string dp_refusal(const ModelConfig& config, int num_ranks, const RankGroups& groups);

// Empty: `num_stages` stages of `num_sharers` ranks each can share the model's layers. Else what
// stands against it, in the same form.
std::string stage_refusal(const ModelConfig& config, int num_stages, int num_sharers);

// How the ranks are dealt to hosts.
struct NodesWanted {
  int num_nodes = 1, node = 0;
  int num_ranks = 1;
  bool has_address = false, has_key = false, on_cpu = true;
};
// Empty: these nodes can be had. Else what stands against them, and what to change.
std::string nodes_refusal(const NodesWanted& wanted);

}  // namespace sluice
