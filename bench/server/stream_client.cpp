#include "server/stream_client.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <stdexcept>
#include <string_view>
#include <vector>

namespace sluice {
namespace {

constexpr std::string_view kLastChunk = "0\r\n\r\n";

struct Stream {
  int fd = -1;
  bool has_begun = false;  // the head has come
  char last = 0;           // the byte before the next ones
  std::string head;
  std::string tail;  // the last bytes, as many as kLastChunk has
};

int connect_to(int port) {
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<std::uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  if (fd < 0 || connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof address) != 0)
    throw std::runtime_error("cannot connect: " + std::string(std::strerror(errno)));
  fcntl(fd, F_SETFL, O_NONBLOCK);
  return fd;
}

// Blank lines, or ends of lines outside the chunks' own.
std::int64_t count_events(std::string_view bytes, char before, bool counts_lines) {
  std::int64_t count = 0;
  for (std::size_t at = bytes.find('\n'); at != std::string_view::npos;
       at = bytes.find('\n', at + 1)) {
    const char previous = at > 0 ? bytes[at - 1] : before;
    count += counts_lines ? previous != '\r' : previous == '\n';
  }
  return count;
}

}  // namespace

double steady_seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

double process_seconds() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_usec);
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

StreamCounts read_streams(const StreamPlan& plan) {
  StreamCounts counts;
  const int loop = epoll_create1(EPOLL_CLOEXEC);
  std::vector<Stream> streams(static_cast<std::size_t>(plan.num_streams));
  const std::string request = "POST " + plan.path +
                              " HTTP/1.1\r\nHost: bench\r\nContent-Type: application/json\r\n"
                              "Content-Length: " +
                              std::to_string(plan.body.size()) + "\r\n\r\n" + plan.body;
  for (std::size_t i = 0; i < streams.size(); ++i) {
    streams[i].fd = connect_to(plan.port);
    epoll_event event{};
    event.events = EPOLLIN;
    event.data.u64 = i;
    epoll_ctl(loop, EPOLL_CTL_ADD, streams[i].fd, &event);
    if (send(streams[i].fd, request.data(), request.size(), MSG_NOSIGNAL) !=
        static_cast<ssize_t>(request.size()))
      throw std::runtime_error("a request was not sent whole");
  }
  double cpu_at_first = 0;
  std::vector<char> buffer(256 << 10);
  std::vector<epoll_event> events(256);
  for (int num_open = plan.num_streams; num_open > 0;) {
    const int count = epoll_wait(loop, events.data(), static_cast<int>(events.size()), 60'000);
    if (count <= 0) throw std::runtime_error("a minute without a byte");
    for (int e = 0; e < count; ++e) {
      Stream& stream = streams[events[static_cast<std::size_t>(e)].data.u64];
      const ssize_t size = recv(stream.fd, buffer.data(), buffer.size(), 0);
      if (size < 0 && errno == EAGAIN) continue;
      std::string_view bytes(buffer.data(), size > 0 ? static_cast<std::size_t>(size) : 0);
      counts.num_bytes += static_cast<std::int64_t>(bytes.size());
      if (!stream.has_begun) {
        stream.head += bytes;
        const std::size_t end = stream.head.find("\r\n\r\n");
        if (end == std::string::npos && size > 0) continue;
        stream.has_begun = true;
        if (!stream.head.starts_with("HTTP/1.1 200")) {
          if (counts.num_failed++ == 0) std::fprintf(stderr, "%.400s\n", stream.head.c_str());
          bytes = {};
        } else {
          bytes = bytes.substr(bytes.size() - (stream.head.size() - end - 4));
        }
        if (bytes.empty() && size > 0 && counts.num_failed == 0) continue;
      }
      const std::int64_t found = count_events(bytes, stream.last, plan.counts_lines);
      if (found > 0 && counts.first_s == 0) {
        counts.first_s = steady_seconds();
        cpu_at_first = process_seconds();
      }
      counts.num_events += found;
      if (!bytes.empty()) stream.last = bytes.back();
      stream.tail += bytes.substr(bytes.size() - std::min(bytes.size(), kLastChunk.size()));
      if (stream.tail.size() > kLastChunk.size())
        stream.tail.erase(0, stream.tail.size() - kLastChunk.size());
      const bool is_over = stream.tail == kLastChunk;
      if (size > 0 && !is_over && counts.num_failed == 0) continue;
      counts.num_failed += !is_over;
      close(stream.fd);
      --num_open;
    }
  }
  counts.last_s = steady_seconds();
  counts.cpu_s = process_seconds() - cpu_at_first;
  close(loop);
  return counts;
}

}  // namespace sluice
