#include "distributed/hosts/node_lobby.h"

#include <fmt/ranges.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <optional>

#include "base/byte_stream.h"
#include "base/log.h"

namespace sluice {
namespace {

using Clock = std::chrono::steady_clock;
using enum FrameKind;

constexpr std::string_view kProtocol = "sluice nodes 1";
constexpr std::uint32_t kMaxFrameBytes = 256 << 10;
constexpr std::size_t kMaxGuests = 128;
// For a connection to show that it has the key and to say what it is.
constexpr std::chrono::seconds kManners{5};
constexpr std::chrono::milliseconds kNap{100};

Clock::time_point after(std::chrono::duration<double> time) {
  return Clock::now() + std::chrono::duration_cast<Clock::duration>(time);
}

struct Frame {
  FrameHead head;
  std::vector<std::byte> payload;
  std::string text() const {
    return std::string(reinterpret_cast<const char*>(payload.data()), payload.size());
  }
};

// Nothing: the other side has closed, was late, or sent what is no such frame.
std::optional<Frame> read_frame(SecureSocket& socket, Clock::time_point deadline) {
  Frame frame;
  if (!socket.read_until(std::as_writable_bytes(std::span(&frame.head, 1)), deadline) ||
      frame.head.bytes > kMaxFrameBytes)
    return std::nullopt;
  frame.payload.resize(frame.head.bytes);
  if (!socket.read_until(frame.payload, deadline)) return std::nullopt;
  return frame;
}

void send_frame(SecureSocket& socket, FrameKind kind, std::span<const std::byte> payload,
                std::uint32_t number = 0) {
  const FrameHead head{
      .kind = kind, .number = number, .bytes = static_cast<std::uint32_t>(payload.size())};
  SecureSocket::Sent sent = socket.send(bytes_of(head), payload);
  const auto deadline = Clock::now() + kManners;
  while (sent == SecureSocket::kPart && Clock::now() < deadline) {
    socket.await_room(static_cast<int>(kNap.count()));
    if (!socket.flush()) return;
  }
}

void send_text(SecureSocket& socket, FrameKind kind, std::string_view text,
               std::uint32_t number = 0) {
  send_frame(socket, kind, std::as_bytes(std::span(text)), number);
}

void write_launch(const NodeLaunch& launch, ByteWriter& out) {
  out.text(kProtocol);
  out.value(std::int32_t{launch.num_nodes});
  out.value(std::int32_t{launch.node});
  out.value(std::uint64_t{launch.properties.size()});
  for (const auto& [name, value] : launch.properties) {
    out.text(name);
    out.text(value);
  }
}

// Error{kFatal}: it is no launch.
NodeLaunch read_launch(std::span<const std::byte> bytes) {
  ByteReader in(bytes);
  const std::string protocol = in.text();
  if (protocol != kProtocol) fail(ErrorKind::kFatal, "it speaks another protocol");
  NodeLaunch launch;
  launch.num_nodes = in.value<std::int32_t>();
  launch.node = in.value<std::int32_t>();
  for (std::size_t left = in.count(2 * sizeof(std::uint64_t)); left > 0; --left) {
    std::string name = in.text();
    launch.properties.emplace_back(std::move(name), in.text());
  }
  in.expect_end();
  return launch;
}

const std::string* find_property(const NodeLaunch& launch, const std::string& name) {
  const auto at = std::ranges::find(launch.properties, name,
                                    [](const auto& property) { return property.first; });
  return at == launch.properties.end() ? nullptr : &at->second;
}

// "--tp-size: 4 on node 0, not given on node 1"; empty: all are alike.
std::string difference(const NodeLaunch& ours, const NodeLaunch& theirs) {
  const auto text = [](const std::string* value) { return value ? *value : "not given"; };
  for (const NodeLaunch* side : {&ours, &theirs})
    for (const auto& [name, value] : side->properties) {
      const std::string *here = find_property(ours, name), *there = find_property(theirs, name);
      if (here && there && *here == *there) continue;
      return fmt::format("{}: {} on node {}, {} on node {}", name, text(here), ours.node,
                         text(there), theirs.node);
    }
  return "";
}

}  // namespace

NodeLobby::NodeLobby(const HostAddress& address, const NodeKey& key, NodeLaunch launch,
                     std::chrono::duration<double> timeout)
    : address_(address),
      key_(key),
      launch_(std::move(launch)),
      deadline_(after(timeout)),
      listener_(listen_at(address)) {
  thread_ = std::thread([this] { listen(); });
}

NodeLobby::~NodeLobby() {
  close_port();
}

void NodeLobby::close_port() {
  {
    std::lock_guard lock(mutex_);
    is_stopping_ = true;
    for (Guest& guest : guests_)
      if (guest.socket && !guest.is_ready) guest.socket->shut_down();
  }
  if (thread_.joinable()) thread_.join();
  for (Guest& guest : guests_)
    if (guest.thread.joinable()) guest.thread.join();
  if (listener_ >= 0) close(listener_);
  listener_ = -1;
}

void NodeLobby::listen() {
  for (;;) {
    {
      std::lock_guard lock(mutex_);
      if (is_stopping_) return;
    }
    pollfd entry{listener_, POLLIN, 0};
    if (poll(&entry, 1, static_cast<int>(kNap.count())) <= 0) continue;
    const int fd = accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC);
    if (fd >= 0) take(fd);
  }
}

void NodeLobby::take(int fd) {
  std::unique_lock lock(mutex_);
  for (auto guest = guests_.begin(); guest != guests_.end();) {
    if (guest->has_left && guest->node == 0) {
      guest->thread.join();
      guest = guests_.erase(guest);
    } else {
      ++guest;
    }
  }
  if (is_stopping_ || guests_.size() >= kMaxGuests) {
    log_warning("a connection from {} is closed: {} others are not done", peer_of(fd),
                guests_.size());
    close(fd);
    return;
  }
  prepare_connection(fd);
  Guest& guest = guests_.emplace_back();
  guest.socket = std::make_unique<SecureSocket>(fd, key_, SecureSocket::kServer);
  guest.thread = std::thread([this, &guest] { meet(guest); });
}

void NodeLobby::meet(Guest& guest) {
  const std::string peer = guest.socket->peer();
  try {
    guest.socket->handshake(Clock::now() + kManners);
    if (admit(guest)) {
      const std::optional<Frame> frame = read_frame(*guest.socket, Clock::time_point::max());
      const std::string name = fmt::format("node {} ({})", guest.node, peer);
      std::lock_guard lock(mutex_);
      if (frame && frame->head.kind == kReady) {
        guest.is_ready = true;
        changed_.notify_all();
        return;
      }
      if (frame && frame->head.kind == kFailure) {
        note_failure(error_kind_of(frame->head.number), fmt::format("{}: {}", name, frame->text()));
      } else if (!is_stopping_) {
        note_failure(ErrorKind::kFatal, name + " closed the connection before the start");
      }
    }
  } catch (const Error& error) {
    std::lock_guard lock(mutex_);
    if (!is_stopping_) {
      log_warning("a connection from {} is refused: {}", peer, error.message());
      last_refused_ = fmt::format("{}: {}", peer, error.message());
    }
  }
  std::lock_guard lock(mutex_);
  guest.has_left = true;
  guest.socket.reset();
}

bool NodeLobby::admit(Guest& guest) {
  const std::string& peer = guest.socket->peer();
  const std::optional<Frame> frame = read_frame(*guest.socket, Clock::now() + kManners);
  if (!frame || frame->head.kind != kJoin) fail(ErrorKind::kFatal, "it did not say what it is");
  const NodeLaunch theirs = read_launch(frame->payload);
  bool ends_launch = false;
  std::unique_lock lock(mutex_);
  const std::string why = refusal(theirs, peer, ends_launch);
  if (why.empty()) {
    guest.node = theirs.node;
    lock.unlock();
    log_info("node {} has joined from {}", theirs.node, peer);
    send_frame(*guest.socket, kWelcome, {});
    return true;
  }
  lock.unlock();
  send_text(*guest.socket, kRefusal, why);
  // It closes first, so that it reads why; a failure of the launch closes all connections.
  (void)read_frame(*guest.socket, Clock::now() + std::chrono::seconds(1));
  if (!ends_launch) fail(ErrorKind::kBadInput, "{}", why);
  lock.lock();
  note_failure(ErrorKind::kBadInput, why);
  return false;
}

std::string NodeLobby::refusal(const NodeLaunch& theirs, const std::string& peer,
                               bool& ends_launch) {
  ends_launch = true;
  if (theirs.num_nodes != launch_.num_nodes)
    return fmt::format("--nnodes: {} on node 0, {} on node {} ({})", launch_.num_nodes,
                       theirs.num_nodes, theirs.node, peer);
  if (theirs.node < 1 || theirs.node >= launch_.num_nodes)
    return fmt::format("--node-rank {} ({}) of --nnodes {}", theirs.node, peer, launch_.num_nodes);
  const std::string differs = difference(launch_, theirs);
  if (!differs.empty())
    return fmt::format("{} ({}); start all nodes with the same program and options", differs, peer);
  ends_launch = false;
  for (const Guest& guest : guests_)
    if (guest.node == theirs.node && guest.socket)
      return fmt::format("--node-rank {} is taken by {}; give each node another one", theirs.node,
                         guest.socket->peer());
  return "";
}

void NodeLobby::note_failure(ErrorKind kind, const std::string& text) {
  if (!has_failed_) {
    failure_kind_ = kind;
    failure_ = text;
  }
  has_failed_ = true;
  changed_.notify_all();
}

std::string NodeLobby::missing_nodes() const {
  std::vector<int> missing;
  for (int node = 1; node < launch_.num_nodes; ++node)
    if (std::ranges::none_of(guests_, [&](const Guest& guest) { return guest.node == node; }))
      missing.push_back(node);
  if (missing.empty()) return "";
  return fmt::format("node{} {}", missing.size() > 1 ? "s" : "",
                     fmt::join(missing.begin(), missing.end(), ", "));
}

std::vector<JoinedNode> NodeLobby::wait() {
  std::vector<JoinedNode> nodes;
  {
    std::unique_lock lock(mutex_);
    const auto all_ready = [&] {
      return std::ranges::count_if(guests_, &Guest::is_ready) == launch_.num_nodes - 1;
    };
    if (!missing_nodes().empty())
      log_info("waiting at {} for {}", address_.text(), missing_nodes());
    while (!has_failed_ && !all_ready()) {
      changed_.wait_for(lock, kNap);
      const std::string missing = missing_nodes();
      if (missing.empty() || Clock::now() < deadline_) continue;
      note_failure(
          ErrorKind::kFatal,
          fmt::format(
              "{} of {} did not come to {} in time (--dist-timeout){}", missing, launch_.num_nodes,
              address_.text(),
              last_refused_.empty() ? "" : "; refused was a connection from " + last_refused_));
    }
  }
  close_port();
  for (Guest& guest : guests_) {
    if (!guest.is_ready) continue;
    if (has_failed_) {
      send_text(*guest.socket, kFailure, failure_, static_cast<std::uint32_t>(failure_kind_));
      continue;
    }
    send_frame(*guest.socket, kStart, {});
    nodes.push_back({.node = guest.node, .socket = std::move(guest.socket)});
  }
  if (has_failed_) {
    guests_.clear();
    throw Error(failure_kind_, failure_);
  }
  return nodes;
}

std::unique_ptr<SecureSocket> join(const HostAddress& address, const NodeKey& key,
                                   const NodeLaunch& launch,
                                   std::chrono::duration<double> timeout) {
  const auto deadline = after(timeout);
  std::string why = "there was no time";
  for (bool is_first = true; is_first || Clock::now() < deadline; is_first = false) {
    if (!is_first) std::this_thread::sleep_for(2 * kNap);
    const int fd = connect_to(address, deadline, why);
    if (fd >= 0) {
      auto socket = std::make_unique<SecureSocket>(fd, key, SecureSocket::kClient);
      try {
        socket->handshake(Clock::now() + kManners);
      } catch (const Error& error) {
        require(error.kind() != ErrorKind::kBadInput,
                "node 0 at {}: {}; give all nodes the same --dist-key-file", address.text(),
                error.message());
        why = error.message();
        continue;
      }
      ByteWriter message;
      write_launch(launch, message);
      send_frame(*socket, kJoin, message.bytes());
      const std::optional<Frame> answer = read_frame(*socket, Clock::now() + 2 * kManners);
      require(!answer || answer->head.kind != kRefusal, "node 0 at {} refuses this node: {}",
              address.text(), answer ? answer->text() : "");
      if (answer && answer->head.kind == kWelcome) return socket;
      why = "it closed the connection";
    }
    if (is_first && Clock::now() < deadline)
      log_info("node 0 takes no nodes at {} yet ({}): trying for {} s", address.text(), why,
               timeout.count());
  }
  fail(ErrorKind::kFatal, "node 0 was not reached at {} in {} s (--dist-timeout): {}",
       address.text(), timeout.count(), why);
}

void say_ready(SecureSocket& node_0) {
  send_frame(node_0, kReady, {});
}

void say_failure(SecureSocket& node_0, const Error& error) {
  send_text(node_0, kFailure, error.message(), static_cast<std::uint32_t>(error.kind()));
  (void)read_frame(node_0, Clock::now() + std::chrono::seconds(1));
}

void await_start(SecureSocket& node_0) {
  const std::optional<Frame> frame = read_frame(node_0, Clock::time_point::max());
  if (frame && frame->head.kind == kFailure)
    throw Error(error_kind_of(frame->head.number), "node 0: " + frame->text());
  if (!frame || frame->head.kind != kStart)
    fail(ErrorKind::kFatal, "node 0 ({}) ended before the start; its messages say why",
         node_0.peer());
}

}  // namespace sluice
