// The engine: the only class that a server or a program sees.
//
//   Options options;
//   options.model = "models/sluice-tiny";
//   std::unique_ptr<Engine> engine = Engine::create(options);
//   Request request;
//   request.prompt_ids = {...};
//   Result<std::uint64_t> id = engine->submit(std::move(request), [](Event&& event) { ... });
//
// One thread of its own plans, runs and commits steps (engine_loop.cpp, the loop). All methods may
// be called from any thread. Requests and events are plain data, so that a front end in another
// process can use the same messages; nothing of the scheduler shows.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <functional>
#include <iterator>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/error.h"
#include "batch/event.h"
#include "batch/finish_reason.h"
#include "batch/page_group.h"
#include "batch/prefix_lookup.h"
#include "batch/request.h"
#include "batch/retraction_counts.h"
#include "batch/sampling_params.h"
#include "batch/step_result.h"
#include "batch/stop_matcher.h"
#include "config/generation_config.h"
#include "config/model_config.h"
#include "engine/options.h"
#include "runtime/memory_plan.h"

namespace sluice {

class Trace;

// Called on the engine thread, in order for each request. Must be quick and must not throw or call
// the engine.
using EventSink = std::function<void(Event&&)>;

// How many tokens the steps had: counts[i] steps had at most kBounds[i] (the last: more than all of
// them).
struct StepTokens {
  static constexpr int kBounds[] = {1, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384};
  std::array<std::uint64_t, std::size(kBounds) + 1> counts{};
  std::uint64_t sum = 0;

  void add(int tokens) {
    const auto bound = std::lower_bound(std::begin(kBounds), std::end(kBounds), tokens);
    ++counts[static_cast<std::size_t>(bound - std::begin(kBounds))];
    sum += static_cast<std::uint64_t>(tokens);
  }
};

// A snapshot of the counters; `sluice:*`, `sglang:*` and `vllm:*` metrics
// come from it.
struct EngineStats {
  static constexpr std::int64_t kRecentSteps = 40;
  int running = 0;
  int queued = 0;
  int max_running_requests = 0;
  bool prefix_cache = false;
  std::int64_t max_total_tokens = 0;      // KV capacity
  std::int64_t used_tokens = 0;           // in pages held by running sequences
  std::int64_t cached_tokens = 0;         // in pages held by the prefix cache alone
  std::vector<PageGroupStats> kv_groups;  // layers that keep tokens equally long share a group
  std::uint64_t steps = 0;
  std::uint64_t mixed_steps = 0;
  StepTokens step_tokens;
  // Of sequences whose prefill is complete: computed or not, and not computed
  std::uint64_t prompt_tokens = 0, prompt_reused_tokens = 0;
  std::uint64_t generated_tokens = 0;
  std::uint64_t prefix_query_tokens = 0;  // looked up in the prefix cache
  std::uint64_t prefix_hit_tokens = 0;    // found there
  double prefix_hit_rate = 0;             // of the sequences that began in the last prefill step
  std::uint64_t retracted = 0;
  std::uint64_t recently_retracted = 0;   // in the last kRecentSteps steps
  RetractionCounts retractions_of_ended;  // of the choices that ended
  double new_token_ratio = 0;  // share of the tokens to come that admission reserves pages for
  bool ran_graph = false;      // the last step was a recorded CUDA graph
  std::uint64_t evicted_pages = 0;
  std::uint64_t aborted = 0;
  std::uint64_t numerics_errors = 0;
  // Speculation (docs/speculation.md); zeros and empty where it is off: decode rows, those with
  // drafts, drafts, and drafts that became tokens, in all and by their place in the row
  bool has_speculation = false;
  std::uint64_t verifications = 0, drafted_rows = 0, drafted_tokens = 0, accepted_tokens = 0;
  std::vector<std::int64_t> accepted_by_place;
  std::int64_t rounds_ahead = 0;              // steps launched while a round was in flight
  std::vector<std::int64_t> steps_by_drafts;  // with decode rows; by the most drafts of one of them
  // Experts that move between ranks (docs/ranks.md); zeros and empty where none do. Balancedness is
  // that of the last window, over all layers; choices are those of each rank group, by layer.
  bool has_expert_load = false;
  double expert_balancedness = 1;
  std::uint64_t expert_rebalances = 0, expert_changes = 0, expert_bytes_moved = 0;
  double expert_move_s = 0;
  std::vector<std::vector<std::int64_t>> expert_choices;  // [layers][groups]
  std::vector<int> expert_layers;                         // numbers of these layers
  // Ranks that may be lost (--elastic-ep-backend); zeros where a lost rank ends the server.
  int elastic_ranks = 0, live_ranks = 0;
  double rebalance_s = 0;             // of all rebalances after a loss
  double seconds_since_progress = 0;  // since a step completed, while work is queued; else 0
  double last_step_s = 0;
  double step_s = 0;                 // of all steps
  double generation_throughput = 0;  // tokens a second over the last seconds
};

// What the start-up did, step by step.
struct StartupLedger {
  struct Entry {
    std::string step;  // resolve, read, load, plan memory, warm up
    double milliseconds = 0;
    std::string detail;
  };
  std::vector<Entry> entries;
};

// Counters of a run, for `verify --dump` and /get_server_info.
struct RunReport {
  // AttnForwardMethod name -> calls
  std::vector<std::pair<std::string, std::uint64_t>> attention_methods;
  std::uint64_t mixed_steps = 0;
  std::vector<int> prefill_tokens_per_step;  // of the steps since the last reset that had prefill
                                             // chunks; bounded
};

// Makes a matcher for one choice from its stop strings; called on the submitting thread.
using StopMatcherFactory =
    std::function<std::unique_ptr<StopMatcher>(const std::vector<std::string>& stop)>;

// What a caller with a tokenizer gives the engine, which knows no text.
struct TextHooks {
  StopMatcherFactory stop_matchers = {};
  std::vector<EndToken> end_tokens = {};  // beyond those of generation_config.json and config.json
};

class Engine {
 public:
  // Resolves, loads, plans memory, allocates, warms up. Throws Error (bad input, no resources).
  // `progress(step, fraction)` is called as the start-up advances.
  // `trace`: the file of --trace where the caller has opened it already; else it is opened here,
  // before anything is read.
  static std::unique_ptr<Engine> create(
      const Options& options, TextHooks text = {},
      std::function<void(const std::string&, double)> progress = {},
      std::shared_ptr<Trace> trace = {});
  virtual ~Engine() = default;  // aborts what is left

  // Takes a request in; its events go to `sink`. Faults: 400 (too long, token id out of range, can
  // never fit), 429 queue_full, 503 draining or failed. The identifier is for abort().
  virtual Result<std::uint64_t> submit(Request request, EventSink sink) = 0;
  // Ends a request at once; its sink gets a last event with kAbort. False when it is unknown or has
  // ended.
  virtual bool abort(std::uint64_t request) = 0;
  virtual void abort_all() = 0;
  // What the prefix cache has for this request, which is not run. Its namespace alone is looked at.
  // Nothing: there is no prefix cache, or the engine ends. Waits for the step that is computed.
  virtual std::optional<PrefixLookup> look_up_prefix(Request) { return std::nullopt; }
  // Drops the prefix cache; false when requests are running.
  virtual bool flush_cache() = 0;
  // Refuses new requests from now on; true once nothing is left.
  virtual void drain() = 0;
  virtual bool idle() const = 0;

  virtual EngineStats stats() const = 0;
  virtual RunReport run_report(bool reset) = 0;
  virtual const ModelConfig& model_config() const = 0;
  virtual const GenerationConfig& generation_config() const = 0;
  virtual const std::string& model_directory() const = 0;  // where tokenizer and template lie
  virtual int context_length() const = 0;
  virtual const StartupLedger& ledger() const = 0;
  virtual const MemoryPlan& memory_plan() const = 0;
  virtual std::string dtype_name() const = 0;
  // Why steps fail for good (a dead engine answers 503), empty while it works.
  virtual std::string failure() const = 0;
  // Where --trace goes; null without it. Lives as long as the engine.
  virtual Trace* trace() const { return nullptr; }
};

}  // namespace sluice
