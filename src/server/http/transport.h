// The seam below HTTP: the bytes of one connection, as they are or through TLS. Private to the
// server's connections.
//
// Nothing blocks: a call moves what can be moved and says what to wait for. All calls come from the
// connection's I/O thread. The socket stays the connection's, which outlives this.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

namespace sluice {

class Transport {
 public:
  enum class Status : std::uint8_t {
    kDone,       // the step is complete, or bytes were moved
    kWantRead,   // call again when the socket is readable
    kWantWrite,  // call again when the socket is writable
    kPlain,      // handshake(): the peer speaks HTTP without TLS; none of its bytes were taken
    kClosed,     // the peer has left, or the connection is broken
  };
  struct Moved {
    Status status = Status::kDone;
    std::size_t num_bytes = 0;  // above 0 with kDone
  };

  virtual ~Transport() = default;

  virtual bool needs_handshake() const { return false; }
  // Called until it gives kDone, before anything is read or written.
  virtual Status handshake() { return Status::kDone; }
  // Why handshake() gave kClosed; empty: the peer left before it sent anything.
  virtual std::string failure() const { return {}; }
  // Takes at least 16 KiB at a time.
  virtual Moved read(std::span<char> into) = 0;
  // The next read() has something to say although the socket may stay silent.
  virtual bool has_more() const { return false; }
  // After kWantRead or kWantWrite the next call begins with the same bytes, and may have more.
  virtual Moved write(std::string_view bytes) = 0;
  // Nothing more will be written. Tells the peer, where it can be done at once.
  virtual void end_writing() {}
};

// Bytes as they are.
std::unique_ptr<Transport> make_plain_transport(int socket);

}  // namespace sluice
