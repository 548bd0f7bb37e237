// How GPUs share a model: which of tensor, pipeline, expert and data parallelism, and how many.
#pragma once

#include <string>
#include <vector>

#include "config/model_config.h"

namespace sluice {

// Numbers of ranks and groups, as the options of the same names have them.
struct Mix {
  int tp = 1;        // ranks of a stage, those of all data-parallel groups included
  int pp = 1;        // stages
  int ep = 1;        // groups of ranks that have whole experts; divides tp
  int dp = 1;        // groups of ranks with attention of their own; divides tp
  int replicas = 1;  // whole servers
  // How many copies of a token leave its GPU for experts elsewhere, and come back, as DeepEP does
  // it. 0: rows are gathered, which is what the engine does.
  double sent_copies = 0;

  int num_gpus() const { return tp * pp * replicas; }
  int attention_ranks() const { return tp / dp; }
  bool operator==(const Mix&) const = default;
};

// "tp 4, ep 4" and "2 servers of tp 4": what is not 1.
std::string describe(const Mix& mix);

// All mixes that use `num_gpus` GPUs: factors of that number. Models without experts get no groups
// of experts. Whether a model can be shared so is for the engine to say.
std::vector<Mix> all_mixes(const ModelConfig& config, int num_gpus);

}  // namespace sluice
