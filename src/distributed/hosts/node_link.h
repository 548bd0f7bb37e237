// The connection to another node while a model is served: frames, and signs of life.
//
//   NodeLink link(1, std::move(socket), {.place_of = ..., .arrived = ..., .lost = ...});
//   link.send(head, payload);
//
// Two threads of its own: one reads frames; one sends what the network did not take at once, and a
// sign of life twice a second. A node from which nothing comes for kSilence is lost, as one that
// closes: lost() is called once, by one of these threads.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "distributed/hosts/node_frame.h"
#include "distributed/hosts/secure_socket.h"

namespace sluice {

class NodeLink {
 public:
  static constexpr std::chrono::seconds kSilence{5};

  // By the thread that reads; what they throw loses the node, with their message.
  struct Handler {
    std::function<std::span<std::byte>(const FrameHead& head)> place_of;
    std::function<void(const FrameHead& head)> arrived;
    std::function<void(const std::string& why)> lost;
  };

  NodeLink(int node, std::unique_ptr<SecureSocket> socket, Handler handler);
  // Ends the threads, without a call of lost().
  ~NodeLink();

  // Any thread. A closed connection is the reader's to notice.
  void send(const FrameHead& head, std::span<const std::byte> payload);
  // Waits until the other side has closed, and all was sent; for so long at most.
  void await_close(std::chrono::milliseconds patience);
  int node() const { return node_; }
  // "node 1 (10.0.0.2:41234)".
  const std::string& name() const { return name_; }

 private:
  void read_frames();
  void keep_alive();
  void lose(const std::string& why);

  const int node_;
  const std::unique_ptr<SecureSocket> socket_;
  const std::string name_;
  const Handler handler_;
  std::atomic<bool> is_lost_{false};
  std::mutex mutex_;
  std::condition_variable changed_;
  bool has_backlog_ = false, is_stopping_ = false, has_reader_ended_ = false;  // guarded by mutex_
  std::thread reader_, keeper_;
};

}  // namespace sluice
