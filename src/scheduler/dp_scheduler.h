// The scheduler of one data-parallel group: its queue, slots, pages and prefix cache; private to
// scheduler/.
//
//   admission.cpp    who runs: queue, policy, reservation, prefix match, forks
//   plan.cpp         what a step computes: pages, chunks, retraction
//   plan_drafts.cpp  drafts behind decode rows
//   branches.cpp     pages of drafts that branch
//   build_batch.cpp  the plan as a Batch
//   commit.cpp       what a step brought: tokens, stop rules, the way out
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <span>
#include <vector>

#include "scheduler/sequence.h"

namespace sluice {

// The properties of an item in flight that commit needs.
struct StepInFlightItem {
  Sequence* sequence = nullptr;
  int end = 0;         // tokens computed after it
  int max_tokens = 0;  // that it may bring: its rows of logits that are sampled, or a tree's depth
  int num_drafts = 0;
  bool is_tree = false;       // these are the best of a tree
  bool next_is_tree = false;  // the drafts that come with the result are, too
  int num_prompt_rows = 0;
  DraftKind draft_kind = DraftKind::kMethod;
  bool decode = false;
  bool is_round = false, is_ahead = false;  // as in Batch and BatchItem
  bool snapshot = false;                    // this step writes the next of sequence->snapshots
};

// Counters over all groups.
struct SchedulerCounters {
  SchedulerStats stats;             // only its counters are used
  int queued_requests = 0;          // requests never admitted
  std::int64_t queued_tokens = 0;   // prompt tokens of these requests
  std::vector<std::uint64_t> gone;  // finished requests, to be erased
};

class DpScheduler {
 public:
  DpScheduler(const SchedulerOptions& options, SchedulerCounters& shared_counters);
  DpScheduler(const DpScheduler&) = delete;

  std::int64_t load() const { return load_; }
  void enqueue(RequestState& request);
  // Whether the next step cannot be planned while another is in flight: it may have drafts.
  bool awaits_tokens() const;
  // Fills `batch` and `flight`, reusing their vectors. is_ahead: another step is in flight.
  void plan(std::uint64_t step, bool is_ahead, Batch& batch, std::vector<StepInFlightItem>& flight,
            std::vector<Event>& events);
  void commit(std::uint64_t step, std::span<const StepInFlightItem> flight,
              const BatchResult& result, std::vector<Event>& events);
  void abort(RequestState& request, const Fault& fault, std::vector<Event>& events);
  PrefixLookup look_up_prefix(const Request& request) const;
  void flush_cache() { cache_.flush(); }
  // `has_pages`: the group is not lost.
  void add_stats(SchedulerStats& stats, bool has_pages) const;
  void check_invariants() const;
  // Maximum number of pages that a sequence of `tokens` tokens holds at once in group g, when it
  // runs alone.
  static std::int64_t pages_alone(const PageGroup& group, std::int64_t tokens);

 private:
  enum class Room : std::uint8_t { kReady, kWait, kGone };
  struct Item {
    Sequence* sequence;
    int count;
  };
  struct Retired {
    std::uint64_t step;
    int group;
    PageRef page;
  };

  // admission.cpp
  void admit(std::vector<Event>& events);
  Sequence* pick();
  void queue(Sequence& s);
  bool try_admit(Sequence& s);
  bool take_prefix(Sequence& s, bool cold);
  bool take_tail(Sequence& s);
  bool take_state(Sequence& s);
  bool affordable(const Sequence& s) const;
  std::int64_t expected_pages(const Sequence& s, int group) const;
  void take_slot(Sequence& s);
  void count_admitted(RequestState& request);
  void fork(Sequence& parent);
  bool fork_one(Sequence& parent, Sequence& child);

  // plan.cpp
  Room plan_prefill(Sequence& s, std::vector<Event>& events);
  bool may_decode(const Sequence& s) const;
  int max_decode_rows() const;
  int next_stop(const Sequence& s) const;
  static int prompt_boundary(const Sequence& s) {
    return (s.prefill_end - 1) / kPageSize * kPageSize;
  }
  int memory_end(const Sequence& s) const;
  Room make_room(Sequence& s, int end, std::vector<Event>& events);
  bool grow(Sequence& s, int end);
  bool ensure(int group, std::int64_t num_pages);
  void free_behind_window(Sequence& s);
  void retire(Sequence& s, int group, PageRef page);
  void retract(Sequence& victim);

  // plan_drafts.cpp
  void plan_drafts();
  int max_drafts_of_step() const;
  void find_drafts(Sequence& s, int max_drafts);
  static void find_in_tree(Sequence& s, int max_drafts, int max_depth);
  static void keep_best_chain(Sequence& s);
  void find_forced(Sequence& s, int max_drafts);
  void take_draft_states(Sequence& s);
  void make_room_for_drafts(Sequence& s);
  // How many tokens the sequences of the step have, to the controller.
  void tell_tokens();
  void begin_offers();
  void offer(Sequence& s, DraftKind kind, int drafts, bool is_tree);
  int choose_next_drafts();
  int choose_next_drafts(int most, bool are_trees);
  bool wants_prompt_drafts();
  bool pays_for_run(const Sequence& s, int slots) const;
  void earn();
  void charge_drafts();
  int draft_end(int end) const;

  // rounds.cpp
  bool may_plan_ahead_of_round() const;
  // The step that is planned follows a round in flight.
  bool is_ahead_of_round() const { return is_ahead_ && rounds_in_flight_ > 0; }
  static bool needs_host(const Sequence& s);
  void find_drafts_ahead(Sequence& s, int max_drafts) const;
  bool can_be_round() const;
  void withdraw();

  // build_batch.cpp
  void build_batch(Batch& batch, std::vector<StepInFlightItem>& flight);
  void build_item(const Item& item, bool decode, Batch& batch,
                  std::vector<StepInFlightItem>& flight);
  static void add_pooled_rows(const Sequence& s, std::int32_t index, std::int32_t row,
                              std::int32_t count, Batch& batch);
  void build_copies(Sequence& s, Batch& batch);
  bool plan_snapshot(Sequence& s, Batch& batch);

  // branches.cpp
  static int draft_depth(const Sequence& s);
  void make_branches_of_step();
  void make_branches(Sequence& s, int first, int end, int count);
  void build_branches(const Sequence& s, std::int32_t index, Batch& batch) const;
  void keep_right_branch(Sequence& s, std::span<const std::int32_t> tokens);

  // commit.cpp
  Exit take_result(Sequence& s, const StepInFlightItem& item, std::size_t index,
                   const BatchResult& result, std::vector<Event>& events);
  FinishReason take_tokens(Sequence& s, const StepInFlightItem& item, std::size_t index,
                           const BatchResult& result, Event& event);
  void count_prompt(const Sequence& s);
  static void keep_right_state(Sequence& s, const StepInFlightItem& item, int taken);
  void count_drafts(Sequence& s, const StepInFlightItem& item, std::size_t accepted);
  void count_chain(Sequence& s, DraftKind kind, int drafted, int right);
  void end_balance(const Sequence& s);
  void count_tree(Sequence& s, int drafted, std::span<const std::int32_t> tokens);
  FinishReason append(Sequence& s, std::int32_t token, Event& event);
  void finish(RequestState& request, const Sequence* s, Event& event, FinishReason reason);
  void publish(Sequence& s, int end, PageRef snapshot);
  void store(Sequence& s);
  void leave(Sequence& s, Exit exit);
  void drain(Sequence& s);
  void drop_reserved(RequestState& request);
  void unqueue(Sequence& s);
  void erase(Sequence& s);
  void fail(Sequence& s, std::vector<Event>& events);
  std::vector<std::span<const std::int32_t>> page_spans(const Sequence& s) const;

  const SchedulerOptions& options_;
  SchedulerCounters& shared_counters_;
  std::vector<PageAllocator> pools_;  // [group]
  RadixCache cache_;
  int num_page_groups_ = 0;
  int state_group_ = -1;
  std::int64_t num_draft_states_ = 0;  // taken for the step that is planned

  std::map<QueueKey, Sequence*> waiting_;
  std::vector<Sequence*> running_;         // ascending by queue_key
  std::vector<Sequence*> draining_;        // ended, but named by steps in flight
  std::vector<int> free_slots_;            // the last one is taken next
  int reserved_slots_ = 0;                 // free slots that forks will take
  std::deque<Retired> retired_;            // pages that steps in flight may still touch
  std::vector<std::int64_t> num_retired_;  // [group]
  std::int64_t load_ = 0;

  // Share of the future tokens that admission reserves: falls with every step, rises with a
  // retraction.
  double ratio_ = 1, initial_ratio_ = 1, min_ratio_ = 0;

  // The step being planned:
  std::uint64_t step_ = 0;
  int budget_ = 0;  // tokens left for prefill
  bool retracted_ = false;
  int lacking_group_ = 0;  // set by grow() when it fails
  std::vector<Item> prefills_, decodes_;
  std::vector<DraftController::Offer> offers_;  // of decodes_
  std::vector<double> gains_;                   // of offers_, max_drafts each
  std::vector<std::int32_t> forced_;            // of one of them
  int next_drafts_ = -1;                        // Batch::max_drafts
  std::vector<std::int64_t> branch_pages_;      // [group] of the step's branches
  bool next_is_tree_ = false;                   // the draft makes trees
  bool probes_next_ = false;    // the next step's drafts are there to see whether they pay
  bool explores_next_ = false;  // the next step checks all of them, to see what each brings
  bool is_ahead_ = false;       // another step is in flight
  bool is_round_ = false;       // Batch::is_round
  bool rounds_go_on_ = false;   // the drafts behind the last round pay
  int round_drafts_ = 0;        // that the device makes behind it, for each sequence
  int rounds_in_flight_ = 0;
  // Rounds that may be planned ahead while sequences wait for which there was no room. So many
  // after the last look; none once a sequence has come or gone.
  static constexpr int kRoundsWithoutLook = 8;
  int rounds_until_look_ = 0;
  bool has_drafts_ = false;  // the last planned step
  int steps_ahead_ = 0;      // since a step was planned with all tokens known
  std::size_t num_probes_ = 0;
  double token_s_ = 0;  // of plain decoding, for each sequence of the step

  DraftController draft_controller_;
};

}  // namespace sluice
