// What drafts cost, as plain values: measured by the runner when it starts, read by the scheduler.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

namespace sluice {

// Seconds by a number of rows, ascending: measured points and the lines through them.
struct CostLine {
  struct Point {
    int rows = 1;
    double seconds = 0;
  };
  std::vector<Point> points;
  // Ascending: a step has the next of these numbers of rows, as a graph does. Larger ones are not
  // padded.
  std::vector<int> padded_to = {};

  // Behind the last point the line of the last two goes on. No points: 0.
  double at(double rows) const {
    if (points.empty()) return 0;
    const auto padded = std::ranges::lower_bound(padded_to, rows);
    if (padded != padded_to.end()) rows = *padded;
    if (points.size() == 1) return points.front().seconds;
    std::size_t i = 1;
    while (i + 1 < points.size() && rows > points[i].rows) ++i;
    const Point &a = points[i - 1], &b = points[i];
    const double slope = std::max(0.0, b.seconds - a.seconds) / (b.rows - a.rows);
    return std::max(0.0, a.seconds + slope * (rows - a.rows));
  }
  // Each row costs `more`.
  void add(double more) {
    for (Point& point : points) point.seconds += more * point.rows;
  }
  // Where another point tells most: in the middle of the two neighbours that differ most. 0: none
  // that are `apart` rows from each other differ by this share.
  int widest_step(double share, int apart) const {
    int rows = 0;
    double widest = 0;
    for (std::size_t i = 1; i < points.size(); ++i) {
      const Point &a = points[i - 1], &b = points[i];
      const double step = b.seconds - a.seconds;
      if (b.rows - a.rows < apart || step <= std::max(widest, share * a.seconds)) continue;
      widest = step;
      rows = a.rows + (b.rows - a.rows) / 2;
    }
    return rows;
  }
  // The least that a row costs anywhere between two numbers of rows.
  double least_slope(double low, double high) const {
    double least = points.size() < 2 ? 0 : std::numeric_limits<double>::infinity();
    for (std::size_t i = 1; i < points.size(); ++i) {
      const Point &a = points[i - 1], &b = points[i];
      if ((b.rows <= low && i + 1 < points.size()) || a.rows >= high) continue;
      least = std::min(least, std::max(0.0, b.seconds - a.seconds) / (b.rows - a.rows));
    }
    return std::isfinite(least) ? least : 0;
  }
};

struct DraftCosts {
  CostLine plain;       // a decode step, by its sequences
  CostLine checks;      // a step with drafts, by its rows: sequences and drafts
  CostLine first_pass;  // a draft's run behind a step, by its slots; empty: drafts cost nothing
  CostLine next_pass;   // each further draft
  // Of trees of drafts, whose best node or best few of each level are rows of a run:
  CostLine next_tree_pass = {};  // each further level
  int tree_levels = 0;           // at most; 0: drafts are chains
  // What each token before a row costs more: the first row of a sequence, each further one, and a
  // row of the draft. The lines are of sequences without any.
  double plain_token_s = 0, check_token_s = 0, pass_token_s = 0;
  double first_rows_s = 0;  // of a sequence, beyond those of `checks`

  bool are_known() const { return plain.points.size() > 1 && checks.points.size() > 1; }
  // The same of sequences that have so many tokens.
  DraftCosts behind(double tokens) const {
    DraftCosts out = *this;
    out.plain.add(plain_token_s * tokens);
    out.checks.add(check_token_s * tokens);
    out.first_rows_s = (plain_token_s - check_token_s) * tokens;
    for (CostLine* line : {&out.first_pass, &out.next_pass, &out.next_tree_pass})
      line->add(pass_token_s * tokens);
    return out;
  }
  // A step with drafts.
  double check_s(double rows, double sequences) const {
    return checks.at(rows) + first_rows_s * sequences;
  }
  // Of so many drafts of each sequence, in chains or in trees.
  double draft_s(double sequences, int drafts, bool are_trees = false) const {
    if (drafts <= 0) return 0;
    const int passes = tree_levels > 0 ? std::min(drafts, tree_levels) : drafts;
    const CostLine& next = are_trees ? next_tree_pass : next_pass;
    return first_pass.at(sequences) + next.at(sequences) * (passes - 1);
  }
};

}  // namespace sluice
