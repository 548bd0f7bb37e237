#include "kernels/cuda/common/session.h"

#include "base/log.h"
#include "kernels/cuda/gemm/cublaslt.h"

namespace sluice::cuda {

Session::Session(Device device)
    : info_(device_info(device)),
      workspace_(kLibraryWorkspaceBytes, device),
      widened_(kWidenedBytes, device) {
  std::string why;
  library_ = CublasLt::open(scratch(), scratch_bytes(), why);
  if (library_ == nullptr)
    log_warning(
        "cuBLASLt cannot be used ({}): large GEMMs run on portable kernels, several "
        "times as slow; "
        "put libcublasLt.so.13 where the loader finds it",
        why);
}

Session::~Session() = default;

std::shared_ptr<Session> open_session(Device device) {
  return std::make_shared<Session>(device);
}

}  // namespace sluice::cuda
