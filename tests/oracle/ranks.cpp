// Sums, gatherings and links of ranks by kernels that write into each other's memory. The ranks are
// streams of one GPU: the protocol is the same, and the kernels of all ranks run at once.
#include <algorithm>
#include <cstring>
#include <random>

#include "kernels/cuda/ranks/peer_link.h"
#include "kernels/cuda/ranks/peer_sum.h"
#include "oracle.h"
#include "tensor/device.h"

namespace sluice::oracle {
namespace {

struct Ranks {
  Ranks(const Context& gpu, int size, std::int64_t slot_floats)  // of sums and of gatherings
      : stop(Buffer::staging(sizeof(int), gpu.device)) {
    const cuda::PeerLayout layout{
        .num_peers = size, .sum_vectors = slot_floats / 4, .gather_vectors = slot_floats / 4};
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

float rounded(float x, DType wire) {
  if (wire == DType::kF32) return x;
  std::uint32_t bits;
  std::memcpy(&bits, &x, sizeof bits);
  bits = (bits + 0x7fff + (bits >> 16 & 1)) & 0xffff0000u;
  std::memcpy(&x, &bits, sizeof bits);
  return x;
}

// Rounds of sums of `count` floats without a wait between them, compared with the sum in rank
// order of what was rounded to `wire`, number for number. `adds`: to another tensor.
std::string sum_rounds(Ranks& ranks, std::int64_t count, int rounds, unsigned seed, DType wire,
                       bool adds) {
  const std::size_t size = ranks.sums.size();
  std::mt19937 random(seed);
  std::uniform_real_distribution<float> values(-1, 1);
  const auto vector = [&] { return std::vector<float>(static_cast<std::size_t>(count)); };
  std::vector<std::vector<float>> parts(size, vector());
  // Some are 0, which does not travel as it is.
  for (auto& part : parts)
    std::ranges::generate(part, [&] { return random() % 5 == 0 ? 0.0f : values(random); });
  std::vector<std::vector<float>> wanted = parts;
  std::vector<float> streams = vector();
  for (int round = 0; round < rounds; ++round) {
    std::vector<float> total = vector();
    for (std::size_t rank = 0; rank < size; ++rank)
      for (std::size_t i = 0; i < total.size(); ++i) total[i] += rounded(wanted[rank][i], wire);
    for (std::size_t i = 0; i < total.size(); ++i) streams[i] += total[i];
    if (!adds) std::ranges::fill(wanted, total);
  }
  std::vector<Buffer> targets;
  for (std::size_t rank = 0; rank < size; ++rank) {
    copy(ranks.streams[rank], Tensor::dense(parts[rank].data(), DType::kF32, {count}),
         ranks.vectors[rank].tensor(DType::kF32, {count}));
    targets.emplace_back(count * static_cast<std::int64_t>(sizeof(float)),
                         ranks.vectors[rank].device());
  }
  for (int round = 0; round < rounds; ++round)
    for (std::size_t rank = 0; rank < size; ++rank)
      cuda::sum_over_peers(ranks.sums[rank], ranks.vectors[rank].tensor(DType::kF32, {count}),
                           adds ? targets[rank].tensor(DType::kF32, {count}) : Tensor{}, wire,
                           ranks.streams[rank]);
  for (std::size_t rank = 0; rank < size; ++rank) {
    std::vector<float> got = vector();
    copy(ranks.streams[rank], (adds ? targets : ranks.vectors)[rank].tensor(DType::kF32, {count}),
         Tensor::dense(got.data(), DType::kF32, {count}));
    ranks.streams[rank].synchronize();
    const std::vector<float>& right = adds ? streams : wanted[rank];
    for (std::size_t i = 0; i < got.size(); ++i)
      if (got[i] != right[i])
        return fmt::format("element {} of rank {} is {}, not {}", i, rank, got[i], right[i]);
  }
  return "";
}

// Rounds of sums of which rank r gets parts[r], mixed with whole sums of other lengths.
std::string part_rounds(Ranks& ranks, const std::vector<RowPart>& parts, int rounds, unsigned seed,
                        DType wire) {
  const std::size_t size = ranks.sums.size();
  std::int64_t count = 0;
  for (const RowPart& part : parts) count = std::max(count, part.first + part.count);
  std::mt19937 random(seed);
  std::uniform_real_distribution<float> values(-1, 1);
  std::vector<std::vector<float>> given(size, std::vector<float>(static_cast<std::size_t>(count)));
  std::vector<float> wanted(static_cast<std::size_t>(count));
  for (auto& part : given)
    for (std::size_t i = 0; i < part.size(); ++i) {
      part[i] = random() % 5 == 0 ? 0.0f : values(random);
      wanted[i] += rounded(part[i], wire);
    }
  std::vector<Buffer> places, others;
  for (std::size_t rank = 0; rank < size; ++rank) {
    places.emplace_back(count * 4, ranks.vectors[rank].device());
    others.emplace_back(4096 * 4, ranks.vectors[rank].device());
  }
  std::vector<std::vector<float>> got(size, wanted);
  for (int round = 0; round < rounds; ++round) {
    for (std::size_t rank = 0; rank < size; ++rank)
      copy(ranks.streams[rank], Tensor::dense(given[rank].data(), DType::kF32, {count}),
           places[rank].tensor(DType::kF32, {count}));
    for (std::size_t rank = 0; rank < size; ++rank) {
      const Stream& stream = ranks.streams[rank];
      cuda::sum_parts_over_peers(ranks.sums[rank], places[rank].tensor(DType::kF32, {count}), parts,
                                 wire, stream);
      if (round % 3 == 0)
        cuda::sum_over_peers(ranks.sums[rank],
                             others[rank].tensor(DType::kF32, {round % 2 == 0 ? 4096 : 64}), {},
                             wire, stream);
    }
    for (std::size_t rank = 0; rank < size; ++rank) {
      const Stream& stream = ranks.streams[rank];
      copy(stream, places[rank].tensor(DType::kF32, {count}),
           Tensor::dense(got[rank].data(), DType::kF32, {count}));
      stream.synchronize();
    }
    for (std::size_t rank = 0; rank < size; ++rank) {
      const RowPart& part = parts[rank];
      for (std::int64_t at = part.first; at < part.first + part.count; ++at) {
        const auto i = static_cast<std::size_t>(at);
        if (got[rank][i] != wanted[i])
          return fmt::format("round {}, element {} of rank {} is {}, not {}", round, i, rank,
                             got[rank][i], wanted[i]);
      }
    }
  }
  return "";
}

// Rounds of gatherings of rows that come to lie side by side, longer than a slot too.
std::string row_rounds(Ranks& ranks, std::int64_t rows, std::int64_t columns, int rounds,
                       unsigned seed) {
  const auto size = static_cast<std::int64_t>(ranks.sums.size());
  std::mt19937 random(seed);
  std::vector<std::uint32_t> wanted(static_cast<std::size_t>(size * rows * columns));
  std::ranges::generate(wanted, [&] { return random() % 3 == 0 ? 0 : random(); });
  std::vector<Buffer> sources, results;
  for (std::int64_t rank = 0; rank < size; ++rank) {
    std::vector<std::uint32_t> own;
    for (std::int64_t row = 0; row < rows; ++row) {
      const auto from = wanted.begin() + (row * size + rank) * columns;
      own.insert(own.end(), from, from + columns);
    }
    const Device device = ranks.vectors.front().device();
    sources.emplace_back(rows * columns * 4, device);
    results.emplace_back(size * rows * columns * 4, device);
    const Stream& stream = ranks.streams[static_cast<std::size_t>(rank)];
    copy(stream, Tensor::dense(own.data(), DType::kI32, {rows, columns}),
         sources.back().tensor(DType::kI32, {rows, columns}));
    stream.synchronize();
  }
  for (int round = 0; round < rounds; ++round)
    for (std::size_t rank = 0; rank < ranks.sums.size(); ++rank) {
      Tensor out = results[rank].tensor(DType::kI32, {size, rows, columns});
      out.stride = {columns, size * columns, 1};
      cuda::gather_over_peers(ranks.sums[rank], sources[rank].tensor(DType::kI32, {rows, columns}),
                              out, ranks.streams[rank]);
    }
  for (std::size_t rank = 0; rank < ranks.sums.size(); ++rank) {
    std::vector<std::uint32_t> got(wanted.size());
    copy(ranks.streams[rank], results[rank].tensor(DType::kI32, {size * rows * columns}),
         Tensor::dense(got.data(), DType::kI32, {size * rows * columns}));
    ranks.streams[rank].synchronize();
    if (got != wanted) return fmt::format("rank {} gathered other rows", rank);
  }
  return "";
}

// Rounds of gatherings of `count` floats, whose last result is compared.
std::string gather_rounds(Ranks& ranks, std::int64_t count, int rounds, unsigned seed) {
  const std::size_t size = ranks.sums.size();
  std::mt19937 random(seed);
  const std::int64_t total = count * static_cast<std::int64_t>(size);
  std::vector<std::uint32_t> wanted(static_cast<std::size_t>(total));
  std::ranges::generate(wanted, [&] { return random() % 3 == 0 ? 0 : random(); });
  std::vector<Buffer> results;
  for (std::size_t rank = 0; rank < size; ++rank) {
    copy(ranks.streams[rank],
         Tensor::dense(wanted.data() + static_cast<std::int64_t>(rank) * count, DType::kI32,
                       {count}),
         ranks.vectors[rank].tensor(DType::kI32, {count}));
    results.emplace_back(total * 4, ranks.vectors[rank].device());
  }
  for (int round = 0; round < rounds; ++round)
    for (std::size_t rank = 0; rank < size; ++rank)
      cuda::gather_over_peers(ranks.sums[rank], ranks.vectors[rank].tensor(DType::kI32, {count}),
                              results[rank].tensor(DType::kI32, {total}), ranks.streams[rank]);
  for (std::size_t rank = 0; rank < size; ++rank) {
    std::vector<std::uint32_t> got(static_cast<std::size_t>(total));
    copy(ranks.streams[rank], results[rank].tensor(DType::kI32, {total}),
         Tensor::dense(got.data(), DType::kI32, {total}));
    ranks.streams[rank].synchronize();
    if (got != wanted) return fmt::format("rank {} gathered other bytes", rank);
  }
  return "";
}

// Pieces of several sizes run ahead of their receiver, around the ring.
std::string link_pieces(const Context& gpu, const std::vector<std::int64_t>& sizes) {
  const Buffer stop = Buffer::staging(sizeof(int), gpu.device);
  const Buffer sender(cuda::PeerLinkMemory::bytes(), gpu.device),
      receiver(cuda::PeerLinkMemory::bytes(), gpu.device);
  const cuda::PeerLinkMemory from{static_cast<std::byte*>(sender.data())},
      to{static_cast<std::byte*>(receiver.data())};
  Stream sends(gpu.device), receives(gpu.device);
  std::mt19937 random(7);
  std::vector<Buffer> sources, places;
  std::vector<std::vector<std::uint32_t>> wanted;
  for (const std::int64_t size : sizes) {
    std::vector<std::uint32_t>& words = wanted.emplace_back(static_cast<std::size_t>(size / 4));
    std::ranges::generate(words, random);
    sources.emplace_back(size, gpu.device);
    places.emplace_back(size, gpu.device);
    copy(sends, Tensor::dense(words.data(), DType::kI32, {size / 4}),
         sources.back().tensor(DType::kI32, {size / 4}));
  }
  const int* const stopped = static_cast<const int*>(stop.data());
  const auto send = [&](std::size_t i) {
    cuda::send_piece(from, to, sources[i].tensor(DType::kI32, {sizes[i] / 4}),
                     static_cast<std::uint32_t>(i) + 1, stopped, sends);
  };
  const auto receive = [&](std::size_t i) {
    cuda::receive_piece(to, from, places[i].tensor(DType::kI32, {sizes[i] / 4}),
                        static_cast<std::uint32_t>(i) + 1, stopped, receives);
  };
  // A kernel is loaded when it is first launched, and that would wait for one that waits.
  send(0);
  receive(0);
  receives.synchronize();
  for (std::size_t i = 1; i < sizes.size(); ++i) send(i);
  for (std::size_t i = 1; i < sizes.size(); ++i) receive(i);
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    std::vector<std::uint32_t> got(wanted[i].size());
    copy(receives, places[i].tensor(DType::kI32, {sizes[i] / 4}),
         Tensor::dense(got.data(), DType::kI32, {sizes[i] / 4}));
    receives.synchronize();
    if (got != wanted[i]) return fmt::format("piece {} of {} bytes has other bytes", i, sizes[i]);
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
         {8, 4096, 2056, 64 * 4096, 16, 7 * 5120, 6144, 33 * 4096, 4096}) {
      if (size > 2 && count * size > kFloatsOfAllRanks) continue;
      for (const DType wire : {DType::kF32, DType::kBF16})
        for (const bool adds : {false, true})
          bench.expect("peer_sum",
                       fmt::format("{} ranks, {} floats as {}{}", size, count, dtype_name(wire),
                                   adds ? ", added" : ""),
                       sum_rounds(ranks, count, 24, ++seed, wire, adds));
      bench.expect("peer_gather", fmt::format("{} ranks, {} floats", size, count),
                   gather_rounds(ranks, count, 24, ++seed));
    }
    // Equal parts, parts of different lengths with ranks that share one, and some over a slot.
    for (const std::int64_t longest : {std::int64_t{8}, std::int64_t{2056}, 2 * kSlot + 8}) {
      if (size > 2 && longest > kSlot) continue;
      for (const bool equal : {true, false}) {
        std::vector<RowPart> parts;
        for (int rank = 0; rank < size; ++rank)
          parts.push_back(equal ? RowPart{rank * longest, longest}
                          : rank % 2 == 0
                              ? RowPart{0, longest}
                              : RowPart{longest, std::max<std::int64_t>(64, longest / 64 * 8)});
        for (const DType wire : {DType::kF32, DType::kBF16})
          bench.expect("peer_parts",
                       fmt::format("{} ranks, {} floats{} as {}", size, longest,
                                   equal ? "" : " and fewer", dtype_name(wire)),
                       part_rounds(ranks, parts, 9, ++seed, wire));
      }
    }
    for (const auto& [rows, columns] :
         {std::pair<int, int>{1, 4}, {3, 20}, {64, 1000}, {9, 40'000}}) {
      if (size > 2 && rows * columns * size > kFloatsOfAllRanks) continue;
      bench.expect("peer_gather", fmt::format("{} ranks, {} rows of {}", size, rows, columns),
                   row_rounds(ranks, rows, columns, 24, ++seed));
    }
  }
  bench.expect("peer_link", "20 pieces",
               link_pieces(bench.gpu, {16384,   4,  20,      8 << 20, 4096,  8 << 20, 8 << 20,
                                       8 << 20, 12, 1 << 20, 100,     65536, 65540,   4,
                                       4,       4,  16,      32,      8,     4096}));
}

}  // namespace sluice::oracle
