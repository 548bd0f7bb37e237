// Latents in 8 bits (kernels/types/latent_rows.h): what is stored, and attention over it.
#include <fmt/format.h>

#include <cmath>
#include <cstring>
#include <limits>

#include "kernels/types/fp8.h"
#include "kernels/types/latent_rows.h"
#include "ops/mla.h"
#include "ops/testing/paged_batch.h"

namespace sluice::ops {
namespace {

constexpr DType kTypes[] = {DType::kI8, DType::kF8E4M3};

// Sequences whose latents are codes in one plane, and in bfloat16 with the same values in another.
struct Planes {
  Planes(const Case& batch, DType dtype, std::int64_t latent, std::int64_t rope)
      : codes(dtype, {batch.num_slots(), LatentRow{latent, rope}.bytes()}),
        plain(DType::kBF16, {batch.num_slots(), latent + rope}) {
    Machine machine(CpuIsa::kAvx2);
    for (std::int64_t s = 0; s < std::ssize(batch.lens); ++s) {
      const std::int64_t count = batch.lens[static_cast<std::size_t>(s)];
      Owned numbers(DType::kF32, {count, latent}, 3), keys(DType::kF32, {count, rope}, 2),
          slots(DType::kI64, {count}), places(DType::kI32, {count}),
          rows(DType::kF32, {count, latent + rope}, 5);
      fill(numbers, static_cast<unsigned>(s + 1), 3.0);
      fill(keys, static_cast<unsigned>(s + 51));
      for (std::int64_t i = 0; i < count; ++i) {
        put(slots, {i}, static_cast<double>(batch.slot(s, i)));
        put(places, {i}, static_cast<double>(batch.slot(s, i)));
      }
      write_latents(machine.ctx, numbers, keys, slots, codes);
      gather_latents(machine.ctx, codes, places, latent, rows);
      EXPECT_TRUE(gaps_untouched(rows));
      write_latents(machine.ctx, rows->slice(1, 0, latent), rows->slice(1, latent, rope), slots,
                    plain);
    }
  }
  Owned codes, plain;
};

struct Queries {
  Queries(std::int64_t tokens, std::int64_t heads, std::int64_t latent, std::int64_t rope)
      : latents(DType::kF32, {tokens, heads, latent}, 3),
        rotated(DType::kF32, {tokens, heads, rope}) {
    fill(latents, 11, 2.0);
    fill(rotated, 12, 2.0);
  }
  Owned latents, rotated;
};

// The nearest number of the form, with the smallest power of two that brings the group in.
TEST(LatentCodes, StoredNumbersAreTheNearest) {
  constexpr std::int64_t kLatent = 300, kRope = 7, kTokens = 6;
  for (const DType dtype : kTypes)
    on_every_machine([&](Context& ctx, Context&) {
      Owned latent(DType::kF32, {kTokens, kLatent}, 2), rope(DType::kF32, {kTokens, kRope}),
          slots(DType::kI64, {kTokens}), places(DType::kI32, {kTokens}),
          plane(dtype, {64, LatentRow{kLatent, kRope}.bytes()}),
          out(DType::kF32, {kTokens, kLatent + kRope});
      fill(latent, 3, 5.0);
      fill(rope, 4);
      // A group of zeros, one whose largest number is a power of two, and tiny and huge numbers.
      for (std::int64_t i = 0; i < 128; ++i) put(latent, {1, i}, 0);
      put(latent, {2, 5}, 8.0);
      for (std::int64_t i = 0; i < kLatent; ++i) {
        put(latent, {3, i}, get(latent, {3, i}) * 1e-30);
        put(latent, {4, i}, get(latent, {4, i}) * 1e25);
      }
      for (std::int64_t t = 0; t < kTokens; ++t) put(slots, {t}, double(9 * t + 1));
      for (std::int64_t t = 0; t < kTokens; ++t) put(places, {t}, double(9 * t + 1));
      write_latents(ctx, latent, rope, slots, plane);
      gather_latents(ctx, plane, places, kLatent, out);
      const double most = dtype == DType::kI8 ? 127 : kMaxE4M3;
      for (std::int64_t t = 0; t < kTokens; ++t) {
        for (std::int64_t begin = 0; begin < kLatent; begin += kLatentGroup) {
          const std::int64_t end = std::min(kLatent, begin + kLatentGroup);
          double largest = 0;
          for (std::int64_t i = begin; i < end; ++i)
            largest = std::max(largest, std::abs(get(latent, {t, i})));
          double scale = 0x1p-110;
          while (largest / scale > most) scale *= 2;
          for (std::int64_t i = begin; i < end; ++i) {
            const double x = get(latent, {t, i}) / scale;
            const double want = dtype == DType::kI8 ? std::nearbyint(x)
                                                    : e4m3_values()[to_e4m3(static_cast<float>(x))];
            ASSERT_EQ(get(out, {t, i}), want * scale) << t << ", " << i << ", scale " << scale;
          }
        }
        for (std::int64_t i = 0; i < kRope; ++i)
          ASSERT_EQ(get(out, {t, kLatent + i}),
                    static_cast<float>(BF16(static_cast<float>(get(rope, {t, i})))));
      }
    });
}

TEST(LatentCodes, ANumberThatIsNoneMakesItsGroupNan) {
  constexpr std::int64_t kLatent = 256;
  for (const DType dtype : kTypes)
    for (const double bad :
         {std::numeric_limits<double>::quiet_NaN(), -std::numeric_limits<double>::infinity()}) {
      Machine machine(CpuIsa::kAvx2);
      Owned latent(DType::kF32, {1, kLatent}), rope(DType::kF32, {1, 2}), slots(DType::kI64, {1}),
          places(DType::kI32, {1}), plane(dtype, {64, LatentRow{kLatent, 2}.bytes()}),
          out(DType::kF32, {1, kLatent + 2});
      fill(latent, 1);
      fill(rope, 2);
      put(latent, {0, 200}, bad);
      put(slots, {0}, 3);
      put(places, {0}, 3);
      write_latents(machine.ctx, latent, rope, slots, plane);
      gather_latents(machine.ctx, plane, places, kLatent, out);
      for (std::int64_t i = 0; i < kLatent; ++i)
        EXPECT_EQ(std::isnan(get(out, {0, i})), i >= 128) << i;
    }
}

// The widened numbers are exact in bfloat16, so attention has the bits of a plane that holds them:
// of all keys, of chosen ones, and where threads share a token.
TEST(LatentCodes, AttentionHasTheBitsOfTheSameNumbersInBfloat16) {
  const Case batch({600, 70, 257, 256, 1, 300}, 7);
  const Rows rows(batch, mixed_rows(batch));
  for (const DType dtype : kTypes)
    for (const auto& [heads, latent, rope] :
         {std::tuple{4, 32, 8}, std::tuple{20, 512, 64}, std::tuple{3, 200, 7}}) {
      const Planes planes(batch, dtype, latent, rope);
      const Queries q(rows.count(), heads, latent, rope);
      Owned indices(DType::kI32, {rows.count(), 300});
      for (std::int64_t t = 0; t < rows.count(); ++t)
        for (std::int64_t i = 0; i < 300; ++i)
          put(indices, {t, i}, 2 * i <= get(rows.position, {t}) ? double(2 * i) : -1.0);
      on_every_machine([&](Context& ctx, Context& alone) {
        SCOPED_TRACE(
            fmt::format("{}, {} heads of {} + {}", dtype_name(dtype), heads, latent, rope));
        Owned out(DType::kF32, {rows.count(), heads, latent}, 2),
            want(DType::kF32, {rows.count(), heads, latent}), one(DType::kF32, {1, heads, latent});
        mla_attention(ctx, q.latents, q.rotated, planes.codes, rows.rows, 0.2f, out);
        mla_attention(alone, q.latents, q.rotated, planes.plain, rows.rows, 0.2f, want);
        EXPECT_TRUE(same_bits(out, want));
        EXPECT_TRUE(gaps_untouched(out));
        for (std::int64_t t = 0; t < rows.count(); t += 31) {
          mla_attention(ctx, q.latents->rows(t, 1), q.rotated->rows(t, 1), planes.codes,
                        rows.one(t), 0.2f, one);
          ASSERT_TRUE(same_bits(out->rows(t, 1), one)) << "row " << t;
        }
        mla_sparse_attention(ctx, q.latents, q.rotated, planes.codes, rows.rows, indices, 0.2f,
                             out);
        mla_sparse_attention(alone, q.latents, q.rotated, planes.plain, rows.rows, indices, 0.2f,
                             want);
        EXPECT_TRUE(same_bits(out, want));
      });
      for (const CpuIsa isa : isas()) {  // fewer tokens than threads
        Machine machine(isa, 5);
        Owned want(DType::kF32, {2, heads, latent}), out(DType::kF32, {2, heads, latent});
        const PagedRows two = {rows.rows.page_table, rows.seq->rows(100, 2),
                               rows.position->rows(100, 2)};
        mla_attention(machine.ctx, q.latents->rows(100, 2), q.rotated->rows(100, 2), planes.codes,
                      two, 0.2f, out);
        mla_attention(machine.ctx, q.latents->rows(100, 2), q.rotated->rows(100, 2), planes.plain,
                      two, 0.2f, want);
        EXPECT_TRUE(same_bits(out, want));
      }
    }
}

TEST(LatentCodes, RowsMove) {
  const Case batch({70}, 7);
  const Planes planes(batch, DType::kI8, 32, 8);
  Machine machine(CpuIsa::kAvx2);
  Owned from(DType::kI64, {1}), to(DType::kI64, {1}), places(DType::kI32, {2}),
      out(DType::kF32, {2, 40});
  put(from, {0}, static_cast<double>(batch.slot(0, 66)));
  put(to, {0}, static_cast<double>(batch.slot(0, 3)));
  const KvPlane plane(planes.codes);
  kv_move(machine.ctx, {&plane, 1}, from, to);
  put(places, {0}, get(from, {0}));
  put(places, {1}, get(to, {0}));
  gather_latents(machine.ctx, planes.codes, places, 32, out);
  EXPECT_TRUE(same_bits(out->rows(0, 1), out->rows(1, 1)));
}

}  // namespace
}  // namespace sluice::ops
