#include "runtime/draft_costs_meter.h"

#include <algorithm>
#include <chrono>
#include <limits>
#include <map>
#include <optional>
#include <ranges>
#include <span>
#include <utility>
#include <vector>

#include "batch/draft_paths.h"

namespace sluice {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kMaxRows = 512, kMaxRowsOnCpu = 32, kMaxSequencesOnCpu = 8;
// The first large step that is measured on a CPU, which need not be the largest.
constexpr int kFirstRowsOnCpu = 8;
constexpr int kMaxRounds = 32;
constexpr double kBudget_s = 0.8;  // behind it, only what must be known is measured
// A GPU's steps cost as much as the tiles and the graph that hold their rows: a staircase, of which
// the highest steps are looked at more closely.
constexpr double kFlat = 0.05;
constexpr int kFewestRowsApart = 16, kMaxCloserLooks = 6;
// While other programs disturb the runs, it takes longer.
constexpr double kLongestBudget_s = 1.6, kSteady = 1.15;

class Meter {
 public:
  // `num_pages`: there are so many in each group. `max_own_rows`: of a sequence.
  Meter(const ModelRunner& runner, int num_groups, const std::function<void(const Step&)>& run_step,
        int max_sequences, std::int64_t num_pages, const DraftMeterLimits& limits, int max_own_rows)
      : runner_(runner),
        num_groups_(num_groups),
        run_step_(run_step),
        on_cpu_(runner.context().device.kind == DeviceKind::kCpu),
        max_sequences_(max_sequences),
        num_pages_(num_pages),
        vocab_size_(static_cast<std::uint32_t>(limits.vocab_size)),
        topk_(limits.topk),
        max_own_rows_(max_own_rows) {
    Batch batch = plain(max_sequences);
    for (std::int32_t i = 0; i < max_sequences; ++i) {
      SlotInit& init = batch.slot_inits.emplace_back();
      init.slot = i;
      init.params.temperature = 0;
    }
    run(step_of(batch));
  }

  bool has_time() const { return elapsed_s() < kBudget_s; }
  // A decode step, and the drafts behind it: chains, or trees.
  Batch plain(int sequences, int drafts = 0, bool are_trees = false) const {
    Batch batch = empty(ForwardMode::kDecode);
    batch.max_drafts = drafts;
    for (int i = 0; i < sequences; ++i) {
      add(batch, i, 1);
      if (are_trees) add_branches(batch, i, topk_);
    }
    add_states(batch, batch.num_tokens());
    return batch;
  }
  // A prompt of so many tokens, and the drafts behind it.
  Batch prompt(int tokens, int drafts) const {
    Batch batch = empty(ForwardMode::kExtend);
    batch.max_drafts = drafts;
    add(batch, 0, tokens);
    batch.items.back().decode = false;
    batch.logit_rows.erase(batch.logit_rows.begin(), batch.logit_rows.end() - 1);
    add_states(batch, 1);
    return batch;
  }
  // A step of so many rows of as few sequences as hold them, each within a page.
  Batch check(int rows) const {
    Batch batch = empty(ForwardMode::kTargetVerify);
    for (int left = rows, i = 0; left > 0; left -= max_own_rows_, ++i) {
      const int count = std::min(left, max_own_rows_);
      add(batch, i, count);
      if (topk_ > 1 && count > 2) add_tree(batch, i, count);
    }
    add_states(batch, batch.num_tokens());
    return batch;
  }
  // A step of so many rows of one sequence, the last of `tokens` that it has, and the drafts behind
  // it.
  Batch behind(int tokens, int rows, int drafts = 0) const {
    Batch batch = empty(rows > 1 ? ForwardMode::kTargetVerify : ForwardMode::kDecode);
    batch.max_drafts = drafts;
    add(batch, 0, rows, tokens - rows);
    add_states(batch, rows);
    return batch;
  }
  // Once, for what the steps behind read.
  void write(const Batch& batch) const { (void)run(step_of(batch)); }
  // The number of a step that is measured from now on. Its first run may load kernels and record
  // graphs; on a CPU, where it does not, it counts where there is no time for another.
  std::size_t measure(const Batch& batch) {
    Measured& one = steps_.emplace_back(step_of(batch));
    const double first = run(one.step);
    one.add(on_cpu_ && !has_time() ? first : run(one.step));
    return steps_.size() - 1;
  }
  // Steps in turn, so that what disturbs the machine for a while disturbs not all runs of one. The
  // second run of two counts: it finds in the caches what a step of its kind leaves there. A run
  // that nothing disturbed comes again.
  void measure_again() {
    for (int round = 0; round < kMaxRounds; ++round)
      for (Measured& one : steps_) {
        if (!has_time() &&
            (elapsed_s() > kLongestBudget_s || std::ranges::all_of(steps_, &Measured::is_steady)))
          return;
        (void)run(one.step);
        one.add(run(one.step));
      }
  }
  double seconds(std::size_t step) const { return steps_[step].seconds; }

 private:
  struct Measured {
    explicit Measured(Step&& what) : step(std::move(what)) {}
    Step step;
    // The shortest run, and the next one.
    double seconds = std::numeric_limits<double>::infinity(), next = seconds;

    void add(double run) {
      next = std::min(next, std::max(seconds, run));
      seconds = std::min(seconds, run);
    }
    bool is_steady() const { return next < kSteady * seconds; }
  };
  double elapsed_s() const { return std::chrono::duration<double>(Clock::now() - start_).count(); }
  Step step_of(const Batch& batch) const {
    Step step;
    step.dp.assign(static_cast<std::size_t>(num_groups_), batch);
    step.global_tokens.assign(step.dp.size(), batch.num_tokens());
    step.hash = hash_step(step);
    return step;
  }
  Batch empty(ForwardMode mode) const {
    Batch batch;
    batch.mode = mode;
    batch.max_drafts = 0;
    batch.groups.resize(static_cast<std::size_t>(num_page_groups(runner_.groups())));
    for (PageRows& rows : batch.groups) rows.offsets = {0};
    return batch;
  }
  // A sequence whose rows behind `first` these are. Where those before were not written, nothing is
  // read that the step does not write: first is 0.
  void add(Batch& batch, std::int32_t i, std::int32_t count, std::int32_t first = 0) const {
    // A draft does not know a sequence that it has left out before.
    const bool is_long = first + count > static_cast<std::int32_t>(kPageSize);
    const std::int32_t number = is_long ? max_sequences_ + (batch.max_drafts != 0) : i;
    batch.items.push_back(
        {.sequence = std::numeric_limits<std::uint64_t>::max() - static_cast<std::uint64_t>(number),
         .slot = i,
         .first = first,
         .count = count,
         .decode = true});
    // Rows of other tokens choose other experts.
    for (std::int32_t k = 0; k < count; ++k)
      batch.token_ids.push_back(
          static_cast<std::int32_t>((batch.token_ids.size() + 1) * 2'654'435'761u % vocab_size_));
    const auto num_pages = static_cast<std::int32_t>((first + count - 1) / kPageSize + 1);
    for (PageRows& rows : batch.groups) {
      for (std::int32_t page = 0; page < num_pages; ++page) rows.pages.push_back(i + page);
      rows.offsets.push_back(static_cast<std::int32_t>(rows.pages.size()));
    }
    const std::int32_t first_row = batch.num_tokens() - count;
    for (std::int32_t k = 0; k < count; ++k)
      batch.logit_rows.push_back(
          {.item = i, .row = first_row + k, .position = first + k + 1, .sample = true});
  }

  // Pages for branches of the last item, its own counted. Those of all items lie in turn where
  // there are fewer: nobody reads what is written.
  ItemBranches& add_branches(Batch& batch, std::int32_t i, int count) const {
    ItemBranches& out = batch.branches.emplace_back();
    out.item = i;
    out.num_pages = 1;
    for (std::size_t k = 0; std::cmp_less(k, count - 1); ++k)
      out.pages.insert(
          out.pages.end(), batch.groups.size(),
          static_cast<std::int32_t>((max_sequences_ + (i + 1) * std::int64_t{kMaxTreeRows} +
                                     static_cast<std::int64_t>(k)) %
                                    num_pages_));
    return out;
  }
  // The rows of the last item are a tree with two nodes behind each. Half a page of known rows is
  // copied to each branch, as it is in the mean.
  void add_tree(Batch& batch, std::int32_t i, std::int32_t count) const {
    std::vector<std::int32_t> parents = {-1};
    for (std::int32_t row = 1; row < count; ++row) parents.push_back((row - 1) / 2);
    const DraftPaths paths = paths_of(parents);
    ItemBranches& tree = add_branches(batch, i, paths.count);
    tree.parents = std::move(parents);
    for (std::size_t at = 0; at < tree.pages.size(); ++at)
      batch.copies.push_back({static_cast<std::int32_t>(at % batch.groups.size()), i,
                              tree.pages[at], static_cast<std::int32_t>(kPageSize) / 2});
    const std::span<LogitRow> rows =
        std::span(batch.logit_rows).last(static_cast<std::size_t>(count));
    for (std::int32_t row = 0; row < count; ++row) {
      LogitRow& one = rows[static_cast<std::size_t>(row)];
      one.position = paths.depths[static_cast<std::size_t>(row)] + 1;
      if (row > 0) one.behind = row - tree.parents[static_cast<std::size_t>(row)];
    }
  }

  // Of the items, and behind each draft: in turn, where there are fewer.
  void add_states(Batch& batch, std::int32_t count) const {
    const std::int64_t states = runner_.memory_plan().num_states;
    for (std::int32_t row = 0; states > 0 && row < count; ++row)
      batch.state_slots.push_back(static_cast<std::int32_t>(row % states));
  }

  double run(const Step& step) const {
    const Clock::time_point start = Clock::now();
    run_step_(step);
    return std::chrono::duration<double>(Clock::now() - start).count();
  }

  const ModelRunner& runner_;
  const int num_groups_;
  const std::function<void(const Step&)>& run_step_;
  const bool on_cpu_;
  const int max_sequences_;
  const std::int64_t num_pages_;
  const std::uint32_t vocab_size_;
  const int topk_, max_own_rows_;
  const Clock::time_point start_ = Clock::now();
  std::vector<Measured> steps_;
};

// What the tokens before a row cost: steps behind `tokens` of them, none where that is 0.
struct Behind {
  int tokens = 0, rows = 0;
  std::size_t plain = 0, check = 0, draft = 0;
};

// Tokens whose prompt takes so long are not measured.
constexpr int kMaxTokens = 4096, kMaxTokensOnCpu = 512, kMinTokens = 128;
constexpr double kLongestPrompt_s = 0.2;

// Steps of a line, by rows.
using Line = std::map<int, std::size_t>;

CostLine line_of(const Meter& meter, const Line& steps) {
  CostLine line;
  for (const auto& [rows, step] : steps) line.points.push_back({rows, meter.seconds(step)});
  return line;
}

// `sizes`: of graphs.
template <class Add>
void look_closer(const Meter& meter, const Line& steps, const std::vector<int>& sizes,
                 const Add& add) {
  for (int looks = 0; looks < kMaxCloserLooks && meter.has_time(); ++looks) {
    const int middle = line_of(meter, steps).widest_step(kFlat, kFewestRowsApart);
    if (middle == 0) return;
    const auto size = std::ranges::lower_bound(sizes, middle);
    const int rows = size == sizes.end() ? middle : *size;
    if (steps.contains(rows)) return;
    add(rows);
  }
}

// More rows cost no less, and what disturbs a run only makes it longer: so no point lies above
// those behind it.
void make_ascending(CostLine& line) {
  for (std::size_t i = line.points.size(); i-- > 1;)
    line.points[i - 1].seconds = std::min(line.points[i - 1].seconds, line.points[i].seconds);
}

}  // namespace

DraftCosts measure_draft_costs(const ModelRunner& runner, int num_groups, DraftMeterLimits limits,
                               const std::function<void(const Step&)>& run) {
  const bool on_cpu = runner.context().device.kind == DeviceKind::kCpu;
  std::int64_t pages = std::numeric_limits<std::int64_t>::max();
  for (const std::int64_t count : runner.memory_plan().pages) pages = std::min(pages, count);
  const int sequences = static_cast<int>(std::min<std::int64_t>(
      pages, on_cpu ? std::min(limits.max_sequences, kMaxSequencesOnCpu) : limits.max_sequences));
  const bool has_trees = limits.topk > 1;
  // Of a sequence, within a page; or of a tree.
  const int page = static_cast<int>(kPageSize),
            of_chain = limits.max_own_rows > 0 ? std::min(limits.max_own_rows, page) : page,
            max_own_rows = has_trees ? limits.max_drafts + 1 : of_chain;
  const int rows = static_cast<int>(
      std::min<std::int64_t>(sequences * std::int64_t{max_own_rows},
                             std::min(limits.max_rows, on_cpu ? kMaxRowsOnCpu : kMaxRows)));
  DraftCosts costs;
  if (sequences < 1 || rows < 2) return costs;
  // Of a chain.
  const int drafts = has_trees ? std::min(limits.max_drafts, limits.levels) : limits.max_drafts;
  Meter meter(runner, num_groups, run, sequences, pages, limits, max_own_rows);
  Line plain, checks, one_draft, all_drafts, all_levels;
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
      all_drafts.emplace(n, meter.measure(meter.plain(n, drafts)));
      if (has_trees) all_levels.emplace(n, meter.measure(meter.plain(n, limits.max_drafts, true)));
    }
  // Behind prompts the draft has as many slots as they have tokens.
  const int slots = std::min<int>(rows, kPageSize);
  std::optional<std::size_t> prompt, prompt_draft;
  if (limits.max_drafts > 0 && slots > sequences && meter.has_time()) {
    prompt = meter.measure(meter.prompt(slots, 0));
    prompt_draft = meter.measure(meter.prompt(slots, 1));
  }
  Behind behind;
  const auto [check_rows, check] = *checks.rbegin();
  const double row_s = meter.seconds(check) / check_rows;
  const std::int64_t room = std::min<std::int64_t>(limits.max_tokens, (pages - sequences) * page);
  int tokens = on_cpu ? kMaxTokensOnCpu : kMaxTokens;
  while (tokens >= kMinTokens && (tokens > room || row_s * tokens > kLongestPrompt_s)) tokens /= 2;
  if (tokens >= kMinTokens && meter.has_time()) {
    meter.write(meter.prompt(tokens, limits.max_drafts > 0 ? 1 : 0));
    behind.tokens = tokens;
    behind.rows = std::min({rows, of_chain, 1 + std::max(1, limits.max_drafts)});
    behind.plain = meter.measure(meter.behind(tokens, 1));
    behind.check = meter.measure(meter.behind(tokens, behind.rows));
    if (limits.max_drafts > 0) behind.draft = meter.measure(meter.behind(tokens, 1, 1));
  }
  for (int n = 2; n < std::max(sequences, rows); n *= 2) {
    if (meter.has_time() && !plain.contains(n) && n < sequences) add_plain(n);
    if (meter.has_time() && !checks.contains(n) && n < rows) add_check(n);
  }
  if (meter.has_time() && !checks.contains(rows)) add_check(rows);
  const std::vector<int> plain_sizes = runner.padded_rows(false),
                         check_sizes = runner.padded_rows(true);
  for (const int n : check_sizes | std::views::reverse)
    if (meter.has_time() && !checks.contains(n) && n < rows) add_check(n);
  if (!on_cpu) {
    if (check_sizes.empty()) look_closer(meter, checks, {}, add_check);
    look_closer(meter, plain, plain_sizes, add_plain);
  }
  meter.measure_again();

  costs.checks = line_of(meter, checks);
  make_ascending(costs.checks);
  costs.plain = line_of(meter, plain);
  costs.plain.padded_to = plain_sizes, costs.checks.padded_to = check_sizes;
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
                 next = drafts > 1 ? std::max(0.0, all - one) / (drafts - 1) : 0,
                 first = std::max(next, one - costs.plain.at(n));
    costs.first_pass.points.push_back({n, first});
    costs.next_pass.points.push_back({n, drafts > 1 ? next : first});
    if (has_trees && drafts > 1)
      costs.next_tree_pass.points.push_back(
          {n, std::max(0.0, meter.seconds(all_levels.at(n)) - one) / (drafts - 1)});
  }
  make_ascending(costs.first_pass);
  if (limits.max_drafts > 0 && slots > sequences) {
    // Where there was no time, a slot costs the same share of a row.
    const CostLine::Point last = costs.first_pass.points.back();
    const double share = costs.checks.at(slots) / costs.plain.at(last.rows);
    costs.first_pass.points.push_back(
        {slots, prompt
                    ? std::max(last.seconds, meter.seconds(*prompt_draft) - meter.seconds(*prompt))
                    : last.seconds * share});
  }
  if (has_trees) costs.tree_levels = drafts;
  if (behind.tokens > 0) {
    const double plain_s = meter.seconds(behind.plain);
    const auto of_token = [&](double more_s, int num_rows) {
      return std::max(0.0, more_s) / (num_rows * static_cast<double>(behind.tokens));
    };
    costs.plain_token_s = of_token(plain_s - costs.plain.at(1), 1);
    // A further row reads no more than the first one.
    const double check_s = meter.seconds(behind.check) - costs.checks.at(behind.rows) -
                           costs.plain_token_s * behind.tokens;
    costs.check_token_s = std::min(costs.plain_token_s, of_token(check_s, behind.rows - 1));
    if (limits.max_drafts > 0)
      costs.pass_token_s =
          of_token(meter.seconds(behind.draft) - plain_s - costs.first_pass.at(1), 1);
  }
  return costs;
}

}  // namespace sluice
