// Options of the places of experts on the ranks. Names as in SGLang.
#include "engine/options_rows.h"

namespace sluice {
namespace {

using namespace option_rows;
using enum OptionType;
constexpr std::string_view kRuntime = "Runtime";

void set_utilization(Options& o, std::string_view v) {
  o.eplb_min_rebalancing_utilization_threshold = option_parse::number(v, 0, 1);
}

void set_elastic(Options& o, std::string_view v) {
  require(v != "mooncake" && v != "nixl",
          "{} is refused: ranks exchange over memory that they share; give "
          "--elastic-ep-backend shared-memory",
          v);
  o.elastic_ep_backend =
      option_parse::choice(v, {{"none", "none"}, {"shared-memory", "shared-memory"}});
}

}  // namespace

std::vector<OptionRow> expert_option_rows() {
  return {
      {.name = "ep-num-redundant-experts",
       .aliases = "num-redundant-experts",
       .type = kInt,
       .group = kRuntime,
       .allowed = "0 to 4096",
       .help = "Places for experts of each layer beyond one each, in the groups of --ep-size, "
               "which divide experts and these (docs/ranks.md).",
       .set = set_int<&Options::ep_num_redundant_experts, 0, 4096>,
       .get = field<&Options::ep_num_redundant_experts>},
      {.name = "init-expert-location",
       .group = kRuntime,
       .allowed = "trivial, a JSON file, or JSON",
       .help = "Which expert each place has at the start: physical_to_logical_map, or what "
               "logical_count of experts asks for, of every layer.",
       .set = set_text<&Options::init_expert_location>,
       .get = field<&Options::init_expert_location>},
      {.name = "enable-eplb",
       .type = kFlag,
       .group = kRuntime,
       .allowed = "true, false",
       .help = "Experts move between the groups of --ep-size after their load, a little in each "
               "step; needs --ep-num-redundant-experts.",
       .set = set_flag<&Options::enable_eplb>,
       .get = field<&Options::enable_eplb>},
      {.name = "eplb-rebalance-num-iterations",
       .aliases = "eplb-step-interval",
       .type = kInt,
       .group = kRuntime,
       .allowed = "1 to 1000000000",
       .help = "Steps from one rebalance of experts to the next, whose load counts.",
       .set = set_int<&Options::eplb_rebalance_num_iterations, 1, 1'000'000'000>,
       .get = field<&Options::eplb_rebalance_num_iterations>},
      {.name = "eplb-rebalance-layers-per-chunk",
       .type = kInt,
       .group = kRuntime,
       .allowed = "0 (one) to 4096",
       .help = "Layers whose new places are chosen in one step; their experts then move, before "
               "those of the next layers.",
       .set = set_int<&Options::eplb_rebalance_layers_per_chunk, 0, 4096>,
       .get = field<&Options::eplb_rebalance_layers_per_chunk>},
      {.name = "eplb-min-rebalancing-utilization-threshold",
       .type = kFloat,
       .group = kRuntime,
       .allowed = "0 to 1 (rebalance always)",
       .help = "No rebalance where the mean load of groups is above this part of the largest.",
       .set = set_utilization,
       .get = field<&Options::eplb_min_rebalancing_utilization_threshold>},
      {.name = "enable-expert-distribution-metrics",
       .type = kFlag,
       .group = kRuntime,
       .allowed = "true, false",
       .help = "/metrics has the choices of experts by layer and group of --ep-size.",
       .set = set_flag<&Options::enable_expert_distribution_metrics>,
       .get = field<&Options::enable_expert_distribution_metrics>},
      {.name = "elastic-ep-backend",
       .group = kRuntime,
       .allowed = "none, shared-memory",
       .help = "What keeps the experts of a rank that is lost: none ends the server; with "
               "shared-memory the other ranks go on, and compute them (docs/ranks.md).",
       .set = set_elastic,
       .get = field<&Options::elastic_ep_backend>},
  };
}

}  // namespace sluice
