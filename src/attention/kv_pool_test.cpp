#include "attention/kv_pool.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <numa.h>
#include <numaif.h>

#include "base/error.h"

namespace sluice {
namespace {

std::vector<PageGroupSpec> two_groups() {
  return {
      {{.name = "full"}, {{"latent", DType::kBF16, 36, {0, 2}}, {"index_k", DType::kF32, 20, {2}}}},
      {{.name = "window", .retention = Retention::kWindow, .span = 16},
       {{"k", DType::kF32, 8, {1}}}}};
}

TEST(KVPool, BytesOfAPageCountEveryPlaneAndLayer) {
  const auto groups = two_groups();
  EXPECT_EQ(groups[0].bytes_per_page(), 64 * (2 * 36 * 2 + 20 * 4));
  EXPECT_EQ(groups[1].bytes_per_page(), 64 * 8 * 4);
  EXPECT_EQ(KVPool(groups, {3, 5}).bytes(),
            3 * groups[0].bytes_per_page() + 5 * groups[1].bytes_per_page());
}

TEST(KVPool, PagesAreSpreadOverMemoryNodes) {
  if (numa_available() < 0) GTEST_SKIP() << "no memory policies here";
  const auto policy_of = [](const KVPool& pool) {
    int mode = -1;
    auto* const middle =
        static_cast<std::byte*>(pool.plane(0, "latent", 0).data.data) + pool.bytes() / 2;
    EXPECT_EQ(get_mempolicy(&mode, nullptr, 0, middle, MPOL_F_ADDR), 0);
    return mode;
  };
  EXPECT_EQ(policy_of(KVPool(two_groups(), {512, 0})), MPOL_DEFAULT);
  // The placement is not checked against the machine; the kernel uses the nodes that exist.
  EXPECT_EQ(policy_of(KVPool(two_groups(), {512, 0}, {}, NumaPlacement({{0, {0}}, {1, {1}}}, 2))),
            MPOL_INTERLEAVE);
}

TEST(KVPool, PlanesAreSeparateRowsOfSlots) {
  const KVPool pool(two_groups(), {3, 5});
  EXPECT_EQ(pool.group_of("latent", 2), 0);
  EXPECT_EQ(pool.group_of("index_k", 0), -1);
  EXPECT_EQ(pool.group_of("k", 1), 1);
  EXPECT_EQ(pool.plane(0, "latent", 2).data.describe(), "bfloat16 [192, 36]");
  EXPECT_EQ(pool.plane(1, "k", 1).data.describe(), "float32 [320, 8]");
  EXPECT_EQ(pool.planes(0).size(), 3u);
  // Each plane is filled with its own value; no plane may overwrite another.
  int value = 1;
  for (int g = 0; g < pool.num_groups(); ++g)
    for (const ops::KvPlane& plane : pool.planes(g))
      std::fill_n(static_cast<std::uint8_t*>(plane.data.data), plane.data.bytes(),
                  static_cast<std::uint8_t>(value++));
  value = 1;
  for (int g = 0; g < pool.num_groups(); ++g)
    for (const ops::KvPlane& plane : pool.planes(g)) {
      const auto* bytes = static_cast<const std::uint8_t*>(plane.data.data);
      for (std::int64_t i = 0; i < plane.data.bytes(); ++i) ASSERT_EQ(bytes[i], value);
      ++value;
    }
}

TEST(KVPool, AStateIsOneRowOfASequence) {
  std::vector<PageGroupSpec> groups = two_groups();
  EXPECT_EQ(num_page_groups(groups), 2);
  groups.push_back({{.name = "state", .retention = Retention::kState},
                    {{"conv", DType::kF32, 24, {1, 3}}, {"matrix", DType::kF32, 160, {3}}}});
  EXPECT_EQ(num_page_groups(groups), 2);
  EXPECT_EQ(groups[2].bytes_per_page(), 4 * (2 * 24 + 160));
  const KVPool pool(groups, {1, 1, 7});
  EXPECT_EQ(pool.plane(2, "conv", 3).data.describe(), "float32 [7, 24]");
  EXPECT_EQ(pool.plane(pool.group_of("matrix", 3), "matrix", 3).data.describe(),
            "float32 [7, 160]");
  EXPECT_EQ(pool.group_of("matrix", 1), -1);
  std::swap(groups[1], groups[2]);
  EXPECT_THROW(KVPool(groups, {1, 1, 1}), Error);
}

TEST(KVPool, AskingForAPlaneThatALayerLacksIsABug) {
  const KVPool pool(two_groups(), {1, 1});
  EXPECT_THROW(pool.plane(0, "index_k", 0), Error);
  EXPECT_THROW(pool.plane(0, "k", 1), Error);
}

}  // namespace
}  // namespace sluice
