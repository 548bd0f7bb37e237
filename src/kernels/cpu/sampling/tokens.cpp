// Sampled tokens on the device: sampling from rows of logits, and the token of each slot.
#include <span>
#include <vector>

#include "base/error.h"
#include "base/thread_pool.h"
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/sampling/sample.h"

namespace sluice::cpu {
void sample_tokens(Context& ctx, const Tensor& logits, const Tensor& sample_rows,
                   const Tensor& tokens) {
  const auto* how = ops::as_sample_rows(sample_rows);
  ctx.pool->parallel_for(logits.dim(0), [&](std::int64_t begin, std::int64_t end) {
    std::vector<float> scratch;
    for (std::int64_t i = begin; i < end; ++i) {
      std::int32_t& token = tokens.ptr<std::int32_t>()[i];
      token = 0;
      if (how[i].temperature == ops::SampleRow::kLeftOut) continue;
      const std::span<const float> row(logits.rows(i, 1).ptr<float>(),
                                       static_cast<std::size_t>(logits.dim(1)));
      const draw::RowMax max = draw::row_max(row);
      if (!max.finite) {
        token = -1;
      } else if (how[i].greedy()) {
        token = draw::first_equal(row, max.value);
      } else {
        scratch.assign(row.begin(), row.end());
        token = draw::choose(scratch, max.value, how[i]);
      }
    }
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

void put_slot_tokens(Context&, const Tensor& tokens, const Tensor& slots,
                     const Tensor& slot_tokens) {
  for (std::int64_t i = 0; i < tokens.dim(0); ++i) {
    const std::int32_t slot = slots.ptr<std::int32_t>()[i], token = tokens.ptr<std::int32_t>()[i];
    if (slot < 0) continue;
    check(slot < slot_tokens.dim(0), "put_slot_tokens: slot {} of {}", slot, slot_tokens.dim(0));
    slot_tokens.ptr<std::int32_t>()[slot] = token < 0 ? 0 : token;
  }
}

}  // namespace sluice::cpu
