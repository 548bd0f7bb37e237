#include "runtime/draft_costs_meter.h"

#include <algorithm>
#include <chrono>
#include <limits>
#include <map>
#include <utility>
#include <vector>

namespace sluice {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kMaxRows = 512, kMaxRowsOnCpu = 32, kMaxSequencesOnCpu = 8;
// The first large step that is measured on a CPU, which need not be the largest.
constexpr int kFirstRowsOnCpu = 8;
constexpr int kMaxRounds = 8;
constexpr double kBudget_s = 0.8;  // behind it, only what must be known is measured

class Meter {
 public:
  Meter(ModelRunner& runner, int max_sequences)
      : runner_(runner), on_cpu_(runner.context().device.kind == DeviceKind::kCpu) {
    Batch batch = plain(max_sequences);
    for (std::int32_t i = 0; i < max_sequences; ++i) {
      SlotInit& init = batch.slot_inits.emplace_back();
      init.slot = i;
      init.params.temperature = 0;
    }
    run(batch);
  }

  bool has_time() const {
    return std::chrono::duration<double>(Clock::now() - start_).count() < kBudget_s;
  }
  // A decode step, and the drafts behind it.
  Batch plain(int sequences, int drafts = 0) const {
    Batch batch = empty(ForwardMode::kDecode);
    batch.max_drafts = drafts;
    for (int i = 0; i < sequences; ++i) add(batch, i, 1);
    add_states(batch);
    return batch;
  }
  // A step of so many rows of as few sequences as hold them, each within a page.
  Batch check(int rows) const {
    Batch batch = empty(ForwardMode::kTargetVerify);
    for (int left = rows, i = 0; left > 0; left -= kPageSize, ++i)
      add(batch, i, std::min<int>(left, kPageSize));
    add_states(batch);
    return batch;
  }
  // The number of a step that is measured from now on. Its first run may load kernels and record
  // graphs; on a CPU, where it does not, it counts where there is no time for another.
  std::size_t measure(Batch batch) {
    steps_.push_back({std::move(batch), std::numeric_limits<double>::infinity()});
    Step& step = steps_.back();
    const double first = run(step.batch);
    step.seconds = on_cpu_ && !has_time() ? first : run(step.batch);
    return steps_.size() - 1;
  }
  // Steps in turn, so that what disturbs the machine for a while disturbs not all runs of one.
  void measure_again() {
    for (int round = 0; round < kMaxRounds; ++round)
      for (Step& step : steps_) {
        if (!has_time()) return;
        step.seconds = std::min(step.seconds, run(step.batch));
      }
  }
  double seconds(std::size_t step) const { return steps_[step].seconds; }

 private:
  struct Step {
    Batch batch;
    double seconds = 0;  // the shortest run
  };
  Batch empty(ForwardMode mode) const {
    Batch batch;
    batch.mode = mode;
    batch.max_drafts = 0;
    batch.groups.resize(static_cast<std::size_t>(num_page_groups(runner_.groups())));
    for (PageRows& rows : batch.groups) rows.offsets = {0};
    return batch;
  }
  // A sequence whose first rows these are: nothing is read that the step does not write.
  void add(Batch& batch, std::int32_t i, std::int32_t count) const {
    batch.items.push_back({.sequence = std::numeric_limits<std::uint64_t>::max() - i,
                           .slot = i,
                           .first = 0,
                           .count = count,
                           .decode = true});
    batch.token_ids.insert(batch.token_ids.end(), static_cast<std::size_t>(count), 0);
    for (PageRows& rows : batch.groups) {
      rows.pages.push_back(i);
      rows.offsets.push_back(i + 1);
    }
    const std::int32_t first_row = batch.num_tokens() - count;
    for (std::int32_t k = 0; k < count; ++k)
      batch.logit_rows.push_back(
          {.item = i, .row = first_row + k, .position = k + 1, .sample = true});
  }

  // Of the items, and behind each draft: in turn, where there are fewer.
  void add_states(Batch& batch) const {
    const std::int64_t states = runner_.memory_plan().num_states;
    for (std::int32_t row = 0; states > 0 && row < batch.num_tokens(); ++row)
      batch.state_slots.push_back(static_cast<std::int32_t>(row % states));
  }

  double run(const Batch& batch) {
    const Clock::time_point start = Clock::now();
    Pending pending = runner_.launch(batch);
    runner_.sample(pending);
    (void)runner_.collect(std::move(pending));
    return std::chrono::duration<double>(Clock::now() - start).count();
  }

  ModelRunner& runner_;
  const bool on_cpu_;
  const Clock::time_point start_ = Clock::now();
  std::vector<Step> steps_;
};

// Steps of a line, by rows.
using Line = std::map<int, std::size_t>;

CostLine line_of(const Meter& meter, const Line& steps) {
  CostLine line;
  for (const auto& [rows, step] : steps) line.points.push_back({rows, meter.seconds(step)});
  return line;
}

// More rows cost no less, and what disturbs a run only makes it longer: so no point lies above
// those behind it.
void make_ascending(CostLine& line) {
  for (std::size_t i = line.points.size(); i-- > 1;)
    line.points[i - 1].seconds = std::min(line.points[i - 1].seconds, line.points[i].seconds);
}

}  // namespace

DraftCosts measure_draft_costs(ModelRunner& runner, DraftMeterLimits limits) {
  const bool on_cpu = runner.context().device.kind == DeviceKind::kCpu;
  std::int64_t pages = std::numeric_limits<std::int64_t>::max();
  for (const std::int64_t count : runner.memory_plan().pages) pages = std::min(pages, count);
  const int sequences = static_cast<int>(std::min<std::int64_t>(
      pages, on_cpu ? std::min(limits.max_sequences, kMaxSequencesOnCpu) : limits.max_sequences));
  const int rows = static_cast<int>(
      std::min<std::int64_t>(sequences * std::int64_t{kPageSize},
                             std::min(limits.max_rows, on_cpu ? kMaxRowsOnCpu : kMaxRows)));
  DraftCosts costs;
  if (sequences < 1 || rows < 2) return costs;
  Meter meter(runner, sequences);
  Line plain, checks, one_draft, all_drafts;
  const auto add_plain = [&](int n) { plain.emplace(n, meter.measure(meter.plain(n))); };
  const auto add_check = [&](int n) { checks.emplace(n, meter.measure(meter.check(n))); };
  add_plain(1);
  add_check(2);
  if (rows > 2) add_check(on_cpu ? std::min(rows, kFirstRowsOnCpu) : rows);
  if (sequences > 1) add_plain(sequences);
  if (limits.max_drafts > 0)
    for (const int n : {1, sequences}) {
      if (one_draft.contains(n)) continue;
      one_draft.emplace(n, meter.measure(meter.plain(n, 1)));
      all_drafts.emplace(n, meter.measure(meter.plain(n, limits.max_drafts)));
    }
  for (int n = 2; n < std::max(sequences, rows); n *= 2) {
    if (meter.has_time() && !plain.contains(n) && n < sequences) add_plain(n);
    if (meter.has_time() && !checks.contains(n) && n < rows) add_check(n);
  }
  if (meter.has_time() && !checks.contains(rows)) add_check(rows);
  meter.measure_again();

  costs.checks = line_of(meter, checks);
  make_ascending(costs.checks);
  costs.plain = line_of(meter, plain);
  // A plain step of one sequence costs no more than one with a draft. Behind the most sequences of
  // a step there are chunks of prompts, which are rows as well.
  for (const CostLine::Point& point : costs.checks.points)
    if (point.rows > costs.plain.points.back().rows) costs.plain.points.push_back(point);
  make_ascending(costs.plain);
  CostLine::Point& alone = costs.plain.points.front();
  alone.seconds = std::min(alone.seconds, costs.checks.points.front().seconds);
  if (costs.checks.points.size() < 2)
    costs.checks.points.insert(costs.checks.points.begin(), alone);
  for (const auto& [n, step] : one_draft) {
    const double one = meter.seconds(step), all = meter.seconds(all_drafts.at(n)),
                 first = std::max(0.0, one - costs.plain.at(n));
    costs.first_pass.points.push_back({n, first});
    costs.next_pass.points.push_back(
        {n, limits.max_drafts > 1 ? std::max(0.0, all - one) / (limits.max_drafts - 1) : first});
  }
  return costs;
}

}  // namespace sluice
