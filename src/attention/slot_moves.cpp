#include "attention/slot_moves.h"

#include <algorithm>

#include "ops/kv.h"
#include "tensor/copy.h"

namespace sluice {

void move_slots(Context& ctx, std::span<const ops::KvPlane> planes,
                std::span<const std::int64_t> from, std::span<const std::int64_t> to) {
  if (planes.empty()) return;
  const std::size_t most = std::max<std::int64_t>(1, ctx.arena->capacity_bytes() / 32);
  for (std::size_t begin = 0; begin < from.size(); begin += most) {
    Arena::Scope scope(*ctx.arena);
    const std::size_t count = std::min(most, from.size() - begin);
    const auto slots = [&](std::span<const std::int64_t> all) {
      return to_device(ctx, Tensor::dense(const_cast<std::int64_t*>(all.data() + begin),
                                          DType::kI64, {static_cast<std::int64_t>(count)}));
    };
    ops::kv_move(ctx, planes, slots(from), slots(to));
  }
}

}  // namespace sluice
