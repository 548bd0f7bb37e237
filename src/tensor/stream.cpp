#include "tensor/stream.h"

#include "base/build.h"
#include "base/error.h"
#include "tensor/cuda_runtime.h"

namespace sluice {

Stream::Stream(Device device) {
  if constexpr (kHasCuda)
    if (device.kind == DeviceKind::kCuda) handle_ = cuda::make_stream(device.index);
}

Stream::~Stream() {
  if constexpr (kHasCuda)
    if (handle_ != nullptr) cuda::destroy_stream(handle_);
}

void Stream::synchronize() const {
  if constexpr (kHasCuda)
    if (handle_ != nullptr) cuda::synchronize_stream(handle_);
}

StreamEvent::StreamEvent(Device device) {
  if constexpr (kHasCuda)
    if (device.kind == DeviceKind::kCuda) handle_ = cuda::make_event(device.index);
}

StreamEvent::~StreamEvent() {
  if constexpr (kHasCuda)
    if (handle_ != nullptr) cuda::destroy_event(handle_);
}

void StreamEvent::record([[maybe_unused]] const Stream& stream) {
  if constexpr (kHasCuda)
    if (handle_ != nullptr) cuda::record_event(handle_, stream.handle());
}

void StreamEvent::wait() const {
  if constexpr (kHasCuda)
    if (handle_ != nullptr) cuda::synchronize_event(handle_);
}

void StreamEvent::hold([[maybe_unused]] const Stream& stream) const {
  if constexpr (kHasCuda)
    if (handle_ != nullptr) cuda::stream_waits(stream.handle(), handle_);
}

float StreamEvent::milliseconds_since([[maybe_unused]] const StreamEvent& earlier) const {
  if constexpr (kHasCuda)
    if (handle_ != nullptr) return cuda::milliseconds_between(earlier.handle_, handle_);
  return 0;
}

Graph::~Graph() {
  if constexpr (kHasCuda)
    if (handle_ != nullptr) cuda::destroy_graph(handle_);
}

Graph Graph::capture(const Stream& stream, const std::function<void()>& work) {
  check(stream.handle() != nullptr, "only a stream of a GPU can be captured");
  Graph graph;
  if constexpr (kHasCuda) {
    cuda::begin_capture(stream.handle());
    try {
      work();
    } catch (...) {
      cuda::abandon_capture(stream.handle());
      throw;
    }
    graph.handle_ = cuda::end_capture(stream.handle());
  }
  return graph;
}

void Graph::launch([[maybe_unused]] const Stream& stream) const {
  check(captured(), "a graph without work was launched");
  if constexpr (kHasCuda) cuda::launch_graph(handle_, stream.handle());
}

}  // namespace sluice
