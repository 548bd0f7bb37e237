#include "ops/logit_edits.h"

#include "ops/arguments.h"
#include "ops/dispatch.h"

namespace sluice::ops {
namespace {

void expect_edits(const Context& ctx, const Tensor& edit_lists, const Tensor& lengths) {
  expect_dense(ctx, "edit_lists", edit_lists, {-1, -1, sizeof(LogitEdit)}, kBytes);
  expect(ctx, "lengths of edit_lists", lengths, {edit_lists.dim(0)}, kIndex);
}

}  // namespace

void read_logprobs(Context& ctx, const Tensor& logits, const Tensor& logit_edits,
                   const Tensor& sampled_rows) {
  expect(ctx, "read_logprobs logits", logits, {-1, -1}, kFloat);
  expect_dense(ctx, "read_logprobs logit_edits", logit_edits, {logits.dim(0), sizeof(LogitEdits)},
               kBytes);
  expect_dense(ctx, "read_logprobs sampled_rows", sampled_rows, {logits.dim(0), sizeof(SampledRow)},
               kBytes);
  on_device<cpu::read_logprobs, cuda::read_logprobs>(ctx, logits, logit_edits, sampled_rows);
}

void adjust_logits(Context& ctx, const Tensor& logit_edits, const Tensor& edit_lists,
                   const Tensor& lengths, const Tensor& logits) {
  expect(ctx, "adjust_logits logits", logits, {-1, -1}, kFloat);
  expect_dense(ctx, "adjust_logits logit_edits", logit_edits, {logits.dim(0), sizeof(LogitEdits)},
               kBytes);
  expect_edits(ctx, edit_lists, lengths);
  on_device<cpu::adjust_logits, cuda::adjust_logits>(ctx, logit_edits, edit_lists, lengths, logits);
}

void mask_logits(Context& ctx, const Tensor& mask_of_row, const Tensor& masks,
                 const Tensor& logits) {
  expect(ctx, "mask_logits logits", logits, {-1, -1}, kFloat);
  expect(ctx, "mask_logits mask_of_row", mask_of_row, {logits.dim(0)}, kIndex);
  expect_dense(ctx, "mask_logits masks", masks, {-1, (logits.dim(1) + 31) / 32}, kIndex);
  on_device<cpu::mask_logits, cuda::mask_logits>(ctx, mask_of_row, masks, logits);
}

void record_sampled_rows(Context& ctx, const Tensor& tokens, const Tensor& logits,
                         const Tensor& logit_edits, const Tensor& edit_lists, const Tensor& lengths,
                         const Tensor& sampled_rows) {
  expect(ctx, "record_sampled_rows tokens", tokens, {-1}, kIndex);
  expect(ctx, "record_sampled_rows logits", logits, {tokens.dim(0), -1}, kFloat);
  expect_dense(ctx, "record_sampled_rows logit_edits", logit_edits,
               {tokens.dim(0), sizeof(LogitEdits)}, kBytes);
  expect_dense(ctx, "record_sampled_rows sampled_rows", sampled_rows,
               {tokens.dim(0), sizeof(SampledRow)}, kBytes);
  expect_edits(ctx, edit_lists, lengths);
  on_device<cpu::record_sampled_rows, cuda::record_sampled_rows>(ctx, tokens, logits, logit_edits,
                                                                 edit_lists, lengths, sampled_rows);
}

}  // namespace sluice::ops
