#include "ops/step_mail.h"

#include "ops/arguments.h"
#include "ops/op_table.h"

namespace sluice::ops {

void fetch_step(Context& ctx, const StepFetch& fetch) {
  expect(ctx, "fetch_step counter", fetch.counter, {1}, kSlot);
  expect(ctx, "fetch_step inputs", fetch.inputs, {-1}, kBytes);
  expect(ctx, "fetch_step ids", fetch.ids, {-1}, kIndex);
  expect(ctx, "fetch_step seq_lens", fetch.seq_lens, {-1}, kIndex);
  expect(ctx, "fetch_step slot_tokens", fetch.slot_tokens, {-1}, kIndex);
  check(fetch.inputs.bytes() % 16 == 0 && fetch.page_tables.size() <= kMaxFetchTables,
        "fetch_step: {} bytes, {} page tables; multiples of 16, at most {}", fetch.inputs.bytes(), fetch.page_tables.size(),
        kMaxFetchTables);
  for (const Tensor& table : fetch.page_tables)
    expect_dense(ctx, "fetch_step page table", table, {fetch.seq_lens.dim(0), -1}, kIndex);
  if (runs(ctx)) bodies(ctx).fetch_step(ctx, fetch);
}

void hand_out_tokens(Context& ctx, const Tensor& tokens, const Tensor& slots, const Tensor& slot_tokens, const Tensor& counter,
                     const std::array<Tensor, 2>& boxes) {
  expect(ctx, "hand_out_tokens tokens", tokens, {-1}, kIndex);
  expect(ctx, "hand_out_tokens slots", slots, {tokens.dim(0)}, kIndex);
  expect(ctx, "hand_out_tokens slot_tokens", slot_tokens, {-1}, kIndex);
  expect(ctx, "hand_out_tokens counter", counter, {1}, kSlot);
  for (const Tensor& box : boxes)
    check(box.dtype == DType::kI32 && box.rank == 1 && box.dim(0) >= tokens.dim(0), "hand_out_tokens: a box of {} tokens for {}",
          box.dim(0), tokens.dim(0));
  if (runs(ctx)) bodies(ctx).hand_out_tokens(ctx, tokens, slots, slot_tokens, counter, boxes);
}

}  // namespace sluice::ops
