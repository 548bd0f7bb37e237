// Runs steps on the ranks of a model, between the loop, which plans them, and the runners.
//
//   executor.launch(step);                        // the forward, on every rank
//   executor.sample(step.id, inputs);             // chooses tokens; inputs by data-parallel group
//   StepResult result = executor.collect(step.id);   // in the order of launches
//
// Rank g * tp_size + t computes share t of the matrices for data-parallel group g, and takes
// step.dp[g]. Every group is launched, also an idle one: the ranks of a communicator then make the
// same calls. All ranks of a group choose the same tokens; the result is that of the first.
//
// A world of one rank runs on the caller's thread. Of several ranks in this process each has a
// thread of its own, and a call returns when all of them have done their part. An exception of a
// rank is thrown after the others are done; the step is then over (collect() is not called for it).
//
// Ranks in other processes (RemoteRanks) share the matrices with the one rank of this process. They
// get each step and keep up by themselves. The first rank of each further group sends its result
// back. An exception of a step ends all ranks, as Error{kFatal}: the others may be waiting in the
// middle of the step.
//
// In a pipeline this process has the last stage. The other stages begin with a step when it is
// launched. This one does its part when it is collected, or on a GPU as soon as few enough steps
// are ahead: so the thread plans a further step while the first stage computes this one.
//
// Where ranks may be lost (outlive_ranks()), each is a data-parallel group. A step that a loss
// interrupts is computed again, without the group; the result says that all its items failed.
//
// One thread calls, but for failure() and rebalance_s(). Errors: what a runner throws; Error{kBug}
// for ids out of order.
#pragma once

#include <atomic>
#include <chrono>
#include <deque>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/channel.h"
#include "batch/batch.h"
#include "batch/sample_inputs.h"
#include "batch/step_result.h"
#include "runtime/model_runner.h"
#include "runtime/remote_ranks.h"

namespace sluice {

class RankThread;

// What follows when a rank is lost, where the others go on.
struct LossHandlers {
  // First: the group's requests cannot be computed. In the thread that calls, within a call.
  std::function<void(int group)> lose_group;
  // Then, between steps: the rank that computes each expert without these ones, bit by bit.
  std::function<std::vector<std::uint8_t>(std::uint64_t lost)> deal;
  // This rank goes on so.
  std::function<void(std::uint64_t lost, std::span<const std::uint8_t> owners)> drop;
};

class Executor {
 public:
  // Ranks in the order above; dp_size divides their number.
  // `others`: ranks 1, 2, ... where `ranks` is rank 0 alone; null: there are none.
  explicit Executor(std::vector<std::unique_ptr<ModelRunner>> ranks, int dp_size = 1,
                    std::unique_ptr<RemoteRanks> others = nullptr);
  ~Executor();

  // From now on the loss of a rank beside the first does not end the others.
  void outlive_ranks(LossHandlers handlers);
  // Calls `told` in another thread when a rank is lost; null: no longer. Where no step is in
  // flight, drop_lost() follows soon.
  void on_loss(std::function<void()> told);
  // Calls lose_group() for those that were lost since the last call.
  void note_lost();
  // The same, and goes on without them. No step is in flight. launch() does so by itself.
  void drop_lost();
  // Any thread.
  double rebalance_s() const { return rebalance_s_.load(); }  // of all losses

  // By the thread that launches from now on.
  void bind_caller();
  // Ends the runners of this process: their graphs hold communicators of GPUs. Nothing but the
  // destructor is called after it.
  void end_runners() { ranks_.clear(); }

  // `step` lives until it is collected.
  void launch(const Step& step);
  // [dp] inputs; none: no group has any.
  void sample(std::uint64_t step_id, const std::vector<SampleInputs>& inputs = {});
  StepResult collect(std::uint64_t step_id);
  // When the first rank's batch of the step launched last lay in its buffers, for traces.
  std::chrono::steady_clock::time_point filled() const;

  // Why no step can run any more, as when a rank has died; empty while all is well. Any thread.
  std::string failure() const { return others_ ? others_->failure() : ""; }

  // The first rank, after which pages and memory are planned.
  ModelRunner& first() { return *ranks_.front(); }
  const ModelRunner& first() const { return *ranks_.front(); }

 private:
  struct InFlight {
    const Step* step;                  // as it was launched
    std::vector<Pending> pending;      // [ranks]
    std::vector<SampleInputs> inputs;  // of a step of a pipeline that has not begun here
    bool has_inputs = false, has_begun = false;
  };
  // Calls work(rank) for every rank, each on its thread, and waits for all.
  void on_every_rank(const std::function<void(std::size_t rank)>& work);
  std::size_t group_of(std::size_t rank) const { return rank / static_cast<std::size_t>(tp_size_); }
  void forward(InFlight& flight);
  void choose(InFlight& flight, const std::vector<SampleInputs>& inputs);
  // In a pipeline: the forward and the choice of the oldest steps that have not begun, while fewer
  // than `most` have.
  void begin_steps(int most);
  // The step without what groups of lost ranks would compute.
  const Step* without_lost(const Step& step);
  // Does a part of a step; where it fails and ranks wait elsewhere, all of them end.
  void attempt(const std::function<void()>& part);

  std::vector<std::unique_ptr<ModelRunner>> ranks_;
  const int dp_size_, tp_size_;
  const std::unique_ptr<RemoteRanks> others_;  // null: none
  const bool is_pipeline_;
  LossHandlers loss_;
  std::uint64_t noted_ = 0, dropped_ = 0;  // lost ranks, bit by bit
  Step left_;                              // of a step, without lost groups
  const Step* planned_ = nullptr;          // that left_ was made of; null: none in flight
  std::atomic<double> rebalance_s_{0};
  int max_ahead_ = 0;  // steps of a pipeline that begin before they are collected
  std::vector<std::unique_ptr<RankThread>> threads_;  // [ranks]; empty in a world of one
  std::deque<InFlight> in_flight_;
};

}  // namespace sluice
