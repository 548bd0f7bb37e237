#include "runtime/draft_costs_meter.h"

#include <algorithm>
#include <chrono>
#include <limits>

namespace sluice {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kMaxRows = 512, kMaxRowsOnCpu = 32, kMaxSequencesOnCpu = 8;
// The first large step that is measured on a CPU, which need not be the largest.
constexpr int kFirstRowsOnCpu = 8;
constexpr int kTries = 5;
constexpr double kBudget_s = 1.0;  // behind it, only what must be known is measured
constexpr double kLong_s = 0.1;    // a step of a CPU that one run tells

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

  double spent_s() const { return std::chrono::duration<double>(Clock::now() - start_).count(); }
  // Of a decode step, and of the drafts behind it.
  double plain_s(int sequences, int drafts = 0) {
    Batch batch = plain(sequences);
    batch.max_drafts = drafts;
    return seconds(batch);
  }
  // Of a step of so many rows of as few sequences as hold them, each within a page.
  double check_s(int rows) {
    Batch batch = empty(ForwardMode::kTargetVerify);
    for (int left = rows, i = 0; left > 0; left -= kPageSize, ++i)
      add(batch, i, std::min<int>(left, kPageSize));
    return seconds(batch);
  }

 private:
  Batch empty(ForwardMode mode) const {
    Batch batch;
    batch.mode = mode;
    batch.max_drafts = 0;
    batch.groups.resize(runner_.groups().size());
    for (PageRows& rows : batch.groups) rows.offsets = {0};
    return batch;
  }
  Batch plain(int sequences) const {
    Batch batch = empty(ForwardMode::kDecode);
    for (int i = 0; i < sequences; ++i) add(batch, i, 1);
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

  // The shortest of some tries.
  double seconds(const Batch& batch) {
    double best = run(batch);  // may load kernels and record graphs
    if (on_cpu_ && best > kLong_s) return best;
    best = run(batch);
    for (int i = 1; i < kTries && spent_s() < kBudget_s; ++i) best = std::min(best, run(batch));
    return best;
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
};

void insert(CostLine& line, int rows, double seconds) {
  const auto at = std::ranges::lower_bound(line.points, rows, {}, &CostLine::Point::rows);
  if (at == line.points.end() || at->rows != rows) line.points.insert(at, {rows, seconds});
}

// What `drafts` of them cost behind a plain step of each number of sequences.
void measure_passes(Meter& meter, std::initializer_list<int> sequences, int drafts,
                    DraftCosts& costs) {
  for (const int n : sequences) {
    const double one = meter.plain_s(n, 1);
    const double first = std::max(0.0, one - costs.plain.at(n));
    insert(costs.first_pass, n, first);
    insert(costs.next_pass, n,
           drafts > 1 ? std::max(0.0, meter.plain_s(n, drafts) - one) / (drafts - 1) : first);
  }
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
  const int many = on_cpu ? std::min(rows, kFirstRowsOnCpu) : rows;
  insert(costs.plain, 1, meter.plain_s(1));
  insert(costs.checks, 2, meter.check_s(2));
  if (many > 2) insert(costs.checks, many, meter.check_s(many));
  if (sequences > 1) insert(costs.plain, sequences, meter.plain_s(sequences));
  if (limits.max_drafts > 0) measure_passes(meter, {1, sequences}, limits.max_drafts, costs);
  for (int n = 2; n < std::max(sequences, rows) && meter.spent_s() < kBudget_s; n *= 2) {
    if (n < sequences) insert(costs.plain, n, meter.plain_s(n));
    if (n > 2 && n < rows) insert(costs.checks, n, meter.check_s(n));
  }
  if (costs.checks.points.back().rows < rows && meter.spent_s() < kBudget_s)
    insert(costs.checks, rows, meter.check_s(rows));
  if (costs.checks.points.size() < 2) insert(costs.checks, 1, costs.plain.points.front().seconds);
  // Behind the most sequences of a step there are chunks of prompts, which are rows as well.
  for (const CostLine::Point& point : costs.checks.points)
    if (point.rows > costs.plain.points.back().rows) costs.plain.points.push_back(point);
  return costs;
}

}  // namespace sluice
