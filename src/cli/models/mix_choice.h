// Which mix of parallelism a model should take on a number of GPUs: all mixes, what each is
// predicted to do, and why those that are out are out.
//
//   const MixQuestion question = mix_question(options, config, directory, gpus, 8192, 64);
//   for (const MixAnswer& answer : answer_mixes(question)) ...
//
// Reads config.json alone; needs no GPU. Error{kBadInput}: the options alone are refused.
#pragma once

#include <string>
#include <vector>

#include "cost/step_cost.h"
#include "engine/serving_plan.h"

namespace sluice {

// How the weights and the cache will lie in memory under a plan.
StoredTypes stored_types_of(const ServingPlan& plan, const ModelConfig& config,
                            const std::string& model);

// A GPU of the kinds that the cost model knows, as resolve() looks at one.
Machine imagined_gpu();

struct MixQuestion {
  Options options;  // of one rank
  ModelConfig config;
  StoredTypes types;
  GpuSet gpus;
  double context = 0;       // tokens of a sequence
  int concurrency = 0;      // sequences at once
  double chunk_tokens = 0;  // prompt tokens of a step
  double memory_share = 0;  // of a GPU's memory, for weights and KV
};

MixQuestion mix_question(const Options& options, const ModelConfig& config,
                         const std::string& directory, const GpuSet& gpus, double context,
                         int concurrency);

// A step of decoding.
struct MixStep {
  int batch = 0;
  bool fits = false;  // the KV of so many sequences
  StepCost cost;
};

struct MixAnswer {
  Mix mix;
  std::string refusal;   // why the engine refuses the mix; empty: it serves it
  bool divides = false;  // heads, columns, experts and layers among the ranks
  RankBytes bytes;
  double working_bytes = 0;    // of a step, about
  double available_bytes = 0;  // for weights and KV
  bool fits = false;
  std::vector<MixStep> decode;  // 1, 32, 64, 128 sequences, and --concurrency
  StepCost first_token;         // of one prompt of the context's length, nothing else running
  StepCost prefill;             // of as many prompts as keep all GPUs busy
  Options options;              // that start it

  bool can_serve() const { return refusal.empty() && fits; }
  const StepCost& at(int batch) const;  // one of `decode`
};

// In the order of all_mixes().
std::vector<MixAnswer> answer_mixes(const MixQuestion& question);

// The best of those that can serve: the shortest step of one sequence, and the most tokens a second
// with `concurrency` sequences. Null: none can.
const MixAnswer* best_latency(const std::vector<MixAnswer>& answers);
const MixAnswer* best_throughput(const std::vector<MixAnswer>& answers, int concurrency);

}  // namespace sluice
