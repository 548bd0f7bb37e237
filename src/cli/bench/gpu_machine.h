// What the GPU benchmarks share: a context on the GPU, times, ceilings, and places full of random
// numbers.
#pragma once

#include <algorithm>
#include <functional>
#include <memory>
#include <random>
#include <vector>

#include "base/thread_pool.h"
#include "ops/gemm.h"
#include "ops/session.h"
#include "tensor/copy.h"
#include "tensor/device.h"

namespace sluice::bench {

class Machine {
 public:
  explicit Machine(Device device) : pool_(1), stream_(device), session_(ops::open_session(device)) {
    ctx.device = device;
    ctx.pool = &pool_;
    ctx.stream = &stream_;
    ctx.cuda = session_.get();
  }

  // Median seconds of `work` over several runs, after one that is not measured.
  double seconds(const std::function<void()>& work, int runs = 11) {
    std::vector<double> times;
    StreamEvent begin(ctx.device), end(ctx.device);
    for (int i = 0; i <= runs; ++i) {
      begin.record(stream_);
      work();
      end.record(stream_);
      end.wait();
      if (i > 0) times.push_back(end.milliseconds_since(begin) * 1e-3);
    }
    std::nth_element(times.begin(), times.begin() + static_cast<std::ptrdiff_t>(times.size() / 2),
                     times.end());
    return times[times.size() / 2];
  }

  // Numbers of [-1, 1): zeros run faster than data does. A million of them, again and again.
  void randomise(const Tensor& place) {
    const std::int64_t count = place.numel(), block = std::min<std::int64_t>(count, 1 << 20);
    Tensor flat = place.reshape({count});
    HostImage image(flat.slice(0, 0, block));
    std::minstd_rand random(1);
    const Tensor& host = image.tensor();
    for (std::int64_t i = 0; i < block; ++i) {
      const float value = static_cast<float>(random() >> 7) * 0x1p-23f - 1.0f;
      if (host.dtype == DType::kBF16)
        host.ptr<BF16>()[i] = BF16(value);
      else
        host.ptr<float>()[i] = value;
    }
    image.put();
    for (std::int64_t done = block; done < count; done += block) {
      const std::int64_t part = std::min(block, count - done);
      copy(stream_, flat.slice(0, 0, part), flat.slice(0, done, part));
    }
    stream_.synchronize();
  }

  // Bytes read and written a second by a large copy on the device.
  double copy_rate() {
    constexpr std::int64_t kBytes = std::int64_t{4} << 30;
    Buffer a(kBytes, ctx.device), b(kBytes, ctx.device);
    return 2.0 * kBytes / seconds([&] {
             copy(stream_, a.tensor(DType::kU8, {kBytes}), b.tensor(DType::kU8, {kBytes}));
           });
  }

  // Operations a second of an n x n x n product.
  double product(DType dtype, std::int64_t n) {
    const std::int64_t bytes = n * n * dtype_size(dtype);
    Buffer x(bytes, ctx.device), w(bytes, ctx.device), out(n * n * 4, ctx.device);
    randomise(x.tensor(dtype, {n, n}));
    randomise(w.tensor(dtype, {n, n}));
    const double s = seconds([&] {
      ops::linear(ctx, x.tensor(dtype, {n, n}), w.tensor(dtype, {n, n}), {},
                  out.tensor(DType::kF32, {n, n}));
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

}  // namespace sluice::bench
