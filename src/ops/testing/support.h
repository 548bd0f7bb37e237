// Test support for ops: owned tensors with poisoned gaps, random data, and contexts for each
// instruction set of this machine and each number of threads.
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <initializer_list>
#include <limits>
#include <memory>
#include <random>
#include <vector>

#include "base/thread_pool.h"
#include "kernels/types/kv_plane.h"
#include "kernels/types/weight.h"
#include "tensor/context.h"
#include "tensor/tensor.h"

namespace sluice::ops {

inline constexpr double kEps = std::numeric_limits<float>::epsilon();

// Memory and a view of it, with `pad` elements between rows. Every byte starts as 0xFF: NaN for
// floats, -1 for integers.
struct Owned {
  Owned(DType dtype, std::initializer_list<std::int64_t> shape, std::int64_t pad = 0) {
    std::int64_t count = 1, last = 0;
    for (std::int64_t extent : shape) count *= last = extent;
    const std::int64_t rows = last == 0 ? 0 : count / last;
    bytes.assign(static_cast<std::size_t>(rows * (last + pad) * dtype_size(dtype)),
                 std::byte{0xFF});
    view = Tensor::dense(bytes.data(), dtype, shape);
    std::int64_t step = last + pad;
    for (int axis = view.rank - 2; axis >= 0; --axis) {
      view.stride[axis] = step;
      step *= view.shape[axis];
    }
  }
  Owned(const Owned&) = delete;
  Owned& operator=(const Owned&) = delete;
  operator const Tensor&() const { return view; }
  operator Weight() const { return view; }
  operator KvPlane() const { return view; }
  const Tensor* operator->() const { return &view; }
  template <class T>
  T* data() const {
    return view.ptr<T>();
  }

  std::vector<std::byte> bytes;
  Tensor view;
};

inline std::int64_t offset_of(const Tensor& t, std::initializer_list<std::int64_t> index) {
  std::int64_t offset = 0;
  int axis = 0;
  for (std::int64_t i : index) offset += i * t.stride[axis++];
  return offset;
}

// The element as a double, for any dtype.
inline double get(const Tensor& t, std::initializer_list<std::int64_t> index) {
  const std::int64_t i = offset_of(t, index);
  switch (t.dtype) {
    case DType::kBF16:
      return static_cast<float>(t.ptr<BF16>()[i]);
    case DType::kF16:
      return static_cast<float>(t.ptr<F16>()[i]);
    case DType::kI32:
      return t.ptr<std::int32_t>()[i];
    case DType::kI64:
      return static_cast<double>(t.ptr<std::int64_t>()[i]);
    default:
      return t.ptr<float>()[i];
  }
}

inline void put(const Tensor& t, std::initializer_list<std::int64_t> index, double value) {
  const std::int64_t i = offset_of(t, index);
  switch (t.dtype) {
    case DType::kBF16:
      t.ptr<BF16>()[i] = BF16(static_cast<float>(value));
      break;
    case DType::kF16:
      t.ptr<F16>()[i] = F16(static_cast<float>(value));
      break;
    case DType::kI32:
      t.ptr<std::int32_t>()[i] = static_cast<std::int32_t>(value);
      break;
    case DType::kI64:
      t.ptr<std::int64_t>()[i] = static_cast<std::int64_t>(value);
      break;
    default:
      t.ptr<float>()[i] = static_cast<float>(value);
  }
}

// Calls body(i, j, k) for every element; a missing dimension has extent 1.
template <class Body>
void for_each(const Tensor& t, Body&& body) {
  for (std::int64_t i = 0; i < t.shape[0]; ++i)
    for (std::int64_t j = 0; j < (t.rank > 1 ? t.shape[1] : 1); ++j)
      for (std::int64_t k = 0; k < (t.rank > 2 ? t.shape[2] : 1); ++k) body(i, j, k);
}

// Uniform in [-size, size).
inline void fill(const Tensor& t, unsigned seed, double size = 1.0) {
  std::mt19937 random(seed);
  std::uniform_real_distribution<double> uniform(-size, size);
  for_each(t, [&](std::int64_t i, std::int64_t j, std::int64_t k) {
    const double value = uniform(random);
    if (t.rank == 1)
      put(t, {i}, value);
    else if (t.rank == 2)
      put(t, {i, j}, value);
    else
      put(t, {i, j, k}, value);
  });
}

// Rounds every element to the nearest bfloat16.
inline void round_to_bf16(const Tensor& t) {
  for_each(t, [&](std::int64_t i, std::int64_t j, std::int64_t k) {
    float& value = t.ptr<float>()[i * t.stride[0] + (t.rank > 1 ? j * t.stride[1] : 0) +
                                  (t.rank > 2 ? k * t.stride[2] : 0)];
    value = static_cast<float>(BF16(value));
  });
}

template <class T>
void assign(const Tensor& t, const std::vector<T>& values) {
  ASSERT_EQ(t.numel(), static_cast<std::int64_t>(values.size()));
  std::memcpy(t.data, values.data(), values.size() * sizeof(T));
}

// Whether two tensors of one shape and dtype hold the same bits. Their strides may differ.
inline ::testing::AssertionResult same_bits(const Tensor& a, const Tensor& b) {
  ::testing::AssertionResult result = ::testing::AssertionSuccess();
  for_each(a, [&](std::int64_t i, std::int64_t j, std::int64_t k) {
    const auto at = [&](const Tensor& t) {
      const std::int64_t offset =
          i * t.stride[0] + (t.rank > 1 ? j * t.stride[1] : 0) + (t.rank > 2 ? k * t.stride[2] : 0);
      return static_cast<const std::byte*>(t.data) + offset * dtype_size(t.dtype);
    };
    if (result && std::memcmp(at(a), at(b), static_cast<std::size_t>(dtype_size(a.dtype))) != 0)
      result = ::testing::AssertionFailure()
               << "first difference at [" << i << ", " << j << ", " << k << "]";
  });
  return result;
}

// Whether the padding of `owned` is still poison.
inline bool gaps_untouched(const Owned& owned) {
  std::vector<bool> used(owned.bytes.size(), false);
  const std::int64_t size = dtype_size(owned.view.dtype);
  for_each(owned.view, [&](std::int64_t i, std::int64_t j, std::int64_t k) {
    const Tensor& t = owned.view;
    const std::int64_t offset =
        i * t.stride[0] + (t.rank > 1 ? j * t.stride[1] : 0) + (t.rank > 2 ? k * t.stride[2] : 0);
    for (std::int64_t b = 0; b < size; ++b)
      used[static_cast<std::size_t>(offset * size + b)] = true;
  });
  for (std::size_t i = 0; i < used.size(); ++i)
    if (!used[i] && owned.bytes[i] != std::byte{0xFF}) return false;
  return true;
}

inline std::vector<CpuIsa> isas() {
  std::vector<CpuIsa> all;
  for (const CpuIsa isa : kCpuIsas)
    if (isa <= detect_cpu_isa()) all.push_back(isa);
  return all;
}

// A context with its own pool.
struct Machine {
  explicit Machine(CpuIsa isa, int threads = 1) : pool(threads) {
    ctx.pool = &pool;
    ctx.cpu_isa = isa;
  }
  ThreadPool pool;
  Context ctx;
};

// Calls body(ctx, alone) for each instruction set and 1 to 3 threads. `alone` has one thread and
// the same instruction set.
template <class Body>
void on_every_machine(Body&& body) {
  for (CpuIsa isa : isas()) {
    Machine alone(isa, 1);
    for (int threads = 1; threads <= 3; ++threads) {
      SCOPED_TRACE(std::string(cpu_isa_name(isa)) + ", threads " + std::to_string(threads));
      Machine machine(isa, threads);
      body(machine.ctx, alone.ctx);
    }
  }
}

}  // namespace sluice::ops
