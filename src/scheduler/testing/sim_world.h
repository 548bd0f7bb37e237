// For tests: a scheduler and its device, run to the end or step by step.
#pragma once

#include <gtest/gtest.h>

#include <deque>
#include <map>
#include <utility>
#include <vector>

#include "scheduler/scheduler.h"
#include "scheduler/testing/sim_model.h"

namespace sluice::sim {

inline SchedulerOptions options_of(std::int64_t pages, int running = 8) {
  SchedulerOptions options;
  options.groups = {{"full", Retention::kFull, 0, pages}};
  options.max_running_requests = running;
  return options;
}

inline std::vector<std::int32_t> prompt_of(int size, int salt = 0) {
  std::vector<std::int32_t> prompt(size);
  for (int i = 0; i < size; ++i)
    prompt[i] =
        static_cast<std::int32_t>(mix64(static_cast<std::uint64_t>(salt) * 100003 + i) % kVocab);
  return prompt;
}

inline QueuedRequest request_of(std::uint64_t id, std::vector<std::int32_t> prompt, int max_new) {
  QueuedRequest request;
  request.id = id;
  request.prompt_ids = std::move(prompt);
  request.max_new_tokens = max_new;
  return request;
}

struct World {
  explicit World(SchedulerOptions options) : scheduler(options), device(options) {}

  bool launch() {
    Step step;
    if (!scheduler.next(step, events)) return false;
    scheduler.check_invariants();
    results.emplace_back();
    device.run(step, results.back());
    steps.push_back(std::move(step));
    ++num_steps;
    return true;
  }
  void commit() {
    scheduler.commit(steps.front(), results.front(), events);
    scheduler.check_invariants();
    steps.pop_front();
    results.pop_front();
    take();
  }
  void take() {
    for (Event& e : events) {
      Event& sum = outcome[{e.request, e.choice}];
      sum.tokens.insert(sum.tokens.end(), e.tokens.begin(), e.tokens.end());
      sum.prompt_logprobs.insert(sum.prompt_logprobs.end(), e.prompt_logprobs.begin(),
                                 e.prompt_logprobs.end());
      if (e.finish == FinishReason::kNone) continue;
      EXPECT_EQ(sum.finish, FinishReason::kNone) << "two ends";
      auto tokens = std::move(sum.tokens);
      auto logprobs = std::move(sum.prompt_logprobs);
      sum = std::move(e);
      sum.tokens = std::move(tokens);
      sum.prompt_logprobs = std::move(logprobs);
    }
    events.clear();
  }
  void run() {
    while (scheduler.has_work()) {
      if (launch()) continue;
      take();
      if (!scheduler.has_work()) break;
      ASSERT_FALSE(steps.empty()) << "nothing can be planned and nothing is in flight";
      commit();
    }
    take();
  }
  Event& of(std::uint64_t request, int choice = 0) { return outcome[{request, choice}]; }

  Scheduler scheduler;
  Device device;
  std::vector<Event> events;
  std::deque<Step> steps;
  std::deque<StepResult> results;
  std::map<std::pair<std::uint64_t, int>, Event> outcome;
  int num_steps = 0;
};

inline std::vector<std::int32_t> plain_tokens(const SchedulerOptions& options,
                                              const std::vector<std::int32_t>& prompt,
                                              SamplingParams params, int max_new, int choice = 0) {
  params.seed = choice_seed(params.seed, choice);
  PlainModel model(options.groups);
  for (std::int32_t token : prompt) model.push(token);
  std::vector<std::int32_t> out;
  for (int i = 0; i < max_new; ++i) {
    const int at = static_cast<int>(prompt.size()) + i;
    out.push_back(choose(model.read(at - 1), at, params, model.history(), i));
    model.push(out.back());
  }
  return out;
}

}  // namespace sluice::sim
