// One choice of a request, and the request's state; private to scheduler/.
#pragma once

#include <algorithm>
#include <array>
#include <compare>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <vector>

#include "cache/page_allocator.h"
#include "cache/radix_cache.h"
#include "scheduler/draft_controller.h"
#include "scheduler/scheduler.h"

namespace sluice {

// The order of service. The running sequence with the smallest key is never retracted.
struct QueueKey {
  int priority = 0;  // 0 unless the policy is `priority`
  std::uint64_t arrival = 0;
  int choice = 0;
  friend auto operator<=>(const QueueKey&, const QueueKey&) = default;
};

// Why a sequence releases its slot and pages.
enum class Exit : std::uint8_t {
  kNone,
  kRetracted,
  kFinished,
  kFailed
};  // kFailed: the contents of its pages are invalid

// Rows to copy before the sequence's first step.
struct PendingCopy {
  int group = 0;
  PageRef from;
  std::int32_t to = kNoPage;
  std::int32_t tokens = 0;
};

// The state after `at` tokens. A step in flight copies it into a page of its own.
struct PendingState {
  int at = 0;
  PageRef state;
};

// Pages of a step's branches (Batch::branches), and what its rows are.
struct BranchPages {
  int first_page = 0, num_pages = 0;
  std::vector<PageRef> pages;                 // [branch - 1][group][num_pages]
  std::vector<std::int32_t> tokens, parents;  // of a tree: of its rows
};

struct RequestState;

struct Sequence {
  Sequence(RequestState& owner, int choice_index, std::vector<PageAllocator>& pools,
           int num_page_groups);

  RequestState& request;
  const int choice;
  QueueKey queue_key;
  SamplingParams params;
  std::vector<std::int32_t> tokens;  // the prompt and the known generated tokens
  const int num_prompt;
  std::unique_ptr<StopMatcher> matcher;

  // Only while the sequence has a slot:
  int slot = -1;
  bool needs_init = false;
  std::vector<PageList> pages;        // [page group]
  PageRef state;                      // the current state, updated by every step
  std::vector<PageRef> draft_states;  // the state behind each draft of the step in flight
  PrefixLock lock;
  std::vector<PendingCopy> copies;
  int prefill_end = 0;  // tokens known at admission
  int planned = 0;      // tokens whose keys are computed once all planned steps are done
  int collected = 0;    // as `planned`, for committed steps
  std::vector<std::int32_t> drafts;         // drafts at the tokens behind the known ones
  std::vector<std::int32_t> draft_parents;  // as BatchResult::draft_parents; empty: a chain
  bool is_tree = false;                     // the drafts are the best of a tree, best first
  DraftKind draft_kind = DraftKind::kMethod;
  BranchPages branches;  // of the step in flight
  // Whether a draft runs behind the chunks of its prompt.
  enum class PromptDraft : std::uint8_t { kUndecided, kRuns, kPutOff } prompt_draft = {};
  // Seconds that its drafts saved, less what they cost; nothing where none ran behind its prompt.
  std::optional<double> draft_balance_s;
  int samples_in_flight = 0;
  int steps_in_flight = 0;
  int wrong_drafts = 0;                // of the round that was committed last
  std::uint64_t last_step = 0;         // the last step that names the sequence
  bool published = false;              // its prompt is in the cache
  Exit exit = Exit::kNone;             // draining: the sequence leaves when no step names it
  std::deque<PendingState> snapshots;  // in the order of the steps that copy them
  // length of the last snapshot, or of the prefix that the sequence began with
  int snapshot_at = 0;
  // length at which other cached sequences diverge and no state is saved; 0: none
  int branch_at = 0;

  // For the whole life of the sequence:
  bool over = false;  // its last event was sent
  // Prompt tokens that were there when it first got a slot: found in the prefix cache, or shared
  // with choice 0. -1: it had none yet.
  int reused_tokens = -1;
  // the next prompt row whose log-probability is to be planned; -1: none
  int logprob_next = -1;
  std::unique_ptr<TokenDrafter> drafter;  // null before its first use
  DraftCounts draft_counts;
  std::array<DraftAcceptance, kNumDraftKinds> draft_acceptances;  // by kind
  RankAcceptance rank_acceptance;
  int passed_over = 0;  // number of times that policy lpm took a later sequence first
  int retractions = 0;

  int num_known() const { return static_cast<int>(tokens.size()); }
  int num_output() const { return num_known() - num_prompt; }
  bool in_prefill() const { return planned < prefill_end; }
  // Tokens of `planned` that are computed in any case: drafts in flight may be wrong.
  int planned_for_sure() const {
    return planned - std::max(0, samples_in_flight - steps_in_flight);
  }
  bool wants_token() const;  // the sequence may still be unfinished after the steps in flight
  DraftAcceptance& draft_acceptance(DraftKind kind) {
    return draft_acceptances[static_cast<std::size_t>(kind)];
  }
  void reset_run();  // returns the sequence to its state before admission
};

struct RequestState {
  QueuedRequest request;
  std::uint64_t arrival = 0;
  int dp = 0;
  std::int64_t load = 0;  // maximum tokens of a choice
  bool admitted = false;  // has left the queue at least once
  int cached_tokens = 0;
  int next_choice = 1;                               // this choice and later ones wait for the fork
  int reserved_slots = 0;                            // slots reserved for the waiting choices
  int unfinished = 0;                                // number of unfinished choices
  std::vector<std::unique_ptr<Sequence>> sequences;  // [choice] null: not created yet, or gone
  int num_live = 0;                                  // sequences that are not null

  bool gone() const { return unfinished == 0 && num_live == 0; }
  int num_prompt() const { return static_cast<int>(request.prompt_ids.size()); }
  bool awaits_fork() const { return next_choice < request.num_choices; }
};

inline Sequence::Sequence(RequestState& owner, int choice_index, std::vector<PageAllocator>& pools,
                          int num_page_groups)
    : request(owner),
      choice(choice_index),
      params(owner.request.params),
      tokens(owner.request.prompt_ids),
      num_prompt(owner.num_prompt()) {
  queue_key.arrival = owner.arrival;
  queue_key.choice = choice_index;
  params.seed = choice_seed(params.seed, choice_index);
  if (!owner.request.stop_matchers.empty())
    matcher = std::move(owner.request.stop_matchers[choice_index]);
  for (int g = 0; g < num_page_groups; ++g) pages.emplace_back(pools[g]);
  if (choice == 0) logprob_next = owner.request.logprob_start;
}

inline bool Sequence::wants_token() const {
  return num_output() + samples_in_flight < request.request.max_new_tokens;
}

inline void Sequence::reset_run() {
  copies.clear();
  for (PageList& list : pages) list.clear();
  state.reset();
  draft_states.clear();
  snapshots.clear();
  lock.reset();
  planned = collected = snapshot_at = branch_at = 0;
  drafts.clear();
  draft_parents.clear();
  is_tree = false;
  prompt_draft = {};
  branches = {};
  published = false;
}

}  // namespace sluice
