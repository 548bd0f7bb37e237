#include <algorithm>

#include "batch/draft_paths.h"
#include "scheduler/dp_scheduler.h"

namespace sluice {
namespace {

constexpr std::int64_t kEvictedShare = 4;

// Keeps drafts for which `keep` says true of their depth and token; nothing comes behind others.
template <class Keep>
void keep_in_tree(Sequence& s, const Keep& keep) {
  std::vector<int> depths = {0};
  for (const std::int32_t parent : s.draft_parents)
    depths.push_back(depths[static_cast<std::size_t>(parent)] + 1);
  keep_drafts({s.drafts, s.draft_parents},
              [&](std::size_t i) { return keep(i, depths[i + 1], s.drafts[i]); });
}

}  // namespace

// Drafts behind the decode rows of the step: those that pay, and have room.
void DpScheduler::plan_drafts() {
  const int most = max_drafts_of_step();
  offers_.clear();
  num_draft_states_ = 0;
  bool any = false;
  for (Item& item : decodes_) {
    Sequence& s = *item.sequence;
    find_drafts(s, most);
    any = any || !s.drafts.empty();
    offers_.push_back({draft_controller_.chance(s.draft_acceptance(s.draft_kind), s.draft_kind),
                       static_cast<int>(s.drafts.size())});
  }
  int other_rows = 0;
  for (const Item& item : prefills_) other_rows += item.count;
  const bool paying = draft_controller_.choose(offers_, other_rows, most) > 0;
  if (any && !paying && options_.make_drafter) draft_controller_.pass();
  // A prompt's draft has been made already.
  if (any && !paying && (probes_next_ || draft_controller_.probes())) {
    // Another sequence each time.
    std::size_t i = num_probes_++ % decodes_.size();
    while (decodes_[i].sequence->drafts.empty()) i = (i + 1) % decodes_.size();
    offers_[i].drafts = DraftController::kProbe;
  }
  for (std::size_t i = 0; i < decodes_.size(); ++i) {
    Sequence& s = *decodes_[i].sequence;
    const auto count = std::min<std::size_t>(s.drafts.size(), offers_[i].drafts);
    s.drafts.resize(count);
    if (!s.draft_parents.empty()) s.draft_parents.resize(count);
    make_room_for_drafts(s);
  }
  next_drafts_ = options_.make_drafter ? -1 : choose_next_drafts();
  if (options_.draft_branches > 1) make_branches_of_step();
  int drafts = 0;
  for (Item& item : decodes_) {
    const auto count = static_cast<int>(item.sequence->drafts.size());
    item.count += count;
    drafts = std::max(drafts, count);
  }
  if (!decodes_.empty()) ++shared_counters_.stats.steps_by_drafts.at(drafts);
}

// How many drafts each decode row may get so that the step stays within max_draft_rows.
int DpScheduler::max_drafts_of_step() const {
  if (options_.max_draft_rows == 0 || decodes_.empty()) return options_.max_drafts;
  const auto sequences = static_cast<int>(prefills_.size() + decodes_.size());
  const int left = std::max(0, options_.max_draft_rows - sequences);
  return std::min(options_.max_drafts, left / static_cast<int>(decodes_.size()));
}

// Leaves in s.drafts those that the decode row of a sequence may get.
void DpScheduler::find_drafts(Sequence& s, int max_drafts) {
  // The row itself brings one token.
  const int left = s.request.request.max_new_tokens - s.num_output() - 1;
  const int most = std::min(max_drafts, left);
  const bool may = most > 0 && s.planned + 1 == s.num_known();
  if (options_.make_drafter || !may) {
    s.drafts.clear();
    s.draft_parents.clear();
  }
  s.draft_kind = DraftKind::kMethod;
  if (!may) return;
  find_forced(s, most);
  if (options_.make_drafter && s.drafts.empty()) {
    if (s.drafter == nullptr) s.drafter = options_.make_drafter();
    s.drafter->draft(s.tokens, most, s.drafts);
  }
  // A token that ends the sequence has none behind it, and comes from the row before it.
  if (!s.draft_parents.empty()) return find_in_tree(s, max_drafts, left);
  auto end = std::ranges::find_first_of(s.drafts, s.params.stop_token_ids);
  if (end - s.drafts.begin() > most) end = s.drafts.begin() + most;
  s.drafts.erase(end, s.drafts.end());
}

// The same of a tree. No two tokens behind one are equal: a table of a draft may name one twice.
void DpScheduler::find_in_tree(Sequence& s, int max_drafts, int max_depth) {
  const std::vector<std::int32_t> tokens = s.drafts, parents = s.draft_parents;
  const auto occurs_before = [&](std::size_t i) {
    for (std::size_t k = 0; k < i; ++k)
      if (tokens[k] == tokens[i] && parents[k] == parents[i]) return true;
    return false;
  };
  keep_in_tree(s, [&](std::size_t i, int depth, std::int32_t token) {
    return std::cmp_less(i, max_drafts) && depth <= max_depth && !occurs_before(i) &&
           std::ranges::count(s.params.stop_token_ids, token) == 0;
  });
}

// Drafts of the grammar take the place of the method's, unless these begin with them.
void DpScheduler::find_forced(Sequence& s, int max_drafts) {
  const QueuedRequest& request = s.request.request;
  if (!options_.draft_forced || !request.make_constraint) return;
  forced_.clear();
  options_.draft_forced(sequence_id(request.id, s.choice), max_drafts, forced_);
  if (forced_.empty()) return;
  if (s.draft_parents.empty()) {
    const auto agreed = std::ranges::mismatch(forced_, s.drafts);
    if (agreed.in1 == forced_.end()) return;
  } else {
    std::vector<std::int32_t> tokens = {s.tokens.back()}, parents = {-1}, wanted = forced_;
    tokens.insert(tokens.end(), s.drafts.begin(), s.drafts.end());
    parents.insert(parents.end(), s.draft_parents.begin(), s.draft_parents.end());
    wanted.push_back(-1);
    if (right_rows(parents, tokens, wanted).size() == wanted.size()) return;
  }
  s.drafts.assign(forced_.begin(), forced_.end());
  s.draft_parents.clear();
  s.draft_kind = DraftKind::kForced;
}

// Recurrent layers keep a state behind each draft. Drafts that get none are dropped. Those of a
// step drive out kept states only while they have less than a quarter of all.
void DpScheduler::take_draft_states(Sequence& s) {
  if (state_group_ < 0) return;
  PageAllocator& states = pools_[state_group_];
  while (s.draft_states.size() < s.drafts.size()) {
    const bool may_evict = num_draft_states_ < states.num_pages() / kEvictedShare;
    if (states.num_free() == 0 && !(may_evict && ensure(state_group_, 1))) break;
    s.draft_states.push_back(PageRef::taken(states));
    ++num_draft_states_;
  }
  s.drafts.resize(s.draft_states.size());
}

// The drafts that got pages; those behind them are dropped.
void DpScheduler::make_room_for_drafts(Sequence& s) {
  take_draft_states(s);
  const int next = s.planned + 1, wanted = next + draft_depth(s);
  const int room = std::max(next, std::min(memory_end(s), wanted));
  const int most = grow(s, room) ? room - next : 0;
  if (s.draft_parents.empty())
    s.drafts.resize(static_cast<std::size_t>(most));
  else if (room < wanted || most == 0)
    keep_in_tree(s, [&](std::size_t, int depth, std::int32_t) { return depth <= most; });
  const int slots = std::min(memory_end(s), draft_end(room));
  if (slots > room) (void)grow(s, slots);
  s.draft_states.resize(state_group_ < 0 ? 0 : s.drafts.size());
}

// How many drafts the next step can use, if it has the sequences of this one. Where there are
// chunks of prompts the draft runs, so that a new sequence begins with a draft.
int DpScheduler::choose_next_drafts() {
  probes_next_ = false;
  if (!options_.draft_costs.are_known())
    return options_.draft_branches > 1 ? max_drafts_of_step() : -1;
  offers_.clear();
  for (const auto* items : {&decodes_, &prefills_})
    for (const Item& item : *items)
      offers_.push_back(
          {draft_controller_.chance(item.sequence->draft_acceptance(DraftKind::kMethod)),
           options_.max_drafts});
  const int most = max_drafts_of_step();
  const int chosen = draft_controller_.choose(offers_, 0, most);
  if (chosen > 0 || !prefills_.empty()) return std::max(chosen, 1);
  draft_controller_.pass();
  if (most == 0 || !draft_controller_.can_make_up(static_cast<int>(decodes_.size()))) return 0;
  if (!draft_controller_.probes()) return 0;
  probes_next_ = true;
  return DraftController::kProbe;
}

// Where the slots end that a draft fills behind a step that ends at `end`.
int DpScheduler::draft_end(int end) const {
  return std::max(end, std::min(end + options_.draft_slots, options_.max_context));
}

}  // namespace sluice
