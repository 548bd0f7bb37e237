// Experts in memory of all ranks: who has which, before and after a loss.
#include "layers/weights/shared_experts.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstdlib>
#include <numeric>
#include <random>

#include "base/error.h"

namespace sluice {
namespace {

TEST(SharedExperts, EveryRankReadsThePartsOfAll) {
  const int fd = memfd_create("experts", MFD_CLOEXEC);
  ASSERT_GE(fd, 0);
  SharedExperts first(fcntl(fd, F_DUPFD_CLOEXEC, 0), 0, 2), second(fd, 1, 2);
  for (int stack = 0; stack < 2; ++stack) {
    std::vector<Tensor> parts;
    for (SharedExperts* one : {&first, &second}) {
      const Tensor part = Tensor::dense(one->take(2 * 3 * 4), DType::kF32, {2, 3});
      std::iota(part.ptr<float>(), part.ptr<float>() + 6,
                static_cast<float>(100 * stack + (one == &first ? 0 : 6)));
      parts.push_back(part);
    }
    const Tensor all = first.whole(parts[0]), same = second.whole(parts[1]);
    ASSERT_EQ(all.dim(0), 4);
    for (int i = 0; i < 12; ++i) {
      EXPECT_EQ(all.ptr<float>()[i], static_cast<float>(100 * stack + i));
      EXPECT_EQ(same.ptr<float>()[i], static_cast<float>(100 * stack + i));
    }
  }
  EXPECT_FALSE(first.whole({}).defined());
  first.seal();
}

TEST(SharedExperts, ALossGivesARankWhatTheLostOneHad) {
  SharedExperts first(-1, 0, 2), last(-1, 1, 2);
  std::vector<std::int32_t> places[] = {{0, 1, -1, -1}, {-1, -1, 2, 3}};
  std::vector<std::int64_t> choices(4);
  const auto table = [](std::vector<std::int32_t>& rows) {
    return Tensor::dense(rows.data(), DType::kI32, {4});
  };
  first.add(table(places[0]), Tensor::dense(choices.data(), DType::kI64, {4}));
  last.add(table(places[1]), {});
  EXPECT_THROW(last.deal(1), Error);
  for (SharedExperts* one : {&first, &last}) one->set_owners(first.deal(0));
  EXPECT_EQ(places[0], (std::vector<std::int32_t>{0, 1, -1, -1}));
  EXPECT_EQ(places[1], (std::vector<std::int32_t>{-1, -1, 2, 3}));
  first.set_owners(first.deal(2));
  EXPECT_EQ(places[0], (std::vector<std::int32_t>{0, 1, 2, 3}));
  for (const std::size_t size : {3u, 5u})
    EXPECT_THROW(first.set_owners(std::vector<std::uint8_t>(size)), Error);
}

// Experts without choices are dealt in equal numbers.
TEST(DealtExperts, AreEqualAndThoseOfLivingRanksStay) {
  const std::vector<std::int64_t> none(16);
  for (const std::uint64_t lost : {0ull, 2ull, 4ull, 6ull, 10ull, 14ull})
    for (int first = 0; first < 4; ++first) {
      const std::vector<std::uint8_t> owners = dealt_experts(none, 4, lost, first);
      std::vector<int> counts(4);
      for (std::size_t e = 0; e < 16; ++e) {
        ++counts[owners[e]];
        if ((lost >> (e / 4) & 1) == 0) {
          EXPECT_EQ(owners[e], e / 4);
        }
      }
      int least = 16, most = 0;
      for (std::size_t rank = 0; rank < 4; ++rank) {
        if ((lost >> rank & 1) != 0) {
          EXPECT_EQ(counts[rank], 0);
          continue;
        }
        least = std::min(least, counts[rank]);
        most = std::max(most, counts[rank]);
      }
      EXPECT_LE(most - least, 1);
    }
}

TEST(DealtExperts, GoToTheRanksWhoseExpertsAreChosenLeast) {
  const std::vector<std::int64_t> choices{9, 1, 0, 1, 1, 1, 7, 20, 6, 2, 5, 8};
  // Rank 0 has 11 choices and rank 1 has 29. So 8, 6 and 5 go to rank 0, and then 2 to rank 1.
  const std::vector<std::uint8_t> owners = dealt_experts(choices, 3, 4, 0);
  EXPECT_EQ(owners, (std::vector<std::uint8_t>{0, 0, 0, 0, 1, 1, 1, 1, 0, 1, 0, 0}));
}

// The last expert of the fuller rank came when that rank had no more choices than the other.
TEST(DealtExperts, DifferByOneExpertAtMostWhereNoRankHadMore) {
  std::mt19937 random(3);
  for (int trial = 0; trial < 100; ++trial) {
    std::vector<std::int64_t> choices(64);
    for (std::size_t e = 32; e < 64; ++e) choices[e] = random() % 1000;
    const std::vector<std::uint8_t> owners = dealt_experts(choices, 4, 12, trial % 4);
    std::int64_t loads[4] = {}, all = 0, largest = 0;
    for (std::size_t e = 0; e < 64; ++e) {
      loads[owners[e]] += choices[e];
      all += choices[e];
      largest = std::max(largest, choices[e]);
    }
    EXPECT_EQ(loads[2] + loads[3], 0);
    EXPECT_LE(std::abs(loads[0] - loads[1]), largest);
    EXPECT_EQ(loads[0] + loads[1], all);
  }
}

}  // namespace
}  // namespace sluice
