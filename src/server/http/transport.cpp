#include "server/http/transport.h"

#include <sys/socket.h>

#include <cerrno>

namespace sluice {
namespace {

class PlainTransport : public Transport {
 public:
  explicit PlainTransport(int socket) : socket_(socket) {}

  Moved read(std::span<char> into) override {
    const ssize_t count = recv(socket_, into.data(), into.size(), 0);
    if (count > 0) return {Status::kDone, static_cast<std::size_t>(count)};
    return {count < 0 && is_temporary() ? Status::kWantRead : Status::kClosed};
  }

  Moved write(std::string_view bytes) override {
    const ssize_t count = send(socket_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (count > 0) return {Status::kDone, static_cast<std::size_t>(count)};
    return {count < 0 && is_temporary() ? Status::kWantWrite : Status::kClosed};
  }

 private:
  static bool is_temporary() { return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR; }

  const int socket_;
};

}  // namespace

std::unique_ptr<Transport> make_plain_transport(int socket) {
  return std::make_unique<PlainTransport>(socket);
}

}  // namespace sluice
