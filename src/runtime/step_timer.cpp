#include "runtime/step_timer.h"

#include <algorithm>

#include "base/error.h"

namespace sluice {
namespace {

StepTimer::Clock::duration milliseconds(float value) {
  return std::chrono::duration_cast<StepTimer::Clock::duration>(
      std::chrono::duration<double, std::milli>(value));
}

}  // namespace

StepTimer::StepTimer(Device device, const Stream* stream, int depth)
    : stream_(stream), on_device_(stream != nullptr && stream->handle() != nullptr) {
  for (int i = 0; i < depth + 2; ++i) {
    Mark& mark = marks_.emplace_back();
    if (!on_device_) continue;
    mark.begin = StreamEvent(device);
    mark.end = StreamEvent(device);
  }
}

void StepTimer::begin() {
  check(num_begun_ - num_taken_ + 2 <= marks_.size(),
        "{} steps are timed at once, and there is room for {}", num_begun_ - num_taken_ + 1,
        marks_.size() - 2);
  Mark& mark = marks_[num_begun_++ % marks_.size()];
  mark.host_begin = Clock::now();
  if (on_device_) mark.begin.record(*stream_);
}

void StepTimer::end() {
  Mark& mark = marks_[(num_begun_ - 1) % marks_.size()];
  if (on_device_) mark.end.record(*stream_);
  mark.host_end = Clock::now();
}

StepTimer::Times StepTimer::take() {
  check(num_taken_ < num_begun_, "no step is left to be timed");
  const Mark& mark = marks_[num_taken_ % marks_.size()];
  Times times{mark.host_begin, mark.host_end};
  if (on_device_) {
    mark.end.wait();
    const auto now = Clock::now();
    const auto length = milliseconds(mark.end.milliseconds_since(mark.begin));
    // From the step before, since a float of milliseconds from a far start is too coarse; then no
    // earlier than the host gave the work and no later than it saw its end, so that the clocks'
    // drift does not add up.
    if (num_taken_ > 0) {
      const Mark& before = marks_[(num_taken_ - 1) % marks_.size()];
      times.begin = std::max(
          mark.host_begin, last_.begin + milliseconds(mark.begin.milliseconds_since(before.begin)));
    }
    times.begin = std::max(std::min(times.begin, now - length), last_.end);
    times.end = times.begin + length;
  }
  ++num_taken_;
  last_ = times;
  return times;
}

}  // namespace sluice
