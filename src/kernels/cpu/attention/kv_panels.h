// Tokens of planes in panels (kv_plane.h). Callers check the slots.
#pragma once

#include "kernels/types/kv_plane.h"
#include "tensor/context.h"

namespace sluice::cpu {

// ops::kv_write and ops::kv_move for one plane in panels.
void kv_write_panels(Context& ctx, const Tensor& src, const std::int64_t* slots,
                     const ops::KvPlane& plane);
void kv_move_panels(Context& ctx, const ops::KvPlane& plane, const std::int64_t* from,
                    const std::int64_t* to, std::int64_t count);

// One head of one token, on the calling thread: from[head_dim] f32. fetch_panel_head() prefetches
// the lines to be written; call it well before write_panel_head().
void fetch_panel_head(const ops::KvPlane& plane, std::int64_t slot, std::int64_t head);
void write_panel_head(const ops::KvPlane& plane, std::int64_t slot, std::int64_t head,
                      const float* from);

}  // namespace sluice::cpu
