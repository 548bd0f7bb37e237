// An encrypted connection between two hosts that have the same secret: TLS 1.3 with a pre-shared
// key (RFC 8446, 4.2.11) and a fresh Diffie-Hellman exchange. Each side proves that it has the key.
//
//   const NodeKey key = NodeKey::read("cluster.key");
//   SecureSocket socket(fd, key, SecureSocket::kClient);
//   socket.handshake(deadline);
//   socket.send(head, payload);
//   socket.read(bytes);                 // false: the other side has closed
//
// Any thread sends; one thread reads. A send never waits: what the network does not take stays here
// until flush(). The other side's certificate is of no meaning, since no side has one.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace sluice {

// A key that is derived from a secret; wiped at its end.
class NodeKey {
 public:
  static constexpr std::size_t kMinSecretBytes = 32, kMaxSecretBytes = 4096;

  // The secret in a file, without white space at its end. Error{kBadInput}.
  static NodeKey read(const std::string& path);
  explicit NodeKey(std::string_view secret);
  NodeKey(const NodeKey&) = default;
  NodeKey& operator=(const NodeKey&) = delete;
  ~NodeKey();

  std::span<const unsigned char> bytes() const { return bytes_; }

 private:
  std::array<unsigned char, 32> bytes_;
};

class SecureSocket {
 public:
  using Clock = std::chrono::steady_clock;
  enum Side : std::uint8_t { kServer, kClient };
  // Bytes after which a side takes another key for what it sends (RFC 8446, 5.5).
  static constexpr std::uint64_t kRekeyBytes = std::uint64_t{16} << 30;

  // Takes the descriptor of a connected socket. `key` is copied.
  SecureSocket(int fd, const NodeKey& key, Side side, std::uint64_t rekey_bytes = kRekeyBytes);
  ~SecureSocket();
  SecureSocket(const SecureSocket&) = delete;
  SecureSocket& operator=(const SecureSocket&) = delete;

  // Before all else. Error{kBadInput}: the other side has another key, or is something else.
  // Error{kFatal}: it closed, or said nothing until `deadline`. The message is the end of a
  // sentence.
  void handshake(Clock::time_point deadline);

  // Waits until `out` is full. False: the other side has closed, or broke the encryption.
  bool read(std::span<std::byte> out) { return read_until(out, Clock::time_point::max()); }
  // False, too, when nothing came until `deadline`.
  bool read_until(std::span<std::byte> out, Clock::time_point deadline);
  // Both parts, one behind the other.
  enum Sent : std::uint8_t { kAll, kPart, kClosed };  // of what waits for the network
  Sent send(std::span<const std::byte> head, std::span<const std::byte> payload);
  // Gives the network what it takes; whether something is left.
  bool flush();
  // Waits until the network takes something, for `milliseconds` at most.
  void await_room(int milliseconds) const;
  // Ends the waits of the reader. Any thread.
  void shut_down();
  // Grows while something comes.
  std::uint64_t num_receipts() const { return num_receipts_.load(std::memory_order_relaxed); }
  // "10.0.0.2:41234", "[fe80::1]:41234".
  const std::string& peer() const { return peer_; }

 private:
  struct Tls;
  // Deciphered bytes into `out`; -1: the connection is broken. With the lock.
  int take_plain(std::span<std::byte> out);
  // What TLS has to say to the other side. With the lock.
  void collect_output();
  bool flush_locked();
  // Reads from the network what is there, and waits until `deadline`. False: closed, or too late.
  bool receive_some(Clock::time_point deadline);

  const int fd_;
  const std::uint64_t rekey_bytes_;
  const NodeKey key_;
  const std::string peer_;
  std::vector<std::byte> received_;  // of the reader
  std::atomic<std::uint64_t> num_receipts_{0};
  std::mutex mutex_;
  // Guarded by mutex_.
  std::unique_ptr<Tls> tls_;
  std::vector<std::byte> output_;
  std::size_t output_sent_ = 0;
  std::uint64_t since_rekey_ = 0;
  bool has_lost_peer_ = false;  // nothing more can be sent; there may be something to read
  bool is_broken_ = false;      // nothing more can be deciphered
};

// The address of the other side of a socket.
std::string peer_of(int fd);

}  // namespace sluice
