#include "engine/loop_trace.h"

#include <algorithm>

#include <fmt/format.h>

namespace sluice {
namespace {

std::string_view mode_name(ForwardMode mode) {
  switch (mode) {
    case ForwardMode::kExtend:
      return "prefill";
    case ForwardMode::kDecode:
      return "decode";
    case ForwardMode::kMixed:
      return "mixed";
    case ForwardMode::kTargetVerify:
      return "verify";
    case ForwardMode::kIdle:
      return "idle";
  }
  return "";
}

std::string step_args(const Step& step) {
  std::size_t sequences = 0;
  int prefill_tokens = 0, decode_rows = 0, drafts = 0;
  for (const Batch& batch : step.dp) {
    sequences += batch.items.size();
    for (const BatchItem& item : batch.items) {
      if (!item.decode) prefill_tokens += item.count;
      if (item.decode) ++decode_rows, drafts += item.count - 1;
    }
  }
  std::int64_t expert_bytes = 0;
  for (const ExpertMove& move : step.expert_moves) expert_bytes += move.end - move.begin;
  return fmt::format(R"({{"step":{},"mode":"{}","sequences":{},"prefill_tokens":{},)"
                     R"("decode_rows":{},"drafts":{},"expert_bytes_moved":{}}})",
                     step.id, mode_name(step.dp.front().mode), sequences, prefill_tokens,
                     decode_rows, drafts, expert_bytes);
}

}  // namespace

LoopTrace::LoopTrace(std::shared_ptr<Trace> trace, const Context& ctx, int depth)
    : trace_(std::move(trace)), timer_(ctx.device, ctx.stream, depth) {}

void LoopTrace::begin_step() {
  planned_ = launched_ = Trace::Clock::now();
  timer_.begin();
}

void LoopTrace::end_step(const Step& step, Time filled) {
  timer_.end();
  const Time end = Trace::Clock::now();
  const Time launched = std::clamp(launched_, planned_, end);  // a forward that threw never was
  const Time built = std::clamp(filled, planned_, launched);
  using enum TraceLane;
  trace_->span(kEngine, fmt::format("step {}", step.id), turn_, end, step_args(step));
  trace_->span(kEngine, "schedule", turn_, planned_);
  trace_->span(kEngine, "build batch", planned_, built);
  trace_->span(kEngine, "launch", built, launched);
  trace_->span(kEngine, "sample", launched, end);
}

void LoopTrace::end_commit(const Step& step) {
  const StepTimer::Times times = timer_.take();
  const Time end = Trace::Clock::now();
  using enum TraceLane;
  trace_->span(kDevice, fmt::format("step {}", step.id), times.begin, times.end, step_args(step));
  trace_->span(kEngine, fmt::format("commit {}", step.id), commit_, end,
               fmt::format(R"({{"step":{}}})", step.id));
  trace_->span(kEngine, "wait", commit_, collected_);
  trace_->span(kEngine, "commit", collected_, end);
}

}  // namespace sluice
