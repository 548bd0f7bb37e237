#include "ops/roofline.h"

#include "base/error.h"
#include "ops/testing/support.h"
#include "tensor/buffer.h"

namespace sluice::ops {
namespace {

TEST(Roofline, EveryPatternAndInstructionHasARate) {
  const Buffer buffer(16 << 20);
  on_every_machine([&](Context& ctx, Context&) {
    const ReadBandwidth read = read_bandwidth(ctx, buffer.tensor(DType::kU8, {buffer.bytes()}), 1);
    for (const ReadPattern& pattern : read.patterns) {
      EXPECT_GT(pattern.bytes_per_s, 1e6) << pattern.name;
      EXPECT_LE(pattern.bytes_per_s, read.bytes_per_s) << pattern.name;
    }
    EXPECT_EQ(read.patterns[static_cast<std::size_t>(read.best_pattern)].bytes_per_s,
              read.bytes_per_s);
    EXPECT_GT(read_pass(ctx, buffer.tensor(DType::kU8, {buffer.bytes()}), kReadPatterns - 1), 1e6);
    for (const PeakInstruction everywhere : {PeakInstruction::kFma, PeakInstruction::kMaddubs})
      EXPECT_GT(peak_rate(ctx, everywhere, 1e-3), 1e6);
    EXPECT_EQ(peak_rate(ctx, PeakInstruction::kDpbf16, 1e-3) > 0,
              ctx.cpu_isa >= CpuIsa::kAvx512Bf16);
    for (const PeakInstruction amx : {PeakInstruction::kAmxBf16, PeakInstruction::kAmxInt8})
      EXPECT_EQ(peak_rate(ctx, amx, 1e-3) > 0, ctx.cpu_isa == CpuIsa::kAmx);
  });
}

TEST(Roofline, ATooSmallBufferIsABug) {
  Machine machine(CpuIsa::kAvx2, 2);
  const Buffer buffer(65536);
  EXPECT_THROW(read_bandwidth(machine.ctx, buffer.tensor(DType::kU8, {buffer.bytes()}), 1), Error);
  EXPECT_THROW(read_pass(machine.ctx, buffer.tensor(DType::kU8, {buffer.bytes()}), 0), Error);
}

TEST(Roofline, APatternThatIsNotThereIsABug) {
  Machine machine(CpuIsa::kAvx2, 2);
  const Buffer buffer(1 << 20);
  EXPECT_THROW(read_pass(machine.ctx, buffer.tensor(DType::kU8, {buffer.bytes()}), kReadPatterns),
               Error);
}

}  // namespace
}  // namespace sluice::ops
