#include "engine/engine_loop.h"

#include <algorithm>
#include <exception>

#include "base/log.h"

namespace sluice {
namespace {

constexpr std::size_t kInboxCapacity = 1 << 16;
constexpr std::size_t kReportedSteps = 1 << 16;

// The result of a step whose forward failed: every item is marked.
StepResult failed_result(const Step& step) {
  StepResult result;
  result.step_id = step.id;
  for (const Batch& batch : step.dp) {
    BatchResult part;
    part.token_offsets.assign(batch.items.size() + 1, 0);
    part.prompt_offsets.assign(batch.items.size() + 1, 0);
    part.failed.assign(batch.items.size(), 1);
    result.dp.push_back(std::move(part));
  }
  return result;
}

}  // namespace

EngineLoop::EngineLoop(std::unique_ptr<EngineParts> parts, std::unique_ptr<Executor> executor)
    : parts_(std::move(parts)),
      executor_(std::move(executor)),
      depth_(parts_->plan.scheduler.max_steps_in_flight),
      inbox_(kInboxCapacity),
      scheduler_(scheduler_options()),
      balancer_(parts_->plan.balancer, executor_->first().expert_layers()),
      trace_(parts_->trace
                 ? std::make_unique<LoopTrace>(parts_->trace, executor_->first().context(), depth_)
                 : nullptr),
      thread_([this] { run(); }) {}

EngineLoop::~EngineLoop() {
  stopping_.store(true);
  inbox_.close();
  thread_.join();
  if (parts_->plan.outlives_ranks) executor_->on_loss(nullptr);  // which the inbox does not outlive
  if (!parts_->communicators) return;
  trace_.reset();                 // times the runners
  executor_->end_runners();       // before the communicators that their graphs hold
  parts_->communicators.reset();  // before the region of the executor's ranks
}

// Those of the plan. Grammars draft where the engine keeps them, and the runner says how many rows
// of a step stay on its device.
SchedulerOptions EngineLoop::scheduler_options() {
  SchedulerOptions options = parts_->plan.scheduler;
  if (options.max_steps_in_flight > 1)
    options.max_round_rows = static_cast<int>(executor_->first().max_round_rows());
  if (parts_->plan.speculation.forced_tokens)
    options.draft_forced = [this](std::uint64_t sequence, int max_drafts,
                                  std::vector<std::int32_t>& drafts) {
      grammars_.draft(sequence, max_drafts, drafts);
    };
  return options;
}

// ---- engine thread
// ------------------------------------------------------------------------------------------------

void EngineLoop::run() {
  // Here and not where the runners were made: that thread goes on to make others, which would be
  // crowded on one node.
  executor_->bind_caller();
  if (balancer_.is_on()) count_experts();
  if (parts_->plan.outlives_ranks) outlive_ranks();
  try {
    loop();
  } catch (const std::exception& error) {
    log_error("the engine stopped: {}", error.what());
    {
      std::lock_guard lock(live_mutex_);
      failure_ = "the engine stopped after an internal error";
    }
    end_live(Fault{500, "internal_error", "", "the engine stopped"});
    // Answers commands until the owner lets go, so that no caller waits for ever.
    while (!stopping_.load()) take_commands(true);
  }
  while (std::optional<Command> command = inbox_.try_pop())
    std::visit([this](auto& c) { execute(c); }, *command);
  end_live(Fault{503, "shutting_down", "", "the server is shutting down"});
}

// The loss of a rank ends its requests. Those of the others go on.
void EngineLoop::outlive_ranks() {
  executor_->on_loss([this] { (void)inbox_.try_push(Lost{}); });
  LossHandlers handlers;
  handlers.lose_group = [this](int group) { lose_group(group); };
  handlers.deal = [this](std::uint64_t lost) {
    return parts_->communicators->shared_experts()->deal(lost);
  };
  handlers.drop = [this](std::uint64_t lost, std::span<const std::uint8_t> owners) {
    parts_->communicators->drop(lost, owners);
  };
  executor_->outlive_ranks(std::move(handlers));
}

void EngineLoop::lose_group(int group) {
  scheduler_.lose_group(
      group,
      Fault{503, "rank_lost", "",
            "the rank that computed the request was lost; send the request again"},
      events_);
  lost_groups_.fetch_add(1);
  counters_.update(scheduler_.stats());
  deliver();
}

// Plan, launch, commit: everything else hangs off these calls.
void EngineLoop::loop() {
  while (!stopping_.load()) {
    const bool idle = !scheduler_.has_work();
    if (trace_ && idle) trace_->trace().flush();
    take_commands(idle);
    if (trace_) trace_->turn();
    scheduler_.expire(now_s(), events_);
    if (spare_steps_.empty()) spare_steps_.push_back(std::make_unique<Step>());
    if (static_cast<int>(flights_.size()) < depth_ &&
        scheduler_.next(*spare_steps_.back(), events_)) {
      std::unique_ptr<Step> step = std::move(spare_steps_.back());
      spare_steps_.pop_back();
      launch(std::move(step));
    } else if (!flights_.empty()) {
      commit_oldest();
    }
    deliver();
  }
}

void EngineLoop::take_commands(bool wait) {
  counters_.update(scheduler_.stats());
  counters_.set_busy(scheduler_.has_work());
  std::optional<Command> command = wait ? inbox_.pop() : inbox_.try_pop();
  for (; command; command = inbox_.try_pop()) std::visit([this](auto& c) { execute(c); }, *command);
  counters_.set_busy(scheduler_.has_work());
}

void EngineLoop::execute(Submit& command) {
  waiting_.fetch_sub(1);
  executor_->note_lost();  // so that the request goes to a rank that is there
  const std::uint64_t id = command.request.id;
  LiveRequest live;
  live.sink = std::move(command.sink);
  live.open.assign(command.request.num_choices, true);
  live.submitted =
      Clock::now() - std::chrono::duration_cast<Clock::duration>(
                         std::chrono::duration<double>(now_s() - command.request.arrival_s));
  const int prompt_tokens = static_cast<int>(command.request.prompt_ids.size());
  const int choices = command.request.num_choices;
  live_.emplace(id, std::move(live));
  grammars_.add(command.request);
  pooled_.add(command.request);
  Fault fault;
  if (!failure().empty()) {
    fault = Fault{503, "engine_failed", "", "the engine has stopped"};
  } else {
    const Result<Ok> added = scheduler_.add(std::move(command.request));
    if (added.ok()) return;
    fault = added.fault();
  }
  for (int choice = 0; choice < choices; ++choice) {
    Event event;
    event.request = id;
    event.choice = choice;
    event.finish = FinishReason::kError;
    event.error = fault;
    event.prompt_tokens = prompt_tokens;
    events_.push_back(std::move(event));
  }
  deliver();
}

void EngineLoop::execute(Abort& command) {
  if (command.request != 0) {
    scheduler_.abort(command.request, events_);
  } else {
    std::vector<std::uint64_t> all;
    for (const auto& [id, live] : live_) all.push_back(id);
    for (const std::uint64_t id : all) scheduler_.abort(id, events_);
  }
  deliver();
}

void EngineLoop::execute(Flush& command) {
  const bool free = live_.empty() && flights_.empty();
  if (free) scheduler_.flush_cache();
  counters_.update(scheduler_.stats());
  command.done.set_value(free);
}

void EngineLoop::execute(Report& command) {
  RunReport report = report_;
  report.attention_methods.clear();
  const MethodCounts counts = executor_->first().attention().method_counts();
  for (std::size_t i = 0; i < counts.size(); ++i)
    report.attention_methods.emplace_back(kAttnForwardMethodNames[i],
                                          counts[i] - reported_methods_[i]);
  if (command.reset) {
    report_ = {};
    reported_methods_ = counts;
  }
  command.done.set_value(std::move(report));
}

void EngineLoop::execute(LookUp& command) {
  command.done.set_value(scheduler_.look_up_prefix(command.request));
}

// Without work, too, so that the next request finds the experts dealt.
void EngineLoop::execute(Lost&) {
  if (stopping_.load() || !failure().empty()) return;
  executor_->note_lost();
  if (flights_.empty()) executor_->drop_lost();
}

void EngineLoop::launch(std::unique_ptr<Step> step) {
  const auto now = Clock::now();
  int prefill_tokens = 0;
  for (const Batch& batch : step->dp) {
    for (const BatchItem& item : batch.items) {
      if (item.decode) continue;
      prefill_tokens += item.count;
      const auto live = live_.find(item.sequence >> 8);
      if (live != live_.end() && live->second.queue_s < 0)
        live->second.queue_s = std::chrono::duration<double>(now - live->second.submitted).count();
    }
    if (batch.mode == ForwardMode::kMixed) ++report_.mixed_steps;
  }
  if (prefill_tokens > 0 && report_.prefill_tokens_per_step.size() < kReportedSteps)
    report_.prefill_tokens_per_step.push_back(prefill_tokens);

  if (balancer_.is_on()) balancer_.plan(*step);
  StepInFlight flight{.step = std::move(step), .launched = now};
  if (trace_) trace_->begin_step();
  Clock::time_point filled{};
  const auto attempt = [&](auto&& work) {
    try {
      work();
    } catch (const std::exception& error) {
      // A device that failed once answers nothing more: run() ends every request and the engine.
      const auto* known = dynamic_cast<const Error*>(&error);
      if (known != nullptr && known->kind() == ErrorKind::kFatal) throw;
      // Another fault of this step ends its requests; the server stays up.
      log_error("step {} failed: {}", flight.step->id, error.what());
      flight.failed = true;
    }
  };
  attempt([&] {
    executor_->launch(*flight.step);
    if (trace_) trace_->launched();
    filled = executor_->filled();
    flight.ran_graph = executor_->first().ran_graph();
  });
  if (!flight.failed) {
    const std::vector<SampleInputs> inputs = masks_of(*flight.step);
    attempt([&] { executor_->sample(flight.step->id, inputs); });
  }
  if (trace_) trace_->end_step(*flight.step, filled);
  flights_.push_back(std::move(flight));
  end_refused();
}

// The masks of a step that was launched. They need every token before it, so the steps in flight
// are committed first; the forward of this one goes on meanwhile. In a pipeline the steps in flight
// bring tokens of other sequences alone.
std::vector<SampleInputs> EngineLoop::masks_of(const Step& step) {
  if (!GrammarRows::wants_masks(step)) return {};
  while (!flights_.empty() && !scheduler_.options().pipelined) commit_oldest();
  return grammars_.masks(step, parts_->config.vocab_size);
}

// Requests whose grammar leaves no token end with an error.
void EngineLoop::end_refused() {
  for (const GrammarRows::Refused& refused : grammars_.take_refused()) {
    const std::size_t first_event = events_.size();
    scheduler_.abort(refused.request, events_);
    for (std::size_t i = first_event; i < events_.size(); ++i) {
      events_[i].finish = FinishReason::kError;
      events_[i].error = refused.fault;
    }
  }
}

void EngineLoop::commit_oldest() {
  StepInFlight flight = std::move(flights_.front());
  flights_.pop_front();
  if (trace_) trace_->begin_commit();
  const StepResult result =
      flight.failed ? failed_result(*flight.step) : executor_->collect(flight.step->id);
  if (trace_) trace_->collected();
  const std::size_t first_event = events_.size();
  pooled_.take(*flight.step, result);
  scheduler_.commit(*flight.step, result, events_);
  grammars_.accept(std::span(events_).subspan(first_event));
  pooled_.finish(std::span(events_).subspan(first_event));
  if (flight.failed) {
    for (std::size_t i = first_event; i < events_.size(); ++i)
      if (events_[i].finish == FinishReason::kError)
        events_[i].error = Fault{500, "internal_error", "", "a step of the engine failed"};
  }
  int generated = 0;
  for (std::size_t i = first_event; i < events_.size(); ++i) {
    generated += static_cast<int>(events_[i].tokens.size());
    if (events_[i].error.code == "numerics_error") counters_.numerics_error();
  }
  int prefill_tokens = 0;
  for (const Batch& batch : flight.step->dp)
    for (const BatchItem& item : batch.items) prefill_tokens += item.decode ? 0 : item.count;
  counters_.step_done(std::chrono::duration<double>(Clock::now() - flight.launched).count(),
                      generated, prefill_tokens, flight.ran_graph);
  if (balancer_.is_on()) {
    balancer_.step_done(std::chrono::duration<double>(Clock::now() - flight.launched).count(),
                        executor_->first().move_seconds());
    count_experts();
  }
  const SchedulerStats stats = scheduler_.stats();
  counters_.update(stats);
  const int interval = parts_->options.decode_log_interval;
  if (interval > 0 && stats.last_decode_tokens > 0 && stats.steps % interval == 0) {
    const EngineStats now = counters_.read(max_total_tokens(), 0);
    log_info(
        "Decode batch, #running-req: {}, #token: {}, token usage: {:.2f}, gen throughput "
        "(token/s): {:.2f}, "
        "#queue-req: {}",
        now.running, now.used_tokens,
        static_cast<double>(now.used_tokens) /
            static_cast<double>(std::max<std::int64_t>(1, now.max_total_tokens)),
        now.generation_throughput, now.queued);
  }
  if (trace_) trace_->end_commit(*flight.step);
  spare_steps_.push_back(std::move(flight.step));
}

void EngineLoop::count_experts() {
  counters_.update(balancer_.report(), parts_->options.enable_expert_distribution_metrics
                                           ? executor_->first().expert_layers()
                                           : std::span<const ExpertLayer>{});
}

void EngineLoop::deliver() {
  if (events_.empty()) return;
  const TraceSpan span(parts_->trace.get(), TraceLane::kEngine, "deliver");
  for (Event& event : events_) {
    const auto found = live_.find(event.request);
    if (found == live_.end()) continue;
    LiveRequest& live = found->second;
    if (!event.prompt_logprobs.empty())
      std::move(event.prompt_logprobs.begin(), event.prompt_logprobs.end(),
                std::back_inserter(live.prompt_logprobs));
    if (event.tokens.empty() && event.finish == FinishReason::kNone) continue;

    if (event.choice == 0) event.prompt_logprobs = std::exchange(live.prompt_logprobs, {});
    // A deadline is a failure of the request, not a wish of the client's.
    if (event.finish == FinishReason::kAbort && event.error.code == "timeout")
      event.finish = FinishReason::kError;
    event.queue_s = std::max(0.0, live.queue_s);
    if (event.finish != FinishReason::kNone) {
      live.open[event.choice] = false;
      grammars_.remove(event.request, event.choice);
    }
    const bool last = std::find(live.open.begin(), live.open.end(), true) == live.open.end();
    if (last) {
      std::lock_guard lock(live_mutex_);
      live_ids_.erase(event.request);
    }
    if (last) pooled_.remove(event.request);
    live.sink(std::move(event));
    if (last) live_.erase(found);
  }
  events_.clear();
}

// Every request that is left gets its last events.
void EngineLoop::end_live(const Fault& fault) {
  for (auto& [id, live] : live_) {
    for (std::size_t choice = 0; choice < live.open.size(); ++choice) {
      if (!live.open[choice]) continue;
      Event event;
      event.request = id;
      event.choice = static_cast<int>(choice);
      event.finish = FinishReason::kError;
      event.error = fault;
      live.sink(std::move(event));
    }
  }
  live_.clear();
  grammars_ = {};
  pooled_ = {};
  std::lock_guard lock(live_mutex_);
  live_ids_.clear();
}

}  // namespace sluice
