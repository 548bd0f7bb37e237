#include "ops/tokens.h"

#include "kernels/cpu/sampling/rounds.h"
#include "kernels/cuda/sampling/rounds.h"
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

void place_rows(Context& ctx, const RowPlaces& rows, const Tensor& moved, const Tensor& last_rows) {
  const std::int64_t count = rows.slots.dim(0);
  expect(ctx, "place_rows slots", rows.slots, {-1}, kIndex);
  expect(ctx, "place_rows positions", rows.positions, {count}, kIndex);
  expect(ctx, "place_rows seq_lens", rows.seq_lens, {count}, kIndex);
  expect(ctx, "place_rows moved", moved, {-1}, kIndex);
  expect(ctx, "place_rows last_rows", last_rows, {moved.dim(0)}, kIndex);
  check(rows.page_tables.size() == rows.out_cache_locs.size() &&
            rows.page_tables.size() <= kMaxPlaceGroups,
        "place_rows: {} page tables, {} out_cache_locs; at most {}", rows.page_tables.size(),
        rows.out_cache_locs.size(), kMaxPlaceGroups);
  for (const Tensor& table : rows.page_tables)
    expect_dense(ctx, "place_rows page table", table, {count, -1}, kIndex);
  for (const Tensor& locs : rows.out_cache_locs)
    expect(ctx, "place_rows out_cache_locs", locs, {count}, kSlot);
  if (rows.sample_rows.defined()) {
    expect(ctx, "place_rows row_keys", rows.row_keys, {count, sizeof(RowKey)}, kBytes);
    expect(ctx, "place_rows sample_rows", rows.sample_rows, {count, sizeof(SampleRow)}, kBytes);
  }
  for (const Tensor* rest : {&rows.logit_slots, &rows.sources})
    if (rest->defined()) expect(ctx, "place_rows logit_slots or sources", *rest, {count}, kIndex);
  on_device<cpu::place_rows, cuda::place_rows>(ctx, rows, moved, last_rows);
}

void accept_drafts(Context& ctx, const RoundRows& rows, const RoundState& state) {
  const std::int64_t count = rows.slots.dim(0), slots = state.wrong.dim(0);
  expect(ctx, "accept_drafts slots", rows.slots, {-1}, kIndex);
  for (const Tensor* each : {&rows.moved, &rows.ids, &rows.tokens, &rows.next_tokens})
    expect(ctx, "accept_drafts rows", *each, {count}, kIndex);
  expect(ctx, "accept_drafts slot_tokens", rows.slot_tokens, {-1}, kIndex);
  for (const Tensor* each : {&state.wrong, &state.wrong_first, &state.wrong_next, &state.last_rows})
    expect(ctx, "accept_drafts state", *each, {slots}, kIndex);
  check(rows.slot_tokens.dim(0) >= slots, "accept_drafts: {} tokens of {} slots",
        rows.slot_tokens.dim(0), slots);
  if (rows.chances.defined()) {
    expect(ctx, "accept_drafts chances", rows.chances, {-1}, {DType::kF64});
    expect(ctx, "accept_drafts row_keys", rows.row_keys, {count, sizeof(RowKey)}, kBytes);
  }
  on_device<cpu::accept_drafts, cuda::accept_drafts>(ctx, rows, state);
}

void put_draft_tokens(Context& ctx, const Tensor& tokens, const Tensor& slots, const Tensor& places,
                      const Tensor& map, const Tensor& slot_tokens) {
  expect(ctx, "put_draft_tokens tokens", tokens, {-1}, kIndex);
  expect(ctx, "put_draft_tokens slots", slots, {tokens.dim(0)}, kIndex);
  expect(ctx, "put_draft_tokens places", places, {tokens.dim(0)}, kIndex);
  if (map.defined()) expect_dense(ctx, "put_draft_tokens map", map, {-1, 1}, kIndex);
  expect(ctx, "put_draft_tokens slot_tokens", slot_tokens, {-1}, kIndex);
  on_device<cpu::put_draft_tokens, cuda::put_draft_tokens>(ctx, tokens, slots, places, map,
                                                           slot_tokens);
}

}  // namespace sluice::ops
