// gpu_ceilings: what this machine's GPU reaches at best, for shares of a ceiling: bytes moved from device memory to device
// memory (read and written), products in bfloat16 and float32, and copies over the bus. One JSON object.
#include <algorithm>
#include <functional>
#include <random>
#include <vector>

#include "base/error.h"
#include "base/thread_pool.h"
#include "ops/gemm.h"
#include "ops/session.h"
#include "tensor/copy.h"
#include "tensor/device.h"

namespace {

using namespace sluice;

class Machine {
 public:
  explicit Machine(Device device) : pool_(1), stream_(device), session_(ops::open_session(device)) {
    ctx.device = device;
    ctx.pool = &pool_;
    ctx.stream = &stream_;
    ctx.cuda = session_.get();
  }

  // Median seconds of `work` over several runs, after one that is not measured.
  double seconds(const std::function<void()>& work) {
    std::vector<double> times;
    StreamEvent begin(ctx.device), end(ctx.device);
    for (int i = 0; i < 12; ++i) {
      begin.record(stream_);
      work();
      end.record(stream_);
      end.wait();
      if (i > 0) times.push_back(end.milliseconds_since(begin) * 1e-3);
    }
    std::nth_element(times.begin(), times.begin() + static_cast<std::ptrdiff_t>(times.size() / 2), times.end());
    return times[times.size() / 2];
  }

  // Products are timed on random numbers: zeros run faster than data does.
  void randomise(const Tensor& place) {
    HostImage image(place);
    std::mt19937 random(1);
    const Tensor& host = image.tensor();
    for (std::int64_t i = 0; i < host.numel(); ++i) {
      const float value = static_cast<float>(random() % 2001) * 1e-3f - 1.0f;
      if (host.dtype == DType::kBF16)
        host.ptr<BF16>()[i] = BF16(value);
      else
        host.ptr<float>()[i] = value;
    }
    image.put();
  }

  double product(DType dtype, std::int64_t n) {
    const std::int64_t bytes = n * n * dtype_size(dtype);
    Buffer x(bytes, ctx.device), w(bytes, ctx.device), out(n * n * 4, ctx.device);
    randomise(x.tensor(dtype, {n, n}));
    randomise(w.tensor(dtype, {n, n}));
    const double s = seconds([&] {
      ops::linear(ctx, x.tensor(dtype, {n, n}), w.tensor(dtype, {n, n}), {}, out.tensor(DType::kF32, {n, n}));
    });
    return 2.0 * static_cast<double>(n) * static_cast<double>(n) * static_cast<double>(n) / s;
  }

  Context ctx;
  const Stream& stream() const { return stream_; }

 private:
  ThreadPool pool_;
  Stream stream_;
  std::shared_ptr<cuda::Session> session_;
};

void run() {
  const Device device = choose_device("cuda");
  const DeviceFacts facts = device_facts(device);
  Machine machine(device);
  constexpr std::int64_t kBytes = std::int64_t{4} << 30, kBus = 256 << 20;
  double copy_rate = 0, to_device = 0, to_host = 0;
  {
    Buffer a(kBytes, device), b(kBytes, device);
    copy_rate = 2.0 * kBytes / machine.seconds([&] {
      copy(machine.stream(), a.tensor(DType::kU8, {kBytes}), b.tensor(DType::kU8, {kBytes}));
    });
    const Buffer host = Buffer::staging(kBus, device);
    const Tensor there = a.tensor(DType::kU8, {kBus}), here = host.tensor(DType::kU8, {kBus});
    to_device = kBus / machine.seconds([&] { copy(machine.stream(), here, there); });
    to_host = kBus / machine.seconds([&] { copy(machine.stream(), there, here); });
  }
  fmt::print("{{\"device\": \"{}\", \"sm\": {}, \"multiprocessors\": {}, \"total_bytes\": {}, \"driver\": {},\n", facts.name,
             facts.sm, facts.num_multiprocessors, facts.total_bytes, facts.driver);
  fmt::print(" \"copy_bytes_per_s\": {:.4g}, \"to_device_bytes_per_s\": {:.4g}, \"to_host_bytes_per_s\": {:.4g},\n",
             copy_rate, to_device, to_host);
  fmt::print(" \"bf16_flops\": {:.4g}, \"f32_flops\": {:.4g}}}\n", machine.product(DType::kBF16, 8192),
             machine.product(DType::kF32, 4096));
}

}  // namespace

int main() {
  try {
    run();
    return 0;
  } catch (const Error& error) {
    fmt::print(stderr, "error: {}\n", error.what());
    return exit_code(error.kind());
  }
}
