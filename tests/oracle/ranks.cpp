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

// A buffer for each round and rank.
std::vector<std::vector<Buffer>> places(const Ranks& ranks, int rounds, std::int64_t bytes) {
  std::vector<std::vector<Buffer>> made(static_cast<std::size_t>(rounds));
  for (auto& round : made)
    for (const Buffer& own : ranks.vectors) round.emplace_back(bytes, own.device());
  return made;
}

// Rounds of sums of which rank r gets parts[r], without a wait between them, each of numbers of its
// own. Behind every third one is a whole sum of another length.
std::string part_rounds(Ranks& ranks, const std::vector<RowPart>& parts, int rounds, unsigned seed,
                        DType wire) {
  const std::size_t size = ranks.sums.size();
  std::int64_t count = 0;
  for (const RowPart& part : parts) count = std::max(count, part.first + part.count);
  const auto whole = [&](int round) { return std::min(count, round % 2 == 0 ? 2048L : 64L); };
  std::mt19937 random(seed);
  std::uniform_real_distribution<float> values(-1, 1);
  const auto dealt = places(ranks, rounds, count * 4), summed = places(ranks, rounds, count * 4);
  std::vector<std::vector<float>> wanted;
  for (int round = 0; round < rounds; ++round) {
    std::vector<float>& total = wanted.emplace_back(static_cast<std::size_t>(count));
    std::vector<float> given(total.size());
    for (std::size_t rank = 0; rank < size; ++rank) {
      for (std::size_t i = 0; i < total.size(); ++i) {
        given[i] = random() % 5 == 0 ? 0.0f : values(random);
        total[i] += rounded(given[i], wire);
      }
      for (const auto* buffers : {&dealt, &summed})
        copy(ranks.streams[rank], Tensor::dense(given.data(), DType::kF32, {count}),
             (*buffers)[static_cast<std::size_t>(round)][rank].tensor(DType::kF32, {count}));
      ranks.streams[rank].synchronize();
    }
  }
  for (int round = 0; round < rounds; ++round)
    for (std::size_t rank = 0; rank < size; ++rank) {
      const auto at = static_cast<std::size_t>(round);
      cuda::sum_parts_over_peers(ranks.sums[rank], dealt[at][rank].tensor(DType::kF32, {count}),
                                 parts, wire, ranks.streams[rank]);
      if (round % 3 == 0)
        cuda::sum_over_peers(ranks.sums[rank], summed[at][rank].tensor(DType::kF32, {whole(round)}),
                             {}, wire, ranks.streams[rank]);
    }
  for (int round = 0; round < rounds; ++round)
    for (std::size_t rank = 0; rank < size; ++rank) {
      const auto differs = [&](const Buffer& buffer, const RowPart& part) {
        std::vector<float> got(static_cast<std::size_t>(count), -9.0f);
        copy(ranks.streams[rank], buffer.tensor(DType::kF32, {count}),
             Tensor::dense(got.data(), DType::kF32, {count}));
        ranks.streams[rank].synchronize();
        const std::vector<float>& right = wanted[static_cast<std::size_t>(round)];
        return !std::equal(got.begin() + part.first, got.begin() + part.first + part.count,
                           right.begin() + part.first);
      };
      const auto at = static_cast<std::size_t>(round);
      if (differs(dealt[at][rank], parts[rank]))
        return fmt::format("round {}: rank {} has another part", round, rank);
      if (round % 3 == 0 && differs(summed[at][rank], {0, whole(round)}))
        return fmt::format("round {}: rank {} has another sum behind its part", round, rank);
    }
  return "";
}

// Rounds of gatherings, each of words of its own. More than one row: rows come to lie side by side.
std::string gather_rounds(Ranks& ranks, std::int64_t rows, std::int64_t columns, int rounds,
                          unsigned seed) {
  const auto size = static_cast<std::int64_t>(ranks.sums.size());
  const std::int64_t total = size * rows * columns;
  std::mt19937 random(seed);
  const auto sources = places(ranks, rounds, rows * columns * 4),
             results = places(ranks, rounds, total * 4);
  std::vector<std::vector<std::uint32_t>> wanted;
  for (const auto& round : sources) {
    std::vector<std::uint32_t>& words = wanted.emplace_back(static_cast<std::size_t>(total));
    std::ranges::generate(words, [&] { return random() % 3 == 0 ? 0 : random(); });
    for (std::int64_t rank = 0; rank < size; ++rank) {
      std::vector<std::uint32_t> own;
      for (std::int64_t row = 0; row < rows; ++row) {
        const auto from = words.begin() + (row * size + rank) * columns;
        own.insert(own.end(), from, from + columns);
      }
      const Stream& stream = ranks.streams[static_cast<std::size_t>(rank)];
      copy(stream, Tensor::dense(own.data(), DType::kI32, {rows, columns}),
           round[static_cast<std::size_t>(rank)].tensor(DType::kI32, {rows, columns}));
      stream.synchronize();
    }
  }
  for (std::size_t round = 0; round < sources.size(); ++round)
    for (std::size_t rank = 0; rank < ranks.sums.size(); ++rank) {
      Tensor out = results[round][rank].tensor(DType::kI32, {size, rows, columns});
      if (rows > 1) out.stride = {columns, size * columns, 1};
      cuda::gather_over_peers(ranks.sums[rank],
                              sources[round][rank].tensor(DType::kI32, {rows, columns}), out,
                              ranks.streams[rank]);
    }
  for (std::size_t round = 0; round < sources.size(); ++round)
    for (std::size_t rank = 0; rank < ranks.sums.size(); ++rank) {
      std::vector<std::uint32_t> got(static_cast<std::size_t>(total), 7);
      copy(ranks.streams[rank], results[round][rank].tensor(DType::kI32, {total}),
           Tensor::dense(got.data(), DType::kI32, {total}));
      ranks.streams[rank].synchronize();
      if (got != wanted[round])
        return fmt::format("round {}: rank {} gathered other words", round, rank);
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

// Equal parts, parts of different lengths of which several ranks have the same, and the shortest
// that `longest` leaves.
void check_parts(Bench& bench, Ranks& ranks, std::int64_t slot, std::int64_t longest) {
  const auto size = static_cast<std::int64_t>(ranks.sums.size());
  unsigned seed = 0;
  for (const std::int64_t most : {std::int64_t{8}, std::int64_t{2056}, longest})
    for (const std::int64_t least :
         {most, std::max<std::int64_t>(8, most / 64 * 8), std::int64_t{24}}) {
      std::vector<RowPart> parts;
      for (std::int64_t rank = 0; rank < size; ++rank)
        parts.push_back(least == most   ? RowPart{rank * most, most}
                        : rank % 2 == 0 ? RowPart{0, most}
                                        : RowPart{most, least});
      for (const DType wire : {DType::kF32, DType::kBF16})
        bench.expect("peer_parts",
                     fmt::format("{} ranks, slots of {}, {} and {} floats as {}", size, slot, most,
                                 least, dtype_name(wire)),
                     part_rounds(ranks, parts, 9, ++seed, wire));
    }
}

}  // namespace

void check_ranks(Bench& bench) {
  constexpr std::int64_t kSlot = std::int64_t{64} * 4096, kSmallSlot = 2048;
  // CTAs of all ranks and of the sums behind theirs must fit the GPU at once: they wait for one
  // another. On GPUs of their own they need not.
  constexpr std::int64_t kFloatsOfAllRanks = std::int64_t{128} * 2048;
  for (const int size : {2, 3, 4, 8}) {
    // Each round continues the count of the rounds before.
    const Bench::Group group(bench);
    if (!group.is_own()) continue;
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
      bench.expect("peer_gather", fmt::format("{} ranks, {} words", size, count),
                   gather_rounds(ranks, 1, count, 12, ++seed));
    }
    check_parts(bench, ranks, kSlot, size > 2 ? kSlot / size / 8 * 8 : 2 * kSlot + 8);
    // Sums and gatherings of several slots.
    Ranks small(bench.gpu, size, kSmallSlot);
    check_parts(bench, small, kSmallSlot, 5 * kSmallSlot);
    for (const auto& [rows, columns] : {std::pair<int, int>{1, 9000}, {9, 1000}, {64, 20}, {3, 4}})
      bench.expect("peer_gather", fmt::format("{} ranks, {} rows of {}", size, rows, columns),
                   gather_rounds(small, rows, columns, 12, ++seed));
  }
  const Bench::Group group(bench);
  if (!group.is_own()) return;
  bench.expect("peer_link", "20 pieces",
               link_pieces(bench.gpu, {16384,   4,  20,      8 << 20, 4096,  8 << 20, 8 << 20,
                                       8 << 20, 12, 1 << 20, 100,     65536, 65540,   4,
                                       4,       4,  16,      32,      8,     4096}));
}

}  // namespace sluice::oracle
