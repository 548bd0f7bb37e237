#include "distributed/hosts/host_bridge.h"

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <exception>

#include "base/error.h"

namespace sluice {
namespace {

using enum FrameKind;
constexpr std::size_t kMaxFailureBytes = 1024;  // as a region keeps
constexpr std::chrono::milliseconds kNap{100};
// How long other nodes may take to end: their ranks have two seconds.
constexpr std::chrono::milliseconds kFarewell{3500};

FrameHead head_of(FrameKind kind, int rank, std::uint32_t number, std::size_t bytes) {
  return {.kind = kind,
          .rank = static_cast<std::uint16_t>(rank),
          .number = number,
          .bytes = static_cast<std::uint32_t>(bytes)};
}

}  // namespace

HostBridge::HostBridge(RankProcesses& processes, const NodeLayout& layout, int node,
                       std::vector<JoinedNode> peers)
    : processes_(processes),
      region_(processes.region()),
      layout_(layout),
      node_(node),
      num_exceptions_(std::uncaught_exceptions()),
      peers_(node == 0 ? static_cast<std::size_t>(layout.num_nodes) : 1),
      mirror_(region_, layout, node,
              [this](int to, const FrameHead& head, std::span<const std::byte> payload) {
                send(to, head, payload);
              }),
      from_ranks_(static_cast<std::size_t>(layout.num_ranks)) {
  // No link reads before all are there: a frame may be for another node.
  std::vector<std::unique_ptr<SecureSocket>> sockets(peers_.size());
  for (JoinedNode& peer : peers)
    sockets[static_cast<std::size_t>(peer.node)] = std::move(peer.socket);
  std::unique_lock lock(mutex_);
  for (std::size_t to = 0; to < peers_.size(); ++to) {
    if (!sockets[to]) continue;
    const int from = static_cast<int>(to);
    Peer& peer = peers_[to];
    peer.link = std::make_unique<NodeLink>(
        from, std::move(sockets[to]),
        NodeLink::Handler{
            .place_of =
                [this, &peer, from](const FrameHead& head) {
                  const std::lock_guard all_links_are_there(mutex_);
                  return place_of(peer, head, from);
                },
            .arrived = [this, &peer, from](const FrameHead& head) { arrived(peer, head, from); },
            .lost =
                [this](const std::string& why) {
                  if (!has_ended_) region_.fail(ErrorKind::kFatal, why);
                }});
  }
  lock.unlock();
  watcher_ = std::thread([this] { watch_region(); });
  if (node_ == 0) return;
  courier_ = std::thread([this] { deliver(); });
  collector_ = std::thread([this] { collect_answers(); });
}

HostBridge::~HostBridge() {
  stop_messages();
  if (node_ == 0 && std::uncaught_exceptions() > num_exceptions_)
    region_.fail(ErrorKind::kFatal, "it failed; its messages say why");
  is_stopping_ = true;
  watcher_.join();
  if (node_ == 0) {
    has_ended_ = true;
    for (Peer& peer : peers_)
      if (peer.link && !region_.failure()) peer.link->send({.kind = kEnd}, {});
    const auto deadline = std::chrono::steady_clock::now() + kFarewell;
    for (Peer& peer : peers_)
      if (peer.link)
        peer.link->await_close(std::chrono::ceil<std::chrono::milliseconds>(
            deadline - std::chrono::steady_clock::now()));
  } else if (region_.failure()) {
    peers_[0].link->await_close(kNap);  // for the failure to arrive
  }
  for (Peer& peer : peers_) peer.link.reset();
}

void HostBridge::stop_messages() {
  {
    std::lock_guard lock(mutex_);
    has_stopped_messages_ = true;
  }
  changed_.notify_all();
  // A rank that takes nothing more would hold the courier.
  for (int rank = layout_.first_rank(node_); node_ > 0 && is_here(rank); ++rank)
    shutdown(processes_.socket(rank).fd(), SHUT_RDWR);
  if (collector_.joinable()) collector_.join();
  if (courier_.joinable()) courier_.join();
}

void HostBridge::send(int node, const FrameHead& head, std::span<const std::byte> payload) {
  peers_[static_cast<std::size_t>(node)].link->send(head, payload);
}

void HostBridge::watch_region() {
  std::uint32_t seen = 0;
  for (;;) {
    const bool is_last = is_stopping_;
    mirror_.send_news();
    tell_failure();
    if (is_last) return;
    seen = region_.await_bell(seen);
  }
}

void HostBridge::tell_failure() {
  const std::optional<RankFailure> why = has_told_failure_ ? std::nullopt : region_.failure();
  if (!why) return;
  has_told_failure_ = true;
  std::string text = why->text;
  {
    std::lock_guard lock(mutex_);
    if (text != told_failure_) text = fmt::format("node {}: {}", node_, text);
  }
  text.resize(std::min(text.size(), kMaxFailureBytes));
  const FrameHead head = head_of(kFailure, 0, static_cast<std::uint32_t>(why->kind), text.size());
  for (Peer& peer : peers_)
    if (peer.link) peer.link->send(head, std::as_bytes(std::span(text)));
}

std::span<std::byte> HostBridge::place_of(Peer& peer, const FrameHead& head, int from) {
  if (head.kind != kMessage && head.kind != kFailure && head.kind != kEnd)
    return mirror_.place_of(head, from);
  const bool is_message = head.kind == kMessage;
  const std::uint64_t most = is_message              ? MessageSocket::kMaxBytes
                             : head.kind == kFailure ? kMaxFailureBytes
                                                     : 0;
  const bool fits_rank = !is_message || (head.rank > 0 && head.rank < layout_.num_ranks &&
                                         layout_.node_of(head.rank) == (node_ == 0 ? from : node_));
  if (head.bytes > most || !fits_rank || (head.kind == kEnd && node_ == 0))
    fail(ErrorKind::kFatal, "node {} sent a frame of kind {} that cannot come now", from,
         static_cast<int>(head.kind));
  peer.payload.resize(head.bytes);
  return peer.payload;
}

void HostBridge::arrived(Peer& peer, const FrameHead& head, int from) {
  if (head.kind == kEnd) {
    has_ended_ = true;
  } else if (head.kind == kFailure) {
    const std::string text(reinterpret_cast<const char*>(peer.payload.data()), head.bytes);
    {
      std::lock_guard lock(mutex_);
      if (told_failure_.empty()) told_failure_ = text;
    }
    region_.fail(error_kind_of(head.number), text);
  } else if (head.kind == kMessage) {
    Message message{.kind = head.number, .bytes = std::move(peer.payload)};
    {
      std::lock_guard lock(mutex_);
      if (node_ == 0)
        from_ranks_[head.rank].push_back(std::move(message));
      else
        to_ranks_.push_back({.rank = head.rank, .message = std::move(message)});
    }
    changed_.notify_all();
  } else {
    mirror_.arrived(head, from);
  }
}

void HostBridge::send_message(int rank, std::uint32_t kind, std::span<const std::byte> bytes) {
  region_.check();
  check(bytes.size() <= MessageSocket::kMaxBytes, "a message of {} bytes to a rank", bytes.size());
  send(layout_.node_of(rank), head_of(kMessage, rank, kind, bytes.size()), bytes);
}

void HostBridge::receive_message(int rank, Message& message) {
  std::deque<Message>& inbox = from_ranks_[static_cast<std::size_t>(rank)];
  std::unique_lock lock(mutex_);
  while (!changed_.wait_for(lock, kNap, [&] { return !inbox.empty(); })) region_.check();
  message = std::move(inbox.front());
  inbox.pop_front();
}

void HostBridge::deliver() {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [&] { return has_stopped_messages_ || !to_ranks_.empty(); });
    if (has_stopped_messages_) return;
    const Addressed next = std::move(to_ranks_.front());
    to_ranks_.pop_front();
    lock.unlock();
    // Where a rank has closed, its end is noticed by what looks after it.
    (void)processes_.socket(next.rank).send(next.message.kind, next.message.bytes);
    lock.lock();
  }
}

void HostBridge::collect_answers() {
  std::vector<pollfd> entries;
  std::vector<int> ranks;
  for (int rank = layout_.first_rank(node_); rank < layout_.first_rank(node_ + 1); ++rank) {
    entries.push_back({processes_.socket(rank).fd(), POLLIN, 0});
    ranks.push_back(rank);
  }
  Message message;
  for (;;) {
    {
      std::lock_guard lock(mutex_);
      if (has_stopped_messages_) return;
    }
    if (poll(entries.data(), entries.size(), static_cast<int>(kNap.count())) <= 0) continue;
    for (std::size_t i = 0; i < entries.size(); ++i) {
      if ((entries[i].revents & (POLLIN | POLLHUP)) == 0) continue;
      if (processes_.socket(ranks[i]).receive(message))
        send(0, head_of(kMessage, ranks[i], message.kind, message.bytes.size()), message.bytes);
      else
        entries[i].fd = -1;  // its end is noticed by what looks after it
    }
  }
}

}  // namespace sluice
