#include "cli/doctor/kernel_check.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>

#include "base/error.h"
#include "ops/session.h"
#include "tensor/copy.h"
#include "tensor/device.h"

namespace sluice {
namespace {

constexpr std::int64_t kArenaBytes = 256 << 20;

}  // namespace

double sum_error(std::int64_t n) {
  return 6 * std::sqrt(static_cast<double>(n) + 1) * kFloatUnit;
}

Sample::Sample(KernelCheck& check, DType dtype, std::initializer_list<std::int64_t> shape)
    : check_(check) {
  std::int64_t bytes = dtype_size(dtype);
  for (const std::int64_t extent : shape) bytes *= extent;
  host_memory_ = Buffer(std::max<std::int64_t>(bytes, 1));
  host_ = host_memory_.tensor(dtype, shape);
  if (check.on_gpu()) {
    device_memory_ = Buffer(std::max<std::int64_t>(bytes, 1), check.device());
    device_ = device_memory_.tensor(dtype, shape);
  }
  poison();
}

void Sample::poison() {
  std::memset(host_memory_.data(), 0xFF, static_cast<std::size_t>(host_memory_.bytes()));
  upload();
}

void Sample::upload() {
  if (!check_.on_gpu()) return;
  copy(check_.stream(), host_, device_);
  check_.stream().synchronize();
}

void Sample::download(const Context& ctx) {
  if (ctx.device.kind == DeviceKind::kCpu) return;
  copy(check_.stream(), device_, host_);
  check_.stream().synchronize();
}

void Sample::set(const std::function<double(std::int64_t)>& value_of_element) {
  for (std::int64_t i = 0; i < size(); ++i) {
    const double x = value_of_element(i);
    switch (host_.dtype) {
      case DType::kBF16:
        host_.ptr<BF16>()[i] = BF16(static_cast<float>(x));
        break;
      case DType::kI32:
        host_.ptr<std::int32_t>()[i] = static_cast<std::int32_t>(x);
        break;
      case DType::kI64:
        host_.ptr<std::int64_t>()[i] = static_cast<std::int64_t>(x);
        break;
      case DType::kU8:
        host_.ptr<std::uint8_t>()[i] = static_cast<std::uint8_t>(x);
        break;
      default:
        host_.ptr<float>()[i] = static_cast<float>(x);
    }
  }
  upload();
}

void Sample::fill(unsigned seed, double size) {
  std::mt19937 random(seed);
  std::uniform_real_distribution<float> uniform(static_cast<float>(-size),
                                                static_cast<float>(size));
  set([&](std::int64_t) { return static_cast<float>(BF16(uniform(random))); });
}

double Sample::at(std::int64_t i) const {
  switch (host_.dtype) {
    case DType::kBF16:
      return static_cast<float>(host_.ptr<BF16>()[i]);
    case DType::kI32:
      return host_.ptr<std::int32_t>()[i];
    case DType::kI64:
      return static_cast<double>(host_.ptr<std::int64_t>()[i]);
    default:
      return host_.ptr<float>()[i];
  }
}

KernelCheck::KernelCheck(Device device, int threads)
    : device_(device),
      pool_(threads),
      stream_(device),
      session_(ops::open_session(device)),
      arena_(kArenaBytes, device) {
  Context ctx;
  ctx.device = device;
  ctx.stream = &stream_;
  ctx.cuda = session_.get();
  ctx.arena = &arena_;
  ctx.pool = &pool_;
  ctx.cpu_isa = detect_cpu_isa();
  if (on_gpu()) {
    columns_.push_back({device_info(device).name, ctx});
    ctx.deterministic = true;
    columns_.push_back({"deterministic", ctx});
    return;
  }
  for (const CpuIsa isa : kCpuIsas) {
    if (isa > ctx.cpu_isa) break;
    columns_.push_back({std::string(cpu_isa_name(isa)), ctx});
    columns_.back().ctx.cpu_isa = isa;
  }
}

std::vector<std::string> KernelCheck::columns() const {
  std::vector<std::string> names;
  for (const Column& column : columns_) names.push_back(column.name);
  return names;
}

KernelResult& KernelCheck::result_of(const std::string& op, const std::string& column) {
  for (KernelResult& result : results_)
    if (result.op == op && result.column == column) return result;
  KernelResult& result = results_.emplace_back();
  result.op = op;
  result.column = column;
  return result;
}

void KernelCheck::compare(const std::string& op, const std::string& label, Sample& out,
                          const Expected& expected, const std::function<void(Context&)>& body) {
  check(static_cast<std::size_t>(out.size()) == expected.value.size(),
        "{} {}: {} elements, {} expected ones", op, label, out.size(), expected.value.size());
  for (Column& column : columns_) {
    KernelResult& result = result_of(op, column.name);
    ++result.cases;
    std::string problem;
    std::vector<double> before;
    for (int turn = 0; turn < 2; ++turn) {
      out.poison();
      Arena::Scope scope(*column.ctx.arena);
      body(column.ctx);
      stream_.synchronize();
      out.download(column.ctx);
      for (std::int64_t i = 0; i < out.size() && problem.empty(); ++i) {
        const auto n = static_cast<std::size_t>(i);
        const double got = out.at(i);
        if (turn == 1) {
          if (std::memcmp(&got, &before[n], sizeof got) != 0)
            problem =
                fmt::format("element {} is {} in one run and {} in the next", i, before[n], got);
          continue;
        }
        before.push_back(got);
        const double difference = std::abs(got - expected.value[n]);
        if (!(difference <= expected.allowed[n]))  // true for a NaN
          problem = fmt::format("element {} is {}, plain loops give {} and allow {:.2g}", i, got,
                                expected.value[n], expected.allowed[n]);
        if (!(difference <= result.worst_difference)) result.worst_difference = difference;
        if (difference > 0)
          result.worst_share = std::max(result.worst_share, difference / expected.allowed[n]);
      }
      if (!problem.empty()) break;
    }
    if (problem.empty()) continue;
    ++result.failed;
    if (result.first_failure.empty()) result.first_failure = label + ": " + problem;
  }
}

}  // namespace sluice
