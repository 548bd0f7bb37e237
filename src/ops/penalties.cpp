#include "ops/penalties.h"

#include "ops/arguments.h"
#include "ops/op_table.h"

namespace sluice::ops {
namespace {

void expect_rules(const Context& ctx, const Tensor& rules, const Tensor& lengths) {
  expect_dense(ctx, "rules", rules, {-1, -1, sizeof(TokenRule)}, kBytes);
  expect(ctx, "lengths of rules", lengths, {rules.dim(0)}, kIndex);
}

}  // namespace

void read_logprobs(Context& ctx, const Tensor& logits, const Tensor& asks, const Tensor& choices) {
  expect(ctx, "read_logprobs logits", logits, {-1, -1}, kFloat);
  expect_dense(ctx, "read_logprobs asks", asks, {logits.dim(0), sizeof(RowAsk)}, kBytes);
  expect_dense(ctx, "read_logprobs choices", choices, {logits.dim(0), sizeof(RowChoice)}, kBytes);
  if (runs(ctx)) bodies(ctx).read_logprobs(ctx, logits, asks, choices);
}

void adjust_logits(Context& ctx, const Tensor& asks, const Tensor& rules, const Tensor& lengths, const Tensor& logits) {
  expect(ctx, "adjust_logits logits", logits, {-1, -1}, kFloat);
  expect_dense(ctx, "adjust_logits asks", asks, {logits.dim(0), sizeof(RowAsk)}, kBytes);
  expect_rules(ctx, rules, lengths);
  if (runs(ctx)) bodies(ctx).adjust_logits(ctx, asks, rules, lengths, logits);
}

void remember_choices(Context& ctx, const Tensor& tokens, const Tensor& logits, const Tensor& asks, const Tensor& rules,
                      const Tensor& lengths, const Tensor& choices) {
  expect(ctx, "remember_choices tokens", tokens, {-1}, kIndex);
  expect(ctx, "remember_choices logits", logits, {tokens.dim(0), -1}, kFloat);
  expect_dense(ctx, "remember_choices asks", asks, {tokens.dim(0), sizeof(RowAsk)}, kBytes);
  expect_dense(ctx, "remember_choices choices", choices, {tokens.dim(0), sizeof(RowChoice)}, kBytes);
  expect_rules(ctx, rules, lengths);
  if (runs(ctx)) bodies(ctx).remember_choices(ctx, tokens, logits, asks, rules, lengths, choices);
}

}  // namespace sluice::ops
