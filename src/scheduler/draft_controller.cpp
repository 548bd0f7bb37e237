#include "scheduler/draft_controller.h"

#include <algorithm>
#include <utility>

namespace sluice {
namespace {

// A gain below this is noise of the measured costs.
constexpr double kLeastGain = 1.02;
// What probes may cost, as a share of the steps between them.
constexpr double kProbeShare = 0.005;
// Steps whose share is kept at most. A draft's run behind a long prompt takes that of many.
constexpr double kMaxEarned = 100'000;
constexpr double kMemoryOfBalances = 0.8;

}  // namespace

void DraftAcceptance::add(int drafted, int accepted, double memory) {
  if (drafted <= 0) return;
  right_ = right_ * memory + accepted;
  seen_ = seen_ * memory + std::min(drafted, accepted + 1);
}

double DraftAcceptance::chance(double prior, double weight) const {
  return (right_ + weight * prior) / (seen_ + weight);
}

void RankAcceptance::add(int drafted, std::span<const std::int32_t> right, double memory) {
  if (std::cmp_less(ranks_.size(), drafted)) ranks_.resize(static_cast<std::size_t>(drafted));
  for (int rank = 0; rank < drafted; ++rank) {
    Seen& seen = ranks_[static_cast<std::size_t>(rank)];
    const bool was_right = std::ranges::count(right, rank + 1) > 0;
    seen.right = seen.right * memory + was_right;
    seen.seen = seen.seen * memory + 1;
  }
}

double RankAcceptance::chance(std::size_t rank, double prior, double weight) const {
  const Seen seen = rank < ranks_.size() ? ranks_[rank] : Seen{};
  return (seen.right + weight * prior) / (seen.seen + weight);
}

// A better node is right no less often: ranks that were seen otherwise get their mean. A rank that
// was not seen yet is taken for a bit less than the one before it.
void DraftController::fill_gains(const RankAcceptance& seen, std::span<double> gains) const {
  double all = 1;
  for (std::size_t rank = 0; rank < gains.size(); ++rank) {
    all = all_ranks_.chance(rank, all * kFirstChance, kWeightOfFirst);
    gains[rank] = seen.chance(rank, all, kWeightOfAllRanks);
    double sum = gains[rank];
    std::size_t begin = rank;
    while (begin > 0 && gains[begin - 1] < sum / static_cast<double>(rank - begin + 1))
      sum += gains[--begin];
    std::fill(gains.begin() + static_cast<std::ptrdiff_t>(begin),
              gains.begin() + static_cast<std::ptrdiff_t>(rank) + 1,
              sum / static_cast<double>(rank - begin + 1));
  }
}

void DraftController::set_tokens(double tokens) {
  const int step = static_cast<int>(tokens / kTokensStep);
  if (std::exchange(tokens_step_, step) != step)
    costs_ = measured_.behind(static_cast<double>(step) * kTokensStep);
}

int DraftController::choose(std::span<Offer> offers, const Wanted& wanted) {
  const auto [other_rows, max_drafts, are_trees] = wanted;
  const auto right_of = [](const Offer& offer, int draft, double before) {
    return offer.gains.empty() ? before * offer.chance
                               : offer.gains[static_cast<std::size_t>(draft) - 1];
  };
  int best = max_drafts;
  if (costs_.are_known()) {
    const auto sequences = static_cast<double>(offers.size());
    double tokens = sequences, rows = sequences + other_rows;
    double best_rate = kLeastGain * tokens / costs_.plain.at(rows);
    double best_row_s = 0;  // of a row of the best number's last drafts
    rate_ = best_rate / kLeastGain;
    best = 0;
    right_.assign(offers.size(), 1);
    // A row that brings less than its time brings without drafts never pays.
    const double all_rows = rows + sequences * max_drafts;
    const double least_right =
        tokens / costs_.plain.at(rows) * costs_.checks.least_slope(rows, all_rows);
    for (int k = 1; k <= max_drafts; ++k) {
      const double before = rows;
      for (std::size_t i = 0; i < offers.size(); ++i) {
        if (offers[i].drafts < k) continue;
        right_[i] = right_of(offers[i], k, right_[i]);
        if (right_[i] < least_right) {
          offers[i].drafts = k - 1;
          continue;
        }
        tokens += right_[i];
        rows += 1;
      }
      if (rows == before) break;
      const double rate =
          tokens / (costs_.check_s(rows, sequences) + costs_.draft_s(sequences, k, are_trees));
      if (rate <= best_rate) continue;
      rate_ = best_rate = rate;
      best_row_s = (costs_.checks.at(rows) - costs_.checks.at(before)) / (rows - before);
      best = k;
    }
    // With drafts a row's time brings more.
    const double least = best > 0 ? best_rate * best_row_s : 1;
    for (Offer& offer : offers) {
      int paying = 0;
      double right = 1;
      while (paying < std::min(best, offer.drafts) &&
             (right = right_of(offer, paying + 1, right)) >= least)
        ++paying;
      offer.drafts = paying;
    }
  }
  int most = 0;
  for (Offer& offer : offers) {
    offer.drafts = std::min(offer.drafts, best);
    most = std::max(most, offer.drafts);
  }
  return most;
}

double DraftController::step_s(int sequences, int drafts, bool are_trees) const {
  const double rows = sequences * (1.0 + drafts);
  return (drafts > 0 ? costs_.check_s(rows, sequences) : costs_.plain.at(rows)) +
         costs_.draft_s(sequences, drafts, are_trees);
}

void DraftController::earn(int rows) {
  const double share = kProbeShare * costs_.checks.at(rows);
  credit_s_ = std::min(credit_s_ + share, kMaxEarned * share);
}

bool DraftController::affords(double seconds) {
  if (credit_s_ < seconds) return false;
  credit_s_ -= seconds;
  return true;
}

void DraftController::balance(double saved_s) {
  ++num_balances_;
  saved_s_ = saved_s_ * kMemoryOfBalances + saved_s;
}

bool DraftController::probes() {
  if (!is_probe_due()) return false;
  steps_without_ = 0;
  wait_ = std::min(2 * wait_, kLongestWait);
  return true;
}

bool DraftController::can_make_up(int sequences) const {
  if (wait_ == 1 && steps_without_ <= 2) return true;  // the last probe was right
  const double steps_s = costs_.plain.at(sequences) * steps_without_;
  return costs_.first_pass.at(static_cast<double>(sequences) * steps_without_) <=
         kProbeShare * steps_s;
}

void DraftController::add(int drafted, int accepted, DraftKind kind) {
  all_[static_cast<std::size_t>(kind)].add(drafted, accepted, kMemoryOfAll);
  if (accepted == 0) {
    if (drafted > 0) right_probes_ = 0;
  } else if (accepted < drafted) {
    wait_ = std::min(wait_, kFirstWait);
  } else if (right_probes_ < kMaxRightProbes) {
    // Where a probe was right, the next one follows at once, until drafts pay or never will.
    wait_ = 1;
    ++right_probes_;
  }
}

}  // namespace sluice
