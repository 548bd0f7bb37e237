// Rounds (Batch::is_round): steps with drafts of which the next one is planned while they are in
// flight, as if all of their drafts were right.
#include <algorithm>

#include "scheduler/dp_scheduler.h"

namespace sluice {
namespace {

// Stop tokens that a sequence of a round may have: the device has no list of edits for drafts.
constexpr std::size_t kMaxStopTokens = 64;

}  // namespace

// Whether the tokens of the sequence's next step depend on what only the host knows or does.
bool DpScheduler::needs_host(const Sequence& s) {
  const QueuedRequest& request = s.request.request;
  const SamplingParams& params = s.params;
  return request.make_constraint || request.want_logits_hash || request.deterministic ||
         request.pooling != Pooling::kNone || s.logprob_next >= 0 || params.needs_history() ||
         !params.logit_bias.empty() || params.stop_token_ids.size() > kMaxStopTokens ||
         (s.num_output() < params.min_new_tokens && !params.stop_token_ids.empty());
}

// One step is planned ahead of a round. Where sequences may get a slot, none is.
bool DpScheduler::may_plan_ahead_of_round() const {
  const bool may_admit = !waiting_.empty() && !free_slots_.empty() && rounds_until_look_ == 0;
  if (rounds_in_flight_ > 1 || !rounds_go_on_ || may_admit) return false;
  bool has_drafts = false;
  for (const Sequence* s : running_) {
    if (s->in_prefill() || needs_host(*s)) return false;
    const int left = s->request.request.max_new_tokens - s->num_output() - s->samples_in_flight;
    has_drafts = has_drafts || (left > 1 && s->steps_in_flight > 0);
  }
  return has_drafts;
}

// The device makes the drafts of the round in flight; only their number is known. Where that round
// brings no more than a token for each step, the sequence has room for as many drafts again.
void DpScheduler::find_drafts_ahead(Sequence& s, int max_drafts) const {
  const int sure = std::min(s.samples_in_flight, s.steps_in_flight);
  const int left = s.request.request.max_new_tokens - s.num_output() - sure - 1;
  s.draft_parents.clear();
  s.is_tree = false;
  s.draft_kind = DraftKind::kMethod;
  s.drafts.resize(
      static_cast<std::size_t>(std::max(0, std::min({max_drafts, left, round_drafts_}))));
  for (std::size_t i = 0; i < s.drafts.size(); ++i)
    s.drafts[i] = kDraftFromSlot - static_cast<std::int32_t>(i);
}

// A round is a step of decode rows with drafts, behind which the draft runs for all sequences, and
// has pages for all that it drafts.
bool DpScheduler::can_be_round() const {
  if (!has_drafts_ || !prefills_.empty() || next_is_tree_ || probes_next_) return false;
  if (next_drafts_ == 0 && !is_ahead_of_round()) return false;
  const int next = next_drafts_ < 0 ? options_.max_drafts : std::max(next_drafts_, 1);
  int rows = 0;
  for (const Item& item : decodes_) {
    const Sequence& s = *item.sequence;
    const int end = s.planned + item.count + next - 1;
    const bool has_pages = std::ranges::all_of(
        s.pages, [&](const PageList& pages) { return pages.size() * kPageSize >= end; });
    const int left = s.request.request.max_new_tokens - s.num_output() - s.samples_in_flight;
    // A sequence without drafts may be one that the draft does not know.
    const bool is_drafted = item.count > 1 || left <= 1 || s.steps_in_flight > 0;
    if (!has_pages || end > options_.max_context || !is_drafted || needs_host(s) ||
        s.draft_kind != DraftKind::kMethod || !s.draft_parents.empty())
      return false;
    rows += item.count;
  }
  return rows <= options_.max_round_rows;
}

// The step waits for the tokens of the round in flight after all.
void DpScheduler::withdraw() {
  for (const Item& item : decodes_) item.sequence->drafts.clear();
  decodes_.clear();
}

}  // namespace sluice
