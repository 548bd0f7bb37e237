// When steps ran on the device: from two events in the stream of each, put on the host's clock. On
// a CPU, where work is done when its call returns, from the clock alone.
//
//   timer.begin();  ... give the step's work to the stream ...  timer.end();
//   StepTimer::Times times = timer.take();   // of the oldest step, once it has been collected
//
// One thread.
#pragma once

#include <chrono>
#include <cstdint>
#include <vector>

#include "tensor/stream.h"

namespace sluice {

class StepTimer {
 public:
  using Clock = std::chrono::steady_clock;
  struct Times {
    Clock::time_point begin, end;
  };

  // For up to `depth` steps between begin() and take(). `stream` must live as long as this; null on
  // a CPU.
  StepTimer(Device device, const Stream* stream, int depth);

  void begin();
  void end();
  // Waits for the end of the oldest step on the device.
  Times take();

 private:
  struct Mark {
    StreamEvent begin, end;
    Clock::time_point host_begin, host_end;
  };
  const Stream* const stream_;
  const bool on_device_;
  std::vector<Mark> marks_;  // taken in turns
  std::uint64_t num_begun_ = 0, num_taken_ = 0;
  Times last_{};  // of the step before; its marks are kept until the next one is taken
};

}  // namespace sluice
