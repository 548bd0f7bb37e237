// Streams, events and graphs: the order of work on a device.
//
// Work in a stream runs in order and asynchronously. On the CPU every call is finished when it
// returns. So a default-constructed Stream or StreamEvent stands for the CPU, and its methods do
// nothing.
#pragma once

#include <cstdint>
#include <functional>
#include <utility>

#include "tensor/tensor.h"

namespace sluice {

class Stream {
 public:
  Stream() = default;
  explicit Stream(Device device);  // a stream of its own on a GPU
  ~Stream();
  Stream(Stream&& other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}
  Stream& operator=(Stream&& other) noexcept {
    std::swap(handle_, other.handle_);
    return *this;
  }

  void* handle() const { return handle_; }  // cudaStream_t
  // Waits for all work of the stream. Error{kFatal} if some of it failed.
  void synchronize() const;

 private:
  void* handle_ = nullptr;
};

// A point in a stream.
class StreamEvent {
 public:
  StreamEvent() = default;
  explicit StreamEvent(Device device);
  ~StreamEvent();
  StreamEvent(StreamEvent&& other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}
  StreamEvent& operator=(StreamEvent&& other) noexcept {
    std::swap(handle_, other.handle_);
    return *this;
  }

  void record(const Stream& stream);
  void wait() const;                                           // the calling thread waits
  void hold(const Stream& stream) const;                       // the stream waits
  float milliseconds_since(const StreamEvent& earlier) const;  // both events must have completed

 private:
  void* handle_ = nullptr;
};

// Recorded work of a stream, replayed with one call. Memory that the work names must stay
// allocated.
class Graph {
 public:
  Graph() = default;
  ~Graph();
  Graph(Graph&& other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}
  Graph& operator=(Graph&& other) noexcept {
    std::swap(handle_, other.handle_);
    return *this;
  }

  // Records the work that `work` gives to the stream, without running it. Rethrows what `work`
  // throws.
  static Graph capture(const Stream& stream, const std::function<void()>& work);
  void launch(const Stream& stream) const;
  bool captured() const { return handle_ != nullptr; }

 private:
  void* handle_ = nullptr;
};

}  // namespace sluice
