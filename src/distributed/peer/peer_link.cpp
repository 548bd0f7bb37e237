#include "distributed/peer/peer_link.h"

#include <algorithm>

#include "base/build.h"
#include "tensor/format.h"

namespace sluice {
namespace {

// Calls move() for each part of x that a place of the ring holds.
template <class Move>
void by_pieces(const Tensor& x, Move move) {
  check(x.dense() && x.device.kind == DeviceKind::kCuda && x.bytes() % 4 == 0, "a link of {}", x);
  for (std::int64_t at = 0; at < x.bytes(); at += cuda::kPeerLinkPieceBytes) {
    Tensor piece = Tensor::dense(static_cast<std::byte*>(x.data) + at, DType::kU8,
                                 {std::min(cuda::kPeerLinkPieceBytes, x.bytes() - at)}, x.device);
    move(piece);
  }
}

}  // namespace

void PeerLink::send(const Tensor& x) {
  check(stream_ != nullptr, "a link of GPUs without a stream");
  by_pieces(x, [&](const Tensor& piece) {
    ++num_pieces_;
    if constexpr (kHasCuda) cuda::send_piece(own_, peer_, piece, num_pieces_, stop_, *stream_);
  });
}

void PeerLink::receive(const Tensor& x) {
  check(stream_ != nullptr, "a link of GPUs without a stream");
  by_pieces(x, [&](const Tensor& piece) {
    ++num_pieces_;
    if constexpr (kHasCuda) cuda::receive_piece(own_, peer_, piece, num_pieces_, stop_, *stream_);
  });
}

}  // namespace sluice
