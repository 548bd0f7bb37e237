// Sums over ranks by kernels that write into each other's memory. The ranks are streams of one GPU:
// the protocol is the same, and the kernels of all ranks run at once.
#include <algorithm>
#include <cstring>
#include <random>

#include "kernels/cuda/ranks/peer_sum.h"
#include "oracle.h"
#include "tensor/device.h"

namespace sluice::oracle {
namespace {

struct Ranks {
  Ranks(const Context& gpu, int size, std::int64_t slot_floats)
      : stop(Buffer::staging(sizeof(int), gpu.device)) {
    const cuda::PeerLayout layout{.num_peers = size, .slot_floats = slot_floats};
    for (int rank = 0; rank < size; ++rank) {
      streams.emplace_back(gpu.device);
      memories.emplace_back(layout.bytes(), gpu.device);
      vectors.emplace_back(slot_floats * static_cast<std::int64_t>(sizeof(float)), gpu.device);
    }
    for (int rank = 0; rank < size; ++rank) {
      cuda::PeerSum sum{.layout = layout, .rank = rank, .sm = device_info(gpu.device).sm};
      for (int peer = 0; peer < size; ++peer)
        sum.memory[peer] = static_cast<std::byte*>(memories[static_cast<std::size_t>(peer)].data());
      sum.stop = static_cast<const int*>(stop.data());
      sums.push_back(sum);
    }
  }

  Buffer stop;
  std::vector<Stream> streams;
  std::vector<Buffer> memories, vectors;
  std::vector<cuda::PeerSum> sums;
};

// Rounds of sums of `count` floats without a wait between them, compared with the sum in rank
// order, bit for bit.
std::string sum_rounds(Ranks& ranks, std::int64_t count, int rounds, unsigned seed) {
  const std::size_t size = ranks.sums.size();
  std::mt19937 random(seed);
  std::uniform_real_distribution<float> values(-1, 1);
  std::vector<std::vector<float>> parts(size, std::vector<float>(static_cast<std::size_t>(count)));
  for (auto& part : parts) std::ranges::generate(part, [&] { return values(random); });
  std::vector<std::vector<float>> wanted = parts;
  for (int round = 0; round < rounds; ++round) {
    std::vector<float> total = wanted[0];
    for (std::size_t rank = 1; rank < size; ++rank)
      for (std::size_t i = 0; i < total.size(); ++i) total[i] += wanted[rank][i];
    std::ranges::fill(wanted, total);
  }
  const std::int64_t bytes = count * static_cast<std::int64_t>(sizeof(float));
  for (std::size_t rank = 0; rank < size; ++rank) {
    copy(ranks.streams[rank], Tensor::dense(parts[rank].data(), DType::kF32, {count}),
         ranks.vectors[rank].tensor(DType::kF32, {count}));
  }
  for (int round = 0; round < rounds; ++round)
    for (std::size_t rank = 0; rank < size; ++rank)
      cuda::sum_over_peers(ranks.sums[rank], ranks.vectors[rank].tensor(DType::kF32, {count}),
                           ranks.streams[rank]);
  for (std::size_t rank = 0; rank < size; ++rank) {
    std::vector<float> got(static_cast<std::size_t>(count));
    copy(ranks.streams[rank], ranks.vectors[rank].tensor(DType::kF32, {count}),
         Tensor::dense(got.data(), DType::kF32, {count}));
    ranks.streams[rank].synchronize();
    if (std::memcmp(got.data(), wanted[rank].data(), static_cast<std::size_t>(bytes)) == 0)
      continue;
    std::size_t i = 0;
    while (got[i] == wanted[rank][i]) ++i;
    return fmt::format("element {} of rank {} is {}, not {}", i, rank, got[i], wanted[rank][i]);
  }
  return "";
}

}  // namespace

void check_ranks(Bench& bench) {
  constexpr std::int64_t kSlot = std::int64_t{64} * 4096;
  // CTAs of all ranks and of the sums behind theirs must fit the GPU at once: they wait for one
  // another. On GPUs of their own they need not.
  constexpr std::int64_t kFloatsOfAllRanks = std::int64_t{128} * 2048;
  for (const int size : {2, 3, 4, 8}) {
    Ranks ranks(bench.gpu, size, kSlot);
    unsigned seed = 0;
    // Sizes take turns, so that the CTAs of one sum are others than those of the next.
    for (const std::int64_t count :
         {4, 4096, 2052, 64 * 4096, 8, 7 * 5120, 6144, 33 * 4096, 4096}) {
      if (size > 2 && count * size > kFloatsOfAllRanks) continue;
      bench.expect("peer_sum", fmt::format("{} ranks, {} floats", size, count),
                   sum_rounds(ranks, count, 24, ++seed));
    }
  }
}

}  // namespace sluice::oracle
