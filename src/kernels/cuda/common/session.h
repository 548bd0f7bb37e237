// State that the kernels of one rank share besides the stream: cuBLASLt, opened at run time, and a
// workspace.
#pragma once

#include <cstdint>
#include <memory>

#include "tensor/buffer.h"
#include "tensor/device.h"

namespace sluice::cuda {

class CublasLt;

class Session {
 public:
  // Opens cuBLASLt and allocates its workspace. Without the library large GEMMs run on portable
  // kernels, and the log says so once.
  explicit Session(Device device);
  ~Session();

  const DeviceInfo& info() const { return info_; }
  CublasLt* library() const { return library_.get(); }  // null: not found

  // Device memory for partial results within one operation. Any later kernel on the rank's stream
  // may overwrite it.
  void* scratch() const { return workspace_.data(); }
  std::int64_t scratch_bytes() const { return workspace_.bytes() - kCounterBytes; }
  // The same for bfloat16 copies of what memory has in fewer bits. cuBLASLt leaves it alone.
  void* widened() const { return widened_.data(); }
  std::int64_t widened_bytes() const { return widened_.bytes(); }
  // Counters that are 0 between operations. A kernel that counts must leave them at 0.
  std::uint32_t* counters() const {
    return reinterpret_cast<std::uint32_t*>(static_cast<std::byte*>(workspace_.data()) +
                                            scratch_bytes());
  }
  static constexpr std::int64_t kCounterBytes = 64 << 10;

 private:
  DeviceInfo info_;
  Buffer workspace_, widened_;
  std::unique_ptr<CublasLt> library_;
};

// Device memory of a Session, for the memory plan.
inline constexpr std::int64_t kLibraryWorkspaceBytes = 64 << 20;
inline constexpr std::int64_t kWidenedBytes = 64 << 20;

std::shared_ptr<Session> open_session(Device device);

}  // namespace sluice::cuda
