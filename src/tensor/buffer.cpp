#include "tensor/buffer.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "base/build.h"
#include "base/error.h"
#include "tensor/cuda_runtime.h"
#include "tensor/format.h"
#include "tensor/host_memory.h"

namespace sluice {
namespace {

constexpr std::int64_t kAlignment = 64;
constexpr std::int64_t kMapThreshold = 1 << 20;

std::int64_t align_up(std::int64_t bytes) {
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

}  // namespace

Buffer::Buffer(std::int64_t bytes, Device device) : bytes_(bytes), device_(device) {
  check(bytes >= 0, "negative size {}", bytes);
  check(device.kind == DeviceKind::kCpu || kHasCuda, "this build has host memory only");
  if (bytes == 0) return;
  if constexpr (kHasCuda) {
    if (device.kind == DeviceKind::kCuda) {
      data_ = cuda::allocate(bytes, device.index);
      return;
    }
  }
  require_host_bytes(bytes);
  if (bytes >= kMapThreshold) {
    void* mapped = mmap(nullptr, static_cast<std::size_t>(bytes), PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    data_ = mapped == MAP_FAILED ? nullptr : mapped;
    if (data_ != nullptr) madvise(data_, static_cast<std::size_t>(bytes), MADV_HUGEPAGE);
  } else {
    data_ = std::aligned_alloc(kAlignment, static_cast<std::size_t>(align_up(bytes)));
    if (data_ != nullptr) std::memset(data_, 0, static_cast<std::size_t>(bytes));
  }
  if (data_ == nullptr)
    fail(ErrorKind::kNoResources, "the system refused {} bytes of memory", bytes);
}

Buffer Buffer::staging(std::int64_t bytes, [[maybe_unused]] Device device) {
  if constexpr (kHasCuda) {
    if (device.kind == DeviceKind::kCuda && bytes > 0) {
      Buffer buffer;
      buffer.data_ = cuda::allocate_pinned(bytes);
      buffer.bytes_ = bytes;
      buffer.pinned_ = true;
      return buffer;
    }
  }
  return Buffer(bytes);
}

Buffer::~Buffer() {
  if (data_ == nullptr) return;
  if constexpr (kHasCuda) {
    if (pinned_) {
      cuda::release_pinned(data_);
      return;
    }
    if (device_.kind == DeviceKind::kCuda) {
      cuda::release(data_);
      return;
    }
  }
  if (bytes_ >= kMapThreshold)
    munmap(data_, static_cast<std::size_t>(bytes_));
  else
    std::free(data_);
}

Buffer::Buffer(Buffer&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)),
      bytes_(std::exchange(other.bytes_, 0)),
      device_(other.device_),
      pinned_(other.pinned_) {}

Buffer& Buffer::operator=(Buffer&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(bytes_, other.bytes_);
  std::swap(device_, other.device_);
  std::swap(pinned_, other.pinned_);
  return *this;
}

Tensor Buffer::tensor(DType dtype, std::initializer_list<std::int64_t> shape,
                      std::int64_t offset) const {
  Tensor t = Tensor::dense(static_cast<std::byte*>(data_) + offset, dtype, shape, device_);
  check(offset >= 0 && offset % dtype_size(dtype) == 0 && offset + t.bytes() <= bytes_,
        "{} at byte {} of a buffer of {}", t, offset, bytes_);
  return t;
}

Arena::Arena(std::int64_t capacity_bytes, Device device)
    : buffer_(std::max<std::int64_t>(align_up(capacity_bytes), kAlignment), device),
      device_(device) {}

Arena Arena::measuring(Device device) {
  Arena arena;
  arena.device_ = device;
  return arena;
}

Tensor Arena::take(DType dtype, std::initializer_list<std::int64_t> shape) {
  // A measuring arena counts from address 64, so that a defined tensor never has a null pointer.
  auto* base = measures() ? reinterpret_cast<std::byte*>(kAlignment)
                          : static_cast<std::byte*>(buffer_.data());
  Tensor t = Tensor::dense(base + used_, dtype, shape, device_);
  used_ = align_up(used_ + t.bytes());
  peak_ = std::max(peak_, used_);
  check(measures() || used_ <= buffer_.bytes(),
        "the activation arena of {} bytes is too small for {}: {} needed", buffer_.bytes(), t,
        used_);
  return t;
}

}  // namespace sluice
