// The one place where options become decisions: from option strings, the configuration and the
// machine to enums and numbers. The engine's start, `sluice plan` and /get_server_info read the
// plan; runner, loader and scheduler take its parts as they are.
//
//   const Machine machine = read_machine(serving_device(options));
//   Result<ServingPlan> plan = resolve(options, config, machine);
//   if (!plan) fail(ErrorKind::kBadInput, "{}", plan.fault().message);
//   ModelRunner runner(plan->runner, config, source, report);
//
// A new type, policy or limit is a field of a part, a line of resolve(), and its user.
#pragma once

#include <cstdint>

#include "base/error.h"
#include "checkpoint/weight_source.h"
#include "config/model_config.h"
#include "engine/machine.h"
#include "engine/options.h"
#include "engine/rank_choice.h"
#include "runtime/expert_balancer.h"
#include "runtime/runner_options.h"
#include "scheduler/scheduler.h"
#include "speculative/drafter_table.h"

namespace sluice {

// Where the weights come from, and how well they are looked at.
struct Loading {
  LoadFormat format = LoadFormat::kAuto;
  bool dummy = false;      // random ones, from the configuration alone
  std::uint64_t seed = 0;  // of those
  bool check_weights = false;
  bool keeps_stored = false;  // the forms of a quantised checkpoint, also of random weights
};

struct ServingPlan {
  RunnerOptions runner;
  SchedulerOptions scheduler;  // without `groups`, which the model tells
  Loading loading;
  SpeculationOptions speculation;
  int num_nodes = 1;            // hosts with an equal number of the ranks
  int num_ranks = 1;            // that share the model, each in a process of its own
  int num_stages = 1;           // of a pipeline, each with an equal number of ranks
  bool outlives_ranks = false;  // the loss of a rank ends its requests alone
  int dp_size = 1;              // groups of ranks with attention of their own (data parallel)
  int stage = 0;                // of this rank
  BalancerSettings balancer;    // of experts that move between ranks
  bool peer_sums = true;        // GPUs sum in each other's memory where they reach it

  const Numerics& numerics() const { return runner.model.numerics; }
  // Ranks that share the attention of a stage, or of a data-parallel group.
  int num_sharers() const { return num_ranks / num_stages / dp_size; }
  std::int64_t context_length() const { return runner.model.context_length; }
};

// Pure: reads nothing but its arguments. The fault names the option in `param`, and in `message`
// what it was, what is allowed, and what to change.
Result<ServingPlan> resolve(const Options& options, const ModelConfig& config,
                            const Machine& machine);

// The hosts that the options ask for, which nodes_refusal() judges.
NodesWanted nodes_wanted(const Options& options, bool on_cpu);

// resolve(), with the fault as an Error{kBadInput}.
ServingPlan resolve_or_throw(const Options& options, const ModelConfig& config,
                             const Machine& machine);

// Prompt tokens of a step: as the options bound them, by default as suits the device; -1: prompts
// are not cut.
int prefill_tokens_of_a_step(const Options& options, Device device);

}  // namespace sluice
