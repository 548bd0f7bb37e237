// How many drafts pay: from what steps cost and how often drafts were right.
//
//   DraftController controller(costs);
//   std::vector<DraftController::Offer> offers = ...;    // of each decode row of the step
//   const int most = controller.choose(offers, other_rows, max_drafts);
//   controller.add(drafted, accepted);                   // what became of a sequence's
//
// A draft is right with a chance that the controller sees for each sequence: recent drafts count
// more, and all sequences' where there are few. With k drafts a sequence brings 1 + p + .. + p^k
// tokens a step. That number of drafts is taken which brings most tokens a second. Where none pays,
// now and then one sequence gets drafts, to see whether that has changed.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "batch/draft_costs.h"

namespace sluice {

// Where drafts come from. Each kind is right as often as it is.
enum class DraftKind : std::uint8_t { kMethod, kForced };
inline constexpr std::size_t kNumDraftKinds = 2;

// How often the drafts of one sequence, or of all, were right.
class DraftAcceptance {
 public:
  // A step checked so many drafts, and the first `accepted` of them were right.
  void add(int drafted, int accepted, double memory);
  // `prior` stands for `weight` drafts that were seen before all others.
  double chance(double prior, double weight) const;

 private:
  double right_ = 0, seen_ = 0;  // drafts whose forerunners were right, weighed by age
};

class DraftController {
 public:
  explicit DraftController(DraftCosts costs) : costs_(std::move(costs)) {}

  // What a decode row has.
  struct Offer {
    double chance = 0;  // that a draft is right
    int drafts = 0;     // there are so many; out: so many pay
  };
  // The most drafts of a sequence, 0 to max_drafts. `other_rows`: of prefill chunks. Without costs
  // all are taken.
  int choose(std::span<Offer> offers, int other_rows, int max_drafts);
  // choose() gave none for a step.
  void pass() { ++steps_without_; }
  // Whether a sequence gets a draft nevertheless; then the next wait is longer.
  bool probes();
  // Whether a draft that did not run since the last probe may run for one. It makes up for the
  // slots of all steps between, which costs little on a GPU and much on a CPU.
  bool can_make_up(int sequences) const;

  void add(int drafted, int accepted, DraftKind kind = DraftKind::kMethod);
  // Of a sequence of whose drafts of this kind `seen` is known.
  double chance(const DraftAcceptance& seen, DraftKind kind = DraftKind::kMethod) const {
    const DraftAcceptance& all = all_[static_cast<std::size_t>(kind)];
    return seen.chance(all.chance(kFirstChance, kWeightOfFirst), kWeightOfAll);
  }

  static constexpr double kMemoryOfOne = 0.85, kMemoryOfAll = 0.99;
  static constexpr double kFirstChance = 0.8;
  static constexpr int kProbe = 1;  // drafts of a sequence that is asked whether they pay again
  static constexpr double kWeightOfFirst = 2, kWeightOfAll = 3;

 private:
  const DraftCosts costs_;
  std::array<DraftAcceptance, kNumDraftKinds> all_;
  int steps_without_ = 0, wait_ = kFirstWait;
  std::vector<double> right_;  // of each offer: the chance that all its drafts so far are

  static constexpr int kFirstWait = 8, kLongestWait = 512;
};

}  // namespace sluice
