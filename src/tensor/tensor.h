// A view of elements in memory: a small value, copied freely, that never frees. `Buffer` and
// `Arena` own memory.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <string>

#include "tensor/dtype.h"

namespace sluice {

enum class DeviceKind : std::uint8_t { kCpu, kCuda };

struct Device {
  DeviceKind kind = DeviceKind::kCpu;
  int index = 0;
  friend bool operator==(Device, Device) = default;
};

struct Tensor {
  void* data = nullptr;
  DType dtype = DType::kF32;
  Device device;
  int rank = 0;
  std::array<std::int64_t, 4> shape{};   // extents; entries past `rank` are 0
  std::array<std::int64_t, 4> stride{};  // in elements

  // A dense row-major view of `data`.
  static Tensor dense(void* data, DType dtype, std::initializer_list<std::int64_t> shape,
                      Device device = {});

  bool defined() const { return rank > 0; }
  std::int64_t dim(int i) const { return shape[i < 0 ? rank + i : i]; }
  std::int64_t numel() const;
  std::int64_t bytes() const { return numel() * dtype_size(dtype); }
  bool dense() const;            // row-major without gaps
  bool dense_rows() const;       // the last dimension has stride 1
  std::string describe() const;  // "bfloat16 [3, 64]"

  // Typed pointer; checks the dtype.
  template <class T>
  T* ptr() const {
    check_dtype(dtype_of<T>);
    return static_cast<T*>(data);
  }

  // Entries [begin, begin + count) of dimension `axis`.
  Tensor slice(int axis, std::int64_t begin, std::int64_t count) const;
  Tensor rows(std::int64_t begin, std::int64_t count) const { return slice(0, begin, count); }
  // Entry `index` of dimension 0; the rank falls by one (a rank-1 tensor becomes [1]).
  Tensor at(std::int64_t index) const;
  // The same elements under another shape; *this must be dense.
  Tensor reshape(std::initializer_list<std::int64_t> shape) const;

 private:
  void check_dtype(DType wanted) const;
};

}  // namespace sluice
