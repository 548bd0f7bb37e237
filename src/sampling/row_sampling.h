// What the sampler says of a step's rows before the step runs, and where it stands on the device.
// The batch buffers write the one into the other.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>

#include "batch/batch.h"
#include "kernels/types/op_params.h"
#include "kernels/types/round_rows.h"
#include "kernels/types/sampling_rows.h"
#include "tensor/tensor.h"

namespace sluice {

struct RowInfo {
  // The token that kTokenFromSlot stands for: its id, or -1 - slot where only the device knows it
  // yet (ops::take_slot_tokens).
  std::function<std::int32_t(std::int32_t slot)> token_of_slot;
  // The same of its draft i, in a round.
  std::function<std::int32_t(std::int32_t slot, std::int32_t draft)> draft_of_slot = {};
  // How the token of a row of logits is chosen; none: the row is left out (ops::sample_tokens).
  std::function<ops::SampleRow(const LogitRow& row, std::int32_t slot)> sample_row_of;
  // How the row is changed before; none: it is not (ops/logit_edits.h).
  std::function<ops::LogitEdits(const LogitRow& row, std::int32_t slot)> logit_edits_of = {};
  // What the row's random number is made of, in a round.
  std::function<ops::RowKey(const LogitRow& row, std::int32_t slot)> row_key_of = {};
  // Where a recorded step keeps the states of its first row for a draft, the next row's behind it
  // (DraftRunner::reserve); none: nowhere.
  std::optional<std::int32_t> first_kept = {};
  // Of a draft's padded run: the row of the states that each row reads; none: it reads none.
  std::span<const std::int32_t> sources = {};
  // Of a draft's padded run in a round: the slot of each row's sequence; none: the host knows where
  // the rows lie.
  std::span<const std::int32_t> moved_slots = {};
};

// Of each row of logits, on the device.
struct SamplingTensors {
  Tensor logit_slots;  // [rows] int32: slot of the sequence; -1 for padding
  Tensor sample_rows;  // [rows, sizeof(ops::SampleRow)] u8
  Tensor logit_edits;  // [rows, sizeof(ops::LogitEdits)] u8
};

}  // namespace sluice
