#include "distributed/hosts/node_link.h"

#include "base/error.h"

namespace sluice {
namespace {

using Clock = std::chrono::steady_clock;
constexpr std::chrono::milliseconds kTick{100};
constexpr int kTicksOfBeat = 5;

}  // namespace

NodeLink::NodeLink(int node, std::unique_ptr<SecureSocket> socket, Handler handler)
    : node_(node),
      socket_(std::move(socket)),
      name_(fmt::format("node {} ({})", node, socket_->peer())),
      handler_(std::move(handler)) {
  reader_ = std::thread([this] { read_frames(); });
  keeper_ = std::thread([this] { keep_alive(); });
}

NodeLink::~NodeLink() {
  is_lost_ = true;
  {
    std::lock_guard lock(mutex_);
    is_stopping_ = true;
  }
  changed_.notify_all();
  socket_->shut_down();
  reader_.join();
  keeper_.join();
}

void NodeLink::send(const FrameHead& head, std::span<const std::byte> payload) {
  check(head.bytes == payload.size(), "a frame of {} bytes with {}", head.bytes, payload.size());
  if (socket_->send(bytes_of(head), payload) != SecureSocket::kPart) return;
  {
    std::lock_guard lock(mutex_);
    has_backlog_ = true;
  }
  changed_.notify_all();
}

void NodeLink::await_close(std::chrono::milliseconds patience) {
  std::unique_lock lock(mutex_);
  changed_.wait_for(lock, patience, [&] { return has_reader_ended_; });
}

void NodeLink::lose(const std::string& why) {
  if (is_lost_.exchange(true)) return;
  handler_.lost(fmt::format("{} {}", name_, why));
  socket_->shut_down();
}

void NodeLink::read_frames() {
  FrameHead head;
  try {
    while (socket_->read(std::as_writable_bytes(std::span(&head, 1)))) {
      if (head.kind == FrameKind::kBeat && head.bytes == 0) continue;
      const std::span<std::byte> place = handler_.place_of(head);
      if (place.size() != head.bytes)
        fail(ErrorKind::kFatal, "sent {} bytes where {} can come", head.bytes, place.size());
      if (!socket_->read(place)) break;
      handler_.arrived(head);
    }
    lose("closed the connection");
  } catch (const std::exception& error) {
    lose(fmt::format("cannot be understood: {}", error.what()));
  }
  {
    std::lock_guard lock(mutex_);
    has_reader_ended_ = true;
  }
  changed_.notify_all();
}

void NodeLink::keep_alive() {
  std::uint64_t num_receipts = 0;
  int silent_ticks = 0, ticks = 0;
  auto next_tick = Clock::now() + kTick;
  std::unique_lock lock(mutex_);
  while (!is_stopping_) {
    if (has_backlog_) {
      has_backlog_ = false;  // before the flush: another thread may leave something behind it
      lock.unlock();
      socket_->await_room(static_cast<int>(kTick.count()));
      const bool is_left = socket_->flush();
      lock.lock();
      has_backlog_ = has_backlog_ || is_left;
    } else {
      changed_.wait_until(lock, next_tick, [&] { return is_stopping_ || has_backlog_; });
    }
    // Ticks are counted, since a clock goes on while this process is stopped.
    if (Clock::now() < next_tick) continue;
    next_tick = Clock::now() + kTick;
    lock.unlock();
    if (++ticks % kTicksOfBeat == 0) send({.kind = FrameKind::kBeat}, {});
    const std::uint64_t now = socket_->num_receipts();
    silent_ticks = now == num_receipts ? silent_ticks + 1 : 0;
    num_receipts = now;
    if (silent_ticks * kTick >= kSilence)
      lose(fmt::format("shows no sign of life for {} s", kSilence.count()));
    lock.lock();
  }
}

}  // namespace sluice
