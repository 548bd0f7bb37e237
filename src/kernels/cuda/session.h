// What the kernels of one rank share besides the stream: the libraries that are opened at run time and their workspace.
#pragma once

#include <memory>

#include "tensor/device.h"

namespace sluice::cuda {

class CublasLt;

class Session {
 public:
  // Opens cuBLASLt and takes its workspace; without the library large products run on kernels of our own, which the
  // log says once.
  explicit Session(Device device);
  ~Session();

  const DeviceFacts& facts() const { return facts_; }
  CublasLt* library() const { return library_.get(); }   // null: not found

 private:
  DeviceFacts facts_;
  std::unique_ptr<CublasLt> library_;
};

// Its device memory, for the memory plan.
inline constexpr std::int64_t kLibraryWorkspaceBytes = 64 << 20;

std::shared_ptr<Session> open_session(Device device);

}  // namespace sluice::cuda
