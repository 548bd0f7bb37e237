#include "oracle.h"

#include <array>
#include <cmath>
#include <cstring>
#include <random>

#include "base/error.h"
#include "kernels/types/fp8.h"
#include "ops/session.h"
#include "poison.h"
#include "tensor/cuda_runtime.h"

namespace sluice::oracle {
namespace {

constexpr std::int64_t kArenaBytes = 1 << 30;

// Calls body(i, j, k) for every element; a missing dimension has extent 1.
template <class Body>
void for_each(const Tensor& t, const Body& body) {
  for (std::int64_t i = 0; i < t.shape[0]; ++i)
    for (std::int64_t j = 0; j < (t.rank > 1 ? t.shape[1] : 1); ++j)
      for (std::int64_t k = 0; k < (t.rank > 2 ? t.shape[2] : 1); ++k) body(i, j, k);
}

// Whether every byte of two buffers is equal, the gaps between rows included.
bool equal_bytes(const Tensor& host, const std::vector<std::byte>& got) {
  return std::memcmp(host.data, got.data(), got.size()) == 0;
}

}  // namespace

double sum_error(std::int64_t n) {
  return 2 * 6 * std::sqrt(static_cast<double>(n) + 1) * kUnit;
}

Twin::Twin(Bench& bench, DType dtype, std::initializer_list<std::int64_t> shape, std::int64_t pad)
    : bench_(bench) {
  std::int64_t count = 1, last = 1;
  for (const std::int64_t extent : shape) count *= last = extent;
  const std::int64_t rows = last == 0 ? 0 : count / last;
  const std::int64_t bytes = std::max<std::int64_t>(rows * (last + pad) * dtype_size(dtype), 1);
  initial_.assign(static_cast<std::size_t>(bytes), std::byte{0xFF});
  host_memory_ = Buffer(bytes);
  device_memory_ = Buffer(bytes, bench.gpu.device);
  host = Tensor::dense(host_memory_.data(), dtype, shape);
  std::int64_t step = last + pad;
  for (int axis = host.rank - 2; axis >= 0; --axis) {
    host.stride[axis] = step;
    step *= host.shape[axis];
  }
  device = host;
  device.data = device_memory_.data();
  device.device = bench.gpu.device;
  bench_.live_bytes += bytes;
  reset();
}

Twin::~Twin() {
  bench_.live_bytes -= std::ssize(initial_);
}

std::int64_t Twin::offset(std::int64_t i, std::int64_t j, std::int64_t k) const {
  return i * host.stride[0] + (host.rank > 1 ? j * host.stride[1] : 0) +
         (host.rank > 2 ? k * host.stride[2] : 0);
}

double Twin::at(const void* bytes, std::int64_t i, std::int64_t j, std::int64_t k) const {
  const std::int64_t n = offset(i, j, k);
  switch (host.dtype) {
    case DType::kBF16:
      return static_cast<float>(static_cast<const BF16*>(bytes)[n]);
    case DType::kF16:
      return static_cast<float>(static_cast<const F16*>(bytes)[n]);
    case DType::kU8:
      return static_cast<const std::uint8_t*>(bytes)[n];
    case DType::kF8E4M3: {
      static const std::array<float, 256> values = ops::e4m3_values();
      return values[static_cast<const std::uint8_t*>(bytes)[n]];
    }
    case DType::kI32:
      return static_cast<const std::int32_t*>(bytes)[n];
    case DType::kI64:
      return static_cast<double>(static_cast<const std::int64_t*>(bytes)[n]);
    default:
      return static_cast<const float*>(bytes)[n];
  }
}

void Twin::set(const std::function<double(std::int64_t, std::int64_t, std::int64_t)>& value) {
  for_each(host, [&](std::int64_t i, std::int64_t j, std::int64_t k) {
    const std::int64_t n = offset(i, j, k);
    const double x = value(i, j, k);
    switch (host.dtype) {
      case DType::kBF16:
        host.ptr<BF16>()[n] = BF16(static_cast<float>(x));
        break;
      case DType::kF16:
        host.ptr<F16>()[n] = F16(static_cast<float>(x));
        break;
      case DType::kI32:
        host.ptr<std::int32_t>()[n] = static_cast<std::int32_t>(x);
        break;
      case DType::kU8:
        host.ptr<std::uint8_t>()[n] = static_cast<std::uint8_t>(x);
        break;
      case DType::kF8E4M3:
        static_cast<std::uint8_t*>(host.data)[n] = ops::to_e4m3(static_cast<float>(x));
        break;
      case DType::kI64:
        host.ptr<std::int64_t>()[n] = static_cast<std::int64_t>(x);
        break;
      default:
        host.ptr<float>()[n] = static_cast<float>(x);
    }
  });
  keep();
}

void Twin::fill(unsigned seed, double size) {
  std::mt19937 random(seed);
  std::uniform_real_distribution<double> uniform(-size, size);
  set([&](std::int64_t, std::int64_t, std::int64_t) { return uniform(random); });
}

void Twin::round_to_bf16() {
  set([&](std::int64_t i, std::int64_t j, std::int64_t k) {
    return static_cast<float>(BF16(static_cast<float>(at(host.data, i, j, k))));
  });
}

void Twin::keep() {
  std::memcpy(initial_.data(), host.data, initial_.size());
  reset();
}

void Twin::reset() {
  std::memcpy(host.data, initial_.data(), initial_.size());
  cuda::copy_async(device.data, initial_.data(), static_cast<std::int64_t>(initial_.size()),
                   bench_.stream.handle());
  bench_.stream.synchronize();
}

std::vector<std::byte> Twin::download() const {
  std::vector<std::byte> bytes(initial_.size());
  cuda::copy_async(bytes.data(), device.data, static_cast<std::int64_t>(bytes.size()),
                   bench_.stream.handle());
  bench_.stream.synchronize();
  return bytes;
}

Bench::Bench(Device device) : stream(device) {
  pool_ = std::make_unique<ThreadPool>(usable_threads());
  session_ = ops::open_session(device);
  cpu_arena_ = std::make_unique<Arena>(kArenaBytes);
  gpu_arena_ = std::make_unique<Arena>(kArenaBytes, device);
  cpu.pool = gpu.pool = pool_.get();
  cpu.cpu_isa = gpu.cpu_isa = detect_cpu_isa();
  cpu.arena = cpu_arena_.get();
  gpu.arena = gpu_arena_.get();
  gpu.device = device;
  gpu.stream = &stream;
  gpu.cuda = session_.get();
}

Bench::Row& Bench::row_of(const std::string& op) {
  for (Row& row : rows_)
    if (row.op == op) return row;
  return rows_.emplace_back(Row{.op = op});
}

// Empty when the output is right.
std::string Bench::judge(const Output& output, const std::vector<std::byte>& got, Row& row) const {
  const Twin& twin = *output.twin;
  if (equal_bytes(twin.host, got)) {
    row.elements += twin.host.numel();
    return "";
  }
  const auto size = static_cast<std::size_t>(dtype_size(twin.host.dtype));
  const auto* wanted = static_cast<const std::byte*>(twin.host.data);
  std::vector<bool> used(got.size(), false);
  std::int64_t wrong = 0;
  std::string first;
  for_each(twin.host, [&](std::int64_t i, std::int64_t j, std::int64_t k) {
    const std::size_t at = static_cast<std::size_t>(twin.offset(i, j, k)) * size;
    for (std::size_t b = 0; b < size; ++b) used[at + b] = true;
    const double want = twin.at(wanted, i, j, k), have = twin.at(got.data(), i, j, k);
    ++row.elements;
    bool ok = std::memcmp(wanted + at, got.data() + at, size) == 0;
    const double error = std::isnan(want) && std::isnan(have) ? 0
                         : want == have                       ? 0
                                                              : std::abs(want - have);
    if (!ok && !output.allowed.exact) {
      const Allowed& a = output.allowed;
      const double scale = a.scale == nullptr ? 0 : a.scale->at(a.scale->host.data, i, j, k);
      const double limit = a.absolute + a.relative * std::abs(want) + a.bound * scale;
      ok = error <= limit;  // false for a NaN
      if (error > 0)
        row.worst_share = std::max(row.worst_share, limit > 0 ? error / limit : INFINITY);
    } else if (!ok && std::isnan(want) && std::isnan(have)) {
      ok = true;  // NaNs differ in their payload
    }
    if (!(error <= row.worst_error)) row.worst_error = error;
    if (ok) return;
    if (wrong++ == 0)
      first = fmt::format("[{}, {}, {}] is {}, the CPU has {}", i, j, k, have, want);
  });
  if (wrong > 0)
    return fmt::format("{} of {} elements are wrong; {}", wrong, twin.host.numel(), first);
  for (std::size_t b = 0; b < used.size(); ++b)
    if (!used[b] && got[b] != wanted[b])
      return fmt::format("byte {} between the rows was written", b);
  return "";
}

void Bench::compare(const std::string& op, const std::string& label,
                    const std::vector<Output>& outputs, const std::function<void(Context&)>& body) {
  const Group group(*this);
  if (!group.is_own() || !fits(op)) return;
  Row& row = row_of(op);
  ++row.cases;
  std::string problem;
  const auto run = [&](Context& ctx) {
    for (const Output& output : outputs) output.twin->reset();
    Arena::Scope scope(*ctx.arena);
    body(ctx);
  };
  std::vector<std::vector<std::byte>> got;
  for (int i = 0; i < 2; ++i) {
    poison_shared_memory(gpu);
    run(gpu);
    stream.synchronize();
    for (const Output& output : outputs) got.push_back(output.twin->download());
  }
  run(cpu);
  for (std::size_t i = 0; i < outputs.size() && problem.empty(); ++i) {
    problem = judge(outputs[i], got[i], row);
    if (problem.empty() && got[i] != got[outputs.size() + i])
      problem = "two runs gave different bits";
  }
  // Makes both sides equal for the next comparison, which may read this output.
  for (const Output& output : outputs) output.twin->reset();
  note(row, op, label, problem);
}

bool Bench::fits(const std::string& op) {
  if (live_bytes <= max_bytes) return true;
  ++row_of(op).left_out;
  return false;
}

void Bench::expect(const std::string& op, const std::string& label, const std::string& problem) {
  check(depth_ > 0, "{} {} is in no group of cases, so each part would run it", op, label);
  Row& row = row_of(op);
  ++row.cases;
  note(row, op, label, problem);
}

void Bench::note(Row& row, const std::string& op, const std::string& label,
                 const std::string& problem) {
  if (verbose) {
    fmt::print("{} {} {}\n", problem.empty() ? "ok  " : "FAIL", op, label);
    std::fflush(stdout);
  }
  if (problem.empty()) return;
  ++row.failed;
  failures_.push_back(fmt::format("{} {}: {}", op, label, problem));
  fmt::print("FAIL {}\n", failures_.back());
  std::fflush(stdout);
}

bool Bench::report() const {
  fmt::print("\n{:<22}{:>7}{:>8}{:>12}{:>14}{:>12}\n", "operation", "cases", "failed", "elements",
             "worst error", "of allowed");
  for (const Row& row : rows_)
    fmt::print("{:<22}{:>7}{:>8}{:>12}{:>14.3g}{:>11.1f}%{}\n", row.op, row.cases, row.failed,
               row.elements, row.worst_error, 100 * row.worst_share,
               row.left_out > 0 ? fmt::format("  {} large cases left out", row.left_out) : "");
  const auto not_run = std::ranges::count(rows_, 0, &Row::cases);
  // Another part may run cases of these operations.
  const bool is_whole = part.of == 1;
  if (not_run > 0)
    fmt::print("{}no case of {} operations ran{}: -s left all of them out\n",
               is_whole ? "FAIL: " : "", not_run, is_whole ? "" : " in this part");
  if (!is_whole)
    fmt::print("part {} of {}: {} of {} groups of cases\n", part.number, part.of, part.taken,
               part.seen);
  if (!failures_.empty()) fmt::print("FAIL: {} cases\n", failures_.size());
  const bool is_ok = failures_.empty() && (not_run == 0 || !is_whole);
  if (is_ok) fmt::print("ok\n");
  return is_ok;
}

}  // namespace sluice::oracle
