// The calls of the CUDA runtime that the rest of Sluice makes, without its headers. Defined in
// builds with CUDA only: callers stand behind `if constexpr (kHasCuda)`, in tensor/ and
// kernels/cuda/.
//
// Handles (streams, events, graphs) are the runtime's own pointers. Any thread; a thread that has
// not chosen a device works on the one that the call names. A failure is Error{kNoResources} when
// memory is short, else Error{kFatal}, and says what was called for.
#pragma once

#include <cstdint>
#include <string>

#include "tensor/device.h"

namespace sluice::cuda {

// How many GPUs there are; with 0, `why` says what is missing (no driver, an old one, none
// visible).
int device_count(std::string& why);
DeviceInfo device_info(int index);
// For the calling thread.
void choose_device(int index);

// Zeroed memory of the GPU.
void* allocate(std::int64_t bytes, int index);
// Zeroed host memory that the GPU reads and writes by itself.
void* allocate_pinned(std::int64_t bytes);
void release(void* memory) noexcept;
void release_pinned(void* memory) noexcept;

void* make_stream(int index);
void destroy_stream(void* stream) noexcept;
void synchronize_stream(void* stream);
// Copies between any two kinds of memory; from pageable host memory it returns when the source may
// be reused.
void copy_async(void* to, const void* from, std::int64_t bytes, void* stream);
void fill_async(void* to, unsigned char value, std::int64_t bytes, void* stream);

void* make_event(int index);
void destroy_event(void* event) noexcept;
void record_event(void* event, void* stream);
void synchronize_event(void* event);
void stream_waits(void* stream, void* event);
// Between two events that have happened.
float milliseconds_between(void* begin, void* end);

// What the stream is given between begin and end becomes a graph and is not run.
void begin_capture(void* stream);
void* end_capture(void* stream);
void abandon_capture(void* stream) noexcept;
void launch_graph(void* graph, void* stream);
void destroy_graph(void* graph) noexcept;

// Throws when the last launch failed; `what` names it.
void check_launch(const char* what);

}  // namespace sluice::cuda
