// For tests: what an episode of the simulation draws before it begins.
#pragma once

#include <algorithm>
#include <cstdint>
#include <initializer_list>
#include <random>
#include <vector>

#include "scheduler/scheduler.h"
#include "scheduler/testing/sim_model.h"

namespace sluice::sim {

class Random {
 public:
  explicit Random(std::uint64_t seed) : engine_(seed) {}

  std::uint64_t word() { return engine_(); }
  int between(int low, int high) { return std::uniform_int_distribution<int>(low, high)(engine_); }
  bool chance(double p) { return std::uniform_real_distribution<>(0, 1)(engine_) < p; }
  template <class T>
  T one_of(std::initializer_list<T> values) {
    return values.begin()[between(0, static_cast<int>(values.size()) - 1)];
  }
  std::vector<std::int32_t> tokens(int count) {
    std::vector<std::int32_t> tokens(count);
    for (std::int32_t& token : tokens) token = between(0, kVocab - 1);
    return tokens;
  }

 private:
  std::mt19937_64 engine_;
};

struct EpisodeOptions {
  SchedulerOptions options;
  int longest = 0;  // tokens of a sequence
  std::size_t max_live = 0;
  double add_chance = 0, abort_chance = 0;
  bool pressed = false;           // many long answers, little memory
  double wrong_draft_chance = 0;  // of each draft
  bool makes_rounds = false;      // requests ask for nothing that a round leaves to the host
};

inline EpisodeOptions random_episode(Random& random, int dp_size) {
  EpisodeOptions out;
  SchedulerOptions& options = out.options;
  out.longest = random.between(70, 330);
  options.dp_size = dp_size;
  options.max_context = out.longest;
  options.max_running_requests = random.between(dp_size == 1 ? 1 : 2, 8);
  options.chunked_prefill_tokens = random.one_of({-1, 5, 17, 17, 30, 64, 64, 100});
  options.max_prefill_tokens = random.between(50, 400);
  options.max_queued_requests = random.between(1, 40);
  options.policy =
      random.one_of({SchedulePolicy::kFcfs, SchedulePolicy::kLpm, SchedulePolicy::kPriority});
  options.schedule_conservativeness = random.one_of({0.01, 0.01, 0.01, 0.3, 1.0, 2.0});
  options.max_steps_in_flight = random.between(1, 3);
  options.disable_radix_cache = random.chance(0.1);
  options.hash_steps = random.chance(0.1);
  const int alone = (out.longest + kPageSize - 1) / kPageSize;
  const int full =
      random.between(std::max(1, alone - 1), alone + (random.chance(0.5) ? 2 : alone * 2));
  const int window = random.between(1, alone * 2 + 2);
  const PageGroup full_group{"full", Retention::kFull, 0, full};
  const PageGroup window_group{"window", Retention::kWindow, random.between(2, 200), window};
  const PageGroup chunk_group{"chunk", Retention::kChunk, random.one_of({64, 100, 128}), window};
  const PageGroup state_group{"state", Retention::kState, 0, random.between(1, 12)};
  switch (random.between(0, 9)) {
    case 0:
      options.groups = {full_group, window_group};
      break;
    case 1:
      options.groups = {window_group};
      break;
    case 2:
      options.groups = {full_group, chunk_group};
      break;
    case 3:
      options.groups = {full_group, state_group};
      break;
    case 4:
      options.groups = {full_group, window_group, state_group};
      break;
    case 5:
      options.groups = {state_group};
      break;
    case 6:
      options.groups = {full_group, window_group, chunk_group};
      break;
    default:
      options.groups = {full_group};
      break;
  }
  out.max_live = random.between(1, 6) * options.max_running_requests * dp_size;
  out.add_chance = random.one_of({0.05, 0.2, 0.5, 0.9});
  out.abort_chance = random.one_of({0.001, 0.002, 0.1, 0.5});
  out.pressed = random.chance(0.4);
  if (out.pressed) {  // many long answers, little memory
    options.max_running_requests = 8;
    options.schedule_conservativeness = 0.01;
    options.groups[0].num_pages = std::min<std::int64_t>(options.groups[0].num_pages, alone + 2);
    out.max_live = 16u * static_cast<unsigned>(dp_size);
    out.add_chance = 0.5;
    out.abort_chance = 0.1;
  }
  if (random.chance(0.5)) {
    options.max_drafts = random.between(1, 8);
    options.draft_slots = random.between(0, options.max_drafts);
    if (random.chance(0.3))
      options.max_draft_rows = options.max_running_requests + random.between(0, 20);
    const bool has_state = options.groups.back().retention == Retention::kState;
    if (!has_state && random.chance(0.5)) options.draft_branches = random.between(2, 5);
    if (random.chance(options.draft_branches > 1 ? 0.3 : 0.5)) {  // as many as pay
      const double row = random.one_of({0.01, 0.1, 0.5});
      const CostLine line{{{1, 1}, {2, 1 + row}, {8, 1 + 7 * row}}};
      options.draft_costs = {.plain = line,
                             .checks = line,
                             .first_pass = {{{1, random.one_of({0.0, 0.1})}}},
                             .next_pass = {{{1, random.one_of({0.0, 0.1})}}}};
      if (options.draft_branches > 1) {
        options.draft_costs.next_tree_pass = {{{1, random.one_of({0.0, 0.2})}}};
        options.draft_costs.tree_levels = random.between(1, options.max_drafts);
      }
    }
    if (!has_state && options.draft_branches == 1 && dp_size == 1)
      options.max_round_rows = random.one_of({0, 4, 16, 100});
    out.makes_rounds = options.max_round_rows > 0 && random.chance(0.8);
    out.wrong_draft_chance = random.one_of({0.0, 0.1, 0.3, 0.3, 0.7, 1.0});
  }
  options.pipelined = random.chance(0.3);
  if (options.pipelined) options.max_micro_batch = random.one_of({0, 0, 1, 3});
  if (options.pipelined && options.max_drafts > 0) options.max_steps_in_flight = 1;
  return out;
}

}  // namespace sluice::sim
