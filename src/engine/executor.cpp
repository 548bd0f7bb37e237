#include "engine/executor.h"

#include <algorithm>
#include <bit>
#include <exception>
#include <future>
#include <optional>
#include <thread>

#include "base/error.h"
#include "base/log.h"
#include "engine/grammar_rows.h"

namespace sluice {
namespace {

// A group that is lost has computed nothing.
BatchResult failed_result(const Batch& batch) {
  BatchResult result;
  result.token_offsets.assign(batch.items.size() + 1, 0);
  result.prompt_offsets.assign(batch.items.size() + 1, 0);
  result.failed.assign(batch.items.size(), 1);
  return result;
}

}  // namespace

// The thread of one rank: does what it is given, in order.
class RankThread {
 public:
  RankThread() : thread_([this] { run(); }) {}
  ~RankThread() {
    work_.close();
    thread_.join();
  }

  std::future<void> start(std::function<void()> work) {
    std::packaged_task<void()> task(std::move(work));
    std::future<void> done = task.get_future();
    check(work_.try_push(std::move(task)), "a rank has more than one piece of work");
    return done;
  }

 private:
  void run() {
    while (std::optional<std::packaged_task<void()>> task = work_.pop()) (*task)();
  }

  Channel<std::packaged_task<void()>> work_{2};
  std::thread thread_;
};

Executor::Executor(std::vector<std::unique_ptr<ModelRunner>> ranks, int dp_size,
                   std::unique_ptr<RemoteRanks> others)
    : ranks_(std::move(ranks)),
      dp_size_(dp_size),
      tp_size_((static_cast<int>(ranks_.size()) + (others ? others->num_ranks() : 0)) / dp_size),
      others_(std::move(others)),
      is_pipeline_(others_ && others_->are_stages()) {
  const int num_ranks = static_cast<int>(ranks_.size()) + (others_ ? others_->num_ranks() : 0);
  check(!ranks_.empty() && num_ranks == dp_size_ * tp_size_, "{} ranks for {} data-parallel groups",
        num_ranks, dp_size_);
  check(!others_ || ranks_.size() == 1, "{} ranks in this process, and more elsewhere",
        ranks_.size());
  // A GPU takes the next step while it computes one; a CPU computes in the thread that calls.
  if (ranks_.front()->context().device.kind != DeviceKind::kCpu) max_ahead_ = 2;
  if (ranks_.size() == 1) return;
  for (std::size_t i = 0; i < ranks_.size(); ++i)
    threads_.push_back(std::make_unique<RankThread>());
}

Executor::~Executor() = default;

void Executor::bind_caller() {
  on_every_rank([&](std::size_t rank) { ranks_[rank]->bind_caller(); });
}

void Executor::on_every_rank(const std::function<void(std::size_t)>& work) {
  if (threads_.empty()) return work(0);
  std::vector<std::future<void>> done;
  for (std::size_t rank = 0; rank < ranks_.size(); ++rank)
    done.push_back(threads_[rank]->start([&work, rank] { work(rank); }));
  std::exception_ptr first_error;
  for (std::future<void>& one : done) {
    try {
      one.get();
    } catch (...) {
      if (!first_error) first_error = std::current_exception();
    }
  }
  if (first_error) std::rethrow_exception(first_error);
}

void Executor::attempt(const std::function<void()>& part) {
  if (!others_) return part();
  try {
    part();
  } catch (const std::exception& error) {
    others_->give_up(fmt::format("rank 0: {}", error.what()));
  }
}

void Executor::forward(InFlight& flight) {
  flight.has_begun = true;
  on_every_rank([&](std::size_t rank) {
    flight.pending[rank] = ranks_[rank]->launch(flight.step->dp[group_of(rank)], flight.step->dp,
                                                flight.step->expert_moves);
  });
}

void Executor::choose(InFlight& flight, const std::vector<SampleInputs>& inputs) {
  const SampleInputs none;
  on_every_rank([&](std::size_t rank) {
    ranks_[rank]->sample(flight.pending[rank], inputs.empty() ? none : inputs[group_of(rank)]);
  });
}

void Executor::begin_steps(int most) {
  int num_begun = 0;
  for (InFlight& flight : in_flight_) {
    if (num_begun++ >= most || !flight.has_inputs) return;
    if (flight.has_begun) continue;
    forward(flight);
    choose(flight, flight.inputs);
  }
}

void Executor::launch(const Step& step) {
  check(static_cast<int>(step.dp.size()) == dp_size_, "a step of {} groups for {}", step.dp.size(),
        dp_size_);
  for (;;) {
    drop_lost();
    InFlight flight{
        .step = without_lost(step), .pending = std::vector<Pending>(ranks_.size()), .inputs = {}};
    bool is_interrupted = false;
    attempt([&] {
      try {
        if (others_) others_->launch(*flight.step);
        if (!is_pipeline_) forward(flight);
      } catch (const RanksLost&) {
        is_interrupted = true;
      }
    });
    if (is_interrupted) continue;
    in_flight_.push_back(std::move(flight));
    return;
  }
}

void Executor::outlive_ranks(LossHandlers handlers) {
  check(others_ != nullptr && tp_size_ == 1 && !is_pipeline_, "ranks that cannot be lost");
  loss_ = std::move(handlers);
  others_->region().outlive_ranks();
}

void Executor::on_loss(std::function<void()> told) {
  others_->processes().on_loss(std::move(told));
}

void Executor::note_lost() {
  if (!loss_.lose_group) return;
  const std::uint64_t lost = others_->lost();
  for (int group = 1; group < dp_size_; ++group) {
    const std::uint64_t bit = std::uint64_t{1} << group;
    if ((lost & ~noted_ & bit) == 0) continue;
    noted_ |= bit;
    loss_.lose_group(group);
  }
}

void Executor::drop_lost() {
  note_lost();
  if (noted_ == dropped_) return;
  const auto start = std::chrono::steady_clock::now();
  attempt([&] {
    const std::vector<std::uint8_t> owners = loss_.deal(noted_);
    others_->drop(noted_, owners);
    loss_.drop(noted_, owners);
  });
  dropped_ = noted_;
  const double seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  rebalance_s_.store(rebalance_s_.load() + seconds);
  log_warning("experts of lost ranks are dealt to others in {:.1f} ms; ranks left: {} of {}",
              1e3 * seconds, dp_size_ - std::popcount(dropped_), dp_size_);
}

const Step* Executor::without_lost(const Step& step) {
  planned_ = nullptr;
  bool has_work = false;
  for (int group = 0; group < dp_size_; ++group)
    has_work = has_work || ((dropped_ >> group & 1) != 0 &&
                            step.dp[static_cast<std::size_t>(group)].num_tokens() > 0);
  if (!has_work) return &step;
  check(in_flight_.empty(), "a rank is lost with {} steps in flight", in_flight_.size());
  planned_ = &step;
  left_ = step;
  for (int group = 0; group < dp_size_; ++group) {
    if ((dropped_ >> group & 1) == 0) continue;
    const auto index = static_cast<std::size_t>(group);
    left_.dp[index] = {};
    left_.dp[index].groups.resize(step.dp[index].groups.size());
    for (PageRows& rows : left_.dp[index].groups) rows.offsets = {0};
    left_.global_tokens[index] = 0;
  }
  left_.hash = hash_step(left_);
  return &left_;
}

void Executor::sample(std::uint64_t step_id, const std::vector<SampleInputs>& inputs) {
  check(!in_flight_.empty() && in_flight_.back().step->id == step_id,
        "step {} is sampled, which was not launched last", step_id);
  check(inputs.empty() || static_cast<int>(inputs.size()) == dp_size_,
        "sampling inputs of {} groups for {}", inputs.size(), dp_size_);
  InFlight& flight = in_flight_.back();
  // The masks may have been those of a lost group alone; the others do not wait for any then.
  static const std::vector<SampleInputs> none;
  const std::vector<SampleInputs>& given = GrammarRows::wants_masks(*flight.step) ? inputs : none;
  try {
    attempt([&] {
      if (others_) others_->sample(step_id, given);
      if (!is_pipeline_) return choose(flight, given);
      flight.inputs = given;
      flight.has_inputs = true;
      begin_steps(max_ahead_);
    });
  } catch (...) {
    in_flight_.pop_back();
    throw;
  }
}

StepResult Executor::collect(std::uint64_t step_id) {
  check(!in_flight_.empty() && in_flight_.front().step->id == step_id,
        "step {} is collected, which is not the oldest in flight", step_id);
  if (is_pipeline_) attempt([&] { begin_steps(std::max(1, max_ahead_)); });
  InFlight flight = std::move(in_flight_.front());
  in_flight_.pop_front();
  std::vector<BatchResult> results(ranks_.size());
  StepResult out;
  out.step_id = step_id;
  attempt([&] {
    if (others_) others_->ask_results();
    on_every_rank([&](std::size_t rank) {
      results[rank] = ranks_[rank]->collect(std::move(flight.pending[rank]));
    });
    if (!others_) return;
    out.dp.push_back(std::move(results.front()));
    const Step& planned = planned_ != nullptr ? *planned_ : *flight.step;
    for (int group = 1; group < dp_size_; ++group) {
      std::optional<BatchResult> result;
      if ((dropped_ >> group & 1) == 0) result = others_->result_of(group, step_id);
      out.dp.push_back(result ? *std::move(result)
                              : failed_result(planned.dp[static_cast<std::size_t>(group)]));
    }
    others_->collected(out.dp);
  });
  note_lost();
  if (others_) return out;
  for (std::size_t rank = 0; rank < ranks_.size(); ++rank) {
    if (rank % static_cast<std::size_t>(tp_size_) == 0)
      out.dp.push_back(std::move(results[rank]));
    else
      check(results[rank].tokens == out.dp.back().tokens,
            "step {}: ranks of group {} chose different tokens", step_id, group_of(rank));
  }
  return out;
}

std::chrono::steady_clock::time_point Executor::filled() const {
  return in_flight_.empty() || in_flight_.back().pending.empty()
             ? std::chrono::steady_clock::time_point{}
             : in_flight_.back().pending.front().filled;
}

}  // namespace sluice
