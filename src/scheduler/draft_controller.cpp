#include "scheduler/draft_controller.h"

#include <algorithm>

namespace sluice {
namespace {

// A gain below this is noise of the measured costs.
constexpr double kLeastGain = 1.02;
// What probes may cost, as a share of the steps between them.
constexpr double kProbeShare = 0.005;

}  // namespace

void DraftAcceptance::add(int drafted, int accepted, double memory) {
  if (drafted <= 0) return;
  right_ = right_ * memory + accepted;
  seen_ = seen_ * memory + std::min(drafted, accepted + 1);
}

double DraftAcceptance::chance(double prior, double weight) const {
  return (right_ + weight * prior) / (seen_ + weight);
}

int DraftController::choose(std::span<Offer> offers, int other_rows, int max_drafts) {
  int best = max_drafts;
  if (costs_.are_known()) {
    const auto sequences = static_cast<double>(offers.size());
    double tokens = sequences, rows = sequences + other_rows;
    double best_rate = kLeastGain * tokens / costs_.plain.at(rows), best_rows = rows;
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
        right_[i] *= offers[i].chance;
        if (right_[i] < least_right) {
          offers[i].drafts = k - 1;
          continue;
        }
        tokens += right_[i];
        rows += 1;
      }
      if (rows == before) break;
      const double rate = tokens / (costs_.checks.at(rows) + costs_.draft_s(sequences, k));
      if (rate <= best_rate) continue;
      best_rate = rate;
      best_rows = rows;
      best = k;
    }
    // With drafts a row's time brings more.
    const double least =
        best > 0 ? best_rate * (costs_.checks.at(best_rows) - costs_.checks.at(best_rows - 1)) : 1;
    for (Offer& offer : offers) {
      int paying = 0;
      for (double right = offer.chance; paying < std::min(best, offer.drafts) && right >= least;
           right *= offer.chance)
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

bool DraftController::probes() {
  if (steps_without_ < wait_) return false;
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
  // Where a probe was right, the next one follows at once.
  if (accepted > 0) wait_ = accepted == drafted ? 1 : std::min(wait_, kFirstWait);
}

}  // namespace sluice
