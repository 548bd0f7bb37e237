// `sluice bench roofline`, and the same for the other benchmarks.
#include "cli/bench/roofline.h"

#include <algorithm>
#include <cstring>

#include "cli/verbs.h"

namespace sluice {
namespace {

double giga(double rate) {
  return rate / 1e9;
}

}  // namespace

double Ceilings::peak(ops::PeakInstruction instruction) const {
  for (const Peak& p : peaks)
    if (p.instruction == instruction) return p.operations_per_s;
  return 0;
}

Json Ceilings::json() const {
  Json json = {{"read_bytes_per_s", read.bytes_per_s}};
  for (const ops::ReadPattern& pattern : read.patterns)
    json["read_patterns"][pattern.name] = pattern.bytes_per_s;
  for (const Peak& p : peaks) json["operations_per_s"][p.name] = p.operations_per_s;
  return json;
}

Roofline::Roofline(int num_threads, std::int64_t mib) : pool_(num_threads), buffer_(mib << 20) {
  ctx_.pool = &pool_;
  ctx_.cpu_isa = detect_cpu_isa();
  // Memory that was never written is one page of zeros, which is read from the cache.
  auto* const bytes = static_cast<char*>(buffer_.data());
  pool_.parallel_for(buffer_.bytes(), [&](std::int64_t begin, std::int64_t end) {
    std::memset(bytes + begin, 1, static_cast<std::size_t>(end - begin));
  });
}

ops::ReadBandwidth Roofline::read() {
  const ops::ReadBandwidth found =
      ops::read_bandwidth(ctx_, buffer_.tensor(DType::kU8, {buffer_.bytes()}));
  best_pattern_ = found.best_pattern;
  return found;
}

double Roofline::read_now() {
  double best = 0;
  for (int pass = 0; pass < 5; ++pass)
    best = std::max(
        best, ops::read_pass(ctx_, buffer_.tensor(DType::kU8, {buffer_.bytes()}), best_pattern_));
  return best;
}

double Roofline::peak(ops::PeakInstruction instruction) {
  return ops::peak_rate(ctx_, instruction);
}

Ceilings Roofline::measure() {
  using enum ops::PeakInstruction;
  Ceilings out;
  out.read = read();
  for (const ops::PeakInstruction instruction :
       {kFma, kMaddubs, kDpbf16, kDpbusd, kAmxBf16, kAmxInt8})
    out.peaks.push_back({instruction_name(instruction), instruction, peak(instruction)});
  return out;
}

ops::PeakInstruction product_instruction(DType gemm_input) {
  using enum ops::PeakInstruction;
  const CpuIsa isa = detect_cpu_isa();
  if (gemm_input == DType::kU8)
    return isa == CpuIsa::kAmx ? kAmxInt8 : isa >= CpuIsa::kAvx512Vnni ? kDpbusd : kMaddubs;
  if (gemm_input != DType::kBF16) return kFma;
  return isa == CpuIsa::kAmx ? kAmxBf16 : isa == CpuIsa::kAvx512Bf16 ? kDpbf16 : kFma;
}

std::string_view instruction_name(ops::PeakInstruction instruction) {
  using enum ops::PeakInstruction;
  switch (instruction) {
    case kFma:
      return "fma";
    case kMaddubs:
      return "maddubsw";
    case kDpbf16:
      return "dpbf16ps";
    case kDpbusd:
      return "dpbusd";
    case kAmxBf16:
      return "tdpbf16ps";
    case kAmxInt8:
      return "tdpbsud";
  }
  return "?";
}

int bench_roofline(const Arguments& arguments) {
  const int threads = usable_threads(static_cast<int>(arguments.get_int("threads", 0, 0, 1024)));
  const std::int64_t mib = arguments.get_int("roofline-mib", 2048, 1, 1 << 20);
  Roofline roofline(threads, mib);
  const Ceilings c = roofline.measure();
  if (arguments.has("json")) {
    Json json = c.json();
    json["threads"] = threads;
    json["mib"] = mib;
    fmt::print("{}\n", dump_json(json));
    return 0;
  }
  fmt::print("{} threads, {} MiB, {}\n\n", threads, mib, cpu_isa_name(detect_cpu_isa()));
  fmt::print("read bandwidth            GB/s\n");
  for (const ops::ReadPattern& pattern : c.read.patterns)
    fmt::print("  {:<20}{:>8.1f}{}\n", pattern.name, giga(pattern.bytes_per_s),
               pattern.bytes_per_s == c.read.bytes_per_s ? "  best" : "");
  fmt::print("\npeak                     Gop/s\n");
  for (const Peak& p : c.peaks) {
    if (p.operations_per_s > 0)
      fmt::print("  {:<20}{:>8.0f}\n", p.name, giga(p.operations_per_s));
    else
      fmt::print("  {:<20}{:>8}\n", p.name, "none");
  }
  return 0;
}

}  // namespace sluice
