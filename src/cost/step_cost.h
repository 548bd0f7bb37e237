// What a step takes, and what a rank holds: the sum over the parts of a model.
//
//   const CostModel model{config, types, *machine, calibrated_constants()};
//   const StepCost step = decode_step(model, {.tp = 4}, 64, 8192);
//
// Pure. Times are those of steady work on an idle host: one step after the other, no waits for
// requests, choices of experts as likely as each other.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "cost/part_table.h"

namespace sluice {

struct CostModel {
  const ModelConfig& config;
  StoredTypes types;
  const GpuMachine& machine;
  const CostConstants& constants;
  double chunk_tokens = 8192;  // prompt tokens of a step
};

struct PartSeconds {
  std::string_view name;
  double seconds = 0;
};

struct StepCost {
  double seconds = 0;              // from one token of a sequence to its next
  double tokens_per_s = 0;         // of all servers together
  std::vector<PartSeconds> parts;  // what `seconds` is made of
};

// A step of `batch` sequences in all, each with `context` tokens.
StepCost decode_step(const CostModel& model, const Mix& mix, double batch, double context);

// `prompts` prompts of `length` tokens each, until the last has its first token.
StepCost prefill(const CostModel& model, const Mix& mix, double prompts, double length);

// Bytes of the rank that holds the most.
struct RankBytes {
  double weights = 0;
  double kv = 0;  // with states of recurrent layers
};
// With `sequences` in all, each with `context` tokens. `step_tokens`: that a window keeps beside
// its own while a step is computed.
RankBytes rank_bytes(const CostModel& model, const Mix& mix, double sequences, double context);

// Parameters of the parts' matrices.
double matrix_elements(const ModelConfig& config);

}  // namespace sluice
