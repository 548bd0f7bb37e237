#include "kernels/cpu/roofline/roofline.h"

#include <algorithm>
#include <chrono>
#include <vector>

#include "kernels/cpu/roofline/roofline_loops.h"
#include "kernels/types/op_params.h"

namespace sluice::cpu {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::int64_t kBlock = 4096;  // bytes of a turn in "pages in turn"

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

VectorLoops vector_loops(const Context& ctx) {
  return ctx.cpu_isa == CpuIsa::kAvx2 ? avx2_loops() : avx512_loops();
}

PeakLoop peak_loop(const Context& ctx, ops::PeakInstruction instruction) {
  switch (instruction) {
    case ops::PeakInstruction::kFma:
      return vector_loops(ctx).fma;
    case ops::PeakInstruction::kMaddubs:
      return vector_loops(ctx).maddubs;
    case ops::PeakInstruction::kDpbf16:
      return ctx.cpu_isa >= CpuIsa::kAvx512Bf16 ? dpbf16_loop() : PeakLoop{};
    case ops::PeakInstruction::kDpbusd:
      return ctx.cpu_isa >= CpuIsa::kAvx512Vnni ? dpbusd_loop() : PeakLoop{};
    case ops::PeakInstruction::kAmxBf16:
      return ctx.cpu_isa == CpuIsa::kAmx ? amx_bf16_loop() : PeakLoop{};
    case ops::PeakInstruction::kAmxInt8:
      return ctx.cpu_isa == CpuIsa::kAmx ? amx_int8_loop() : PeakLoop{};
  }
  return {};
}

// task(part, parts) on every thread at once.
template <class Task>
void on_all(Context& ctx, const Task& task) {
  if (ctx.pool == nullptr) return task(0, 1);
  const int parts = ctx.pool->size();
  ctx.pool->run(parts, [&](int part) { task(part, parts); });
}

}  // namespace

double read_pass(Context& ctx, const Tensor& buffer, int pattern) {
  const ReadShape& way = kReadShapes[static_cast<std::size_t>(pattern)];
  const ReadLines read = vector_loops(ctx).read[static_cast<std::size_t>(pattern)];
  const auto* data = static_cast<const std::byte*>(buffer.data);
  const std::int64_t threads = ctx.pool == nullptr ? 1 : ctx.pool->size();
  // Results of the loops are stored here, so that the compiler cannot remove the reads. Each thread
  // uses a cache line of its own.
  std::vector<std::uint32_t> seen(static_cast<std::size_t>(threads) * 16);
  // Round the buffer down to a multiple that every pattern can split evenly.
  const std::int64_t unit = threads * 8 * kBlock;
  const std::int64_t share = buffer.dim(0) / unit * unit / threads;
  const Clock::time_point start = Clock::now();
  on_all(ctx, [&](int part, int parts) {
    std::uint32_t bits = 0;
    if (way.dealt) {
      for (std::int64_t block = part; block < share * parts / kBlock; block += parts)
        bits ^= read(data + block * kBlock, 0, kBlock / kLine);
    } else {
      const std::int64_t stride = share / way.streams;
      bits = read(data + part * share, stride, stride / kLine);
    }
    seen[static_cast<std::size_t>(part) * 16] ^= bits;
  });
  return static_cast<double>(share * threads) / seconds_since(start);
}

ops::ReadBandwidth read_bandwidth(Context& ctx, const Tensor& buffer, int passes) {
  ops::ReadBandwidth result;
  for (int pattern = 0; pattern < ops::kReadPatterns; ++pattern) {
    double best = 0;
    for (int pass = 0; pass < passes; ++pass)
      best = std::max(best, read_pass(ctx, buffer, pattern));
    const auto i = static_cast<std::size_t>(pattern);
    result.patterns[i] = {kReadShapes[i].name, best};
    if (best > result.bytes_per_s) {
      result.bytes_per_s = best;
      result.best_pattern = pattern;
    }
  }
  return result;
}

double peak_rate(Context& ctx, ops::PeakInstruction instruction, double seconds) {
  const PeakLoop loop = peak_loop(ctx, instruction);
  if (loop.run == nullptr) return 0;
  const double threads = ctx.pool == nullptr ? 1 : ctx.pool->size();
  constexpr std::int64_t kTrial = 20'000;
  std::vector<double> kept(static_cast<std::size_t>(threads) * 8);
  const auto run = [&](std::int64_t rounds) {
    const Clock::time_point start = Clock::now();
    on_all(ctx,
           [&](int part, int) { kept[static_cast<std::size_t>(part) * 8] += loop.run(rounds); });
    return loop.operations * static_cast<double>(rounds) * threads / seconds_since(start);
  };
  // One short trial estimates the rate; ten runs of a tenth of the time follow, and the best one
  // counts.
  const double first = run(kTrial);
  const auto rounds =
      std::max(kTrial, static_cast<std::int64_t>(first / threads / loop.operations * seconds / 10));
  double best = 0;
  for (int i = 0; i < 10; ++i) best = std::max(best, run(rounds));
  return best;
}

}  // namespace sluice::cpu
