// Compares the kernels of this machine with plain loops in float64: the harness of `sluice doctor`.
//
//   KernelCheck check(device, threads);
//   Sample x(check, DType::kF32, {3, 4096}), out(check, DType::kF32, {3, 4096});
//   x.fill(1);
//   check.compare("rms_norm", "3 x 4096", out, want, [&](Context& ctx) { ops::rms_norm(ctx, x(ctx),
//   ..., out(ctx)); });
//
// Every set of kernels that can run here is a column: each instruction set of the CPU, or the GPU.
// Outputs are poisoned before each run, and each column runs twice and must give the same bits.
#pragma once

#include <cstdint>
#include <functional>
#include <initializer_list>
#include <memory>
#include <string>
#include <vector>

#include "base/thread_pool.h"
#include "tensor/buffer.h"
#include "tensor/context.h"

namespace sluice {

inline constexpr double kFloatUnit = 0x1p-24;  // half an ulp of a float32 at 1
inline constexpr double kBf16Unit = 0x1p-8;    // half an ulp of a bfloat16 at 1

// Rounding errors of a float32 sum of n products stay below this times the sum of their absolute
// values, but for one case in 10^7 (Higham and Mary 2019, A new approach to probabilistic rounding
// error analysis: lambda = 6).
double sum_error(std::int64_t n);

// What an output must be: an element differs from `value` by no more than `allowed`.
struct Expected {
  std::vector<double> value, allowed;

  void add(double wanted, double error) {
    value.push_back(wanted);
    allowed.push_back(error);
  }
};

class KernelCheck;

// A dense tensor on the host, with a twin on the GPU where one is checked. Begins as NaN.
class Sample {
 public:
  Sample(KernelCheck& check, DType dtype, std::initializer_list<std::int64_t> shape);

  // Where ctx's device reads it.
  const Tensor& operator()(const Context& ctx) const {
    return ctx.device.kind == DeviceKind::kCpu ? host_ : device_;
  }
  // Uniform in [-size, size), rounded to bfloat16, so that a conversion to it on the way changes
  // nothing.
  void fill(unsigned seed, double size = 1.0);
  void set(const std::function<double(std::int64_t i)>& value_of_element);
  double at(std::int64_t i) const;  // of the host
  std::int64_t size() const { return host_.numel(); }
  void poison();
  // Makes the host's copy what ctx's device has.
  void download(const Context& ctx);

 private:
  void upload();

  KernelCheck& check_;
  Buffer host_memory_, device_memory_;
  Tensor host_, device_;
};

struct KernelResult {
  std::string op, column;
  int cases = 0, failed = 0;
  double worst_difference = 0;  // absolute
  double worst_share = 0;       // of what was allowed
  std::string first_failure;
};

class KernelCheck {
 public:
  // A GPU's column alone, or those of the CPU.
  KernelCheck(Device device, int threads);

  void compare(const std::string& op, const std::string& label, Sample& out,
               const Expected& expected, const std::function<void(Context&)>& body);

  bool on_gpu() const { return device_.kind != DeviceKind::kCpu; }
  Device device() const { return device_; }
  const Context& context() const { return columns_.front().ctx; }
  const Stream& stream() const { return stream_; }
  const std::vector<KernelResult>& results() const { return results_; }
  std::vector<std::string> columns() const;

 private:
  struct Column {
    std::string name;
    Context ctx;
  };
  KernelResult& result_of(const std::string& op, const std::string& column);

  const Device device_;
  ThreadPool pool_;
  Stream stream_;
  std::shared_ptr<cuda::Session> session_;
  Arena arena_;
  std::vector<Column> columns_;
  std::vector<KernelResult> results_;
};

}  // namespace sluice
