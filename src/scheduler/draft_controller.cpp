#include "scheduler/draft_controller.h"

#include <algorithm>

namespace sluice {
namespace {

// A gain below this is noise of the measured costs.
constexpr double kLeastGain = 1.02;
// Drafts that count as seen before any was.
constexpr double kWeightOfPrior = 3;

}  // namespace

void DraftAcceptance::add(int drafted, int accepted, double memory) {
  if (drafted <= 0) return;
  right_ = right_ * memory + accepted;
  seen_ = seen_ * memory + std::min(drafted, accepted + 1);
}

double DraftAcceptance::chance(double prior) const {
  return (right_ + kWeightOfPrior * prior) / (seen_ + kWeightOfPrior);
}

int DraftController::choose(std::span<const Offer> offers, int other_rows, int max_drafts) const {
  if (!costs_.are_known()) return max_drafts;
  const auto sequences = static_cast<double>(offers.size());
  double tokens = sequences, rows = sequences + other_rows;
  double best_rate = kLeastGain * tokens / costs_.step_s(rows);
  int best = 0;
  std::vector<double> right(offers.size(), 1.0);  // chance that all drafts so far are
  for (int k = 1; k <= max_drafts; ++k) {
    bool any = false;
    for (std::size_t i = 0; i < offers.size(); ++i) {
      if (offers[i].drafts < k) continue;
      any = true;
      right[i] *= offers[i].chance;
      tokens += right[i];
      rows += 1;
    }
    if (!any) break;
    const double rate = tokens / (costs_.step_s(rows) + costs_.draft_s(k));
    if (rate <= best_rate) continue;
    best_rate = rate;
    best = k;
  }
  return best;
}

bool DraftController::probes() {
  if (++steps_without_ < wait_) return false;
  steps_without_ = 0;
  wait_ = std::min(2 * wait_, kLongestWait);
  return true;
}

void DraftController::add(int drafted, int accepted) {
  all_.add(drafted, accepted, kMemoryOfAll);
  if (accepted > 0) wait_ = kFirstWait;
}

}  // namespace sluice
