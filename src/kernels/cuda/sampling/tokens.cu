// Sampled tokens stay on the GPU, by slot, so that the next step may start before the host knows
// them.
#include "kernels/cuda/common/launch.cuh"
#include "kernels/cuda/cuda.h"

namespace sluice::cuda {
namespace {

// An id below 0 names a slot (-1 - slot): it becomes the token of that slot.
__global__ void take_tokens(const std::int32_t* slot_tokens, std::int64_t slots, std::int32_t* ids,
                            std::int64_t n) {
  begin_dependent();
  const std::int64_t i = std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (i >= n || ids[i] >= 0) return;
  // Ids of 0 and above are tokens already.
  const std::int64_t slot = -1 - std::int64_t{ids[i]};
  expect_below(slot, slots);
  ids[i] = slot_tokens[slot];
}

// Stores the tokens of a step. Rows with slot -1 have none. A token of -1 (no valid logit) becomes
// 0, because the embedding needs a valid id.
__global__ void put_tokens(const std::int32_t* tokens, const std::int32_t* slots, std::int64_t n,
                           std::int32_t* slot_tokens, std::int64_t limit) {
  begin_dependent();
  const std::int64_t i = std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (i >= n || slots[i] < 0) return;
  expect_below(slots[i], limit);
  slot_tokens[slots[i]] = max(tokens[i], 0);
}

}  // namespace

void take_slot_tokens(Context& ctx, const Tensor& slot_tokens, const Tensor& ids) {
  if (ids.dim(0) == 0) return;
  launch_dependent(ctx, "take_slot_tokens", take_tokens, blocks_for(ids.dim(0), 256), 256, 0,
                   slot_tokens.ptr<std::int32_t>(), slot_tokens.dim(0), ids.ptr<std::int32_t>(),
                   ids.dim(0));
}

void put_slot_tokens(Context& ctx, const Tensor& tokens, const Tensor& slots,
                     const Tensor& slot_tokens) {
  if (tokens.dim(0) == 0) return;
  launch_dependent(ctx, "put_slot_tokens", put_tokens, blocks_for(tokens.dim(0), 256), 256, 0,
                   tokens.ptr<std::int32_t>(), slots.ptr<std::int32_t>(), tokens.dim(0),
                   slot_tokens.ptr<std::int32_t>(), slot_tokens.dim(0));
}

}  // namespace sluice::cuda
