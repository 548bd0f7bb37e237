#include "distributed/peer/peer_communicator.h"

#include <algorithm>
#include <cstdint>
#include <vector>

#include "base/build.h"
#include "tensor/device.h"
#include "tensor/format.h"

namespace sluice {
namespace {

constexpr std::int64_t kVectorBytes = 16;
// The longest part of a sum, as it travels: two ranks send as much in one shot as in two. More
// ranks send more, so their longer sums are NCCL's.
constexpr std::int64_t kSlotOfTwo = std::int64_t{32} << 20, kSlotOfFour = 1 << 20,
                       kSlotOfMore = 512 << 10;
// A gathering sends what it must at any length.
constexpr std::int64_t kGatherSlotOfTwo = 8 << 20, kGatherSlot = 2 << 20;

std::int64_t slot_bytes(int size) {
  return size == 2 ? kSlotOfTwo : size <= 4 ? kSlotOfFour : kSlotOfMore;
}

bool is_aligned(const Tensor& x) {
  return x.device.kind == DeviceKind::kCuda && x.bytes() > 0 && x.bytes() % kVectorBytes == 0 &&
         reinterpret_cast<std::uintptr_t>(x.data) % kVectorBytes == 0;
}

// Elements [first, first + count) of dense x, in a row.
Tensor part_of(const Tensor& x, std::int64_t first, std::int64_t count) {
  if (!x.defined()) return x;
  return Tensor::dense(static_cast<float*>(x.data) + first, DType::kF32, {count}, x.device);
}

}  // namespace

PeerCommunicator::PeerCommunicator(SharedMemoryCommunicator& host, NcclCommunicator& nccl,
                                   Device device, const PeerSumOptions& options)
    : nccl_(nccl), options_(options) {
  if (size() < 2 || size() > cuda::kMaxPeers) {
    refusal_ = fmt::format("kernels sum over 2 to {} ranks, not {}", cuda::kMaxPeers, size());
    return;
  }
  sum_.layout = {.num_peers = size(),
                 .sum_vectors = slot_bytes(size()) / kVectorBytes,
                 .gather_vectors = (size() == 2 ? kGatherSlotOfTwo : kGatherSlot) / kVectorBytes};
  sum_.rank = rank();
  sum_.sm = device_info(device).sm;
  memory_.emplace(host, sum_.layout.bytes(), device);
  refusal_ = memory_->refusal();
  if (!refusal_.empty()) return;
  sum_.stop = memory_->stop();
  for (int peer = 0; peer < size(); ++peer) sum_.memory[peer] = memory_->of(peer);
}

void PeerCommunicator::bind(const Stream& stream) {
  stream_ = &stream;
  nccl_.bind(stream);
}

bool PeerCommunicator::sums(const Tensor& x) const {
  return refusal_.empty() && x.dtype == DType::kF32 && x.dense() && is_aligned(x) &&
         x.numel() % 8 == 0 &&
         (size() == 2 || options_.any_length ||
          x.numel() * dtype_size(options_.wire) <= slot_bytes(size()));
}

void PeerCommunicator::sum(const Tensor& x, const Tensor& to) {
  check(stream_ != nullptr, "a sum of GPUs without a stream");
  const std::int64_t most = slot_bytes(size()) / dtype_size(options_.wire);
  for (std::int64_t first = 0; first < x.numel(); first += most) {
    const std::int64_t count = std::min(most, x.numel() - first);
    if constexpr (kHasCuda)
      cuda::sum_over_peers(sum_, part_of(x, first, count), part_of(to, first, count), options_.wire,
                           *stream_);
  }
}

void PeerCommunicator::all_reduce(const Tensor& x) {
  if (!sums(x)) return nccl_.all_reduce(x);
  sum(x, {});
}

void PeerCommunicator::reduce_scatter(const Tensor& x, std::span<const RowPart> parts) {
  if (!refusal_.empty()) return nccl_.reduce_scatter(x, parts);
  check(std::ssize(parts) == size(), "reduce_scatter of {} in {} parts", x, parts.size());
  const std::int64_t of_row = x.dim(0) == 0 ? 0 : x.numel() / x.dim(0);
  std::vector<RowPart> elements;
  for (const RowPart& part : parts) elements.push_back({part.first * of_row, part.count * of_row});
  if (x.dtype != DType::kF32 || !x.dense() || !is_aligned(x) ||
      cuda::peer_part_pieces(sum_.layout, elements, options_.wire) == 0)
    return all_reduce(x);
  check(stream_ != nullptr, "a sum of GPUs without a stream");
  if constexpr (kHasCuda) cuda::sum_parts_over_peers(sum_, x, elements, options_.wire, *stream_);
}

bool PeerCommunicator::add_sum(const Tensor& x, const Tensor& to) {
  if (!sums(x) || !to.dense() || !is_aligned(to)) return false;
  check(to.dtype == DType::kF32 && to.numel() == x.numel(), "the sum of {} is added to {}", x, to);
  sum(x, to);
  return true;
}

void PeerCommunicator::all_gather(const Tensor& x, const Tensor& out) {
  const bool has_gaps = !out.dense();
  const auto is_whole = [&](std::int64_t elements) {
    return elements * dtype_size(x.dtype) % kVectorBytes == 0;
  };
  if (!refusal_.empty() || !x.dense() || !is_aligned(x) || !is_aligned(out) ||
      (has_gaps && (!is_whole(x.dim(1)) || !is_whole(out.stride[1]))))
    return nccl_.all_gather(x, out);
  check(x.dtype == out.dtype && out.numel() == x.numel() * size() &&
            (!has_gaps || (x.rank == 2 && out.rank == 3 && out.dim(1) == x.dim(0) &&
                           out.stride[0] == x.dim(1) && out.stride[2] == 1)),
        "all_gather of {} into {}", x, out);
  check(stream_ != nullptr, "a gathering of GPUs without a stream");
  if constexpr (kHasCuda) cuda::gather_over_peers(sum_, x, out, *stream_);
}

}  // namespace sluice
