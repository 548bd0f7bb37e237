// The steps of the ranks in other processes: what the first rank's process sends, and the loop that
// does it there.
//
//   RemoteRanks others(std::move(processes));   // the first rank's process
//   others.launch(step);
//   others.sample(step.id, inputs);
//   others.ask_results();
//   BatchResult result = others.result_of(1, step.id);   // of another group
//   others.collected(results);                  // compares what the ranks chose
//
//   run_steps(socket, region, duty, runner);   // a rank's process, until the socket closes
//
// The plan of a step is made once. A rank computes its hash anew and compares. A step without masks
// is sampled by a rank as soon as its forward is done.
//
// With data-parallel attention consecutive ranks form a group, whose batch they compute. The first
// of a group sends what they chose when it is asked (batch/result_message.h).
//
// Ranks of a pipeline are counted from the last stage to the first one: the first rank samples, and
// the others of its stage with it. The ranks of other stages get the steps alone.
//
// Where ranks may be lost, a step ends at all living ranks or throws RanksLost at all of them,
// before anything was sampled. After drop() it is launched again.
//
// Errors: Error{kFatal}, or the kind of the rank's own error, once a rank has failed. The thread of
// the executor calls, but for failure(), which any thread may call.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/byte_stream.h"
#include "batch/batch.h"
#include "batch/sample_inputs.h"
#include "batch/step_result.h"
#include "distributed/hosts/host_bridge.h"
#include "distributed/rank_processes.h"
#include "runtime/model_runner.h"

namespace sluice {

enum class RankMessage : std::uint32_t { kHello = 1, kStep, kSample, kCollect, kResult, kDrop };

class RemoteRanks {
 public:
  // `num_samplers`: ranks that sample, with the first one; 0: all. `dp_size`: groups of them.
  explicit RemoteRanks(std::unique_ptr<RankProcesses> processes, int num_samplers = 0,
                       int dp_size = 1);

  int num_ranks() const { return processes_->size() - 1; }
  bool are_stages() const { return num_samplers_ < processes_->size(); }
  RankProcesses& processes() { return *processes_; }
  SharedRegion& region() { return processes_->region(); }
  // Some ranks are on other hosts; `bridge` is over the processes of this object.
  void span_hosts(std::unique_ptr<HostBridge> bridge) { bridge_ = std::move(bridge); }
  void launch(const Step& step);
  void sample(std::uint64_t step_id, const std::vector<SampleInputs>& inputs);
  // Further groups shall send what they chose in the oldest step that was not asked for yet.
  void ask_results();
  // What group `group`, not the first, chose in the step that was asked for last. Nothing: its rank
  // is lost.
  std::optional<BatchResult> result_of(int group, std::uint64_t step_id);
  // Ranks that are lost, bit by bit (SharedRegion::outlive_ranks); each is a group of its own.
  std::uint64_t lost() const { return processes_->region().lost(); }
  // Tells the other ranks to go on without `lost`, and which rank computes each expert
  // (SharedExperts). They are between steps when it returns.
  void drop(std::uint64_t lost, const std::vector<std::uint8_t>& owners);
  // What each group chose in the oldest step that was not given yet. A rank may be a step behind;
  // its choice is then compared at a later call.
  void collected(const std::vector<BatchResult>& results);
  // Ends the ranks: a step cannot go on without one of them. Throws the first failure.
  [[noreturn]] void give_up(const std::string& why);
  // Why steps fail for good; empty while all ranks are there.
  std::string failure() const;

 private:
  void send(int rank, RankMessage kind, std::span<const std::byte> bytes);
  // To ranks [1, end).
  void send_to(int end, RankMessage kind);

  int group_of(int rank) const { return rank / (num_samplers_ / dp_size_); }

  bool is_lost(int rank) const { return (lost() >> rank & 1) != 0; }
  // Nothing: the rank is lost. Throws where no message comes for another reason.
  std::optional<Message> receive(int rank);
  bool is_elsewhere(int rank) const { return bridge_ && !bridge_->is_here(rank); }

  const std::unique_ptr<RankProcesses> processes_;
  std::unique_ptr<HostBridge> bridge_;  // null: all ranks are on this host
  const int num_samplers_, dp_size_;
  ByteWriter message_;
  std::vector<std::uint32_t> num_compared_;        // [ranks that sample, beside the first]
  std::deque<std::vector<std::uint64_t>> chosen_;  // hashes of results, by group
  std::uint32_t num_chosen_ = 0;                   // with those that are no longer in chosen_
};

// What a rank does with steps.
struct RankDuty {
  int rank = 0;
  int depth = 1;  // steps that a rank that samples may have launched and not collected
  int group = 0;  // of data-parallel attention
  bool sends_results = false;
  // Goes on without these ranks, bit by bit. `owners` compute the experts.
  std::function<void(std::uint64_t lost, std::span<const std::uint8_t> owners)> drop = {};
};
// Throws what a step throws.
void run_steps(MessageSocket& socket, SharedRegion& region, const RankDuty& duty,
               ModelRunner& runner);

}  // namespace sluice
