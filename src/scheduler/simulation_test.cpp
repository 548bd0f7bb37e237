// Random schedules, compared with the plain model. Every episode is a function of its seed. A
// failure prints the seed, and
//   SLUICE_SIMULATION_SEED=<seed> scheduler_test --gtest_filter='Simulation.*'
// runs that episode alone.
#include <gtest/gtest.h>

#include <cstdlib>
#include <deque>
#include <optional>
#include <unordered_map>

#include "base/build.h"
#include "scheduler/scheduler.h"
#include "scheduler/testing/sim_model.h"
#include "scheduler/testing/sim_options.h"
#include "scheduler/testing/sim_rounds.h"
#include "scheduler/testing/sim_trees.h"
#include "scheduler/testing/sim_truth.h"

namespace sluice {
namespace {

using sim::Counts;
using sim::Live;
using sim::Truth;

class Episode {
 public:
  Episode(std::uint64_t seed, int dp_size, Counts& counts)
      : random_(seed),
        drawn_(sim::random_episode(random_, dp_size)),
        options_(drawn_.options),
        scheduler_(options_),
        device_(options_),
        counts_(counts) {
    for (int i = 0; i < 4; ++i) documents_.push_back(random_.tokens(drawn_.longest));
  }

  void run(int steps) {
    const SchedulerStats before = scheduler_.stats();
    const std::int64_t end = counts_.steps + steps;
    while (counts_.steps < end) {
      if (chance(drawn_.add_chance) && live_.size() < drawn_.max_live) add();
      if (chance(drawn_.abort_chance)) abort();
      if (chance(0.001)) scheduler_.flush_cache();
      if (chance(0.01)) expire();
      advance();
    }
    std::int64_t limit = 100'000;
    while (scheduler_.has_work()) {
      advance();
      check(--limit > 0, "{} requests do not come to an end", live_.size());
    }
    check(live_.empty(), "{} requests had no end", live_.size());
    const SchedulerStats stats = scheduler_.stats();
    for (const PageGroupStats& group : stats.groups)
      check(group.used_pages == 0, "{} pages are held by nobody", group.used_pages);
    scheduler_.flush_cache();
    for (const PageGroupStats& group : scheduler_.stats().groups)
      check(group.free_pages == group.total_pages, "{} of {} pages are free at last",
            group.free_pages, group.total_pages);
    check(stats.queued == 0 && stats.running == 0 && stats.queued_tokens == 0,
          "{} queued, {} running at last", stats.queued, stats.running);
    counts_.retractions += stats.retractions - before.retractions;
    counts_.evictions += stats.evicted_pages;
    counts_.tail_copies += stats.tail_copies;
    counts_.forks += stats.forks;
    counts_.mixed += stats.mixed_steps;
    counts_.hits += stats.cache_hit_tokens;
    ++counts_.episodes;
  }

 private:
  int between(int low, int high) { return random_.between(low, high); }
  bool chance(double p) { return random_.chance(p); }
  template <class T>
  T one_of(std::initializer_list<T> values) {
    return random_.one_of(values);
  }

  std::vector<std::int32_t> random_prompt() {
    const int size = between(1, drawn_.pressed ? drawn_.longest / 4
                                : chance(0.3)  ? drawn_.longest - 1
                                               : drawn_.longest / 2);
    std::vector<std::int32_t> prompt = documents_[between(0, 3)];
    if (chance(0.2) && !past_.empty()) {  // the next turn of an old conversation
      const auto& old = past_[between(0, static_cast<int>(past_.size()) - 1)];
      std::copy_n(old.begin(), std::min(old.size(), prompt.size()), prompt.begin());
    }
    prompt.resize(size);
    const int own = chance(0.3) ? 0 : between(0, std::min(size, 40));
    for (int i = size - own; i < size; ++i) prompt[i] = between(0, sim::kVocab - 1);
    return prompt;
  }

  void add() {
    QueuedRequest request;
    request.id = next_id_++;
    request.prompt_ids = random_prompt();
    request.num_choices = chance(0.15) ? between(2, 4) : 1;
    request.max_new_tokens =
        chance(0.03) ? 0 : between(1, drawn_.pressed || chance(0.5) ? 300 : 20);
    request.params.seed = random_.word();
    request.priority = between(0, 2);
    request.cache_namespace = static_cast<std::uint64_t>(chance(0.1));
    request.ignore_eos = chance(0.2);
    if (!drawn_.pressed && chance(0.3)) request.eos_ids = {between(0, sim::kVocab - 1)};
    if (chance(0.1)) request.params.stop_token_ids = random_.tokens(between(1, 3));
    const double host_share = drawn_.makes_rounds ? 0.01 : 1;
    if (chance(0.2 * host_share)) request.params.min_new_tokens = between(1, 30);
    if (chance(0.15 * host_share)) request.params.repetition_penalty = 1.1f;
    if (chance(0.1 * host_share))
      request.logprob_start = between(0, static_cast<int>(request.prompt_ids.size()) - 1);
    if (chance(0.1)) request.params.num_top_logprobs = 0;
    if (chance(0.05)) request.deadline_s = static_cast<double>(counts_.steps + between(1, 60));
    const int modulus = chance(0.1) ? between(10, 60) : 0;
    if (modulus > 0)
      for (int i = 0; i < request.num_choices; ++i)
        request.stop_matchers.push_back(std::make_unique<sim::PairMatcher>(modulus));
    const int broken_at = chance(0.03) ? between(0, 20) : -1;

    Live live = truth_of(request, modulus, broken_at);
    const std::uint64_t id = request.id;
    const int position = live.num_prompt + broken_at;
    const Result<Ok> verdict = scheduler_.add(std::move(request));
    if (!verdict.ok()) {
      check(verdict.fault().status == 429 || verdict.fault().code == "context_length_exceeded",
            "refused: {}", verdict.fault().message);
      ++counts_.refused;
      return;
    }
    if (broken_at >= 0) device_.broken.push_back({sequence_id(id, 0), position});
    live_.emplace(id, std::move(live));
    ++counts_.requests;
  }

  Live truth_of(const QueuedRequest& request, int modulus, int broken_at) {
    Live live;
    live.num_prompt = static_cast<int>(request.prompt_ids.size());
    live.cache_limit = live.num_prompt - 1;
    live.seen.assign(request.num_choices, 0);
    live.over.assign(request.num_choices, false);
    SamplingParams params = request.params;
    if (!request.ignore_eos)
      params.stop_token_ids.insert(params.stop_token_ids.end(), request.eos_ids.begin(),
                                   request.eos_ids.end());
    sim::PlainModel prompt(options_.groups);
    for (std::int32_t token : request.prompt_ids) prompt.push(token);
    if (request.logprob_start >= 0) {
      live.cache_limit = std::min(live.cache_limit, request.logprob_start);
      for (int p = request.logprob_start; p + 1 < live.num_prompt; ++p)
        live.prompt_logprobs.push_back(sim::logprob_of(prompt.read(p), request.prompt_ids[p + 1]));
    }
    const int most = std::min(request.max_new_tokens, options_.max_context - live.num_prompt);
    for (int choice = 0; choice < request.num_choices; ++choice) {
      params.seed = choice_seed(request.params.seed, choice);
      Truth& truth = live.truths.emplace_back();
      sim::PlainModel model = prompt;
      sim::PairMatcher matcher(std::max(1, modulus));
      for (int i = 0; i < most; ++i) {
        if (choice == 0 && i == broken_at) {
          truth.finish = FinishReason::kError;
          break;
        }
        const int at = live.num_prompt + i;
        const std::int32_t token = sim::choose(model.read(at - 1), at, params, model.history(), i);
        model.push(token);
        truth.tokens.push_back(token);
        const bool string = matcher.push(token) && modulus > 0 && i + 1 >= params.min_new_tokens;
        const bool stop = i >= params.min_new_tokens && sim::is_stop(params, token);
        if (!string && !stop) continue;
        truth.finish = FinishReason::kStop;
        truth.matched_token = stop ? token : -1;
        break;
      }
    }
    return live;
  }

  enum class Stage { kWaiting, kPrefill, kDecode, kInFlight };
  static Stage stage_of(const Live& live) {
    if (live.steps_in_flight > 0) return Stage::kInFlight;
    if (live.computed < 0) return Stage::kWaiting;
    return live.computed < live.num_prompt ? Stage::kPrefill : Stage::kDecode;
  }

  void abort() {
    if (live_.empty()) return;
    // Requests in the middle of their prompt are rarest: more attempts for them.
    const bool amid_drafts = options_.max_drafts > 0 && chance(0.6);
    const Stage wanted =
        amid_drafts ? Stage::kInFlight
                    : one_of({Stage::kWaiting, Stage::kPrefill, Stage::kPrefill, Stage::kPrefill,
                              Stage::kPrefill, Stage::kDecode, Stage::kInFlight});
    auto it = std::ranges::find_if(
        live_, [&](const auto& entry) { return stage_of(entry.second) == wanted; });
    if (it == live_.end()) return;
    Live& live = it->second;
    ++counts_.aborted[static_cast<int>(wanted)];
    counts_.aborted_drafts += wanted == Stage::kInFlight && live.drafts_in_flight;
    live.aborted = true;
    check(scheduler_.abort(it->first, events_), "a live request is unknown");
    scheduler_.check_invariants();
    take_events();
  }

  void expire() {
    for (auto& [id, live] : live_)
      live.aborted = true;  // some choices are aborted; take_events counts only those that end
    scheduler_.expire(static_cast<double>(counts_.steps), events_);
    take_events();
    for (auto& [id, live] : live_) live.aborted = false;
  }

  void advance() {
    const bool launch = steps_.empty() || chance(0.7);
    if (launch && plan()) return;
    take_events();
    if (!steps_.empty())
      commit();
    else if (!scheduler_.has_work())
      add();
    else
      check(!launch, "nothing can be planned, nothing is in flight, {} requests wait",
            live_.size());
  }

  bool plan() {
    Step step = std::move(spare_step_);
    if (!scheduler_.next(step, events_)) {
      spare_step_ = std::move(step);
      return false;
    }
    ++counts_.steps;
    scheduler_.check_invariants();
    for (std::size_t dp = 0; dp < step.dp.size(); ++dp) {
      check_batch(step.dp[dp], step.global_tokens[dp]);
      check_writes(step, dp);
      counts_.trees += sim::check_branches(options_, step.dp[dp]);
    }
    results_.emplace_back();
    const Step settled = rounds_.settle(step);
    device_.run(settled, results_.back());
    if (options_.max_drafts > 0) add_drafts(settled, results_.back());
    rounds_.note(settled, results_.back());
    sim::count_rounds(settled, counts_);
    steps_.push_back(std::move(step));
    take_events();
    return true;
  }

  void check_batch(const Batch& batch, std::int32_t global_tokens) {
    const int most = options_.chunked_prefill_tokens > 0
                         ? std::max(options_.chunked_prefill_tokens, options_.max_running_requests)
                         : std::max({options_.max_prefill_tokens, options_.max_context,
                                     options_.max_running_requests}) +
                               options_.max_running_requests;
    const int drafts = options_.max_drafts * options_.max_running_requests;
    check(batch.num_tokens() == global_tokens && global_tokens <= most + drafts,
          "{} tokens, at most {} and {} drafts", global_tokens, most, drafts);
    bool decodes = false;
    int row = -1;
    for (const LogitRow& logits : batch.logit_rows) {
      check(logits.row >= row, "logit rows are out of order");
      row = logits.row;
    }
    if (options_.pipelined) check_micro_batch(batch);
    for (const BatchItem& item : batch.items) {
      check(!decodes || item.decode, "a prefill chunk stands behind a decode row");
      decodes = decodes || item.decode;
      Live* live = find(item.sequence >> 8);
      if (live == nullptr) continue;  // the request ended while steps were in flight
      ++live->steps_in_flight;
      live->drafts_in_flight = item.decode && item.count > 1;
      live->computed = item.first + item.count;
    }
  }

  void check_micro_batch(const Batch& batch) {
    check(std::ranges::count(batch.token_ids, kTokenFromSlot) == 0,
          "the first stage of a pipeline does not know a token");
    const auto rows = std::ranges::count_if(batch.items, &BatchItem::decode);
    const int share = (options_.max_running_requests + options_.max_steps_in_flight - 1) /
                      options_.max_steps_in_flight;
    const int most = options_.max_micro_batch > 0 ? options_.max_micro_batch : share;
    check(rows <= most, "{} decode rows in a micro-batch of {}", rows, most);
  }

  // Drafts of the tokens to come, as a draft layer would make them: right, wrong, or none.
  void add_drafts(const Step& step, StepResult& result) {
    for (std::size_t dp = 0; dp < step.dp.size(); ++dp) {
      BatchResult& out = result.dp[dp];
      out.draft_offsets.assign(1, 0);
      out.drafts.clear();
      out.draft_parents.clear();
      for (std::size_t i = 0; i < step.dp[dp].items.size(); ++i) {
        const BatchItem& item = step.dp[dp].items[i];
        count_round(step.dp[dp], item, out.tokens_of(i).size());
        const Live* live = find(item.sequence >> 8);
        if (live != nullptr && !out.tokens_of(i).empty() && !chance(0.1)) {
          const auto& truth = live->truths[item.sequence & 0xFF].tokens;
          const int known = (item.decode ? item.first : item.first + item.count - 1) + 1 +
                            static_cast<int>(out.tokens_of(i).size());
          // A draft that is not asked for any does not run.
          const int most = step.dp[dp].max_drafts == 0 ? 0 : options_.max_drafts + 2;
          for (int d = between(0, most); d > 0; --d) {
            const auto at = known - live->num_prompt +
                            (static_cast<int>(out.drafts.size()) - out.draft_offsets.back());
            const bool right =
                std::cmp_less(at, truth.size()) && !chance(drawn_.wrong_draft_chance);
            out.drafts.push_back(right ? truth[at] : between(0, sim::kVocab - 1));
          }
          if (options_.draft_branches > 1) sim::add_siblings(random_, out);
        }
        out.draft_offsets.push_back(static_cast<std::int32_t>(out.drafts.size()));
      }
    }
  }
  void count_round(const Batch& batch, const BatchItem& item, std::size_t tokens) {
    check(item.count == 1 || !item.decode || batch.mode == ForwardMode::kTargetVerify ||
              batch.mode == ForwardMode::kMixed,
          "drafts in a step of mode {}", static_cast<int>(batch.mode));
    if (!item.decode || item.count == 1) return;
    const auto drafts = static_cast<std::size_t>(item.count) - 1;
    ++(tokens <= 1            ? counts_.none_accepted
       : tokens == drafts + 1 ? counts_.all_accepted
                              : counts_.some_accepted);
  }

  // The device here runs steps and copies in order; another device may not. So if a step writes a
  // page, no other sequence of an uncommitted step may name it. Rows after those that such a step
  // copies are excepted. No copy may read what a copy of the same step writes.
  void check_writes(const Step& step, std::size_t dp) {
    const Batch& batch = step.dp[dp];
    for (const PageCopy& a : batch.copies)
      for (const PageCopy& b : batch.copies)
        check(&a == &b || a.group != b.group || (a.from != b.to && a.to != b.to),
              "copies depend on each other");
    for (std::size_t g = 0; g < batch.groups.size(); ++g) {
      named_.assign(options_.groups[g].num_pages, 0);
      copied_.assign(options_.groups[g].num_pages, 0);
      for (const Step& earlier : steps_) {
        const Batch& other = earlier.dp[dp];
        for (const PageCopy& copy : other.copies)
          if (copy.group == static_cast<int>(g))
            copied_[copy.from] = std::max(copied_[copy.from], copy.tokens);
        for (std::size_t i = 0; i < other.items.size(); ++i)
          for (int at = other.groups[g].offsets[i]; at < other.groups[g].offsets[i + 1]; ++at)
            if (const std::int32_t page = other.groups[g].pages[at]; page >= 0)
              named_[page] = named_[page] == 0                         ? other.items[i].sequence
                             : named_[page] == other.items[i].sequence ? named_[page]
                                                                       : ~0ull;
      }
      for (std::size_t i = 0; i < batch.items.size(); ++i) {
        const BatchItem& item = batch.items[i];
        const int last = item.first + sim::depth_of(batch, i, item.count - 1);
        for (int j = item.first / kPageSize; j <= last / kPageSize; ++j) {
          const std::int32_t page = batch.groups[g].pages[batch.groups[g].offsets[i] + j];
          const bool alone = named_[page] == 0 || named_[page] == item.sequence;
          check(alone && std::max(0, item.first - j * kPageSize) >= copied_[page],
                "page {} is written, but in flight elsewhere", page);
        }
      }
    }
  }
  Live* find(std::uint64_t id) {
    auto it = live_.find(id);
    return it == live_.end() ? nullptr : &it->second;
  }

  void commit() {
    for (const Batch& batch : steps_.front().dp)
      for (const BatchItem& item : batch.items)
        if (Live* live = find(item.sequence >> 8)) --live->steps_in_flight;
    scheduler_.commit(steps_.front(), results_.front(), events_);
    scheduler_.check_invariants();
    spare_step_ = std::move(steps_.front());
    steps_.pop_front();
    results_.pop_front();
    take_events();
  }

  void take_events() {
    for (const Event& event : events_) take(event);
    events_.clear();
  }

  void take(const Event& event) {
    Live* live = find(event.request);
    check(live != nullptr && !live->over[event.choice], "an event after the end");
    const Truth& truth = live->truths[event.choice];
    std::size_t& seen = live->seen[event.choice];
    for (std::int32_t token : event.tokens) {
      check(seen < truth.tokens.size() && token == truth.tokens[seen],
            "request {}, choice {}: token {} is wrong", event.request, event.choice, seen);
      ++seen;
    }
    for (const RowLogprobs& row : event.prompt_logprobs) {
      check(live->prompt_seen < live->prompt_logprobs.size() &&
                row.logprob == live->prompt_logprobs[live->prompt_seen],
            "request {}: prompt log-probability {} is wrong", event.request, live->prompt_seen);
      ++live->prompt_seen;
    }
    check(event.cached_tokens <= live->cache_limit, "{} tokens from the cache, {} are allowed",
          event.cached_tokens, live->cache_limit);
    if (event.finish == FinishReason::kNone) return;
    live->over[event.choice] = true;
    if (event.finish == FinishReason::kAbort) {
      check(live->aborted, "request {} was not aborted", event.request);
    } else {
      const bool all = event.choice > 0 || event.finish == FinishReason::kError ||
                       live->prompt_seen == live->prompt_logprobs.size();
      check(event.finish == truth.finish && seen == truth.tokens.size() && all &&
                !event.matched_stop_string ==
                    !(truth.finish == FinishReason::kStop && truth.matched_token < 0) &&
                event.matched_token == truth.matched_token,
            "request {}, choice {}: ends after {} of {} tokens, reason {} for {}", event.request,
            event.choice, seen, truth.tokens.size(), static_cast<int>(event.finish),
            static_cast<int>(truth.finish));
      check(event.finish != FinishReason::kError || event.error.code == "numerics_error",
            "failed: {}", event.error.message);
      ++(event.finish == FinishReason::kError ? counts_.failed : counts_.finished);
      if (past_.size() < 8) past_.push_back(truth.tokens);
    }
    if (std::ranges::count(live->over, false) > 0) return;
    std::erase_if(device_.broken, [&](const auto& b) { return b.sequence >> 8 == event.request; });
    live_.erase(event.request);
  }

  sim::Random random_;
  const sim::EpisodeOptions drawn_;
  const SchedulerOptions options_;
  Scheduler scheduler_;
  sim::Device device_;
  sim::Rounds rounds_;
  Counts& counts_;
  std::vector<std::vector<std::int32_t>> documents_, past_;
  std::unordered_map<std::uint64_t, Live> live_;
  std::uint64_t next_id_ = 1;
  std::vector<Event> events_;
  std::vector<std::uint64_t> named_;  // [page] the sequence in flight that names it
  std::vector<std::int32_t> copied_;  // [page] rows that steps in flight copy
  std::deque<Step> steps_;
  std::deque<StepResult> results_;
  Step spare_step_;
};

constexpr int kStepsAnEpisode = 1000;

// True when the episode holds.
bool run_episode(std::uint64_t seed, int dp_size, Counts& counts) {
  try {
    Episode(seed, dp_size, counts).run(kStepsAnEpisode);
    return true;
  } catch (const Error& error) {
    ADD_FAILURE() << "seed " << seed << ", dp " << dp_size << ": " << error.what();
    return false;
  }
}

class Simulation : public testing::TestWithParam<std::pair<int, int>> {};

TEST_P(Simulation, TokensAreThePlainModelsAndPagesAddUp) {
  const auto [dp_size, episodes] = GetParam();
  Counts counts;
  if (const char* seed = std::getenv("SLUICE_SIMULATION_SEED")) {
    EXPECT_TRUE(run_episode(std::strtoull(seed, nullptr, 10), dp_size, counts));
    return;
  }
  const int share =
      kTimedBuild ? episodes : episodes / 20;  // sanitizers and unoptimised builds are slow
  for (int i = 0; i < share; ++i)
    ASSERT_TRUE(run_episode(static_cast<std::uint64_t>(i) + 1, dp_size, counts));

  fmt::print(
      "dp {}: {} steps ({} mixed), {} episodes, {} requests, {} choices finished, {} failed, {} "
      "refused\n"
      "  retractions {}, evicted pages {}, tail copies {}, forks {}, tokens from the cache {}\n"
      "  aborted: waiting {}, prefill {}, decode {}, in flight {}\n"
      "  drafts: all accepted {}, some {}, none {}, aborted {}, trees {}, rounds ahead {}\n",
      dp_size, counts.steps, counts.mixed, counts.episodes, counts.requests, counts.finished,
      counts.failed, counts.refused, counts.retractions, counts.evictions, counts.tail_copies,
      counts.forks, counts.hits, counts.aborted[0], counts.aborted[1], counts.aborted[2],
      counts.aborted[3], counts.all_accepted, counts.some_accepted, counts.none_accepted,
      counts.aborted_drafts, counts.trees, counts.rounds_ahead);
  EXPECT_GE(counts.steps, std::int64_t{kStepsAnEpisode} * share);
  for (std::int64_t count :
       {counts.retractions, counts.evictions, counts.tail_copies, counts.aborted[0],
        counts.aborted[1], counts.aborted[2], counts.aborted[3], counts.all_accepted,
        counts.some_accepted, counts.none_accepted, counts.aborted_drafts, counts.trees,
        dp_size == 1 ? counts.rounds_ahead : 10'000})
    EXPECT_GE(count, kTimedBuild ? 10'000 : 100);
}

INSTANTIATE_TEST_SUITE_P(DataParallel, Simulation,
                         testing::Values(std::pair{1, 1800}, std::pair{4, 1200}),
                         [](const auto& info) { return "dp" + std::to_string(info.param.first); });

}  // namespace
}  // namespace sluice
