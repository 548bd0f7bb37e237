#include "cli/bench/timed_batch.h"

#include <chrono>
#include <latch>
#include <memory>
#include <numeric>
#include <utility>

#include "cli/bench/synthetic.h"
#include "cli/chat/engine_call.h"

namespace sluice {
namespace {

using Clock = std::chrono::steady_clock;

double seconds(Clock::duration d) {
  return std::chrono::duration<double>(d).count();
}

// Holds the first step back until all requests are submitted, and later stops between steps to
// measure the bandwidth. Engine thread, but for `submitted`.
class StepGate {
 public:
  struct Stop {
    Clock::time_point begin, end;
    double read = 0;  // bytes a second
  };

  StepGate(Roofline* roofline, int batch) : roofline_(roofline), without_tokens_(batch) {}

  // Else the steps of a small model outrun the submitting.
  void submitted() { submitted_.count_down(); }

  // Called for the tokens that a step brought a request.
  void tokens_came(bool first_request, bool first_tokens) {
    submitted_.wait();
    if (first_tokens) --without_tokens_;
    if (roofline_ == nullptr || without_tokens_ > 0) return;
    if (stops_.empty() ||
        (first_request && seconds(Clock::now() - stops_.back().end) >= kSegmentSeconds))
      stop();
  }

  // After the last step.
  void end() {
    if (roofline_ != nullptr) stop();
  }
  const std::vector<Stop>& stops() const { return stops_; }
  // Of the time until then.
  double stopped_s(Clock::time_point until) const {
    double sum = 0;
    for (const Stop& stop : stops_)
      if (stop.end <= until) sum += seconds(stop.end - stop.begin);
    return sum;
  }

 private:
  void stop() {
    const Clock::time_point begin = Clock::now();
    const double read = roofline_->read_now();
    stops_.push_back({begin, Clock::now(), read});
  }

  static constexpr double kSegmentSeconds = 0.25;
  Roofline* const roofline_;
  std::latch submitted_{1};
  int without_tokens_;
  std::vector<Stop> stops_;
};

// The time between two steps that bring tokens to a request.
struct Gap {
  Clock::time_point begin, end;
};

std::vector<double> lengths(const std::vector<Gap>& gaps, Clock::time_point from,
                            Clock::time_point to) {
  std::vector<double> out;
  for (const Gap& gap : gaps)
    if (gap.begin >= from && gap.end <= to) out.push_back(seconds(gap.end - gap.begin));
  return out;
}

// Takes what lies between stops; a gap with a stop in it belongs to none.
void fill_decode(const std::vector<Gap>& gaps, const std::vector<StepGate::Stop>& stops,
                 BatchTimes& times) {
  std::vector<double> all;
  if (stops.empty()) all = lengths(gaps, Clock::time_point::min(), Clock::time_point::max());
  for (std::size_t i = 1; i < stops.size(); ++i) {
    const std::vector<double> steps = lengths(gaps, stops[i - 1].end, stops[i].begin);
    if (steps.empty()) continue;
    times.segments.push_back({median(steps), stops[i - 1].read, stops[i].read});
    all.insert(all.end(), steps.begin(), steps.end());
  }
  if (all.empty()) return;
  times.mean_decode_s = std::accumulate(all.begin(), all.end(), 0.0) / std::ssize(all);
  times.decode_s = median(all);
}

}  // namespace

BatchTimes time_batch(Engine& engine, const BatchShape& shape, int ahead, std::uint64_t seed,
                      Roofline* roofline) {
  std::vector<Request> requests;
  for (int i = 0; i < shape.batch; ++i) {
    requests.push_back(random_request(engine, shape.input, shape.output + ahead,
                                      seed + static_cast<std::uint64_t>(i)));
    if (!shape.prompt.empty()) requests.back().prompt_ids = shape.prompt;
  }
  const auto gate = std::make_shared<StepGate>(roofline, shape.batch);
  const Clock::time_point start = Clock::now();
  std::vector<PendingCompletion> pending;
  try {
    for (Request& request : requests)
      pending.emplace_back(engine, std::move(request),
                           [gate, first_request = pending.empty(),
                            first_tokens = true](const std::vector<std::int32_t>&) mutable {
                             gate->tokens_came(first_request, std::exchange(first_tokens, false));
                           });
  } catch (...) {
    gate->submitted();
    throw;
  }
  gate->submitted();

  Clock::time_point prefilled = start, end = start, first_leaves = Clock::time_point::max();
  std::vector<Completion> done;
  for (PendingCompletion& p : pending) {
    done.push_back(p.wait());
    const Completion& c = done.back();
    require(c.finish == FinishReason::kLength && !c.arrivals.empty(), "a request failed: {}",
            c.error.message);
    prefilled = std::max(prefilled, c.arrivals.front());
    // Without speculation the step of the shape's last token.
    end = std::max(
        end, c.arrivals[std::min(static_cast<std::size_t>(shape.output), c.arrivals.size()) - 1]);
    first_leaves = std::min(first_leaves, c.arrivals.back());
  }
  gate->end();
  std::vector<Gap> gaps;  // of decode steps of the whole batch
  for (const Completion& c : done)
    for (std::size_t i = 1; i < c.arrivals.size(); ++i)
      if (c.arrivals[i - 1] >= prefilled && c.arrivals[i] <= first_leaves)
        gaps.push_back({c.arrivals[i - 1], c.arrivals[i]});
  BatchTimes times;
  std::size_t num_tokens = 0, num_steps = 0;
  for (const Completion& c : done) {
    num_tokens += c.tokens.size() - 1;
    num_steps += c.arrivals.size() - 1;
  }
  if (num_steps > 0)
    times.tokens_per_step = static_cast<double>(num_tokens) / static_cast<double>(num_steps);
  times.prefill_s = seconds(prefilled - start) - gate->stopped_s(prefilled);
  times.total_s = seconds(end - start) - gate->stopped_s(end);
  fill_decode(gaps, gate->stops(), times);
  return times;
}

}  // namespace sluice
