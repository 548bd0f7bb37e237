// The ranks of a model in processes of their own: how the engine starts them, and what they do.
//
//   std::unique_ptr<RemoteRanks> others = start_ranks(options, directory);   // the engine
//   SharedMemoryCommunicator communicator(others->region(), 0, ...);
//
//   int main() { return run_rank(); }                                        // `sluice rank`
//
// A rank gets the options and the directory of the model as its first message, makes the same plan
// from them, and loads its share of the weights. Then it runs the steps that come
// (runtime/remote_ranks.h) until the engine ends.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "checkpoint/weight_source.h"
#include "distributed/nccl.h"
#include "distributed/shared_memory.h"
#include "engine/options.h"
#include "engine/serving_plan.h"
#include "runtime/remote_ranks.h"

namespace sluice {

// The verb of the program that run_rank() serves; no user gives it.
inline constexpr std::string_view kRankVerb = "rank";

// Starts ranks 1 to tp_size - 1 of `options` with the model in `directory`, by `entry` or as this
// program. Error{kNoResources}.
std::unique_ptr<RemoteRanks> start_ranks(const Options& options, const std::string& directory,
                                         RankEntry entry = {});

// The whole life of a rank's process, with the descriptors of RankProcesses in place; its exit
// status. What goes wrong goes to the region, where all ranks read it.
int run_rank();

// Where the plan takes the weights from.
WeightSource open_weights(const ServingPlan& plan, const ModelConfig& config,
                          const std::string& directory);
// The collectives of a rank over host memory and over that of its device.
class RankCommunicators {
 public:
  // All ranks at once. `region` outlives it.
  RankCommunicators(SharedRegion& region, int rank, const Machine& machine,
                    const ServingPlan& plan);
  Communicator& get();
  // The stream of the rank.
  void bind(const Stream& stream);

 private:
  SharedMemoryCommunicator host_;
  std::unique_ptr<NcclCommunicator> gpu_;  // null on a CPU
};
// Error{kBadInput} on all ranks where they see different files, or planned differently.
void require_same_model(Communicator& communicator, const ModelConfig& config,
                        const WeightSource& source, const ServingPlan& plan);

}  // namespace sluice
