#include "distributed/shared_memory_link.h"

#include <algorithm>
#include <cstring>

#include "base/error.h"
#include "tensor/format.h"

namespace sluice {
namespace {

void expect_host(const Tensor& x) {
  check(x.dense() && x.device.kind == DeviceKind::kCpu,
        "{} goes to another stage, which is no dense host memory", x);
}

}  // namespace

SharedMemoryLink::SharedMemoryLink(SharedRegion& region, int from, int to, int spin_us)
    : region_(region), to_(to), spin_us_(spin_us) {
  check(from >= 0 && from < region.size() && to >= 0 && to < region.size() && from != to,
        "a link from rank {} to rank {} of {}", from, to, region.size());
}

void SharedMemoryLink::send(const Tensor& x) {
  expect_host(x);
  for (std::int64_t first = 0; first < x.bytes(); first += SharedRegion::kPieceBytes) {
    const std::int64_t bytes = std::min(SharedRegion::kPieceBytes, x.bytes() - first);
    region_.await(region_.taken(to_), num_pieces_ + 1 - SharedRegion::kPieces, spin_us_);
    std::memcpy(region_.piece(to_, num_pieces_), static_cast<const std::byte*>(x.data) + first,
                static_cast<std::size_t>(bytes));
    region_.piece_bytes(to_, num_pieces_) = static_cast<std::uint32_t>(bytes);
    region_.advance(region_.sent(to_), ++num_pieces_);
  }
}

void SharedMemoryLink::receive(const Tensor& x) {
  expect_host(x);
  for (std::int64_t first = 0; first < x.bytes(); first += SharedRegion::kPieceBytes) {
    const std::int64_t bytes = std::min(SharedRegion::kPieceBytes, x.bytes() - first);
    region_.await(region_.sent(to_), num_pieces_ + 1, spin_us_);
    std::memcpy(static_cast<std::byte*>(x.data) + first, region_.piece(to_, num_pieces_),
                static_cast<std::size_t>(bytes));
    region_.advance(region_.taken(to_), ++num_pieces_);
  }
}

}  // namespace sluice
