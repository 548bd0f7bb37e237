// Experts in memory of all ranks: who has which, before and after a loss.
#include "layers/weights/shared_experts.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <algorithm>
#include <numeric>

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
  SharedExperts experts(-1, 0, 2);
  std::vector<std::int32_t> places(4, -1);
  experts.add(Tensor::dense(places.data(), DType::kI32, {4}));
  EXPECT_EQ(places, (std::vector<std::int32_t>{0, 1, -1, -1}));
  experts.deal(2);
  EXPECT_EQ(places, (std::vector<std::int32_t>{0, 1, 2, 3}));
}

TEST(DealtExperts, AreEqualAndThoseOfLivingRanksStay) {
  for (const std::uint64_t lost : {0ull, 2ull, 4ull, 6ull, 10ull, 14ull})
    for (int first = 0; first < 4; ++first) {
      const std::vector<int> owners = dealt_experts(16, 4, lost, first);
      std::vector<int> counts(4);
      for (int e = 0; e < 16; ++e) {
        ++counts[static_cast<std::size_t>(owners[static_cast<std::size_t>(e)])];
        if ((lost >> (e / 4) & 1) == 0) {
          EXPECT_EQ(owners[static_cast<std::size_t>(e)], e / 4);
        }
      }
      int least = 16, most = 0;
      for (int rank = 0; rank < 4; ++rank) {
        const int count = counts[static_cast<std::size_t>(rank)];
        if ((lost >> rank & 1) != 0) {
          EXPECT_EQ(count, 0);
          continue;
        }
        least = std::min(least, count);
        most = std::max(most, count);
      }
      EXPECT_LE(most - least, 1);
    }
}

}  // namespace
}  // namespace sluice
