#include "distributed/hosts/host_address.h"

#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <memory>

#include "base/error.h"

namespace sluice {
namespace {

using Clock = std::chrono::steady_clock;
using Addresses = std::unique_ptr<addrinfo, decltype(&freeaddrinfo)>;
constexpr int kBacklog = 64;

// Null: `why` says why the name has no address.
Addresses look_up(const HostAddress& address, bool listens, std::string& why) {
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICSERV | (listens ? AI_PASSIVE : 0);
  addrinfo* found = nullptr;
  const int status =
      getaddrinfo(address.host.c_str(), std::to_string(address.port).c_str(), &hints, &found);
  if (status != 0) why = gai_strerror(status);
  return Addresses(status == 0 ? found : nullptr, freeaddrinfo);
}

// 0, or an error of the system.
int connect_one(int fd, const addrinfo& address, Clock::time_point deadline) {
  if (connect(fd, address.ai_addr, address.ai_addrlen) == 0) return 0;
  if (errno != EINPROGRESS) return errno;
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now());
  pollfd entry{fd, POLLOUT, 0};
  const int patience = static_cast<int>(std::clamp<std::int64_t>(left.count(), 1, 5000));
  if (poll(&entry, 1, patience) <= 0) return ETIMEDOUT;
  int error = 0;
  socklen_t size = sizeof error;
  getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &size);
  return error;
}

}  // namespace

HostAddress HostAddress::parse(std::string_view text) {
  const std::size_t colon = text.rfind(':');
  require(colon != std::string_view::npos && colon > 0,
          "--dist-init-addr {} is no HOST:PORT, as 10.0.0.1:20000", text);
  std::string_view host = text.substr(0, colon), port = text.substr(colon + 1);
  const bool has_brackets = host.size() > 2 && host.front() == '[' && host.back() == ']';
  require(has_brackets || host.find(':') == std::string_view::npos,
          "--dist-init-addr {}: an IPv6 address stands in brackets, as [fd00::1]:20000", text);
  if (has_brackets) host = host.substr(1, host.size() - 2);
  HostAddress out{.host = std::string(host)};
  const auto [end, error] = std::from_chars(port.data(), port.data() + port.size(), out.port);
  require(error == std::errc() && end == port.data() + port.size() && out.port >= 1 &&
              out.port <= 65535,
          "--dist-init-addr {}: the port is 1 to 65535", text);
  return out;
}

std::string HostAddress::text() const {
  return host.find(':') == std::string::npos ? fmt::format("{}:{}", host, port)
                                             : fmt::format("[{}]:{}", host, port);
}

int listen_at(const HostAddress& address) {
  std::string why = "it has no address";
  const Addresses found = look_up(address, true, why);
  require(found != nullptr, "--dist-init-addr {}: {}", address.text(), why);
  const addrinfo& first = *found;
  const int fd = socket(first.ai_family, first.ai_socktype | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (fd < 0) fail(ErrorKind::kNoResources, "no socket for the nodes: {}", std::strerror(errno));
  const int yes = 1;
  setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
  if (bind(fd, first.ai_addr, first.ai_addrlen) == 0 && listen(fd, kBacklog) == 0) return fd;
  const int error = errno;
  close(fd);
  require(error != EADDRNOTAVAIL,
          "--dist-init-addr {}: this host has no such address; name one of node 0's, which this is",
          address.text());
  fail(ErrorKind::kBadInput, "--dist-init-addr {}: {}; name another port", address.text(),
       std::strerror(error));
}

int connect_to(const HostAddress& address, Clock::time_point deadline, std::string& why) {
  const Addresses found = look_up(address, false, why);
  for (const addrinfo* one = found.get(); one; one = one->ai_next) {
    const int fd = socket(one->ai_family, one->ai_socktype | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    const int error = fd < 0 ? errno : connect_one(fd, *one, deadline);
    if (error == 0) {
      prepare_connection(fd);
      return fd;
    }
    if (fd >= 0) close(fd);
    why = std::strerror(error);
  }
  return -1;
}

void prepare_connection(int fd) {
  fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) & ~O_NONBLOCK);
  const auto set = [fd](int level, int name, int value) {
    setsockopt(fd, level, name, &value, sizeof value);
  };
  set(IPPROTO_TCP, TCP_NODELAY, 1);
  set(SOL_SOCKET, SO_KEEPALIVE, 1);
  set(IPPROTO_TCP, TCP_KEEPIDLE, 2);
  set(IPPROTO_TCP, TCP_KEEPINTVL, 1);
  set(IPPROTO_TCP, TCP_KEEPCNT, 3);
  set(IPPROTO_TCP, TCP_USER_TIMEOUT, 5000);
}

}  // namespace sluice
