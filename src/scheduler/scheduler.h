// Continuous batching: requests in, steps out, results in, events out.
//
//   scheduler.add(std::move(request));
//   while (scheduler.has_work()) {
//     if (scheduler.next(step, events)) launch(step);       // as long as fewer than
//     max_steps_in_flight are out else scheduler.commit(oldest, collect(oldest), events);
//   }
//
// Prefill chunks and decode rows share a step (chunked prefill; Agrawal et al., "Sarathi-Serve",
// 2024). Decode rows claim the step's tokens first. When pages run out, cached ones are evicted,
// then the newest sequence is retracted: it gives its pages back (to the prefix cache, where they
// may survive) and resumes by computing its tokens again. The oldest sequence is never retracted,
// and a request that does not fit alone was refused, so everything finishes.
//
// Several choices (n > 1): the prompt but its last token is computed once; then the choices fork:
// whole pages are shared, the tail page is copied for each, and the same step computes the last
// prompt token once for each choice, from which each samples. A choice that finds no slot or page
// at that moment is queued like a request of its own.
//
// Steps in flight: `next` may be called again before `commit`. Tokens that are not known yet are
// kTokenFromSlot, pages are reserved for the longest outcome, and a page goes back only when every
// step that names it is committed. A step is committed exactly once, in order.
//
// Pure host code: no clock, no threads, no device, no text. One thread. Throws Error{kBug} when the
// caller breaks a rule (commits out of order), and Error{kBadInput} from the constructor for
// options that cannot work.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/error.h"
#include "batch/batch.h"
#include "batch/event.h"
#include "batch/finish_reason.h"
#include "batch/page_group.h"
#include "batch/step_result.h"
#include "cache/page_allocator.h"
#include "scheduler/request.h"

namespace sluice {

enum class SchedulePolicy : std::uint8_t {
  kFcfs,  // first come, first served
  kLpm,   // longest cached prefix first, among the first 128 of the queue; nobody is passed over
          // more than 64 times
  kPriority,  // lower Request::priority first, then first come
};

struct SchedulerOptions {
  int max_running_requests = 256;     // sequences, which is slots, of a data-parallel group
  int chunked_prefill_tokens = 2048;  // tokens of a step; -1: prompts are not cut
  int max_prefill_tokens = 16384;  // when prompts are not cut: of a step with more than one of them
  int max_queued_requests = 2048;  // waiting ones, over all groups
  std::int64_t max_queued_tokens = 4 << 20;  // prompt tokens of those
  SchedulePolicy policy = SchedulePolicy::kFcfs;
  double schedule_conservativeness =
      1.0;                 // scales the share of max_new_tokens reserved at admission; > 0
  int max_context = 4096;  // prompt and generated tokens of a sequence
  int dp_size = 1;
  int max_steps_in_flight = 1;
  bool disable_radix_cache = false;
  bool hash_steps = true;  // fill Step::hash, which several ranks compare
  // Of each data-parallel group. Batch::groups has the page groups, in this order; a state group
  // comes last, and its entries are in Batch::state_slots. PageCopy::group counts all groups; in a
  // state group one "page" is one state.
  std::vector<PageGroup> groups;
};

// Sums over the data-parallel groups. Counters run from the start.
struct SchedulerStats {
  int running = 0;  // sequences with a slot
  int queued = 0;   // sequences waiting (a request that was not admitted yet counts one)
  std::int64_t queued_tokens = 0;  // prompt tokens of requests that were not admitted yet
  int steps_in_flight = 0;
  std::vector<PageGroupStats> groups;
  std::int64_t last_prefill_tokens = 0;  // of the step planned last
  std::int64_t last_decode_tokens = 0;
  int last_prefill_sequences = 0;
  bool last_mixed = false;  // in at least one data-parallel group
  std::int64_t steps = 0, mixed_steps = 0;
  std::int64_t prefill_tokens = 0, decode_tokens = 0;
  std::int64_t cache_hit_tokens = 0, cache_query_tokens = 0;
  std::int64_t retractions = 0, evicted_pages = 0, tail_copies = 0, forks = 0;
  std::int64_t finished = 0, aborted = 0, failed = 0;  // choices
  double new_token_ratio = 0;                          // the largest of the groups
};

class DpScheduler;

class Scheduler {
 public:
  explicit Scheduler(SchedulerOptions options);
  ~Scheduler();

  // Takes the request, or says why not: 400 context_length_exceeded (too long, or more pages than
  // there are, with both numbers), 429 queue_full.
  Result<Ok> add(QueuedRequest request);
  // Ends all choices of the request now, wherever they are: one kAbort event each. False when it is
  // unknown or over.
  bool abort(std::uint64_t request_id, std::vector<Event>& events);
  // Aborts what has a deadline before now_s, with fault code `timeout`. O(1) when nothing has.
  void expire(double now_s, std::vector<Event>& events);

  // Requests that are not over, or steps in flight.
  bool has_work() const;
  int steps_in_flight() const { return static_cast<int>(flights_.size()); }
  // Plans the next step into `step`, whose vectors are used again. False: nothing can be planned
  // before the next commit (or at all, when nothing is in flight). Events: requests that ended
  // because memory cannot hold them.
  bool next(Step& step, std::vector<Event>& events);
  // The result of the oldest step in flight.
  void commit(const Step& step, const StepResult& result, std::vector<Event>& events);

  // Empties the prefix cache, except for what running sequences use.
  void flush_cache();

  SchedulerStats stats() const;
  const SchedulerOptions& options() const { return options_; }
  // For every group: free + cached + held = all, and the references add up. Throws Error{kBug}.
  // O(pages).
  void check_invariants() const;

 private:
  struct Table;         // the requests that are not over
  struct StepInFlight;  // what a step in flight holds

  Result<Ok> admissible(const QueuedRequest& request) const;
  void forget_finished();

  const SchedulerOptions options_;
  std::unique_ptr<Table> table_;
  std::vector<std::unique_ptr<DpScheduler>> groups_;
  std::vector<std::unique_ptr<StepInFlight>> flights_;  // oldest first
  std::vector<std::unique_ptr<StepInFlight>> spare_flights_;
  std::uint64_t next_step_ = 1;
};

}  // namespace sluice
