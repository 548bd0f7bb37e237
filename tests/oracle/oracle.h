// Compares the operations on a GPU with their implementations on the CPU.
//
//   Twin x(bench, DType::kF32, {7, 64}), out(bench, DType::kF32, {7, 64});
//   x.fill(1);
//   bench.compare("rms_norm", "7 x 64", {{&out, Allowed{.relative = 1e-6}}},
//                 [&](Context& ctx) { ops::rms_norm(ctx, x(ctx), weight(ctx), eps, out(ctx)); });
//
// Outputs and shared memory are poisoned before every run. The GPU runs twice and must give the
// same bits. The gaps between rows must not change.
#pragma once

#include <fmt/format.h>

#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "base/thread_pool.h"
#include "part.h"
#include "tensor/context.h"
#include "tensor/copy.h"

namespace sluice::oracle {

inline constexpr double kUnit = 0x1p-24;     // half an ulp of a float32 at 1
inline constexpr double kBf16Unit = 0x1p-8;  // half an ulp of a bfloat16 at 1
inline constexpr double kF16Unit = 0x1p-11;  // half an ulp of a float16 at 1

// The rounding error of a sum of n terms stays below this times the sum of their absolute values,
// but for one case in 10^7, for two sides. Source: Higham and Mary 2019, A new approach to
// probabilistic rounding error analysis, lambda = 6.
double sum_error(std::int64_t n);

// The allowed error of an element: exact bits, or absolute + relative * |CPU's value| + bound * its
// entry of `scale`.
struct Allowed {
  bool exact = false;
  double absolute = 0;
  double relative = 0;
  double bound = 0;
  const class Twin* scale = nullptr;  // in the output's shape, on the host
};

class Bench;

// `ctx` with the requirement that a row's bits do not depend on the rows beside it.
inline Context deterministic(const Context& ctx) {
  Context own = ctx;
  own.deterministic = true;
  return own;
}

// A tensor on the host and on the device, with equal strides. `pad` elements lie between rows.
// Every byte begins as 0xFF: NaN for floats, -1 for integers.
class Twin {
 public:
  Twin(Bench& bench, DType dtype, std::initializer_list<std::int64_t> shape, std::int64_t pad = 0);
  ~Twin();
  Twin(const Twin&) = delete;
  Twin& operator=(const Twin&) = delete;

  const Tensor& operator()(const Context& ctx) const {
    return ctx.device.kind == DeviceKind::kCpu ? host : device;
  }
  // Fills both sides: uniform in [-size, size), or by `value`. reset() restores the values.
  void fill(unsigned seed, double size = 1.0);
  void set(const std::function<double(std::int64_t i, std::int64_t j, std::int64_t k)>& value);
  // Rounds the values to the nearest bfloat16.
  void round_to_bf16();
  // Saves the host's values as those that reset() restores, on both sides.
  void keep();
  void reset();
  std::vector<std::byte> download() const;

  double at(const void* bytes, std::int64_t i, std::int64_t j, std::int64_t k) const;
  std::int64_t offset(std::int64_t i, std::int64_t j, std::int64_t k) const;

  Tensor host, device;

 private:
  Bench& bench_;
  std::vector<std::byte> initial_;
  Buffer host_memory_, device_memory_;
};

struct Output {
  Twin* twin = nullptr;
  Allowed allowed;
};

class Bench {
 public:
  explicit Bench(Device device);

  // Cases that run in one process: they share inputs that take long to make, or one sees what
  // another wrote. A comparison outside of all groups is one. Groups within a group are part of it.
  //
  //   const Bench::Group group(bench);
  //   if (!group.is_own()) return;
  class Group {
   public:
    explicit Group(Bench& bench) : bench_(bench), is_own_(bench.depth_ > 0 || bench.part.next()) {
      ++bench_.depth_;
    }
    ~Group() { --bench_.depth_; }
    Group(const Group&) = delete;
    Group& operator=(const Group&) = delete;
    bool is_own() const { return is_own_; }

   private:
    Bench& bench_;
    const bool is_own_;
  };

  void compare(const std::string& op, const std::string& label, const std::vector<Output>& outputs,
               const std::function<void(Context&)>& body);
  // Whether there is memory for a case of `op`; counts the skipped cases.
  bool fits(const std::string& op);
  // A case with an external verdict, within a group; `problem` is empty if it passed.
  void expect(const std::string& op, const std::string& label, const std::string& problem);
  // Prints the table, one line per operation, failures first. True if no case failed, and some
  // case of each operation ran.
  bool report() const;

  Context cpu, gpu;
  Stream stream;
  bool verbose = false;
  Part part;                    // whose groups run here
  std::int64_t live_bytes = 0;  // bytes of the existing tensors
  // cases beyond this limit are skipped
  std::int64_t max_bytes = std::numeric_limits<std::int64_t>::max();

 private:
  struct Row {
    std::string op;
    int cases = 0, failed = 0, left_out = 0;
    std::int64_t elements = 0;
    double worst_error = 0;  // absolute error
    double worst_share = 0;  // relative to the allowed error
  };
  Row& row_of(const std::string& op);
  void note(Row& row, const std::string& op, const std::string& label, const std::string& problem);
  std::string judge(const Output& output, const std::vector<std::byte>& got, Row& row) const;

  std::unique_ptr<ThreadPool> pool_;
  std::shared_ptr<cuda::Session> session_;
  std::unique_ptr<Arena> cpu_arena_, gpu_arena_;
  std::vector<Row> rows_;
  std::vector<std::string> failures_;
  int depth_ = 0;  // of groups
};

// Memory that operations work in. It does not count for the size of a case.
class WorkMemory : public Twin {
 public:
  WorkMemory(Bench& bench, std::int64_t bytes)
      : Twin(bench, DType::kU8, {bytes}), bench_(bench), bytes_(bytes) {
    bench_.live_bytes -= bytes_;
  }
  ~WorkMemory() { bench_.live_bytes += bytes_; }

 private:
  Bench& bench_;
  const std::int64_t bytes_;
};

// The families, one file each.
void check_rows(Bench& bench);
void check_gemms(Bench& bench);
void check_fp8(Bench& bench);
void check_int8(Bench& bench);
void check_int_weights(Bench& bench);
void check_expert_fragments(Bench& bench);
void check_attention(Bench& bench);
void check_mla(Bench& bench);
void check_experts(Bench& bench);
void check_index(Bench& bench);
void check_recurrent(Bench& bench);
void check_fused(Bench& bench);
void check_sampled_rows(Bench& bench);
void check_deterministic(Bench& bench);
void check_ranks(Bench& bench);

}  // namespace sluice::oracle
