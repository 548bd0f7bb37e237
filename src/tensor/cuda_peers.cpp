#include "tensor/cuda_peers.h"

#include <cuda_runtime_api.h>

#include <cstring>

namespace sluice::cuda {
namespace {

// A failure is an answer here, so the next call must not see it.
bool succeeds(cudaError_t status) {
  if (status != cudaSuccess) (void)cudaGetLastError();
  return status == cudaSuccess;
}

}  // namespace

static_assert(sizeof(MemoryName) == sizeof(cudaIpcMemHandle_t));

bool name_memory(void* memory, MemoryName& name) {
  cudaIpcMemHandle_t handle{};
  if (!succeeds(cudaIpcGetMemHandle(&handle, memory))) return false;
  std::memcpy(name.data(), &handle, sizeof handle);
  return true;
}

void* open_memory(const MemoryName& name) {
  cudaIpcMemHandle_t handle{};
  std::memcpy(&handle, name.data(), sizeof handle);
  void* memory = nullptr;
  return succeeds(cudaIpcOpenMemHandle(&memory, handle, cudaIpcMemLazyEnablePeerAccess)) ? memory
                                                                                         : nullptr;
}

void close_memory(void* memory) noexcept {
  if (memory != nullptr) (void)succeeds(cudaIpcCloseMemHandle(memory));
}

}  // namespace sluice::cuda
