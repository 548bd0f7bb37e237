#include "ops/roofline.h"

#include "ops/arguments.h"

namespace sluice::ops {

ReadBandwidth read_bandwidth(Context& ctx, const Tensor& buffer, int passes) {
  expect_dense(ctx, "read_bandwidth buffer", buffer, {-1}, {DType::kU8});
  const std::int64_t threads = ctx.pool == nullptr ? 1 : ctx.pool->size();
  check(passes >= 1 && buffer.dim(0) >= threads * 65536, "read_bandwidth: {} bytes, {} threads, {} passes",
        buffer.dim(0), threads, passes);
  return cpu::read_bandwidth(ctx, buffer, passes);
}

double peak_rate(Context& ctx, PeakInstruction instruction, double seconds) {
  check(seconds > 0, "peak_rate: {} seconds", seconds);
  return cpu::peak_rate(ctx, instruction, seconds);
}

}  // namespace sluice::ops
