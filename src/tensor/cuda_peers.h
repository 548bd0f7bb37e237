// GPU memory that processes of one host share. Defined only in builds with CUDA, as
// tensor/cuda_runtime.h.
#pragma once

#include <array>
#include <cstddef>

namespace sluice::cuda {

// Names an allocation of cuda::allocate() for other processes (cudaIpcMemHandle_t).
using MemoryName = std::array<std::byte, 64>;

// False: the system or the GPU cannot share memory.
bool name_memory(void* memory, MemoryName& name);
// The memory of another process, as the current device reaches it. Null: it does not.
void* open_memory(const MemoryName& name);
// Before the other process releases the memory.
void close_memory(void* memory) noexcept;

}  // namespace sluice::cuda
