#include "cli/bench/timed_batch.h"

#include <chrono>
#include <latch>
#include <memory>
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

// The time between two steps that bring tokens to a request, and those of the second step.
struct Gap {
  Clock::time_point begin, end;
  std::size_t tokens = 0;

  double length() const { return seconds(end - begin); }
};

std::vector<Gap> within(const std::vector<Gap>& gaps, Clock::time_point from,
                        Clock::time_point to) {
  std::vector<Gap> out;
  for (const Gap& gap : gaps)
    if (gap.begin >= from && gap.end <= to) out.push_back(gap);
  return out;
}

double median_of(const std::vector<Gap>& gaps) {
  std::vector<double> lengths;
  for (const Gap& gap : gaps) lengths.push_back(gap.length());
  return median(std::move(lengths));
}

// Takes what lies between stops; a gap with a stop in it belongs to none.
void fill_decode(const std::vector<Gap>& gaps, const std::vector<StepGate::Stop>& stops,
                 BatchTimes& times) {
  std::vector<Gap> all;
  if (stops.empty()) all = gaps;
  for (std::size_t i = 1; i < stops.size(); ++i) {
    const std::vector<Gap> steps = within(gaps, stops[i - 1].end, stops[i].begin);
    if (steps.empty()) continue;
    times.segments.push_back({median_of(steps), stops[i - 1].read, stops[i].read});
    all.insert(all.end(), steps.begin(), steps.end());
  }
  if (all.empty()) return;
  double length = 0, tokens = 0;
  for (const Gap& gap : all) length += gap.length(), tokens += static_cast<double>(gap.tokens);
  times.decode_s = median_of(all);
  times.mean_decode_s = length / static_cast<double>(all.size());
  times.tokens_per_step = tokens / static_cast<double>(all.size());
}

}  // namespace

BatchTimes time_batch(Engine& engine, const BatchShape& shape, int ahead, std::uint64_t seed,
                      Roofline* roofline) {
  std::vector<Request> requests;
  for (int i = 0; i < shape.batch; ++i) {
    requests.push_back(random_request(engine.model_config().vocab_size, shape.input,
                                      shape.output + ahead, seed + static_cast<std::uint64_t>(i)));
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
  const bool has_drafts = engine.stats().has_speculation;
  std::vector<Gap> gaps;  // of decode steps of the whole batch
  for (const Completion& c : done)
    for (std::size_t i = 1; i < c.arrivals.size(); ++i)
      // Where steps bring several tokens, the limit cuts those of the last one.
      if (c.arrivals[i - 1] >= prefilled && c.arrivals[i] <= first_leaves &&
          (!has_drafts || i == 1 || i + 1 < c.arrivals.size()))
        gaps.push_back({c.arrivals[i - 1], c.arrivals[i], c.arrived[i]});
  BatchTimes times;
  times.prefill_s = seconds(prefilled - start) - gate->stopped_s(prefilled);
  times.total_s = seconds(end - start) - gate->stopped_s(end);
  fill_decode(gaps, gate->stops(), times);
  return times;
}

}  // namespace sluice
