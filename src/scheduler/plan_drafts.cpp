#include <algorithm>

#include "batch/draft_paths.h"
#include "scheduler/dp_scheduler.h"

namespace sluice {
namespace {

constexpr std::int64_t kEvictedShare = 4;
// Text may begin to repeat at any time. So it is looked at again after as many steps.
constexpr int kStepsWithoutLook = 8;

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

// While no draft pays, steps are planned ahead as without speculation. Nobody is asked for drafts
// then: not the text, whose last tokens are not known, and no draft behind the step in flight.
bool DpScheduler::awaits_tokens() const {
  if (options_.max_drafts == 0) return false;
  if (rounds_in_flight_ > 0) return !may_plan_ahead_of_round();
  if (!options_.draft_costs.are_known() || has_drafts_ || next_drafts_ > 0 ||
      !draft_controller_.is_off() || !waiting_.empty())
    return true;
  // What is decided at a prompt's first chunk, and what grammars force, needs all tokens.
  if (std::ranges::any_of(running_, [&](const Sequence* s) {
        const bool may_run = !options_.make_drafter && s->in_prefill() &&
                             s->prompt_draft != Sequence::PromptDraft::kPutOff;
        return may_run || (options_.draft_forced && s->request.request.make_constraint);
      }))
    return true;
  if (options_.make_drafter) return steps_ahead_ >= kStepsWithoutLook;
  return draft_controller_.is_probe_due() &&
         draft_controller_.can_make_up(static_cast<int>(running_.size()));
}

// Drafts behind the decode rows of the step: those that pay, and have room.
void DpScheduler::plan_drafts() {
  tell_tokens();
  const int most = max_drafts_of_step();
  const bool probes = probes_next_, explores = explores_next_;
  begin_offers();
  num_draft_states_ = 0;
  bool any = false;
  for (Item& item : decodes_) {
    Sequence& s = *item.sequence;
    if (is_ahead_of_round() && s.steps_in_flight > 0)
      find_drafts_ahead(s, most);
    else
      find_drafts(s, most);
    any = any || !s.drafts.empty();
    offer(s, s.draft_kind, static_cast<int>(s.drafts.size()), s.is_tree);
  }
  int other_rows = 0;
  for (const Item& item : prefills_) other_rows += item.count;
  const bool are_trees =
      std::ranges::any_of(decodes_, [](const Item& item) { return item.sequence->is_tree; });
  const bool paying =
      draft_controller_.choose(
          offers_, {.other_rows = other_rows, .max_drafts = most, .are_trees = are_trees}) > 0;
  if (explores)
    for (std::size_t i = 0; i < decodes_.size(); ++i)
      offers_[i].drafts = static_cast<int>(decodes_[i].sequence->drafts.size());
  if (options_.make_drafter && !decodes_.empty()) {
    if (any && paying)
      draft_controller_.resume();
    else
      draft_controller_.pass(any);
  }
  // A prompt's draft has been made already.
  if (any && !paying && !explores && (probes || draft_controller_.probes())) {
    // Another sequence each time.
    std::size_t i = num_probes_++ % decodes_.size();
    while (decodes_[i].sequence->drafts.empty()) i = (i + 1) % decodes_.size();
    offers_[i].drafts = DraftController::kProbe;
  }
  // A round has a draft at least.
  const auto has_offer = [](const DraftController::Offer& one) { return one.drafts > 0; };
  if (is_ahead_of_round() && any && std::ranges::none_of(offers_, has_offer))
    for (std::size_t i = 0; i < decodes_.size(); ++i)
      offers_[i].drafts = std::min<int>(1, static_cast<int>(decodes_[i].sequence->drafts.size()));
  for (std::size_t i = 0; i < decodes_.size(); ++i) {
    Sequence& s = *decodes_[i].sequence;
    const auto count = std::min<std::size_t>(s.drafts.size(), offers_[i].drafts);
    s.drafts.resize(count);
    if (s.draft_parents.empty()) continue;
    s.draft_parents.resize(count);
    if (is_chain(s.draft_parents)) s.draft_parents.clear();
  }
  steps_ahead_ = is_ahead_ ? steps_ahead_ + 1 : 0;
  next_drafts_ = options_.make_drafter ? -1 : choose_next_drafts();
  for (const Item& item : decodes_) {
    // Branches of this step would be those of the next drafts.
    if (next_drafts_ > 0 && !next_is_tree_) keep_best_chain(*item.sequence);
    make_room_for_drafts(*item.sequence);
  }
  if (options_.draft_branches > 1) make_branches_of_step();
  int drafts = 0;
  for (Item& item : decodes_) {
    const auto count = static_cast<int>(item.sequence->drafts.size());
    item.count += count;
    drafts = std::max(drafts, count);
  }
  has_drafts_ = drafts > 0;
  is_round_ = can_be_round();
  if (is_round_) {
    rounds_go_on_ = next_drafts_ != 0;
    if (next_drafts_ <= 0) next_drafts_ = next_drafts_ < 0 ? options_.max_drafts : 1;
    round_drafts_ = next_drafts_;
    shared_counters_.stats.rounds_ahead += is_ahead_;
  } else if (is_ahead_of_round()) {
    return withdraw();
  }
  if (!decodes_.empty()) ++shared_counters_.stats.steps_by_drafts.at(drafts);
  earn();
  charge_drafts();
}

void DpScheduler::tell_tokens() {
  if (decodes_.empty()) return;
  double tokens = 0;
  for (const Item& item : decodes_) tokens += item.sequence->planned;
  draft_controller_.set_tokens(tokens / static_cast<double>(decodes_.size()));
}

void DpScheduler::begin_offers() {
  offers_.clear();
  gains_.resize((prefills_.size() + decodes_.size()) *
                static_cast<std::size_t>(options_.max_drafts));
}

// So many drafts of a sequence.
void DpScheduler::offer(Sequence& s, DraftKind kind, int drafts, bool is_tree) {
  const auto most = static_cast<std::size_t>(options_.max_drafts);
  DraftController::Offer& out = offers_.emplace_back();
  out.chance = draft_controller_.chance(s.draft_acceptance(kind), kind);
  out.drafts = drafts;
  if (!is_tree) return;
  const std::span<double> gains =
      std::span(gains_).subspan((offers_.size() - 1) * most, static_cast<std::size_t>(drafts));
  draft_controller_.fill_gains(s.rank_acceptance, gains);
  out.gains = gains;
}

void DpScheduler::earn() {
  if (!options_.draft_costs.are_known()) return;
  int rows = 0;
  for (const auto* items : {&decodes_, &prefills_})
    for (const Item& item : *items) rows += item.count;
  if (rows > 0) draft_controller_.earn(rows);
}

// What the step's drafts and the draft's run behind it cost, beyond a step without them.
void DpScheduler::charge_drafts() {
  const DraftCosts& costs = draft_controller_.costs();
  if (!costs.are_known() || options_.make_drafter) return;
  const auto sequences = static_cast<int>(decodes_.size());
  double run_s = 0;
  if (sequences > 0) {
    int rows = 0;
    for (const Item& item : decodes_) rows += item.count;
    const double plain_s = costs.plain.at(sequences);
    run_s = costs.draft_s(sequences, std::max(next_drafts_, 0), next_is_tree_);
    const double checks_s =
        rows > sequences ? std::max(0.0, costs.check_s(rows, sequences) - plain_s) : 0;
    token_s_ = plain_s / sequences;
    for (const Item& item : decodes_)
      if (std::optional<double>& balance = item.sequence->draft_balance_s)
        *balance -= (run_s + checks_s) / sequences;
  }
  if (next_drafts_ == 0) return;
  int tokens = 0;
  for (const Item& item : prefills_) tokens += item.count;
  const CostLine& passes = options_.draft_costs.first_pass;
  const double prompts_s = passes.at(sequences + tokens) - passes.at(sequences);
  for (const Item& item : prefills_) {
    std::optional<double>& balance = item.sequence->draft_balance_s;
    balance = balance.value_or(0) - prompts_s * item.count / tokens;
  }
}

// Leaves of a tree the best node of each level.
void DpScheduler::keep_best_chain(Sequence& s) {
  if (s.draft_parents.empty()) return;
  std::int32_t last = 0;
  const std::vector<std::int32_t> parents = s.draft_parents;
  keep_drafts({s.drafts, s.draft_parents}, [&](std::size_t i) {
    if (parents[i] != last) return false;
    last = static_cast<std::int32_t>(i) + 1;
    return true;
  });
  s.draft_parents.clear();
  s.is_tree = false;
}

// How many drafts each decode row may get so that the step stays within max_draft_rows.
int DpScheduler::max_drafts_of_step() const {
  const int most = is_ahead_of_round() ? options_.max_round_rows : options_.max_draft_rows;
  if (most == 0 || decodes_.empty()) return options_.max_drafts;
  const auto sequences = static_cast<int>(prefills_.size() + decodes_.size());
  const int left = std::max(0, most - sequences);
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
    s.is_tree = false;
  }
  s.draft_kind = DraftKind::kMethod;
  if (!may) return;
  find_forced(s, most);
  if (options_.make_drafter && s.drafts.empty()) {
    if (s.drafter == nullptr)
      s.drafter = options_.make_drafter({.cache_namespace = s.request.request.cache_namespace,
                                         .num_prompt = static_cast<std::size_t>(s.num_prompt)});
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
  s.is_tree = false;
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

// How many drafts the next step can use, if it has the sequences of this one. A draft runs behind
// chunks of prompts while drafts pay or may pay, so that a new sequence begins with a draft.
int DpScheduler::choose_next_drafts() {
  probes_next_ = explores_next_ = false;
  if (is_ahead_ && !is_ahead_of_round()) {
    draft_controller_.pass();
    return 0;
  }
  const bool branches = options_.draft_branches > 1;
  next_is_tree_ = branches;
  const int most = max_drafts_of_step();
  if (!options_.draft_costs.are_known()) return branches ? most : -1;
  int chosen = choose_next_drafts(most, false);
  if (branches) {
    const double of_chains = draft_controller_.rate();
    const int nodes = choose_next_drafts(most, true);
    next_is_tree_ = nodes > 1 && draft_controller_.rate() > of_chains;
    const auto sequences = static_cast<int>(offers_.size());
    if (next_is_tree_) chosen = nodes;
    if (chosen > 0 && (chosen < most || !next_is_tree_) &&
        draft_controller_.affords(draft_controller_.step_s(sequences, most, true) -
                                  draft_controller_.step_s(sequences, chosen, next_is_tree_))) {
      explores_next_ = next_is_tree_ = true;
      chosen = most;
    }
  }
  if (chosen > 0)
    draft_controller_.resume();
  else
    draft_controller_.pass();
  const bool may_put_off = chosen == 0 || !draft_controller_.prompts_pay();
  if (!prefills_.empty() && may_put_off) {
    const bool runs = most > 0 && wants_prompt_drafts();
    probes_next_ = runs && chosen == 0;
    return runs ? std::max(chosen, DraftController::kProbe) : 0;
  }
  if (chosen > 0) return chosen;
  if (most == 0 || !draft_controller_.can_make_up(static_cast<int>(decodes_.size()))) return 0;
  if (!draft_controller_.probes()) return 0;
  probes_next_ = true;
  return DraftController::kProbe;
}

int DpScheduler::choose_next_drafts(int most, bool are_trees) {
  const int levels = options_.draft_costs.tree_levels;
  const int drafts = are_trees || levels == 0 ? options_.max_drafts : levels;
  begin_offers();
  for (const auto* items : {&decodes_, &prefills_})
    for (const Item& item : *items) {
      // Its prompt was put off, and so may its drafts be.
      const bool has_none = item.sequence->prompt_draft == Sequence::PromptDraft::kPutOff &&
                            !draft_controller_.prompts_pay();
      offer(*item.sequence, DraftKind::kMethod, has_none ? 0 : drafts, are_trees);
    }
  return draft_controller_.choose(offers_,
                                  {.max_drafts = std::min(most, drafts), .are_trees = are_trees});
}

// Where no draft pays, or none behind a prompt: whether the draft runs behind the chunks of this
// step nevertheless. It is decided for each prompt at its first chunk.
bool DpScheduler::wants_prompt_drafts() {
  using PromptDraft = Sequence::PromptDraft;
  bool runs = false;
  for (const Item& item : prefills_) {
    Sequence& s = *item.sequence;
    if (s.prompt_draft == PromptDraft::kUndecided) {
      const int slots = s.prefill_end - s.planned;
      const bool may = (!draft_controller_.is_off() && draft_controller_.prompts_pay()) ||
                       pays_for_run(s, slots) ||
                       draft_controller_.affords(options_.draft_costs.first_pass.at(slots));
      s.prompt_draft = may ? PromptDraft::kRuns : PromptDraft::kPutOff;
      if (may) draft_controller_.begin_probe();
    }
    runs = runs || s.prompt_draft == PromptDraft::kRuns;
  }
  return runs;
}

// Whether the tokens that an answer has at least save what the draft's run behind its prompt costs.
bool DpScheduler::pays_for_run(const Sequence& s, int slots) const {
  const bool may_stop = !s.params.stop_token_ids.empty() || s.matcher != nullptr;
  const int tokens = may_stop ? s.params.min_new_tokens : s.request.request.max_new_tokens;
  const auto sequences = static_cast<int>(offers_.size());
  return !draft_controller_.is_off() && draft_controller_.saved_token_s(sequences) * tokens >
                                            options_.draft_costs.first_pass.at(slots);
}

// Where the slots end that a draft fills behind a step that ends at `end`.
int DpScheduler::draft_end(int end) const {
  return std::max(end, std::min(end + options_.draft_slots, options_.max_context));
}

}  // namespace sluice
