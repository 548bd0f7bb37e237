// Messages from the first rank's process to another: a kind and bytes, over a pair of sockets that
// only these two processes have (R1).
//
//   auto [here, there] = MessageSocket::pair();
//   here.send(kind, bytes);
//   Message message;
//   while (there.receive(message)) ...           // false: the other end is closed
//
// One thread sends, one receives. A message of more than kMaxBytes is refused at both ends.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

namespace sluice {

struct Message {
  std::uint32_t kind = 0;
  std::vector<std::byte> bytes;
};

class MessageSocket {
 public:
  static constexpr std::uint64_t kMaxBytes = 1 << 30;

  // Takes the descriptor.
  explicit MessageSocket(int fd) : fd_(fd) {}
  MessageSocket(MessageSocket&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  MessageSocket& operator=(MessageSocket&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~MessageSocket() { close(); }
  // Both ends are closed when the process starts another program.
  static std::pair<MessageSocket, MessageSocket> pair();

  int fd() const { return fd_; }
  void close();
  // Waits while the other end is slow. False: the other end is closed.
  bool send(std::uint32_t kind, std::span<const std::byte> bytes);
  // Looks for `spin_us`, then sleeps until a message comes. False: the other end is closed.
  // Error{kFatal}: what comes is no message.
  bool receive(Message& message, int spin_us = 0);
  // Whether receive() would find something at once.
  bool has_input() const;

 private:
  bool write_all(const void* data, std::size_t size, bool more);
  bool read_all(void* data, std::size_t size);

  int fd_ = -1;
};

}  // namespace sluice
