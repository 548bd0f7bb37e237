#include "distributed/peer/peer_communicator.h"

#include <chrono>
#include <cstdint>

#include "base/build.h"
#include "tensor/cuda_peers.h"
#include "tensor/device.h"

namespace sluice {
namespace {

constexpr std::chrono::milliseconds kLook{50};

// What a rank tells the others.
struct Offer {
  cuda::MemoryName memory{};
  std::uint8_t can_name = 0;
};

Tensor bytes_of(void* data, std::int64_t count) {
  return Tensor::dense(data, DType::kU8, {count});
}

}  // namespace

// Two ranks send as much in one shot as in two. More ranks send more, so longer sums are NCCL's.
std::int64_t peer_sum_limit(int size) {
  if (size < 2 || size > cuda::kMaxPeers) return 0;
  return size == 2 ? 8 << 20 : size <= 4 ? 1 << 20 : 512 << 10;
}

PeerCommunicator::PeerCommunicator(SharedMemoryCommunicator& host, NcclCommunicator& nccl,
                                   Device device)
    : host_(host), nccl_(nccl) {
  connect(device);
  if (refusal_.empty()) watcher_ = std::thread([this] { watch(); });
}

PeerCommunicator::~PeerCommunicator() {
  stopping_ = true;
  if (watcher_.joinable()) watcher_.join();
  if constexpr (kHasCuda) {
    for (int peer = 0; peer < size(); ++peer)
      if (peer < cuda::kMaxPeers && peer != rank()) cuda::close_memory(sum_.memory[peer]);
  }
}

void PeerCommunicator::connect(Device device) {
  if constexpr (kHasCuda) {
    const std::int64_t limit = peer_sum_limit(size());
    if (limit == 0) {
      refusal_ = fmt::format("kernels sum over 2 to {} ranks, not {}", cuda::kMaxPeers, size());
      return;
    }
    sum_.layout = {.num_peers = size(),
                   .slot_floats = limit / static_cast<std::int64_t>(sizeof(float))};
    sum_.rank = rank();
    sum_.sm = device_info(device).sm;
    memory_ = Buffer(sum_.layout.bytes(), device);
    stop_ = Buffer::staging(sizeof(int), device);
    sum_.stop = static_cast<const int*>(stop_.data());
    Offer own;
    own.can_name = cuda::name_memory(memory_.data(), own.memory) ? 1 : 0;
    std::vector<Offer> offers(static_cast<std::size_t>(size()));
    host_.all_gather(bytes_of(&own, sizeof own),
                     bytes_of(offers.data(), static_cast<std::int64_t>(sizeof own) * size()));
    std::int32_t reached = 1;
    for (int peer = 0; peer < size(); ++peer) {
      const Offer& offer = offers[static_cast<std::size_t>(peer)];
      void* memory = memory_.data();
      if (peer != rank()) memory = offer.can_name != 0 ? cuda::open_memory(offer.memory) : nullptr;
      sum_.memory[peer] = static_cast<std::byte*>(memory);
      if (memory == nullptr) reached = 0;
    }
    // A rank that reaches all others is of no use alone. The gathering is also the barrier behind
    // which all memory is open.
    std::vector<std::int32_t> all(static_cast<std::size_t>(size()));
    host_.all_gather(bytes_of(&reached, sizeof reached),
                     bytes_of(all.data(), static_cast<std::int64_t>(sizeof reached) * size()));
    for (std::size_t peer = 0; peer < all.size() && refusal_.empty(); ++peer)
      if (all[peer] == 0)
        refusal_ = fmt::format("the GPU of rank {} does not reach the memory of all others", peer);
  } else {
    refusal_ = fmt::format("this build has no kernels for {}", describe(device));
  }
}

void PeerCommunicator::bind(const Stream& stream) {
  stream_ = &stream;
  nccl_.bind(stream);
}

bool PeerCommunicator::takes(const Tensor& x) const {
  return refusal_.empty() && x.device.kind == DeviceKind::kCuda && x.dtype == DType::kF32 &&
         x.dense() && x.numel() > 0 && x.numel() % 4 == 0 && x.numel() <= sum_.layout.slot_floats &&
         reinterpret_cast<std::uintptr_t>(x.data) % 16 == 0;
}

void PeerCommunicator::all_reduce(const Tensor& x) {
  if (!takes(x)) return nccl_.all_reduce(x);
  check(stream_ != nullptr, "a sum of GPUs without a stream");
  if constexpr (kHasCuda) cuda::sum_over_peers(sum_, x, *stream_);
}

void PeerCommunicator::watch() {
  while (!stopping_) {
    std::this_thread::sleep_for(kLook);
    if (!host_.has_failed()) continue;
    __atomic_store_n(static_cast<int*>(stop_.data()), 1, __ATOMIC_RELEASE);
    return;
  }
}

}  // namespace sluice
