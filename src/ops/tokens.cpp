#include "ops/tokens.h"

#include "ops/arguments.h"
#include "ops/dispatch.h"

namespace sluice::ops {

void sample_tokens(Context& ctx, const Tensor& logits, const Tensor& sample_rows,
                   const Tensor& tokens) {
  expect(ctx, "sample_tokens logits", logits, {-1, -1}, kFloat);
  expect(ctx, "sample_tokens sample_rows", sample_rows, {logits.dim(0), sizeof(SampleRow)}, kBytes);
  expect(ctx, "sample_tokens tokens", tokens, {logits.dim(0)}, kIndex);
  on_device<cpu::sample_tokens, cuda::sample_tokens>(ctx, logits, sample_rows, tokens);
}

void take_slot_tokens(Context& ctx, const Tensor& slot_tokens, const Tensor& ids) {
  expect(ctx, "take_slot_tokens slot_tokens", slot_tokens, {-1}, kIndex);
  expect(ctx, "take_slot_tokens ids", ids, {-1}, kIndex);
  on_device<cpu::take_slot_tokens, cuda::take_slot_tokens>(ctx, slot_tokens, ids);
}

void put_slot_tokens(Context& ctx, const Tensor& tokens, const Tensor& slots,
                     const Tensor& slot_tokens) {
  expect(ctx, "put_slot_tokens tokens", tokens, {-1}, kIndex);
  expect(ctx, "put_slot_tokens slots", slots, {tokens.dim(0)}, kIndex);
  expect(ctx, "put_slot_tokens slot_tokens", slot_tokens, {-1}, kIndex);
  on_device<cpu::put_slot_tokens, cuda::put_slot_tokens>(ctx, tokens, slots, slot_tokens);
}

}  // namespace sluice::ops
