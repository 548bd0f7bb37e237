// What drafts cost, as plain values: measured by the runner when it starts, read by the scheduler.
#pragma once

#include <algorithm>
#include <vector>

namespace sluice {

struct DraftCosts {
  struct Step {
    int rows = 1;        // decode rows, drafts among them
    double seconds = 0;  // of the step, without what drafts behind it
  };
  std::vector<Step> steps;  // ascending by rows, at least two; empty: nothing is known
  // Of what drafts behind a step: the run over the step's rows, and one more depth.
  double first_pass_s = 0, next_pass_s = 0;

  bool are_known() const { return steps.size() >= 2; }
  // Between two measured steps, and along the line of the last two behind them.
  double step_s(double rows) const {
    std::size_t i = 1;
    while (i + 1 < steps.size() && rows > steps[i].rows) ++i;
    const Step &a = steps[i - 1], &b = steps[i];
    const double slope = std::max(0.0, b.seconds - a.seconds) / (b.rows - a.rows);
    return a.seconds + slope * (rows - a.rows);
  }
  // Of `depths` drafts of each sequence.
  double draft_s(int depths) const {
    return depths <= 0 ? 0 : first_pass_s + next_pass_s * (depths - 1);
  }
};

}  // namespace sluice
