// The order of work on a device: streams, events and graphs.
//
// Work given to a stream runs in order, behind the caller's back. On the CPU every call is finished
// when it returns, so a default-constructed Stream or StreamEvent stands for that and its methods
// do nothing.
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
  // Waits until all of it is done. Error{kFatal} when some of it failed.
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
  float milliseconds_since(const StreamEvent& earlier) const;  // both have happened

 private:
  void* handle_ = nullptr;
};

// What a stream was given once, to be run again with one call. Memory that the work names must stay
// where it is.
class Graph {
 public:
  Graph() = default;
  ~Graph();
  Graph(Graph&& other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}
  Graph& operator=(Graph&& other) noexcept {
    std::swap(handle_, other.handle_);
    return *this;
  }

  // Records what `work` gives to the stream; nothing of it runs. When `work` throws, so does this.
  static Graph capture(const Stream& stream, const std::function<void()>& work);
  void launch(const Stream& stream) const;
  bool captured() const { return handle_ != nullptr; }

 private:
  void* handle_ = nullptr;
};

}  // namespace sluice
