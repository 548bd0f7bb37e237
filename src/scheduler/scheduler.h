// Continuous batching: requests in, steps out, results in, events out.
//
//   scheduler.add(std::move(request));
//   while (scheduler.has_work()) {
//     // as long as fewer than max_steps_in_flight are out
//     if (scheduler.next(step, events)) launch(step);
//     else scheduler.commit(oldest, collect(oldest), events);
//   }
//
// Prefill chunks and decode rows share a step (chunked prefill; Agrawal et al., "Sarathi-Serve",
// 2024). Decode rows take the step's tokens first. When pages run out, cached ones are evicted,
// then the newest sequence is retracted. A retracted sequence releases its pages (to the prefix
// cache, where they may survive) and resumes by computing its tokens again. The oldest sequence is
// never retracted, and a request that does not fit alone is refused, so every request finishes.
//
// Several choices (n > 1): the prompt but its last token is computed once; then the choices fork.
// They share the whole pages, and each gets a copy of the tail page. The same step computes the
// last prompt token once per choice, and each choice samples from its own row. A choice without a
// slot or page at that moment is queued as a request of its own.
//
// Steps in flight: `next` may be called again before `commit`. Unknown tokens are kTokenFromSlot.
// Pages are reserved for the longest outcome. A page is released only after every step that names
// it is committed. A step is committed exactly once, in order.
//
// Speculation: a decode row is followed by up to `max_drafts` drafted tokens, in the same step. The
// result brings as many tokens as drafts were right, and one more. The rows of wrong drafts are
// computed again by later steps, in the same pages; the prefix cache never gets them. Drafts take
// pages last, and only those that are free or cached: no step retracts a sequence for them. Of a
// tree of drafts each path has tail pages of its own; those of the right path stay, the others are
// free again when the step is committed. Where pages are missing, the step has fewer paths.
//
// Pure host code: no clock, no threads, no device, no text. One thread. Throws Error{kBug} when the
// caller breaks a rule (commits out of order), and Error{kBadInput} from the constructor for
// impossible options.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/error.h"
#include "batch/batch.h"
#include "batch/draft_costs.h"
#include "batch/event.h"
#include "batch/finish_reason.h"
#include "batch/page_group.h"
#include "batch/prefix_lookup.h"
#include "batch/retraction_counts.h"
#include "batch/step_result.h"
#include "batch/token_drafter.h"
#include "cache/page_allocator.h"
#include "scheduler/request.h"

namespace sluice {

enum class SchedulePolicy : std::uint8_t {
  kFcfs,  // first come, first served
  kLpm,  // longest cached prefix first, among the first 128 of the queue; no request is passed over
         // more than 64 times
  kPriority,  // lower Request::priority first, then first come
};

struct SchedulerOptions {
  int max_running_requests = 256;     // sequences (slots) of a data-parallel group
  int chunked_prefill_tokens = 2048;  // tokens of a step; -1: prompts are not cut
  // if prompts are not cut: maximum for a step with more than one prompt
  int max_prefill_tokens = 16384;
  int max_queued_requests = 2048;            // waiting requests, over all groups
  std::int64_t max_queued_tokens = 4 << 20;  // prompt tokens of the waiting requests
  SchedulePolicy policy = SchedulePolicy::kFcfs;
  double schedule_conservativeness =
      1.0;                 // scales the share of max_new_tokens reserved at admission; > 0
  int max_context = 4096;  // prompt and generated tokens of a sequence
  int dp_size = 1;
  int max_steps_in_flight = 1;
  // The ranks are stages of a pipeline, of which the first needs every token before its step is
  // launched. So a sequence whose token is on its way waits, and the decode rows are dealt to
  // max_steps_in_flight steps.
  bool pipelined = false;
  // Decode rows of a step of a pipeline, at most; 0: an equal share of those that decode.
  int max_micro_batch = 0;
  bool disable_radix_cache = false;
  // Drafts of a sequence in a step; 0: no speculation. A step with drafts is the only one that is
  // in flight, but rounds are two. While none pays (draft_costs), there are max_steps_in_flight.
  int max_drafts = 0;
  // Sequences and drafts of a step with drafts, at most; 0: no limit. All sequences get equally
  // many.
  int max_draft_rows = 0;
  // Rows of a step with drafts that may be a round (Batch::is_round), at most; 0: none may.
  int max_round_rows = 0;
  // Makes what drafts the tokens of a choice; empty: drafts come with the results of steps.
  DrafterMaker make_drafter = {};
  // Drafts of a choice with a constraint that come from its grammar, before all others; empty:
  // there are none.
  GrammarDrafter draft_forced = {};
  // Then each step's items have pages for so many slots behind their end, where some are left.
  int draft_slots = 0;
  // Drafts branch: each step's items have pages for so many branches, their own counted, where some
  // are left (Batch::branches). 1: drafts are chains.
  int draft_branches = 1;
  // What drafts cost: each step gets as many as pay (scheduler/draft_controller.h). Empty: as many
  // as there are.
  DraftCosts draft_costs = {};
  bool hash_steps = true;  // fill Step::hash, which several ranks compare
  // Page groups of each data-parallel group. Batch::groups has the same groups in the same order. A
  // state group comes last, and its entries are in Batch::state_slots. PageCopy::group counts all
  // groups; in a state group one "page" is one state.
  std::vector<PageGroup> groups;
};

// Sums over the data-parallel groups. Counters run from the start.
struct SchedulerStats {
  int running = 0;  // sequences with a slot
  int queued = 0;   // waiting sequences (a request that was never admitted counts one)
  std::int64_t queued_tokens = 0;  // prompt tokens of requests that were never admitted
  int steps_in_flight = 0;
  std::vector<PageGroupStats> groups;    // without data-parallel groups that are lost
  std::int64_t last_prefill_tokens = 0;  // tokens of the last planned step
  std::int64_t last_decode_tokens = 0;
  std::int64_t last_hit_tokens = 0;  // reused by the sequences that began in that step
  int last_prefill_sequences = 0;
  bool last_mixed = false;  // true in at least one data-parallel group
  std::int64_t steps = 0, mixed_steps = 0;
  std::int64_t prefill_tokens = 0, decode_tokens = 0;
  // Looked up in the prefix cache, by sequences that get a slot for the first time.
  std::int64_t cache_hit_tokens = 0, cache_query_tokens = 0;
  // Prompts of sequences whose prefill is complete, and the part of them that was not computed.
  std::int64_t prompt_tokens = 0, prompt_reused_tokens = 0;
  std::int64_t retractions = 0, evicted_pages = 0, tail_copies = 0, forks = 0;
  std::int64_t finished = 0, aborted = 0, failed = 0;  // choices
  RetractionCounts retractions_of_ended;               // of these choices
  // Speculation: decode rows; those with drafts; drafts; and the drafts that became tokens, in all
  // and by their place behind the known token.
  std::int64_t verifications = 0, drafted_rows = 0, drafted_tokens = 0, accepted_tokens = 0;
  std::vector<std::int64_t> accepted_by_place;
  std::int64_t rounds_ahead = 0;              // steps planned while a round was in flight
  std::vector<std::int64_t> steps_by_drafts;  // with decode rows; by the most drafts of one of them
  double new_token_ratio = 0;                 // the maximum over the groups
};

class DpScheduler;

class Scheduler {
 public:
  explicit Scheduler(SchedulerOptions options);
  ~Scheduler();

  // Takes the request, or returns the reason: 400 context_length_exceeded (too long, or more pages
  // than exist, with both numbers), 429 queue_full.
  Result<Ok> add(QueuedRequest request);
  // Ends all choices of the request now, in any state: one kAbort event each. False when the
  // request is unknown or over.
  bool abort(std::uint64_t request_id, std::vector<Event>& events);
  // Data-parallel group `group` is lost: its requests end with `fault`, and no other comes to it.
  // The results of its steps in flight say that all items failed. Another group is left.
  void lose_group(int group, const Fault& fault, std::vector<Event>& events);
  // Aborts requests whose deadline is before now_s, with fault code `timeout`. O(1) when there are
  // none.
  void expire(double now_s, std::vector<Event>& events);

  // Whether requests are not over, or steps are in flight.
  bool has_work() const;
  int steps_in_flight() const { return static_cast<int>(flights_.size()); }
  // Plans the next step into `step`, reusing its vectors. False: no step can be planned before the
  // next commit (or at all, when no step is in flight). Events: requests that ended because memory
  // cannot hold them.
  bool next(Step& step, std::vector<Event>& events);
  // Takes the result of the oldest step in flight.
  void commit(const Step& step, const StepResult& result, std::vector<Event>& events);

  // What the prefix cache has for this request; of several data-parallel groups, that of the group
  // which has most. Changes nothing.
  PrefixLookup look_up_prefix(const Request& request) const;
  // Empties the prefix cache, except for prefixes that running sequences use.
  void flush_cache();

  SchedulerStats stats() const;
  const SchedulerOptions& options() const { return options_; }
  // Checks for every group that free + cached + held = all, and that the references add up. Throws
  // Error{kBug}. O(pages).
  void check_invariants() const;

 private:
  struct Table;         // requests that are not over
  struct StepInFlight;  // references of a step in flight

  Result<Ok> admissible(const QueuedRequest& request) const;
  void forget_finished();

  const SchedulerOptions options_;
  std::unique_ptr<Table> table_;
  std::vector<std::unique_ptr<DpScheduler>> groups_;
  std::vector<bool> is_lost_;                           // [groups]
  std::vector<std::unique_ptr<StepInFlight>> flights_;  // oldest first
  std::vector<std::unique_ptr<StepInFlight>> spare_flights_;
  std::uint64_t next_step_ = 1;
};

}  // namespace sluice
