// The ranks of a model in processes of their own: how the engine starts them, and what they do.
//
//   std::unique_ptr<RemoteRanks> others = start_ranks(options, directory);   // the engine
//   SharedMemoryCommunicator communicator(others->region(), 0, ...);
//
//   int main() { return run_rank(); }                                        // `sluice rank`
//
// A rank gets the options and the directories of models as its first message, makes the same plan
// from them, and loads its share of the weights. Then it runs the steps that come
// (runtime/remote_ranks.h) until the engine ends.
//
// With T ranks a stage, rank r has share r % T of the matrices of stage S - 1 - r / T: the engine's
// process is in the last stage, where tokens are chosen.
//
// With several nodes each has an equal number of consecutive ranks. Node 0 is the engine's; on the
// others `sluice` starts the ranks, and joins them to these (engine/hosts/node.h).
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "checkpoint/weight_source.h"
#include "distributed/hosts/node_lobby.h"
#include "distributed/nccl.h"
#include "distributed/peer/peer_communicator.h"
#include "distributed/peer/peer_link.h"
#include "distributed/shared_memory.h"
#include "distributed/shared_memory_link.h"
#include "engine/options.h"
#include "engine/serving_plan.h"
#include "layers/weights/shared_experts.h"
#include "runtime/remote_ranks.h"

namespace sluice {

// The verb of the program that run_rank() serves; no user gives it.
inline constexpr std::string_view kRankVerb = "rank";

// Where the model is, and its draft; empty: it has none.
struct ModelDirectories {
  std::string model;
  std::string draft = {};
};

// Starts all ranks of `options` but the first with the model in `directories`, by `entry` or as
// this program. Those of other nodes have joined the lobby, or are waited for; null: there are
// none. Error{kNoResources}; as NodeLobby::wait().
std::unique_ptr<RemoteRanks> start_ranks(const Options& options,
                                         const ModelDirectories& directories, RankEntry entry = {},
                                         std::unique_ptr<NodeLobby> lobby = nullptr);
// The ranks of this node alone, without the first.
std::unique_ptr<RankProcesses> start_own_ranks(const Options& options,
                                               const ModelDirectories& directories,
                                               RankEntry entry = {});

// Where node 0 meets the others; null: there are none. Error{kBadInput}: an option or the key file
// is wrong, or it cannot listen there.
std::unique_ptr<NodeLobby> open_lobby(const Options& options);
// Error{kBadInput}: these nodes cannot be had.
void require_nodes(const Options& options);
// What a node says of itself, and how ranks are dealt.
NodeLaunch launch_of(const Options& options);
NodeLayout layout_of(const Options& options);

// The whole life of a rank's process, with the descriptors of RankProcesses in place; its exit
// status. What goes wrong goes to the region, where all ranks read it.
int run_rank();

// Where the plan takes the weights from.
WeightSource open_weights(const ServingPlan& plan, const ModelConfig& config,
                          const std::string& directory);
// The collectives of a rank over host memory and over that of its device, and its links to other
// stages.
class RankCommunicators {
 public:
  // All ranks at once. `region` outlives it.
  RankCommunicators(SharedRegion& region, int rank, const Machine& machine,
                    const ServingPlan& plan);
  // Over the ranks that share the attention of this one's layers; null: there are no others.
  Communicator* sharers();
  // Over all ranks, for host memory.
  Communicator& all_ranks() { return host_; }
  // Empty where there is one stage, and one group of data-parallel attention.
  RankLinks links();
  // Memory for the experts of all ranks, over this descriptor, which it takes.
  void share_experts(int fd);
  SharedExperts* shared_experts() { return experts_.get(); }
  // From now on these ranks, bit by bit, have no part in anything, and `owners` compute the experts
  // (SharedExperts::deal). Between steps.
  void drop(std::uint64_t lost, std::span<const std::uint8_t> owners);
  // The stream of the rank.
  void bind(const Stream& stream);

 private:
  // The collectives of GPUs over a number of ranks.
  struct GpuGroup {
    GpuGroup(SharedMemoryCommunicator& host, Device device, const ServingPlan& plan);
    Communicator& communicator() { return peers ? static_cast<Communicator&>(*peers) : nccl; }
    void bind(const Stream& stream);

    NcclCommunicator nccl;
    std::optional<PeerCommunicator> peers;  // with kernels for sums and gatherings
  };
  void connect_gpus(const Machine& machine, const ServingPlan& plan);
  void link_stages(SharedRegion& region, const Machine& machine, const ServingPlan& plan,
                   int spin_us);

  SharedMemoryCommunicator host_;
  std::unique_ptr<SharedExperts> experts_;  // null: each rank has its own
  // Of the ranks of a stage or group; null where that has one rank, or where it is the only one.
  std::unique_ptr<SharedMemoryCommunicator> stage_host_;
  std::unique_ptr<GpuGroup> all_gpus_;          // of groups of data-parallel attention, on GPUs
  std::unique_ptr<GpuGroup> sharer_gpus_;       // of sharers(); null on a CPU
  std::optional<PeerMemory> link_memory_;       // of stages on GPUs
  std::unique_ptr<StageLink> previous_, next_;  // null: there is no such stage
  std::vector<PeerLink*> peer_links_;           // those of GPUs among the two
  const int num_sharers_, dp_size_;
};

// Error{kBadInput} on all ranks where they see different files, or planned differently. Where ranks
// are on several nodes, parts of the files in `directory` are compared, too.
void require_same_model(Communicator& communicator, const ModelConfig& config,
                        const WeightSource& source, const ServingPlan& plan,
                        const std::string& directory = "");

}  // namespace sluice
