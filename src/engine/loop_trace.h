// What --trace shows of the engine's loop: a span for each step's plan and launch and for its
// commit, with their parts, on the engine's lane, and the step's time on the device on the device's
// lane. Engine thread.
#pragma once

#include <memory>

#include "base/trace.h"
#include "batch/batch.h"
#include "runtime/step_timer.h"
#include "tensor/context.h"

namespace sluice {

class LoopTrace {
 public:
  using Time = Trace::Time;

  LoopTrace(std::shared_ptr<Trace> trace, const Context& ctx, int depth);

  // In this order for each step that is launched: the loop looks for work; the plan is made; the
  // forward was given to the device; tokens were chosen or asked for. `filled`: when the batch lay
  // in the device's buffers.
  void turn() { turn_ = Trace::Clock::now(); }
  void begin_step();
  void launched() { launched_ = Trace::Clock::now(); }
  void end_step(const Step& step, Time filled);

  // And for each that is committed: before the wait for its result, behind it, at the end.
  void begin_commit() { commit_ = Trace::Clock::now(); }
  void collected() { collected_ = Trace::Clock::now(); }
  void end_commit(const Step& step);

  Trace& trace() { return *trace_; }

 private:
  const std::shared_ptr<Trace> trace_;
  StepTimer timer_;
  Time turn_{}, planned_{}, launched_{}, commit_{}, collected_{};
};

}  // namespace sluice
