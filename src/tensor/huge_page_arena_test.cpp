#include "tensor/huge_page_arena.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <span>
#include <thread>
#include <vector>

#include "base/error.h"

namespace sluice {
namespace {

constexpr std::int64_t kPage = HugePageArena::kPageBytes;

class HugePageArenaTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (memory_ == nullptr)
      GTEST_SKIP() << "this system has no such memory: it takes Linux 6.14, the right to mount and "
                      "unused memory";
  }
  std::unique_ptr<HugePageArena> memory_ = HugePageArena::open(2, 0);
};

bool all_are(std::span<const std::byte> bytes, int value) {
  return std::ranges::all_of(bytes,
                             [&](std::byte byte) { return byte == static_cast<std::byte>(value); });
}

// Whether the small page at `place` is resident.
bool is_there(const std::byte* place) {
  unsigned char there = 0;
  auto* page =
      const_cast<std::byte*>(place) -
      reinterpret_cast<std::uintptr_t>(place) % static_cast<std::uintptr_t>(sysconf(_SC_PAGESIZE));
  EXPECT_EQ(mincore(page, 1, &there), 0);
  return (there & 1) != 0;
}

TEST_F(HugePageArenaTest, MakesThePagesThatBeginInItAndNoOthers) {
  std::byte* memory = memory_->take(5 * kPage);
  ASSERT_EQ(reinterpret_cast<std::uintptr_t>(memory) % static_cast<std::uintptr_t>(kPage), 0u);
  memory_->prefault(memory + 1, kPage);      // the second page
  memory_->prefault(memory + 3 * kPage, 1);  // the fourth page
  for (const std::int64_t page : {0, 1, 2, 3, 4})
    EXPECT_EQ(is_there(memory + page * kPage + kPage / 2), page == 1 || page == 3) << page;
  EXPECT_TRUE(all_are({memory, static_cast<std::size_t>(5 * kPage)}, 0));
}

TEST_F(HugePageArenaTest, KeepsWhatANeighbourFilledBefore) {
  std::byte* memory = memory_->take(2 * kPage);
  std::fill_n(memory + kPage + 1, kPage - 1, std::byte{7});  // the touch faults the page in
  memory_->prefault(memory, 2 * kPage);
  EXPECT_TRUE(all_are({memory, static_cast<std::size_t>(kPage + 1)}, 0));
  EXPECT_TRUE(all_are({memory + kPage + 1, static_cast<std::size_t>(kPage - 1)}, 7));
}

TEST_F(HugePageArenaTest, StaysWhenItIsClosed) {
  std::byte* made = memory_->take(kPage);
  std::byte* untouched = memory_->take(kPage);
  memory_->prefault(made, kPage);
  std::fill_n(made, kPage, std::byte{3});
  memory_->close();
  EXPECT_TRUE(all_are({made, static_cast<std::size_t>(kPage)}, 3));
  EXPECT_TRUE(all_are({untouched, static_cast<std::size_t>(kPage)}, 0));
  untouched[kPage - 1] = std::byte{7};
  EXPECT_EQ(untouched[kPage - 1], std::byte{7});
  EXPECT_THROW(memory_->prefault(made, kPage), Error);
  EXPECT_THROW(memory_->take(1), Error);
}

TEST_F(HugePageArenaTest, PiecesAreAlignedAndDoNotOverlap) {
  std::vector<std::pair<std::byte*, std::int64_t>> pieces;
  for (int i = 0; i < 50; ++i) {
    const std::int64_t bytes = i == 20 ? (std::int64_t{1} << 30) + 1 : 1 + i * 77'777;
    std::byte* memory = memory_->take(bytes);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(memory) % 64, 0u);
    EXPECT_TRUE(memory_->holds(memory) && memory_->holds(memory + bytes - 1));
    pieces.emplace_back(memory, bytes);
  }
  std::ranges::sort(pieces);
  for (std::size_t i = 1; i < pieces.size(); ++i)
    EXPECT_LE(pieces[i - 1].first + pieces[i - 1].second, pieces[i].first);
}

TEST_F(HugePageArenaTest, RefusesWhatIsNotItsOwn) {
  std::byte* memory = memory_->take(kPage);
  std::vector<std::byte> elsewhere(64);
  EXPECT_FALSE(memory_->holds(elsewhere.data()));
  EXPECT_FALSE(memory_->holds(nullptr));
  EXPECT_THROW(memory_->prefault(elsewhere.data(), 64), Error);
  EXPECT_THROW(memory_->prefault(memory, (std::int64_t{1} << 30) + 1), Error);
}

TEST_F(HugePageArenaTest, IsNotHadUnderLimitsThatWouldEndTheProcess) {
  for (const auto resource : {RLIMIT_FSIZE, RLIMIT_AS}) {
    rlimit before{};
    ASSERT_EQ(getrlimit(resource, &before), 0);
    rlimit limited = before;
    limited.rlim_cur = rlim_t{1} << 40;
    ASSERT_EQ(setrlimit(resource, &limited), 0);
    EXPECT_EQ(HugePageArena::open(2, 0), nullptr);
    ASSERT_EQ(setrlimit(resource, &before), 0);
  }
  EXPECT_EQ(HugePageArena::open(2, std::int64_t{1} << 50), nullptr);  // more than the unused memory
  EXPECT_NE(HugePageArena::open(2, 0), nullptr);
}

TEST_F(HugePageArenaTest, SeveralThreadsFillItAtOnce) {
  constexpr int kThreads = 4, kParts = 64;
  constexpr std::int64_t kPart = kPage / 2 + 100;  // every page has parts of several threads
  std::byte* memory = memory_->take(kParts * kPart);
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t)
    threads.emplace_back([&, t] {
      for (int i = t; i < kParts; i += kThreads) {
        memory_->prefault(memory + i * kPart, kPart);
        std::fill_n(memory + i * kPart, kPart, static_cast<std::byte>(1 + i));
      }
    });
  for (std::thread& thread : threads) thread.join();
  for (int i = 0; i < kParts; ++i)
    EXPECT_TRUE(all_are({memory + i * kPart, static_cast<std::size_t>(kPart)}, 1 + i)) << i;
}

}  // namespace
}  // namespace sluice
