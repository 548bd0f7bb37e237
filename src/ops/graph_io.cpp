#include "ops/graph_io.h"

#include "ops/arguments.h"
#include "ops/dispatch.h"

namespace sluice::ops {

void load_step_inputs(Context& ctx, const StepInputs& fetch) {
  expect(ctx, "load_step_inputs counter", fetch.counter, {1}, kSlot);
  expect(ctx, "load_step_inputs inputs", fetch.inputs, {-1}, kBytes);
  expect(ctx, "load_step_inputs ids", fetch.ids, {-1}, kIndex);
  expect(ctx, "load_step_inputs seq_lens", fetch.seq_lens, {-1}, kIndex);
  expect(ctx, "load_step_inputs slot_tokens", fetch.slot_tokens, {-1}, kIndex);
  check(fetch.inputs.bytes() % 16 == 0 && fetch.page_tables.size() <= kMaxInputTables,
        "load_step_inputs: {} bytes, {} page tables; multiples of 16, at most {}",
        fetch.inputs.bytes(), fetch.page_tables.size(), kMaxInputTables);
  for (const Tensor& table : fetch.page_tables)
    expect_dense(ctx, "load_step_inputs page table", table, {fetch.seq_lens.dim(0), -1}, kIndex);
  on_device<cpu::load_step_inputs, cuda::load_step_inputs>(ctx, fetch);
}

void store_step_tokens(Context& ctx, const Tensor& tokens, const Tensor& slots,
                       const Tensor& slot_tokens, const Tensor& counter,
                       const std::array<Tensor, 2>& boxes) {
  expect(ctx, "store_step_tokens tokens", tokens, {-1}, kIndex);
  expect(ctx, "store_step_tokens slots", slots, {tokens.dim(0)}, kIndex);
  expect(ctx, "store_step_tokens slot_tokens", slot_tokens, {-1}, kIndex);
  expect(ctx, "store_step_tokens counter", counter, {1}, kSlot);
  for (const Tensor& box : boxes)
    check(box.dtype == DType::kI32 && box.rank == 1 && box.dim(0) >= tokens.dim(0),
          "store_step_tokens: a box of {} tokens for {}", box.dim(0), tokens.dim(0));
  on_device<cpu::store_step_tokens, cuda::store_step_tokens>(ctx, tokens, slots, slot_tokens,
                                                             counter, boxes);
}

}  // namespace sluice::ops
