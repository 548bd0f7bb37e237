// The harness of gpu_kernels (kernels.cpp).
#pragma once

#include <fmt/format.h>

#include <cmath>
#include <cstdio>
#include <string_view>
#include <tuple>

#include "base/error.h"
#include "cli/bench/gpu_machine.h"
#include "ops/activation.h"
#include "ops/attention.h"
#include "ops/elementwise.h"
#include "ops/fused.h"
#include "ops/indexer.h"
#include "ops/kv.h"
#include "ops/mla.h"
#include "ops/moe.h"
#include "ops/norm.h"
#include "ops/rope.h"

namespace sluice {

inline constexpr std::int64_t kRotated = 256 << 20;  // several times the L2 cache

class Bench {
 public:
  explicit Bench(Device device)
      : machine(device),
        copy_rate_(machine.copy_rate()),
        flops_(machine.product(DType::kBF16, 8192)) {
    fmt::print("{{\"copy_bytes_per_s\": {:.4g}, \"bf16_flops\": {:.4g}}}\n", copy_rate_, flops_);
  }

  // `work(i)` uses the i-th set of buffers. `floor`: a lower bound of the seconds, if it exceeds
  // the larger of the two shares.
  void time(const std::string& kernel, const std::string& shape, double bytes, double operations,
            int sets, const std::function<void(int)>& work, double floor = 0) {
    const int launches = std::max(sets, operations > 1e11 ? 1 : 24);
    for (int i = 0; i < 2; ++i) work(0);  // warm-up: algorithms are selected and cached
    machine.stream().synchronize();
    const Graph graph = Graph::capture(machine.stream(), [&] {
      for (int i = 0; i < launches; ++i) work(i % sets);
    });
    const double s = machine.seconds([&] { graph.launch(machine.stream()); }, 7) / launches;
    fmt::print(
        "{{\"kernel\": \"{}\", \"shape\": \"{}\", \"us\": {:.2f}, \"of_copy\": {:.3f}, "
        "\"of_bf16\": {:.3f}",
        kernel, shape, s * 1e6, bytes / s / copy_rate_, operations / s / flops_);
    if (floor > 0)
      fmt::print(", \"floor_us\": {:.2f}, \"times_floor\": {:.2f}", floor * 1e6, s / floor);
    fmt::print("}}\n");
    std::fflush(stdout);
  }

  // A buffer of random numbers, or of zeros.
  Tensor take(DType dtype, std::initializer_list<std::int64_t> shape, bool random = true) {
    const Tensor sized = Tensor::dense(nullptr, dtype, shape);
    buffers_.emplace_back(sized.bytes(), machine.ctx.device);
    const Tensor made = buffers_.back().tensor(dtype, shape);
    if (random) machine.randomise(made);
    return made;
  }
  Tensor integers(std::initializer_list<std::int64_t> shape,
                  const std::function<std::int32_t(std::int64_t)>& value) {
    const Tensor made = take(DType::kI32, shape, false);
    HostImage image(made);
    for (std::int64_t i = 0; i < made.numel(); ++i)
      image.tensor().ptr<std::int32_t>()[i] = value(i);
    image.put();
    return made;
  }
  void clear() { buffers_.clear(); }
  // Seconds to move so many bytes, and to compute so many operations.
  double reading(double bytes) const { return bytes / copy_rate_; }
  double multiplying(double operations) const { return operations / flops_; }

  bench::Machine machine;

 private:
  double copy_rate_, flops_;
  std::vector<Buffer> buffers_;
};

inline int sets_for(std::int64_t bytes) {
  return static_cast<int>(std::clamp<std::int64_t>(kRotated / bytes, 1, 64));
}

// FP8 weights (kernels_fp8.cpp).
void fp8(Bench& bench);
// Experts (kernels_experts.cpp).
void experts(Bench& bench);
// Integer weights (kernels_int.cpp).
void int_weights(Bench& bench);
// Sparse attention (kernels_sparse.cpp).
void index(Bench& bench);
void mla(Bench& bench);
void dsa(Bench& bench);

}  // namespace sluice
