// Start and end of a recorded step: load its inputs, store its tokens.
#include <cstring>

#include "base/error.h"
#include "kernels/cpu/cpu.h"

namespace sluice::cpu {
namespace {

std::int64_t offset_in(const Tensor& inputs, const Tensor& part) {
  return static_cast<const std::byte*>(part.data) - static_cast<const std::byte*>(inputs.data);
}

}  // namespace

void load_step_inputs(Context& ctx, const ops::StepInputs& fetch) {
  const std::int64_t number = *fetch.counter.ptr<std::int64_t>();
  const Tensor& side = fetch.sides[static_cast<std::size_t>(number % 2)];
  check(*static_cast<const std::int64_t*>(side.data) == number,
        "the inputs of step {} lie where those of {} should",
        *static_cast<const std::int64_t*>(side.data), number);
  std::memcpy(fetch.inputs.data, side.data, static_cast<std::size_t>(fetch.inputs.bytes()));
  take_slot_tokens(ctx, fetch.slot_tokens, fetch.ids);
  // Copy only the pages that each sequence uses (64 tokens a page).
  for (const Tensor& table : fetch.page_tables) {
    const std::byte* from =
        static_cast<const std::byte*>(side.data) + offset_in(fetch.inputs, table);
    for (std::int64_t s = 0; s < table.dim(0); ++s) {
      const std::int64_t row_bytes = 4 * table.dim(1),
                         length = fetch.seq_lens.ptr<std::int32_t>()[s];
      const std::int64_t pages = std::min<std::int64_t>((length + 63) / 64, table.dim(1));
      std::memcpy(static_cast<std::byte*>(table.data) + s * row_bytes, from + s * row_bytes,
                  static_cast<std::size_t>(4 * pages));
    }
  }
}

void store_step_tokens(Context& ctx, const Tensor& tokens, const Tensor& slots,
                       const Tensor& slot_tokens, const Tensor& counter,
                       const std::array<Tensor, 2>& boxes) {
  put_slot_tokens(ctx, tokens, slots, slot_tokens);
  std::int64_t& number = *counter.ptr<std::int64_t>();
  auto* box = boxes[static_cast<std::size_t>(number % 2)].ptr<std::int32_t>();
  std::copy_n(tokens.ptr<std::int32_t>(), tokens.dim(0), box);
  ++number;
}

}  // namespace sluice::cpu
