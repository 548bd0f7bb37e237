#include "sampling/device_rounds.h"

#include <algorithm>
#include <cstring>

#include "ops/tokens.h"
#include "tensor/copy.h"

namespace sluice {
namespace {

constexpr std::int64_t kMaxChances = 64;

std::int64_t align(std::int64_t bytes) {
  return (bytes + 63) / 64 * 64;
}

}  // namespace

std::int64_t DeviceRounds::bytes(std::int64_t max_slots, std::int64_t max_rows) {
  return 4 * align(4 * max_slots) + align(4 * max_rows) + 8 * kMaxChances;
}

DeviceRounds::DeviceRounds(std::int64_t max_slots, std::int64_t max_rows, const Tensor& slot_tokens,
                           const std::vector<double>& chances, Device device)
    : max_slots_(max_slots),
      slot_tokens_(slot_tokens),
      memory_(bytes(max_slots, max_rows), device) {
  const auto of_slots = [&](int i) {
    return memory_.tensor(DType::kI32, {max_slots}, i * align(4 * max_slots));
  };
  state_ = {.wrong = of_slots(0),
            .wrong_first = of_slots(1),
            .wrong_next = of_slots(2),
            .last_rows = of_slots(3)};
  next_tokens_ = memory_.tensor(DType::kI32, {max_rows}, 4 * align(4 * max_slots));
  HostImage zeros(memory_.tensor(DType::kU8, {bytes(max_slots, max_rows)}));
  std::memset(zeros.tensor().data, 0, static_cast<std::size_t>(zeros.tensor().bytes()));
  zeros.put();
  if (chances.empty()) return;
  chances_ = memory_.tensor(DType::kF64, {std::min<std::int64_t>(std::ssize(chances), kMaxChances)},
                            4 * align(4 * max_slots) + align(4 * max_rows));
  HostImage image(chances_);
  std::copy_n(chances.begin(), chances_.dim(0), image.tensor().ptr<double>());
  image.put();
}

void DeviceRounds::place(Context& ctx, const StepOfRound& step) const {
  ops::place_rows(ctx, step.places, state_.wrong, state_.last_rows);
}

void DeviceRounds::accept(Context& ctx, const StepOfRound& step, const Tensor& tokens) const {
  ops::accept_drafts(ctx,
                     {.slots = step.slots,
                      .moved = step.places.slots,
                      .ids = step.ids,
                      .tokens = tokens,
                      .next_tokens = next_tokens_.rows(0, tokens.dim(0)),
                      .slot_tokens = slot_tokens_,
                      .chances = chances_,
                      .row_keys = step.places.row_keys},
                     state_);
}

}  // namespace sluice
