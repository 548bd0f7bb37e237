// Owners of memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>

#include "tensor/tensor.h"

namespace sluice {

// Zeroed bytes on one device, aligned to 64 and freed with the owner. Large host buffers come
// directly from the kernel, with a request for huge pages; untouched pages cost no memory.
class Buffer {
 public:
  Buffer() = default;
  explicit Buffer(std::int64_t bytes,
                  Device device = {});  // Error{kNoResources} when the system refuses
  // Host memory for copies to and from `device`: pinned, so that a GPU moves it by itself; plain
  // memory for the CPU.
  static Buffer staging(std::int64_t bytes, Device device);
  ~Buffer();
  Buffer(Buffer&& other) noexcept;
  Buffer& operator=(Buffer&& other) noexcept;

  void* data() const { return data_; }
  std::int64_t bytes() const { return bytes_; }
  Device device() const { return device_; }
  // A dense tensor at byte `offset`.
  Tensor tensor(DType dtype, std::initializer_list<std::int64_t> shape,
                std::int64_t offset = 0) const;

 private:
  void* data_ = nullptr;
  std::int64_t bytes_ = 0;
  Device device_;
  bool pinned_ = false;
};

// A bump allocator for the activations of a step: the same calls give the same addresses, so graphs
// can replay.
//
//   Arena::Scope scope(arena);           // everything taken below is given back here
//   Tensor x = arena.take(DType::kF32, {tokens, hidden});
//
// A measuring arena has no memory: it only records the peak (Context::dry_run skips the work of
// ops).
class Arena {
 public:
  // Measures: take() returns addresses that must not be touched.
  Arena() = default;
  static Arena measuring(Device device);
  explicit Arena(std::int64_t capacity_bytes, Device device = {});

  Tensor take(DType dtype, std::initializer_list<std::int64_t> shape);
  std::int64_t peak_bytes() const { return peak_; }
  std::int64_t capacity_bytes() const { return buffer_.bytes(); }
  bool measures() const { return buffer_.data() == nullptr; }
  Device device() const { return device_; }

  class Scope {
   public:
    explicit Scope(Arena& arena) : arena_(arena), mark_(arena.used_) {}
    ~Scope() { arena_.used_ = mark_; }
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    Arena& arena_;
    std::int64_t mark_;
  };

 private:
  Buffer buffer_;
  Device device_;
  std::int64_t used_ = 0;
  std::int64_t peak_ = 0;
};

}  // namespace sluice
