#include "distributed/message_socket.h"

#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>

#include "base/error.h"

namespace sluice {
namespace {

constexpr std::uint32_t kMagic = 0x534c5231;

struct Head {
  std::uint32_t magic = kMagic;
  std::uint32_t kind = 0;
  std::uint64_t bytes = 0;
};
static_assert(sizeof(Head) == 16);

}  // namespace

std::pair<MessageSocket, MessageSocket> MessageSocket::pair() {
  int fds[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds) != 0)
    fail(ErrorKind::kNoResources, "no pair of sockets for a rank: {}", std::strerror(errno));
  return {MessageSocket(fds[0]), MessageSocket(fds[1])};
}

void MessageSocket::close() {
  if (fd_ >= 0) ::close(fd_);
  fd_ = -1;
}

bool MessageSocket::write_all(const void* data, std::size_t size, bool more) {
  const auto* from = static_cast<const char*>(data);
  while (size > 0) {
    const ssize_t done = ::send(fd_, from, size, MSG_NOSIGNAL | (more ? MSG_MORE : 0));
    if (done < 0 && errno == EINTR) continue;
    if (done <= 0) return false;
    from += done;
    size -= static_cast<std::size_t>(done);
  }
  return true;
}

bool MessageSocket::read_all(void* data, std::size_t size) {
  auto* to = static_cast<char*>(data);
  while (size > 0) {
    const ssize_t done = ::recv(fd_, to, size, 0);
    if (done < 0 && errno == EINTR) continue;
    if (done <= 0) return false;
    to += done;
    size -= static_cast<std::size_t>(done);
  }
  return true;
}

bool MessageSocket::send(std::uint32_t kind, std::span<const std::byte> bytes) {
  check(bytes.size() <= kMaxBytes, "a message of {} bytes to a rank", bytes.size());
  const Head head{.kind = kind, .bytes = bytes.size()};
  return write_all(&head, sizeof head, !bytes.empty()) &&
         write_all(bytes.data(), bytes.size(), false);
}

bool MessageSocket::has_input() const {
  pollfd entry{fd_, POLLIN, 0};
  return poll(&entry, 1, 0) > 0;
}

bool MessageSocket::receive(Message& message, int spin_us) {
  using Clock = std::chrono::steady_clock;
  if (spin_us > 0) {
    const auto deadline = Clock::now() + std::chrono::microseconds(spin_us);
    while (!has_input() && Clock::now() < deadline) {
    }
  }
  Head head;
  if (!read_all(&head, sizeof head)) return false;
  if (head.magic != kMagic || head.bytes > kMaxBytes)
    fail(ErrorKind::kFatal, "a rank was sent {} bytes that are no message of this version",
         head.bytes);
  message.kind = head.kind;
  message.bytes.resize(head.bytes);
  return read_all(message.bytes.data(), message.bytes.size());
}

}  // namespace sluice
