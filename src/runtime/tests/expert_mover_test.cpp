// Experts that move between places of several ranks, in slices.
#include "runtime/expert_mover.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <random>
#include <thread>

#include "distributed/testing/in_process.h"
#include "experts/moves.h"
#include "tensor/buffer.h"

namespace sluice {
namespace {

using testing::InProcessCommunicator;
using testing::InProcessGroup;

constexpr int kExperts = 6, kPlaces = 8, kGroups = 2;
// Bytes of an expert in each stack. The last one, as a bias, is at the first rank of a group alone.
constexpr std::int64_t kStackBytes[] = {40, 24, 16};
constexpr std::int64_t kFirstRankBytes = 80, kOtherRankBytes = 64;

// What a byte of an expert's columns is.
std::uint8_t byte_of(int expert, int column, std::int64_t at) {
  return static_cast<std::uint8_t>(expert * 37 + column * 101 + at);
}

// A rank with one layer.
struct RankWithExperts {
  std::vector<Buffer> memory;
  std::vector<ExpertLayer> layers;
  int column;

  RankWithExperts(const ExpertMap& map, int rank, int group_ranks) : column(rank % group_ranks) {
    ExpertLayer layer;
    layer.groups = kGroups;
    layer.own_group = rank / group_ranks;
    layer.moves = true;
    layer.first_rank_bytes = kFirstRankBytes;
    layer.other_rank_bytes = kOtherRankBytes;
    const auto take = [&](DType dtype, std::initializer_list<std::int64_t> shape) {
      memory.emplace_back(Tensor::dense(nullptr, dtype, shape).bytes());
      return memory.back().tensor(dtype, shape);
    };
    layer.replicas = take(DType::kI32, {kExperts, 1 + 1 + kPlaces - kExperts});
    layer.choices = take(DType::kI64, {kExperts});
    layer.group_choices = take(DType::kI64, {kGroups});
    for (const std::int64_t bytes : kStackBytes)
      if (bytes != kStackBytes[2] || column == 0)
        layer.stacks.push_back(take(DType::kU8, {kPlaces / kGroups, bytes}));
    layer.set_map(map);
    layers.push_back(std::move(layer));
    for (int place = 0; place < kPlaces / kGroups; ++place) put(place, own_expert(place));
  }

  int own_expert(int place) const {
    return layers[0].map[static_cast<std::size_t>(layers[0].first_place() + place)];
  }
  void put(int place, int expert) {
    std::int64_t at = 0;
    for (const Tensor& stack : layers[0].stacks)
      for (std::int64_t i = 0; i < stack.dim(1); ++i, ++at)
        stack.at(place).ptr<std::uint8_t>()[i] = byte_of(expert, column, at);
  }
  bool has_what_the_map_says() const {
    for (int place = 0; place < kPlaces / kGroups; ++place) {
      if (own_expert(place) == kNoExpert) continue;
      std::int64_t at = 0;
      for (const Tensor& stack : layers[0].stacks)
        for (std::int64_t i = 0; i < stack.dim(1); ++i, ++at)
          if (stack.at(place).ptr<std::uint8_t>()[i] != byte_of(own_expert(place), column, at))
            return false;
    }
    return true;
  }
};

// Runs `work` for every rank, each in a thread of its own.
template <class Work>
void on_ranks(int num_ranks, const Work& work) {
  InProcessGroup group(num_ranks);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < num_ranks; ++rank)
    threads.emplace_back([&, rank] {
      InProcessCommunicator communicator(group, rank);
      work(rank, communicator);
    });
  for (std::thread& thread : threads) thread.join();
}

TEST(ExpertMover, PlacesHaveTheirExpertAfterEachSlice) {
  std::mt19937 random(5);
  for (const int group_ranks : {1, 2}) {
    for (int round = 0; round < 12; ++round) {
      const auto any_map = [&] {
        ExpertMap map = trivial_map(kExperts, kPlaces);
        std::ranges::shuffle(map, random);
        return map;
      };
      const ExpertMap from = any_map(), wanted = any_map();
      const std::vector<PlaceChange> changes = changes_between(from, wanted, kExperts, kGroups);
      const std::int64_t slice = 1 + static_cast<std::int64_t>(random() % 100);
      on_ranks(kGroups * group_ranks, [&](int rank, Communicator& communicator) {
        RankWithExperts own(from, rank, group_ranks);
        ExpertMover mover(own.layers, communicator);
        for (const PlaceChange& change : changes)
          for (std::int64_t begin = 0; begin < kFirstRankBytes; begin += slice) {
            const ExpertMove move{.layer = 0,
                                  .expert = change.expert,
                                  .from = change.from,
                                  .to = change.to,
                                  .begin = begin,
                                  .end = std::min(kFirstRankBytes, begin + slice)};
            mover.run({&move, 1});
            ASSERT_TRUE(own.has_what_the_map_says());
            const bool is_there = move.end == kFirstRankBytes;
            ASSERT_EQ(own.layers[0].map[static_cast<std::size_t>(change.to)],
                      is_there ? change.expert : kNoExpert);
          }
        EXPECT_EQ(own.layers[0].map, wanted);
      });
    }
  }
}

TEST(ExpertMover, AMoveThatDoesNotFitTheMapIsABug) {
  on_ranks(kGroups, [&](int rank, Communicator& communicator) {
    RankWithExperts own(trivial_map(kExperts, kPlaces), rank, 1);
    ExpertMover mover(own.layers, communicator);
    const auto run = [&](const ExpertMove& move) { mover.run({&move, 1}); };
    const ExpertMove good{.layer = 0, .expert = 2, .from = 2, .to = 6, .begin = 0, .end = 8};
    ExpertMove move = good;
    move.layer = 1;
    EXPECT_THROW(run(move), Error);
    move = good;
    move.expert = 3;  // place 2 has another
    EXPECT_THROW(run(move), Error);
    move = good;
    move.end = kFirstRankBytes + 1;
    EXPECT_THROW(run(move), Error);
    move = good;
    move.to = 3;  // the only place of expert 3
    EXPECT_THROW(run(move), Error);
    move = good;
    move.begin = 4;  // the place still serves
    EXPECT_THROW(run(move), Error);
  });
}

TEST(ExpertMover, RanksWithOtherPlacesAreRefused) {
  on_ranks(kGroups, [&](int rank, Communicator& communicator) {
    ExpertMap map = trivial_map(kExperts, kPlaces);
    if (rank == 1) std::swap(map[0], map[1]);
    RankWithExperts own(map, rank, 1);
    EXPECT_THAT([&] { ExpertMover(own.layers, communicator); },
                ::testing::ThrowsMessage<Error>(
                    ::testing::HasSubstr("places and form of experts of rank 0")));
  });
}

}  // namespace
}  // namespace sluice
