// What a compile of a grammar, and later its masks, may cost.
//
// Work is counted in steps of the inner loops, not in time, so a refusal does not depend on the
// machine's load. A caller may also cancel from another thread.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>

namespace sluice::grammar {

struct Budget {
  // one compile: about two seconds
  std::uint64_t max_work = 100'000'000;
  // nodes, languages, states and caches of one grammar
  std::uint64_t max_bytes = std::uint64_t{64} << 20;
  // one mask, or one accepted token
  std::uint64_t max_step_work = 20'000'000;
  // bytes of a pattern or a grammar's text
  std::uint64_t max_source_bytes = 256 << 10;
  // null: not cancellable
  std::shared_ptr<const std::atomic<bool>> cancelled{};

  bool is_cancelled() const {
    return cancelled != nullptr && cancelled->load(std::memory_order_relaxed);
  }
};

}  // namespace sluice::grammar
