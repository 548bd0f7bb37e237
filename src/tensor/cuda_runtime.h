// The calls of the CUDA runtime outside kernels/cuda/, without CUDA headers. Defined only in builds
// with CUDA: callers are guarded by `if constexpr (kHasCuda)`, in tensor/ and kernels/cuda/.
//
// Handles (streams, events, graphs) are the runtime's own pointers. Any thread. A thread that has
// not chosen a device works on the device that the call names. A failure is Error{kNoResources}
// when memory is short, else Error{kFatal}; the message names the purpose of the call.
#pragma once

#include <cstdint>
#include <string>

#include "tensor/device.h"

namespace sluice::cuda {

// The number of GPUs. If it is 0, `why` says what is missing (no driver, an old one, none visible).
int device_count(std::string& why);
DeviceInfo device_info(int index);
// Chooses the device of the calling thread.
void choose_device(int index);

// Zeroed memory of the GPU.
void* allocate(std::int64_t bytes, int index);
// Zeroed host memory that the GPU accesses directly.
void* allocate_pinned(std::int64_t bytes);
void release(void* memory) noexcept;
void release_pinned(void* memory) noexcept;

void* make_stream(int index);
void destroy_stream(void* stream) noexcept;
void synchronize_stream(void* stream);
// Copies between any two kinds of memory. From pageable host memory the call returns when the
// source may be reused.
void copy_async(void* to, const void* from, std::int64_t bytes, void* stream);
void fill_async(void* to, unsigned char value, std::int64_t bytes, void* stream);

void* make_event(int index);
void destroy_event(void* event) noexcept;
void record_event(void* event, void* stream);
void synchronize_event(void* event);
void stream_waits(void* stream, void* event);
// Time between two completed events.
float milliseconds_between(void* begin, void* end);

// Work given to the stream between begin and end becomes a graph and does not run.
void begin_capture(void* stream);
void* end_capture(void* stream);
void abandon_capture(void* stream) noexcept;
void launch_graph(void* graph, void* stream);
void destroy_graph(void* graph) noexcept;

// Throws if the last launch failed; `what` names the launch.
void check_launch(const char* what);

}  // namespace sluice::cuda
