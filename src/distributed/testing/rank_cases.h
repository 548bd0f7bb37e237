// For tests: what ranks do with their collectives and links, with the numbers that must come out.
#pragma once

#include <algorithm>
#include <vector>

#include "distributed/shared_memory.h"
#include "distributed/shared_memory_link.h"

namespace sluice::testing {

// More than two slots, and not a multiple of one.
inline constexpr std::int64_t kLarge = 2 * SharedRegion::kSlotBytes / 4 + 1237;

inline float value_of(int rank, std::int64_t i) {
  return static_cast<float>((i * 2654435761u + static_cast<std::uint64_t>(rank) * 40503u) % 1000) /
             7.0f +
         static_cast<float>(rank);
}

inline std::vector<float> values_of(int rank, std::int64_t count) {
  std::vector<float> x(static_cast<std::size_t>(count));
  for (std::int64_t i = 0; i < count; ++i) x[static_cast<std::size_t>(i)] = value_of(rank, i);
  return x;
}

inline Tensor tensor_of(std::vector<float>& x) {
  return Tensor::dense(x.data(), DType::kF32, {static_cast<std::int64_t>(x.size())});
}

// What every rank of `size` does and checks; the number of mistakes.
inline int run_collectives(Communicator& communicator, int num_barriers = 1000) {
  const int rank = communicator.rank(), size = communicator.size();
  int mistakes = 0;
  for (const std::int64_t count : {std::int64_t{1}, std::int64_t{1000}, kLarge}) {
    std::vector<float> x = values_of(rank, count);
    communicator.all_reduce(tensor_of(x));
    for (std::int64_t i = 0; i < count; ++i) {
      float sum = value_of(0, i);  // in the order of the ranks
      for (int other = 1; other < size; ++other) sum += value_of(other, i);
      mistakes += x[static_cast<std::size_t>(i)] != sum;
    }
    // Two parts where they divide, each of which several ranks may need; one row has one element.
    const std::int64_t half = count / 2;
    std::vector<RowPart> parts;
    for (int other = 0; other < size; ++other)
      parts.push_back(other % 2 == 0 ? RowPart{0, half} : RowPart{half, count - half});
    std::vector<float> dealt = values_of(rank, count);
    communicator.reduce_scatter(tensor_of(dealt), parts);
    const RowPart& own = parts[static_cast<std::size_t>(rank)];
    for (std::int64_t i = own.first; i < own.first + own.count; ++i)
      mistakes += dealt[static_cast<std::size_t>(i)] != x[static_cast<std::size_t>(i)];
    std::vector<float> part = values_of(rank, count), all(part.size() * size);
    communicator.all_gather(tensor_of(part), tensor_of(all));
    for (int other = 0; other < size; ++other)
      for (std::int64_t i = 0; i < count; ++i)
        mistakes += all[static_cast<std::size_t>(other * count + i)] != value_of(other, i);
    std::vector<float> sent = values_of(rank, count);
    communicator.broadcast(tensor_of(sent), size - 1);
    mistakes += sent != values_of(size - 1, count);
  }
  // Rows of three columns, of which slots hold no whole number.
  const std::int64_t rows = SharedRegion::kSlotBytes / 12 + 5;
  std::vector<float> part = values_of(rank, 3 * rows), whole(part.size() * size);
  Tensor columns = Tensor::dense(whole.data(), DType::kF32, {size, rows, 3});
  columns.stride = {3, std::int64_t{3} * size, 1};
  communicator.all_gather(Tensor::dense(part.data(), DType::kF32, {rows, 3}), columns);
  for (std::int64_t row = 0; row < rows; ++row)
    for (int other = 0; other < size; ++other)
      for (std::int64_t i = 0; i < 3; ++i)
        mistakes += whole[static_cast<std::size_t>((row * size + other) * 3 + i)] !=
                    value_of(other, 3 * row + i);
  // One and an eighth of its last bit is lost if each addition rounds to bfloat16.
  std::vector<BF16> narrow(100, BF16(rank == 0 ? 1.0f : 0.00390625f));
  communicator.all_reduce(Tensor::dense(narrow.data(), DType::kBF16, {100}));
  const float expected =
      static_cast<float>(BF16(1.0f + 0.00390625f * static_cast<float>(size - 1)));
  for (const BF16 value : narrow) mistakes += static_cast<float>(value) != expected;
  for (int i = 0; i < num_barriers; ++i) communicator.barrier();
  return mistakes;
}

// Tensors of many sizes, of which the largest is longer than the ring. Says how many numbers are
// wrong.
inline constexpr std::int64_t kLinkSizes[] = {
    1,       777,
    0,       SharedRegion::kPieceBytes / 4,
    300'001, SharedRegion::kPieceBytes* SharedRegion::kPieces / 3,
    5};

inline void send_tensors(StageLink& link, int rank) {
  for (const std::int64_t size : kLinkSizes) {
    std::vector<float> values = values_of(rank, size);
    link.send(Tensor::dense(values.data(), DType::kF32, {size}));
    std::ranges::fill(values, -1.0f);  // the receiver has its own
  }
}

inline int receive_tensors(StageLink& link, int rank) {
  int mistakes = 0;
  for (const std::int64_t size : kLinkSizes) {
    std::vector<float> values(static_cast<std::size_t>(size));
    link.receive(Tensor::dense(values.data(), DType::kF32, {size}));
    mistakes += values != values_of(rank, size);
  }
  return mistakes;
}

// Two stages of two ranks: collectives of a stage, links from rank 2 to 0 and from 3 to 1, and
// collectives of all.
inline int run_stages(SharedRegion& region, int rank, int num_barriers = 1000) {
  SharedMemoryCommunicator all(region, rank, 0), stage(region, {rank / 2 * 2, 2}, rank, 0);
  int mistakes = 0;
  // A stage makes more operations than the other one.
  for (int i = 0; i < (rank < 2 ? 3 : 5); ++i) mistakes += run_collectives(stage, num_barriers);
  SharedMemoryLink link(region, rank % 2 + 2, rank % 2, 0);
  if (rank >= 2)
    send_tensors(link, rank);
  else
    mistakes += receive_tensors(link, rank + 2);
  return mistakes + run_collectives(all, num_barriers);
}

}  // namespace sluice::testing
