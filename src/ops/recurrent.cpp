#include "ops/recurrent.h"

#include "ops/arguments.h"
#include "ops/dispatch.h"

namespace sluice::ops {
namespace {

void expect_rows(const Context& ctx, const SequenceRows& rows) {
  expect_dense(ctx, "state_slots", rows.state_slots, {-1}, kIndex);
  const std::int64_t seqs = rows.state_slots.dim(0);
  expect_dense(ctx, "prefix_lens", rows.prefix_lens, {seqs}, kIndex);
  expect_dense(ctx, "start_loc", rows.start_loc, {seqs + 1}, kIndex);
  if (rows.state_sources.defined())
    expect_dense(ctx, "state_sources", rows.state_sources, {seqs}, kIndex);
}

void expect_like(const Context& ctx, const char* what, const Tensor& t, const Tensor& x) {
  if (x.rank == 3)
    expect(ctx, what, t, {x.dim(0), x.dim(1), x.dim(2)}, kFloat);
  else
    expect(ctx, what, t, {x.dim(0), x.dim(1)}, kFloat);
}

}  // namespace

void causal_conv(Context& ctx, const Tensor& x, const Tensor& weight, const Tensor& bias, bool silu,
                 const SequenceRows& rows, const Tensor& state, const Tensor& out) {
  expect(ctx, "causal_conv x", x, {-1, -1}, kFloat);
  expect_dense(ctx, "causal_conv weight", weight, {-1, x.dim(1)}, kFloat);
  check(weight.dim(0) >= kMinConvTaps && weight.dim(0) <= kMaxConvTaps,
        "causal_conv: {} taps, from {} to {} are known", weight.dim(0), kMinConvTaps, kMaxConvTaps);
  if (bias.defined()) expect_dense(ctx, "causal_conv bias", bias, {x.dim(1)}, kFloat);
  expect_rows(ctx, rows);
  expect(ctx, "causal_conv state", state, {-1, (weight.dim(0) - 1) * x.dim(1)}, kFloat);
  expect(ctx, "causal_conv out", out, {x.dim(0), x.dim(1)}, kFloat);
  on_device<cpu::causal_conv, cuda::causal_conv>(ctx, x, weight, bias, silu, rows, state, out);
}

void recurrent_scan(Context& ctx, const ScanInputs& in, const SequenceRows& rows,
                    const Tensor& state, const Tensor& out) {
  expect(ctx, "recurrent_scan k", in.k, {-1, -1, -1}, kFloat);
  const std::int64_t tokens = in.k.dim(0), key_heads = in.k.dim(1), dk = in.k.dim(2);
  expect(ctx, "recurrent_scan q", in.q, {tokens, key_heads, dk}, kFloat);
  expect(ctx, "recurrent_scan v", in.v, {tokens, -1, -1}, kFloat);
  const std::int64_t heads = in.v.dim(1), dv = in.v.dim(2);
  check(dk <= kMaxStateKeys && heads % key_heads == 0,
        "recurrent_scan: keys of {}, {} heads over {} of keys", dk, heads, key_heads);
  expect(ctx, "recurrent_scan decay", in.decay,
         {tokens, in.decay.dim(1) == heads ? heads : heads * dk}, kFloat);
  expect(ctx, "recurrent_scan beta", in.beta, {tokens, heads}, kFloat);
  if (in.skip.defined()) expect_dense(ctx, "recurrent_scan skip", in.skip, {heads}, kFloat);
  expect_rows(ctx, rows);
  expect(ctx, "recurrent_scan state", state, {-1, recurrent_state_elements(heads, dk, dv)}, kFloat);
  expect(ctx, "recurrent_scan out", out, {tokens, heads, dv}, kFloat);
  on_device<cpu::recurrent_scan, cuda::recurrent_scan>(ctx, in, rows, state, out);
}

void decay_gates(Context& ctx, const Tensor& x, const Tensor& bias, const Tensor& rate,
                 float min_step, float max_step, const Tensor& step, const Tensor& decay) {
  expect(ctx, "decay_gates x", x, {-1, -1}, kFloat);
  expect_dense(ctx, "decay_gates bias", bias, {x.dim(1)}, kFloat);
  expect_dense(ctx, "decay_gates rate", rate, {x.dim(1)}, kFloat);
  if (step.defined()) expect_like(ctx, "decay_gates step", step, x);
  expect_like(ctx, "decay_gates decay", decay, x);
  on_device<cpu::decay_gates, cuda::decay_gates>(ctx, x, bias, rate, min_step, max_step, step,
                                                 decay);
}

void sigmoid(Context& ctx, const Tensor& x, const Tensor& out) {
  expect(ctx, "sigmoid x", x, {-1, -1}, kFloat);
  expect_like(ctx, "sigmoid out", out, x);
  on_device<cpu::sigmoid, cuda::sigmoid>(ctx, x, out);
}

void gated_mul(Context& ctx, Gate fn, const Tensor& x, const Tensor& gate, const Tensor& out) {
  expect_like(ctx, "gated_mul x", x, x);
  expect_like(ctx, "gated_mul gate", gate, x);
  expect_like(ctx, "gated_mul out", out, x);
  on_device<cpu::gated_mul, cuda::gated_mul>(ctx, fn, x, gate, out);
}

}  // namespace sluice::ops
