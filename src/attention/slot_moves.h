// Copies between slots of the KV pool that the host lists.
#pragma once

#include <cstdint>
#include <span>

#include "kernels/types/kv_plane.h"
#include "tensor/context.h"

namespace sluice {

// ops::kv_move() with lists in host memory, which may be reused on return. A GPU takes as many at a
// time as their slots find room beside each other in the arena.
void move_slots(Context& ctx, std::span<const ops::KvPlane> planes,
                std::span<const std::int64_t> from, std::span<const std::int64_t> to);

}  // namespace sluice
