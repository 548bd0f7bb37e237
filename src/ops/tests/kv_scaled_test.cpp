// Index keys in scaled pages: written, moved and scored, against plain loops.
#include <array>
#include <cmath>
#include <span>

#include "base/error.h"
#include "ops/indexer.h"
#include "ops/kv.h"
#include "ops/testing/paged_batch.h"

namespace sluice::ops {
namespace {

// Magnitudes of all finite e4m3 codes: OCP 8-bit floating point specification, section 3.
std::array<double, 127> sizes() {
  std::array<double, 127> all{};
  for (int code = 0; code < 127; ++code)
    all[static_cast<std::size_t>(code)] =
        code < 8 ? code * 0x1p-9 : (8 + code % 8) * std::exp2(code / 8 - 10);
  return all;
}

struct Pages {
  Pages(std::int64_t slots, std::int64_t width)
      : dim(width), bytes(DType::kU8, {slots, width + kKeyScaleBytes}) {}
  operator KvPlane() const { return {bytes, PlaneForm::kScaledPages, 1}; }
  std::uint8_t code(std::int64_t slot, std::int64_t i) const {
    return bytes.data<std::uint8_t>()[slot / kPageSize * kPageSize * (dim + 4) +
                                      slot % kPageSize * dim + i];
  }
  float scale(std::int64_t slot) const {
    float value;
    const std::int64_t page = slot / kPageSize * kPageSize * (dim + 4);
    std::memcpy(&value, bytes.data<std::uint8_t>() + page + kPageSize * dim + slot % kPageSize * 4,
                4);
    return value;
  }
  double value(std::int64_t slot, std::int64_t i) const {
    const int at = code(slot, i);
    return (at < 128 ? 1 : -1) * sizes()[static_cast<std::size_t>(at & 127)] * double{scale(slot)};
  }

  std::int64_t dim;
  Owned bytes;
};

TEST(ScaledPages, HoldTheNearestNumbersAndTheSmallestScale) {
  const std::array<double, 127> known = sizes();
  for (const std::int64_t dim : {1, 24, 128}) {
    Owned src(DType::kF32, {9, dim}, 3), slots(DType::kI64, {9});
    fill(src, 5, 3);
    for (std::int64_t i = 0; i < dim; ++i) {
      put(src, {1, i}, 0);
      put(src, {2, i}, i % 2 == 0 ? 1e-38 : -1e-41);
      put(src, {3, i}, i % 3 == 0 ? 2e38 : -1e30);
      put(src, {6, i},
          i == 0 ? 448.0
                 : 17.0 + static_cast<double>(i));  // ties among them, and the largest number
      put(src, {7, i},
          i == 0
              ? 449.0
              : 0.001 * static_cast<double>(i));  // the last bits below the smallest normal number
    }
    put(src, {4, 0}, std::numeric_limits<double>::infinity());
    put(src, {5, dim - 1}, std::numeric_limits<double>::quiet_NaN());
    for (std::int64_t t = 0; t < 9; ++t) put(slots, {t}, static_cast<double>(120 - 7 * t));
    on_every_machine([&](Context& ctx, Context&) {
      const Pages pages(128, dim);
      kv_write(ctx, src, slots, pages);
      for (std::int64_t t = 0; t < 9; ++t) {
        const auto slot = static_cast<std::int64_t>(get(slots, {t}));
        const double scale = pages.scale(slot);
        if (t == 4 || t == 5) {
          ASSERT_TRUE(std::isnan(scale));
          continue;
        }
        double most = 0;
        for (std::int64_t i = 0; i < dim; ++i) most = std::max(most, std::abs(get(src, {t, i})));
        int exponent;
        ASSERT_EQ(std::frexp(scale, &exponent), 0.5);
        ASSERT_LE(most / scale, 448);
        ASSERT_TRUE(most == 0 ? scale == 1 : scale == 0x1p-126 || most / (scale / 2) > 448)
            << scale;
        for (std::int64_t i = 0; i < dim; ++i) {
          const double x = get(src, {t, i}) / scale;
          const int code = pages.code(slot, i), size = code & 127;
          ASSERT_TRUE(x == 0 || (x < 0) == (code >= 128));
          const double error = std::abs(std::abs(x) - known[static_cast<std::size_t>(size)]);
          for (const int other : {size - 1, size + 1}) {
            if (other < 0 || other > 126) continue;
            const double its = std::abs(std::abs(x) - known[static_cast<std::size_t>(other)]);
            ASSERT_TRUE(error < its || (error == its && size % 2 == 0)) << x << " as " << code;
          }
        }
      }
    });
  }
}

TEST(ScaledPages, MoveKeysWithTheirScales) {
  Machine machine(detect_cpu_isa(), 1);
  Owned src(DType::kF32, {128, 16}), slots(DType::kI64, {128}), from(DType::kI64, {3}),
      to(DType::kI64, {3});
  fill(src, 6);
  for (std::int64_t t = 0; t < 128; ++t) put(slots, {t}, static_cast<double>(t));
  assign<std::int64_t>(from, {1, 70, 5});
  assign<std::int64_t>(to, {100, 2, 5});
  const Pages pages(128, 16), before(128, 16);
  for (const Pages* each : {&pages, &before}) kv_write(machine.ctx, src, slots, *each);
  const KvPlane plane = pages;
  kv_move(machine.ctx, std::span(&plane, 1), from, to);
  for (std::int64_t slot = 0; slot < 128; ++slot) {
    const std::int64_t origin = slot == 100 ? 1 : slot == 2 ? 70 : slot;
    for (std::int64_t i = 0; i < 16; ++i)
      ASSERT_EQ(pages.value(slot, i), before.value(origin, i)) << slot;
  }
  const Pages ragged(100, 16);
  EXPECT_THROW(kv_write(machine.ctx, src, slots, ragged), Error);  // not whole pages
}

// Their numbers are exact in bfloat16 and their scales powers of two. So the selection equals that
// among the same keys in bfloat16.
TEST(ScaledPages, ChooseAsTheSameNumbersInBfloat16Do) {
  const Case batch({700, 70, 1300}, 7);
  const Rows rows(batch, {{0, 699}, {0, 698}, {0, 350}, {1, 69}, {1, 31}, {2, 1299}, {2, 600}});
  for (const auto& [heads, dim] : {std::pair{5, 24}, std::pair{64, 128}}) {
    Owned src(DType::kF32, {batch.num_slots(), dim}), slots(DType::kI64, {batch.num_slots()});
    Owned q(DType::kF32, {rows.count(), heads, dim}), weights(DType::kF32, {rows.count(), heads}),
        plain(DType::kBF16, {batch.num_slots(), dim});
    fill(src, 1);
    fill(q, 2);
    fill(weights, 3);
    for (std::int64_t t = 0; t < batch.num_slots(); ++t) put(slots, {t}, static_cast<double>(t));
    on_every_machine([&](Context& ctx, Context&) {
      const Pages pages(batch.num_slots(), dim);
      kv_write(ctx, src, slots, pages);
      for (std::int64_t slot = 0; slot < batch.num_slots(); ++slot)
        for (std::int64_t i = 0; i < dim; ++i) put(plain, {slot, i}, pages.value(slot, i));
      Owned out(DType::kI32, {rows.count(), 32}), wanted(DType::kI32, {rows.count(), 32}),
          space(DType::kF32, {3, 1344});
      index_topk(ctx, q, weights, pages, rows.rows, space, out);
      index_topk(ctx, q, weights, plain, rows.rows, space, wanted);
      ASSERT_TRUE(same_bits(out, wanted));
    });
  }
}

}  // namespace
}  // namespace sluice::ops
