#include "distributed/peer/peer_memory.h"

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

PeerMemory::PeerMemory(SharedMemoryCommunicator& host, std::int64_t bytes, Device device)
    : host_(host) {
  if constexpr (kHasCuda) {
    own_ = Buffer(bytes, device);
    stop_ = Buffer::staging(sizeof(int), device);
    Offer own;
    own.can_name = cuda::name_memory(own_.data(), own.memory) ? 1 : 0;
    std::vector<Offer> offers(static_cast<std::size_t>(host.size()));
    host.all_gather(bytes_of(&own, sizeof own),
                    bytes_of(offers.data(), static_cast<std::int64_t>(sizeof own) * host.size()));
    std::int32_t reached = 1;
    for (int peer = 0; peer < host.size(); ++peer) {
      const Offer& offer = offers[static_cast<std::size_t>(peer)];
      void* memory = own_.data();
      if (peer != host.rank())
        memory = offer.can_name != 0 ? cuda::open_memory(offer.memory) : nullptr;
      memory_.push_back(static_cast<std::byte*>(memory));
      if (memory == nullptr) reached = 0;
    }
    // A rank that reaches all others is of no use alone. The gathering is also the barrier behind
    // which all memory is open.
    std::vector<std::int32_t> all(static_cast<std::size_t>(host.size()));
    host.all_gather(bytes_of(&reached, sizeof reached),
                    bytes_of(all.data(), static_cast<std::int64_t>(sizeof reached) * host.size()));
    for (std::size_t peer = 0; peer < all.size() && refusal_.empty(); ++peer)
      if (all[peer] == 0)
        refusal_ = fmt::format("the GPU of rank {} does not reach the memory of all others", peer);
    if (refusal_.empty()) watcher_ = std::thread([this] { watch(); });
  } else {
    refusal_ = fmt::format("this build has no kernels for {}", describe(device));
  }
}

PeerMemory::~PeerMemory() {
  stopping_ = true;
  if (watcher_.joinable()) watcher_.join();
  if constexpr (kHasCuda) {
    for (std::size_t peer = 0; peer < memory_.size(); ++peer)
      if (static_cast<int>(peer) != host_.rank()) cuda::close_memory(memory_[peer]);
  }
}

void PeerMemory::watch() {
  while (!stopping_) {
    std::this_thread::sleep_for(kLook);
    if (!host_.has_failed()) continue;
    __atomic_store_n(static_cast<int*>(stop_.data()), 1, __ATOMIC_RELEASE);
    return;
  }
}

}  // namespace sluice
