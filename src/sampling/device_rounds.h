// What rounds of drafts leave on the device (ops/tokens.h): which drafts were right, where the next
// rows lie, and the tokens of drafts by slot.
//
//   rounds.place(ctx, places);                    // before the forward of a step with drafts
//   ... the forward, and the choice of tokens ...
//   rounds.accept(ctx, rows);
//   ... the draft's runs, which read state() and next_tokens(), and write drafts() ...
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/types/round_rows.h"
#include "tensor/buffer.h"
#include "tensor/context.h"

namespace sluice {

// Rows of a step, on the device.
struct StepOfRound {
  Tensor slots;  // [rows] i32: of rows in a round, else -1
  Tensor ids;    // [rows] i32
  ops::RowPlaces places;
};

class DeviceRounds {
 public:
  // `slot_tokens` [(1 + max_drafts) * max_slots] i32: of DeviceSampler. `chances`: of measurements,
  // as HostSampler's.
  DeviceRounds(std::int64_t max_slots, std::int64_t max_rows, const Tensor& slot_tokens,
               const std::vector<double>& chances, Device device);
  static std::int64_t bytes(std::int64_t max_slots, std::int64_t max_rows);

  void place(Context& ctx, const StepOfRound& step) const;
  // `tokens` [rows] i32: what each row chose, changed in place.
  void accept(Context& ctx, const StepOfRound& step, const Tensor& tokens) const;

  const ops::RoundState& state() const { return state_; }
  // [max_rows] i32: what each row of the last step chose, 0 for nothing.
  const Tensor& next_tokens() const { return next_tokens_; }
  // [max_slots] i32: draft `i` of each slot.
  Tensor drafts(int i) const { return slot_tokens_.rows((i + 1) * max_slots_, max_slots_); }

 private:
  const std::int64_t max_slots_;
  const Tensor slot_tokens_;
  Buffer memory_;
  ops::RoundState state_;
  Tensor next_tokens_, chances_;
};

}  // namespace sluice
