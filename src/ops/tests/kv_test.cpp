#include "ops/kv.h"

#include <cmath>
#include <set>

#include "base/error.h"
#include "ops/testing/support.h"

namespace sluice::ops {
namespace {

TEST(Kv, WriteRoundsAndGatherWidens) {
  on_every_machine([](Context& ctx, Context&) {
    for (DType dtype : {DType::kF32, DType::kBF16}) {
      constexpr std::int64_t kTokens = 200, kWidth = 33, kSlots = 640;
      // Two parts of one row, as MLA writes its latent and its rope key.
      Owned plane(dtype, {kSlots, kWidth}), left(DType::kF32, {kTokens, 30}, 2),
          right(DType::kF32, {kTokens, 3});
      Owned slots(DType::kI64, {kTokens}), list(DType::kI32, {kTokens}),
          out(DType::kF32, {kTokens, kWidth}, 1);
      fill(left, 1);
      fill(right, 2);
      std::set<std::int64_t> used;
      for (std::int64_t t = 0; t < kTokens; ++t) {
        const std::int64_t slot = t * 389 % kSlots;
        used.insert(slot);
        put(slots, {t}, static_cast<double>(slot));
        put(list, {t}, static_cast<double>(slot));
      }
      ASSERT_EQ(std::ssize(used), kTokens);
      kv_write(ctx, left, slots, plane->slice(1, 0, 30));
      kv_write(ctx, right, slots, plane->slice(1, 30, 3));
      kv_gather(ctx, plane, list, out);
      EXPECT_TRUE(gaps_untouched(out));
      for_each(out, [&](std::int64_t t, std::int64_t i, std::int64_t) {
        const auto value = static_cast<float>(i < 30 ? get(left, {t, i}) : get(right, {t, i - 30}));
        ASSERT_EQ(get(out, {t, i}), dtype == DType::kF32 ? value : static_cast<float>(BF16(value)));
      });
      for (std::int64_t slot = 0; slot < kSlots; ++slot)
        ASSERT_TRUE(used.contains(slot) ||
                    (std::isnan(get(plane, {slot, 0})) && std::isnan(get(plane, {slot, 32}))));
      for (std::int64_t wrong : {std::int64_t{-1}, kSlots}) {
        put(slots, {3}, static_cast<double>(wrong));
        EXPECT_THROW(kv_write(ctx, left, slots, plane->slice(1, 0, 30)), Error);
      }
    }
  });
}

TEST(Kv, MoveCopiesRowsOfEveryPlane) {
  on_every_machine([](Context& ctx, Context&) {
    Owned a(DType::kF32, {256, 20}), b(DType::kBF16, {256, 7}, 1), before_a(DType::kF32, {256, 20});
    Owned before_b(DType::kBF16, {256, 7});
    fill(a, 1);
    fill(b, 2);
    fill(before_a, 1);
    fill(before_b, 2);
    Owned from(DType::kI64, {40}), to(DType::kI64, {40});
    for (std::int64_t i = 0; i < 40; ++i) {
      put(from, {i}, static_cast<double>(64 + i));
      put(to, {i},
          static_cast<double>(i < 39 ? 192 + i : 64 + i));  // the last one keeps its place
    }
    const KvPlane planes[] = {a.view, b.view};
    kv_move(ctx, planes, from, to);
    EXPECT_TRUE(same_bits(a->rows(192, 39), before_a->rows(64, 39)));
    EXPECT_TRUE(same_bits(b->rows(192, 39), before_b->rows(64, 39)));
    EXPECT_TRUE(same_bits(a->rows(0, 192), before_a->rows(0, 192)));
    EXPECT_TRUE(same_bits(b->rows(231, 25), before_b->rows(231, 25)));
    EXPECT_TRUE(gaps_untouched(b));
    put(to, {0}, 256);
    EXPECT_THROW(kv_move(ctx, planes, from, to), Error);
  });
}

}  // namespace
}  // namespace sluice::ops
