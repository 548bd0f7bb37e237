#include "runtime/draft_costs_meter.h"

#include <algorithm>
#include <chrono>
#include <limits>

namespace sluice {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::int32_t kPromptTokens = 16;
// All rows lie in one page; on a CPU more rows cost what the line through fewer says.
constexpr int kMaxRows = static_cast<int>(kPageSize) - kPromptTokens, kMaxRowsOnCpu = 8;
constexpr int kTries = 3;

class Meter {
 public:
  explicit Meter(ModelRunner& runner) : runner_(runner) {
    Batch batch = batch_of(0, kPromptTokens, false);
    SlotInit& init = batch.slot_inits.emplace_back();
    init.params.temperature = 0;
    run(batch);
  }

  // The shortest of some tries.
  double seconds(int rows, int drafts) {
    Batch batch = batch_of(kPromptTokens, rows, true);
    batch.max_drafts = drafts;
    run(batch);  // may load kernels
    double best = std::numeric_limits<double>::infinity();
    for (int i = 0; i < kTries; ++i) best = std::min(best, run(batch));
    return best;
  }

 private:
  Batch batch_of(std::int32_t first, std::int32_t count, bool decode) const {
    Batch batch;
    batch.mode = !decode      ? ForwardMode::kExtend
                 : count == 1 ? ForwardMode::kDecode
                              : ForwardMode::kTargetVerify;
    batch.items.push_back(
        {.sequence = 1, .slot = 0, .first = first, .count = count, .decode = decode});
    batch.token_ids.assign(static_cast<std::size_t>(count), 0);
    batch.groups.resize(runner_.groups().size());
    for (PageRows& rows : batch.groups) {
      rows.pages = {0};
      rows.offsets = {0, 1};
    }
    for (std::int32_t i = decode ? 0 : count - 1; i < count; ++i)
      batch.logit_rows.push_back({.item = 0, .row = i, .position = first + i + 1, .sample = true});
    return batch;
  }

  double run(const Batch& batch) {
    const Clock::time_point start = Clock::now();
    Pending pending = runner_.launch(batch);
    runner_.sample(pending);
    (void)runner_.collect(std::move(pending));
    return std::chrono::duration<double>(Clock::now() - start).count();
  }

  ModelRunner& runner_;
};

}  // namespace

DraftCosts measure_draft_costs(ModelRunner& runner, int max_rows, int max_drafts) {
  const bool on_cpu = runner.context().device.kind == DeviceKind::kCpu;
  const int most = std::min(max_rows, on_cpu ? kMaxRowsOnCpu : kMaxRows);
  Meter meter(runner);
  DraftCosts costs;
  for (int rows = 1; rows <= most; rows *= 2) costs.steps.push_back({rows, meter.seconds(rows, 0)});
  if (max_drafts == 0) return costs;
  const double alone = costs.steps.front().seconds, one = meter.seconds(1, 1);
  costs.first_pass_s = std::max(0.0, one - alone);
  costs.next_pass_s = costs.first_pass_s;
  if (max_drafts > 1)
    costs.next_pass_s =
        std::max(0.0, meter.seconds(1, max_drafts) - one) / static_cast<double>(max_drafts - 1);
  return costs;
}

}  // namespace sluice
