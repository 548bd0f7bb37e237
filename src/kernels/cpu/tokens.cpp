// Tokens by slot, and the largest entry of a row of logits.
#include <cmath>
#include <limits>

#include "base/error.h"
#include "base/thread_pool.h"
#include "kernels/cpu/cpu.h"

namespace sluice::cpu {
namespace {

std::int32_t argmax_row(const float* row, std::int64_t n) {
  float best = -std::numeric_limits<float>::infinity();
  std::int64_t at = -1;
  bool nan = false;
  for (std::int64_t i = 0; i < n; ++i) {
    nan |= row[i] != row[i];
    if (row[i] > best) {
      best = row[i];
      at = i;
    }
  }
  return nan || !std::isfinite(best) ? -1 : static_cast<std::int32_t>(at);
}

}  // namespace

void argmax(Context& ctx, const Tensor& logits, const Tensor& tokens) {
  ctx.pool->parallel_for(logits.dim(0), [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i)
      tokens.ptr<std::int32_t>()[i] = argmax_row(logits.rows(i, 1).ptr<float>(), logits.dim(1));
  });
}

void take_slot_tokens(Context&, const Tensor& slot_tokens, const Tensor& ids) {
  auto* id = ids.ptr<std::int32_t>();
  for (std::int64_t i = 0; i < ids.dim(0); ++i) {
    if (id[i] >= 0) continue;
    const std::int64_t slot = -1 - std::int64_t{id[i]};
    check(slot < slot_tokens.dim(0), "take_slot_tokens: slot {} of {}", slot, slot_tokens.dim(0));
    id[i] = slot_tokens.ptr<std::int32_t>()[slot];
  }
}

void put_slot_tokens(Context&, const Tensor& tokens, const Tensor& slots, const Tensor& slot_tokens) {
  for (std::int64_t i = 0; i < tokens.dim(0); ++i) {
    const std::int32_t slot = slots.ptr<std::int32_t>()[i], token = tokens.ptr<std::int32_t>()[i];
    if (slot < 0) continue;
    check(slot < slot_tokens.dim(0), "put_slot_tokens: slot {} of {}", slot, slot_tokens.dim(0));
    slot_tokens.ptr<std::int32_t>()[slot] = token < 0 ? 0 : token;
  }
}

}  // namespace sluice::cpu
