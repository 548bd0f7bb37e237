#include "kernels/cpu/roofline.h"

#include <immintrin.h>

#include <algorithm>
#include <chrono>
#include <vector>

#include "kernels/cpu/types.h"

namespace sluice::cpu {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::int64_t kLine = 64;
constexpr std::int64_t kBlock = 4096;  // a page dealt to a thread

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// Reads `lines` cache lines of each of some streams, whose beginnings lie `stride` bytes apart.
using ReadLines = std::uint32_t (*)(const std::byte* from, std::int64_t stride, std::int64_t lines);

#pragma GCC push_options
#pragma GCC target("avx2")
// Nothing but loads and what keeps them, since a core looks only so many instructions ahead, and each line right after the
// fetching of another kAhead lines further on (0: of none): in another order of the same instructions some processors read a
// quarter slower.
template <int kAhead>
[[gnu::always_inline]] inline void read_line_avx2(const std::byte* p, __m256i& low, __m256i& high) {
  if constexpr (kAhead > 0) asm volatile("prefetcht0 %c1(%0)" : : "r"(p), "i"(kAhead * kLine));
  asm volatile("vpxor (%2), %0, %0\n\tvpxor 32(%2), %1, %1" : "+x"(low), "+x"(high) : "r"(p) : "memory");
}
template <int kStreams, int kAhead>
std::uint32_t read_avx2(const std::byte* from, std::int64_t stride, std::int64_t lines) {
  constexpr int kLines = kStreams >= 4 ? 1 : 4;  // of a stream at once
  __m256i sum[4] = {};
  for (std::int64_t i = 0; i < lines / kLines * kLines; i += kLines)
#pragma GCC unroll 8
    for (int j = 0; j < kStreams * kLines; ++j)
      read_line_avx2<kAhead>(from + j / kLines * stride + (i + j % kLines) * kLine, sum[j % 2 * 2], sum[j % 2 * 2 + 1]);
  const __m256i all = _mm256_xor_si256(_mm256_xor_si256(sum[0], sum[1]), _mm256_xor_si256(sum[2], sum[3]));
  return static_cast<std::uint32_t>(_mm256_extract_epi32(all, 0)) ^
         static_cast<std::uint32_t>(_mm256_extract_epi32(all, 5));
}
#pragma GCC pop_options

#pragma GCC push_options
#pragma GCC target("avx512f")
template <int kAhead>
[[gnu::always_inline]] inline void read_line_avx512(const std::byte* p, __m512i& sum) {
  if constexpr (kAhead > 0) asm volatile("prefetcht0 %c1(%0)" : : "r"(p), "i"(kAhead * kLine));
  asm volatile("vpxord (%1), %0, %0" : "+v"(sum) : "r"(p) : "memory");
}
template <int kStreams, int kAhead>
std::uint32_t read_avx512(const std::byte* from, std::int64_t stride, std::int64_t lines) {
  constexpr int kLines = kStreams >= 4 ? 1 : 4;
  __m512i sum[4] = {};
  for (std::int64_t i = 0; i < lines / kLines * kLines; i += kLines)
#pragma GCC unroll 8
    for (int j = 0; j < kStreams * kLines; ++j)
      read_line_avx512<kAhead>(from + j / kLines * stride + (i + j % kLines) * kLine, sum[j % 4]);
  alignas(64) std::uint32_t lanes[16];
  _mm512_store_si512(lanes, _mm512_xor_si512(_mm512_xor_si512(sum[0], sum[1]), _mm512_xor_si512(sum[2], sum[3])));
  std::uint32_t all = 0;
  for (const std::uint32_t lane : lanes) all ^= lane;
  return all;
}
#pragma GCC pop_options

// A thread reads `streams` equal parts of its share side by side.
struct Pattern {
  std::string_view name;
  int streams;
  bool dealt;  // threads take pages in turn instead of one share each
  ReadLines avx2, avx512;
};

template <int kStreams, int kAhead>
constexpr Pattern pattern(std::string_view name, bool dealt = false) {
  return {name, kStreams, dealt, read_avx2<kStreams, kAhead>, read_avx512<kStreams, kAhead>};
}

constexpr std::array<Pattern, ops::kReadPatterns> kPatterns = {
    pattern<1, 0>("1 stream"),
    pattern<4, 0>("4 streams"),
    pattern<8, 0>("8 streams"),
    pattern<1, 32>("1 stream, prefetch"),
    pattern<1, 96>("1 stream, far prefetch"),
    pattern<2, 48>("2 streams, prefetch"),
    pattern<4, 16>("4 streams, prefetch"),
    pattern<1, 0>("pages in turn", true),
};

#pragma GCC push_options
#pragma GCC target("avx2")
// The rate of `rounds` times as many independent instructions as the latency asks for. What they compute is of no
// interest, but is returned, so that it is computed. Every loop over the vectors is unrolled, or they would lie in memory.
double fma_avx2(std::int64_t rounds) {
  __m256 acc[10];
#pragma GCC unroll 10
  for (int i = 0; i < 10; ++i) acc[i] = _mm256_set1_ps(static_cast<float>(i));
  const __m256 a = _mm256_set1_ps(0.999f), b = _mm256_set1_ps(1e-3f);
  for (std::int64_t r = 0; r < rounds; ++r)
#pragma GCC unroll 10
    for (int i = 0; i < 10; ++i) asm volatile("vfmadd213ps %2, %1, %0" : "+x"(acc[i]) : "x"(a), "x"(b));
  double sum = 0;
#pragma GCC unroll 10
  for (int i = 0; i < 10; ++i) sum += static_cast<double>(acc[i][0]);
  return sum;
}
double maddubs_avx2(std::int64_t rounds) {
  __m256i acc[10];
#pragma GCC unroll 10
  for (int i = 0; i < 10; ++i) acc[i] = _mm256_set1_epi16(static_cast<std::int16_t>(i));
  const __m256i a = _mm256_set1_epi8(3), b = _mm256_set1_epi8(-1);
  for (std::int64_t r = 0; r < rounds; ++r)
#pragma GCC unroll 10
    for (int i = 0; i < 10; ++i) {
      __m256i products;
      asm volatile("vpmaddubsw %3, %2, %1\n\tvpaddw %1, %0, %0" : "+x"(acc[i]), "=&x"(products) : "x"(a), "x"(b));
    }
  double sum = 0;
#pragma GCC unroll 10
  for (int i = 0; i < 10; ++i) sum += static_cast<double>(acc[i][0]);
  return sum;
}
#pragma GCC pop_options

#pragma GCC push_options
#pragma GCC target("avx512f,avx512bw,avx512vl,avx512dq,avx512bf16,avx512vnni")
double fma_avx512(std::int64_t rounds) {
  __m512 acc[16];
#pragma GCC unroll 16
  for (int i = 0; i < 16; ++i) acc[i] = _mm512_set1_ps(static_cast<float>(i));
  const __m512 a = _mm512_set1_ps(0.999f), b = _mm512_set1_ps(1e-3f);
  for (std::int64_t r = 0; r < rounds; ++r)
#pragma GCC unroll 16
    for (int i = 0; i < 16; ++i) asm volatile("vfmadd213ps %2, %1, %0" : "+v"(acc[i]) : "v"(a), "v"(b));
  double sum = 0;
#pragma GCC unroll 16
  for (int i = 0; i < 16; ++i) sum += static_cast<double>(acc[i][0]);
  return sum;
}

double maddubs_avx512(std::int64_t rounds) {
  __m512i acc[16];
#pragma GCC unroll 16
  for (int i = 0; i < 16; ++i) acc[i] = _mm512_set1_epi16(static_cast<std::int16_t>(i));
  const __m512i a = _mm512_set1_epi8(3), b = _mm512_set1_epi8(-1);
  for (std::int64_t r = 0; r < rounds; ++r)
#pragma GCC unroll 16
    for (int i = 0; i < 16; ++i) {
      __m512i products;
      asm volatile("vpmaddubsw %3, %2, %1\n\tvpaddw %1, %0, %0" : "+v"(acc[i]), "=&v"(products) : "v"(a), "v"(b));
    }
  double sum = 0;
#pragma GCC unroll 16
  for (int i = 0; i < 16; ++i) sum += static_cast<double>(acc[i][0]);
  return sum;
}

double dpbf16_avx512(std::int64_t rounds) {
  __m512 acc[16];
#pragma GCC unroll 16
  for (int i = 0; i < 16; ++i) acc[i] = _mm512_set1_ps(static_cast<float>(i));
  const __m512i a = _mm512_set1_epi16(0x3F00), b = _mm512_set1_epi16(0x3A00);
  for (std::int64_t r = 0; r < rounds; ++r)
#pragma GCC unroll 16
    for (int i = 0; i < 16; ++i) asm volatile("vdpbf16ps %2, %1, %0" : "+v"(acc[i]) : "v"(a), "v"(b));
  double sum = 0;
#pragma GCC unroll 16
  for (int i = 0; i < 16; ++i) sum += static_cast<double>(acc[i][0]);
  return sum;
}

double dpbusd_avx512(std::int64_t rounds) {
  __m512i acc[16];
#pragma GCC unroll 16
  for (int i = 0; i < 16; ++i) acc[i] = _mm512_set1_epi32(i);
  const __m512i a = _mm512_set1_epi8(3), b = _mm512_set1_epi8(-1);
  for (std::int64_t r = 0; r < rounds; ++r)
#pragma GCC unroll 16
    for (int i = 0; i < 16; ++i) asm volatile("vpdpbusd %2, %1, %0" : "+v"(acc[i]) : "v"(a), "v"(b));
  double sum = 0;
#pragma GCC unroll 16
  for (int i = 0; i < 16; ++i) sum += static_cast<double>(acc[i][0]);
  return sum;
}
#pragma GCC pop_options

// The registers are in their largest shape, and the sums of four: what the unit can overlap.
#pragma GCC push_options
#pragma GCC target("avx512f,amx-tile,amx-bf16,amx-int8")
}  // namespace
}  // namespace sluice::cpu
#include "kernels/cpu/amx.h"
namespace sluice::cpu {
namespace {
double tdpbf16_amx(std::int64_t rounds) {
  AmxShapes shapes;
  shapes.set(kAmxRows, kAmxRows, 64);
  for (std::int64_t r = 0; r < rounds; ++r) {
    amx_dot_bf16<0, 4, 6>();
    amx_dot_bf16<1, 4, 7>();
    amx_dot_bf16<2, 5, 6>();
    amx_dot_bf16<3, 5, 7>();
  }
  return 0;
}
double tdpbsud_amx(std::int64_t rounds) {
  AmxShapes shapes;
  shapes.set(kAmxRows, kAmxRows, 64);
  for (std::int64_t r = 0; r < rounds; ++r) {
    amx_dot_bytes<0, 4, 6>();
    amx_dot_bytes<1, 4, 7>();
    amx_dot_bytes<2, 5, 6>();
    amx_dot_bytes<3, 5, 7>();
  }
  return 0;
}
#pragma GCC pop_options

// The loop of one instruction: how many operations a round has.
struct PeakLoop {
  double (*run)(std::int64_t rounds) = nullptr;
  double operations = 0;
};

PeakLoop peak_loop(const Context& ctx, ops::PeakInstruction instruction) {
  const bool wide = ctx.cpu_isa != CpuIsa::kAvx2;
  switch (instruction) {
    case ops::PeakInstruction::kFma:
      return wide ? PeakLoop{fma_avx512, 16 * 16 * 2} : PeakLoop{fma_avx2, 10 * 8 * 2};
    case ops::PeakInstruction::kMaddubs:
      return wide ? PeakLoop{maddubs_avx512, 16 * 64 * 2} : PeakLoop{maddubs_avx2, 10 * 32 * 2};
    case ops::PeakInstruction::kDpbf16:
      return ctx.cpu_isa >= CpuIsa::kAvx512Bf16 ? PeakLoop{dpbf16_avx512, 16 * 16 * 4} : PeakLoop{};
    case ops::PeakInstruction::kDpbusd:
      return ctx.cpu_isa >= CpuIsa::kAvx512Vnni ? PeakLoop{dpbusd_avx512, 16 * 16 * 8} : PeakLoop{};
    case ops::PeakInstruction::kAmxBf16:
      return ctx.cpu_isa == CpuIsa::kAmx ? PeakLoop{tdpbf16_amx, 4 * 16 * 16 * 32 * 2} : PeakLoop{};
    case ops::PeakInstruction::kAmxInt8:
      return ctx.cpu_isa == CpuIsa::kAmx ? PeakLoop{tdpbsud_amx, 4 * 16 * 16 * 64 * 2} : PeakLoop{};
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
  const Pattern& way = kPatterns[static_cast<std::size_t>(pattern)];
  const ReadLines read = ctx.cpu_isa == CpuIsa::kAvx2 ? way.avx2 : way.avx512;
  const auto* data = static_cast<const std::byte*>(buffer.data);
  const std::int64_t threads = ctx.pool == nullptr ? 1 : ctx.pool->size();
  // What the loops read is kept here, so that no compiler may leave them out.
  std::vector<std::uint32_t> seen(static_cast<std::size_t>(threads) * 16);
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
    for (int pass = 0; pass < passes; ++pass) best = std::max(best, read_pass(ctx, buffer, pattern));
    const auto i = static_cast<std::size_t>(pattern);
    result.patterns[i] = {kPatterns[i].name, best};
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
    on_all(ctx, [&](int part, int) { kept[static_cast<std::size_t>(part) * 8] += loop.run(rounds); });
    return loop.operations * static_cast<double>(rounds) * threads / seconds_since(start);
  };
  const double first = run(kTrial);
  const auto rounds = std::max(kTrial, static_cast<std::int64_t>(first / threads / loop.operations * seconds / 10));
  double best = 0;
  for (int i = 0; i < 10; ++i) best = std::max(best, run(rounds));
  return best;
}

}  // namespace sluice::cpu
