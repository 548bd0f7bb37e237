// How many drafts pay: from what steps cost and how often drafts were right.
//
//   DraftController controller(costs);
//   std::vector<DraftController::Offer> offers = ...;    // of each decode row of the step
//   const int most = controller.choose(offers, {.other_rows = rows, .max_drafts = 7});
//   controller.add(drafted, accepted);                   // what became of a sequence's
//
// A draft is right with a chance that the controller sees for each sequence: recent drafts count
// more, and all sequences' where there are few. With k drafts a sequence brings 1 + p + .. + p^k
// tokens a step. That number of drafts is taken which brings most tokens a second. Where none pays,
// now and then one sequence gets drafts, to see whether that has changed.
//
// Nodes of a tree stand best first. Each rank has a chance of its own to be on the right path, and
// adds it to the tokens of a step.
//
// What is done to see more, and pays nothing itself, takes a small share of the time (earn()).
//
// A draft also runs behind prompts, so that their sequences begin with drafts. That pays where
// sequences save more than their drafts and that run cost: those that have ended tell (balance()).
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

// How often the nodes of trees were right, by rank: the best node has rank 0.
class RankAcceptance {
 public:
  // A step checked the best `drafted` nodes. `right`: numbers of the right ones, 1 for the best.
  void add(int drafted, std::span<const std::int32_t> right, double memory);
  double chance(std::size_t rank, double prior, double weight) const;

 private:
  struct Seen {
    double right = 0, seen = 0;  // weighed by age
  };
  std::vector<Seen> ranks_;
};

class DraftController {
 public:
  explicit DraftController(DraftCosts costs) : measured_(std::move(costs)), costs_(measured_) {}

  // Sequences have so many tokens, in the mean.
  void set_tokens(double tokens);

  // What a decode row has.
  struct Offer {
    double chance = 0;  // that a draft is right
    int drafts = 0;     // there are so many; out: so many pay
    // Of a tree: what each node adds to the tokens of a step, descending. Empty: a chain.
    std::span<const double> gains = {};
  };
  struct Wanted {
    int other_rows = 0;  // of prefill chunks
    int max_drafts = 0;
    bool are_trees = false;  // of which the draft makes more
  };
  // The most drafts of a sequence, 0 to max_drafts. Without costs all are taken.
  int choose(std::span<Offer> offers, const Wanted& wanted);
  // Tokens a second of the last choice.
  double rate() const { return rate_; }
  // What a token costs less than without drafts, by the last choice, of so many sequences.
  double saved_token_s(int sequences) const {
    return rate_ > 0 ? costs_.plain.at(sequences) / sequences - 1 / rate_ : 0;
  }
  // Seconds of a step with so many drafts of each sequence, and of the draft behind it.
  double step_s(int sequences, int drafts, bool are_trees) const;
  // choose() gave none for a step. `had_some`: there were drafts.
  void pass(bool had_some = true) {
    steps_without_ += had_some;
    ++passes_;
  }
  // choose() gave some.
  void resume() { passes_ = right_probes_ = 0; }
  // Whether no draft has paid for a while.
  bool is_off() const { return passes_ >= kFirstWait; }
  bool is_probe_due() const { return steps_without_ >= wait_; }
  // Whether a sequence gets a draft nevertheless; then the next wait is longer.
  bool probes();
  // Whether a draft that did not run since the last probe may run for one. It makes up for the
  // slots of all steps between, which costs little on a GPU and much on a CPU.
  bool can_make_up(int sequences) const;

  // A step of so many rows was planned, of which a share may go into finding out more.
  void earn(int rows);
  // Takes the seconds from what was earned, where there is as much.
  bool affords(double seconds);
  // A sequence has ended behind whose prompt the draft ran: the seconds that its drafts saved, less
  // all that they cost.
  void balance(double saved_s);
  bool prompts_pay() const { return num_balances_ < kFirstBalances || saved_s_ >= 0; }
  // A probe begins that probes() did not ask for.
  void begin_probe() { steps_without_ = 0; }

  void add(int drafted, int accepted, DraftKind kind = DraftKind::kMethod);
  void add_tree(int drafted, std::span<const std::int32_t> right) {
    all_ranks_.add(drafted, right, kMemoryOfAll);
  }
  // Offer::gains of a sequence of whose trees `seen` is known.
  void fill_gains(const RankAcceptance& seen, std::span<double> gains) const;
  // Of sequences with as many tokens as was said last.
  const DraftCosts& costs() const { return costs_; }
  // Of a sequence of whose drafts of this kind `seen` is known.
  double chance(const DraftAcceptance& seen, DraftKind kind = DraftKind::kMethod) const {
    const DraftAcceptance& all = all_[static_cast<std::size_t>(kind)];
    return seen.chance(all.chance(kFirstChance, kWeightOfFirst), kWeightOfAll);
  }

  static constexpr double kMemoryOfOne = 0.85, kMemoryOfAll = 0.99;
  static constexpr double kFirstChance = 0.8;
  static constexpr int kProbe = 1;  // drafts of a sequence that is asked whether they pay again
  static constexpr double kWeightOfFirst = 2, kWeightOfAll = 3;
  // Of a rank each step says one thing, of a chain's drafts several.
  static constexpr double kMemoryOfRank = 0.95, kWeightOfAllRanks = 8;

 private:
  const DraftCosts measured_;
  DraftCosts costs_;     // behind as many tokens
  int tokens_step_ = 0;  // of kTokensStep tokens each
  std::array<DraftAcceptance, kNumDraftKinds> all_;
  RankAcceptance all_ranks_;
  int steps_without_ = 0, wait_ = kFirstWait, passes_ = 0;
  int right_probes_ = 0;  // in a row, though drafts did not pay
  double rate_ = 0, credit_s_ = 0;
  int num_balances_ = 0;
  double saved_s_ = 0;         // by sequences that have ended, weighed by age
  std::vector<double> right_;  // of each offer: the chance that all its drafts so far are

  static constexpr int kFirstWait = 8, kLongestWait = 512;
  static constexpr int kFirstBalances = 3, kMaxRightProbes = 16;
  static constexpr int kTokensStep = 64;
};

}  // namespace sluice
