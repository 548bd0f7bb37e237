#include "ops/roofline.h"

#include "ops/arguments.h"

namespace sluice::ops {

namespace {

void expect_buffer(const Context& ctx, const Tensor& buffer) {
  expect_dense(ctx, "roofline buffer", buffer, {-1}, {DType::kU8});
  const std::int64_t threads = ctx.pool == nullptr ? 1 : ctx.pool->size();
  check(buffer.dim(0) >= threads * 65536, "roofline: {} bytes for {} threads", buffer.dim(0),
        threads);
}

}  // namespace

ReadBandwidth read_bandwidth(Context& ctx, const Tensor& buffer, int passes) {
  expect_buffer(ctx, buffer);
  check(passes >= 1, "read_bandwidth: {} passes", passes);
  return cpu::read_bandwidth(ctx, buffer, passes);
}

double read_pass(Context& ctx, const Tensor& buffer, int pattern) {
  expect_buffer(ctx, buffer);
  check(pattern >= 0 && pattern < kReadPatterns, "read_pass: pattern {} of {}", pattern,
        kReadPatterns);
  return cpu::read_pass(ctx, buffer, pattern);
}

double peak_rate(Context& ctx, PeakInstruction instruction, double seconds) {
  check(seconds > 0, "peak_rate: {} seconds", seconds);
  return cpu::peak_rate(ctx, instruction, seconds);
}

}  // namespace sluice::ops
