#include "distributed/shared_memory.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "base/error.h"
#include "tensor/format.h"

namespace sluice {
namespace {

void expect_host(const Tensor& x, std::string_view what) {
  check(x.dense() && x.device.kind == DeviceKind::kCpu, "{} of {}, which is no dense host memory",
        what, x);
}

void add_floats(float* sum, const float* x, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) sum[i] += x[i];
}

}  // namespace

SharedMemoryCommunicator::SharedMemoryCommunicator(SharedRegion& region, int rank, int spin_us)
    : region_(region),
      lane_(SharedRegion::kAllRanks),
      group_{0, region.size()},
      rank_(rank),
      spin_us_(spin_us) {
  check(rank >= 0 && rank < region.size(), "rank {} of {}", rank, region.size());
}

SharedMemoryCommunicator::SharedMemoryCommunicator(SharedRegion& region, const RankGroup& stage,
                                                   int rank, int spin_us)
    : region_(region),
      lane_(SharedRegion::kStageRanks),
      group_(stage),
      rank_(rank - stage.first),
      spin_us_(spin_us) {
  check(rank_ >= 0 && rank_ < stage.size && stage.first >= 0 &&
            stage.first + stage.size <= region.size(),
        "rank {} in a stage of ranks {} to {}, of {}", rank, stage.first,
        stage.first + stage.size - 1, region.size());
}

void SharedMemoryCommunicator::exchange(
    const std::byte* bytes, std::int64_t count,
    const std::function<void(int rank, const std::byte* bytes)>& read) {
  const std::uint32_t operation = num_operations_++;
  const int own = group_.first + rank_;
  if (count > 0)
    std::memcpy(region_.slot(lane_, own, operation), bytes, static_cast<size_t>(count));
  region_.slot_bytes(lane_, own, operation) = static_cast<std::uint32_t>(count);
  region_.advance(region_.posted(lane_, own), operation + 1);
  for (int rank = 0; rank < size(); ++rank) {
    const int other = group_.first + rank;
    if ((dropped_ >> other & 1) != 0) continue;
    if (other != own && lane_ == SharedRegion::kAllRanks)
      region_.await_posted(other, operation + 1, dropped_, spin_us_);
    else if (other != own)
      region_.await(region_.posted(lane_, other), operation + 1, spin_us_);
    read(rank, region_.slot(lane_, other, operation));
  }
}

void SharedMemoryCommunicator::drop(std::uint64_t lost) {
  check(lane_ == SharedRegion::kAllRanks && (lost & 1) == 0, "ranks of mask {:x} are dropped",
        lost);
  dropped_ = lost;
}

void SharedMemoryCommunicator::all_reduce(const Tensor& x) {
  expect_host(x, "all_reduce");
  check(x.dtype == DType::kF32 || x.dtype == DType::kBF16, "all_reduce of {}", x);
  const std::int64_t per_slot = SharedRegion::kSlotBytes / dtype_size(x.dtype);
  std::vector<float> sum(x.dtype == DType::kBF16 ? std::min(per_slot, x.numel()) : 0);
  auto* place = static_cast<std::byte*>(x.data);
  for (std::int64_t first = 0; first < x.numel(); first += per_slot) {
    const std::int64_t count = std::min(per_slot, x.numel() - first);
    const std::int64_t bytes = count * dtype_size(x.dtype);
    std::byte* const part = place + first * dtype_size(x.dtype);
    if (x.dtype == DType::kF32) {
      auto* const own = reinterpret_cast<float*>(part);
      exchange(part, bytes, [&](int rank, const std::byte* other) {
        if (rank == 0)
          std::memcpy(own, other, static_cast<std::size_t>(bytes));
        else
          add_floats(own, reinterpret_cast<const float*>(other), count);
      });
      continue;
    }
    std::fill(sum.begin(), sum.end(), 0.0f);
    exchange(part, bytes, [&](int, const std::byte* other) {
      const auto* values = reinterpret_cast<const BF16*>(other);
      for (std::int64_t i = 0; i < count; ++i) sum[i] += static_cast<float>(values[i]);
    });
    for (std::int64_t i = 0; i < count; ++i) reinterpret_cast<BF16*>(part)[i] = BF16(sum[i]);
  }
}

void SharedMemoryCommunicator::reduce_scatter(const Tensor& x, std::span<const RowPart> parts) {
  expect_host(x, "reduce_scatter");
  check(x.dtype == DType::kF32 && std::ssize(parts) == size(), "reduce_scatter of {} in {} parts",
        x, parts.size());
  const RowPart& rows = parts[static_cast<std::size_t>(rank_)];
  const std::int64_t of_row = x.numel() / std::max<std::int64_t>(1, x.dim(0));
  const std::int64_t begin = rows.first * of_row, end = begin + rows.count * of_row;
  constexpr std::int64_t kPerSlot = SharedRegion::kSlotBytes / 4;
  for (std::int64_t first = 0; first < x.numel(); first += kPerSlot) {
    const std::int64_t count = std::min(kPerSlot, x.numel() - first);
    const std::int64_t from = std::max(first, begin), to = std::min(first + count, end);
    exchange(x.ptr<std::byte>() + first * 4, count * 4, [&](int rank, const std::byte* other) {
      if (from >= to) return;
      const float* const values = reinterpret_cast<const float*>(other) + (from - first);
      float* const sum = x.ptr<float>() + from;
      if (rank == 0)
        std::copy_n(values, to - from, sum);
      else
        add_floats(sum, values, to - from);
    });
  }
}

void SharedMemoryCommunicator::all_gather(const Tensor& x, const Tensor& out) {
  expect_host(x, "all_gather");
  const bool has_gaps = !out.dense();
  check(x.dtype == out.dtype && out.numel() == x.numel() * size() &&
            out.device.kind == DeviceKind::kCpu &&
            (!has_gaps ||
             (out.rank == 3 && x.rank == 2 && out.dim(1) == x.dim(0) && out.stride[2] == 1)),
        "all_gather of {} into {}", x, out);
  const std::int64_t element = dtype_size(x.dtype);
  // Bytes of a piece that lie together, and how far apart pieces and ranks lie.
  const std::int64_t row_bytes = has_gaps ? x.dim(1) * element : x.bytes();
  const std::int64_t row_stride = has_gaps ? out.stride[1] * element : row_bytes;
  const std::int64_t rank_stride = has_gaps ? out.stride[0] * element : row_bytes;
  auto* const place = static_cast<std::byte*>(out.data);
  for (std::int64_t first = 0; first < x.bytes(); first += SharedRegion::kSlotBytes) {
    const std::int64_t bytes = std::min(SharedRegion::kSlotBytes, x.bytes() - first);
    exchange(static_cast<const std::byte*>(x.data) + first, bytes,
             [&](int rank, const std::byte* other) {
               for (std::int64_t done = 0; done < bytes;) {
                 const std::int64_t row = (first + done) / row_bytes;
                 const std::int64_t at = (first + done) % row_bytes;
                 const std::int64_t count = std::min(bytes - done, row_bytes - at);
                 std::memcpy(place + rank * rank_stride + row * row_stride + at, other + done,
                             static_cast<std::size_t>(count));
                 done += count;
               }
             });
  }
}

void SharedMemoryCommunicator::broadcast(const Tensor& x, int root) {
  expect_host(x, "broadcast");
  check(root >= 0 && root < size(), "broadcast from rank {} of {}", root, size());
  auto* const place = static_cast<std::byte*>(x.data);
  for (std::int64_t first = 0; first < x.bytes(); first += SharedRegion::kSlotBytes) {
    const std::int64_t bytes = std::min(SharedRegion::kSlotBytes, x.bytes() - first);
    exchange(place + first, rank_ == root ? bytes : 0, [&](int rank, const std::byte* other) {
      if (rank == root && rank_ != root)
        std::memcpy(place + first, other, static_cast<std::size_t>(bytes));
    });
  }
}

void SharedMemoryCommunicator::barrier() {
  exchange(nullptr, 0, [](int, const std::byte*) {});
}

}  // namespace sluice
