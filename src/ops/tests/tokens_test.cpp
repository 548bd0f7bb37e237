#include "ops/tokens.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "kernels/cpu/sampling/sample.h"
#include "ops/testing/support.h"

namespace sluice::ops {
namespace {

// The same sampling parameters for `rows` rows.
struct Draws : Owned {
  Draws(std::int64_t rows, const SampleRow& how) : Owned(DType::kU8, {rows, sizeof(SampleRow)}) {
    std::fill_n(as_sample_rows(view), rows, how);
  }
};

TEST(Tokens, TheGreedyChoiceIsTheLowestIndexAndRefusesWhatIsNotFinite) {
  on_every_machine([](Context& ctx, Context&) {
    for (const std::int64_t n : {1, 5, 1000}) {
      Owned logits(DType::kF32, {7, n}, 3), tokens(DType::kI32, {7});
      const Draws sample_rows(7, {.temperature = 0});
      fill(logits, 1, 5.0);
      std::int64_t first = 0;
      for (std::int64_t j = 1; j < n; ++j)
        if (get(logits, {0, j}) > get(logits, {0, first})) first = j;
      put(logits, {1, n / 2}, 9);
      put(logits, {1, n - 1}, 9);
      put(logits, {2, n - 1}, NAN);
      put(logits, {3, n / 2}, INFINITY);
      for (std::int64_t j = 0; j < n; ++j) put(logits, {4, j}, -INFINITY);
      put(logits, {5, n / 3}, 100);
      for (std::int64_t j = 0; j < n; ++j) put(logits, {6, j}, j == n - 1 ? -3 : -INFINITY);
      sample_tokens(ctx, logits, sample_rows, tokens);
      const std::int64_t wanted[] = {first, n / 2, -1, -1, -1, n / 3, n - 1};
      for (std::int64_t i = 0; i < 7; ++i)
        EXPECT_EQ(get(tokens, {i}), wanted[i]) << "row " << i << " of " << n;
      EXPECT_TRUE(gaps_untouched(logits));
    }
  });
}

TEST(Tokens, RowsAreDrawnAsTheyAskAndLogitsStay) {
  on_every_machine([](Context& ctx, Context&) {
    Owned logits(DType::kF32, {6, 300}, 1), tokens(DType::kI32, {6});
    fill(logits, 2, 4.0);
    const Draws sample_rows(
        6, {.temperature = 0.8f, .top_p = 0.9f, .min_p = 0.01f, .top_k = 40, .uniform = 0.6});
    as_sample_rows(sample_rows)[1] = {};       // left out
    as_sample_rows(sample_rows)[2].top_k = 1;  // greedy
    as_sample_rows(sample_rows)[3].uniform = 0;
    put(logits, {4, 7}, NAN);
    const std::vector<std::byte> before = logits.bytes;
    sample_tokens(ctx, logits, sample_rows, tokens);
    EXPECT_TRUE(std::ranges::equal(before, logits.bytes));
    for (const std::int64_t i : {0, 2, 3, 5}) {
      std::vector<float> row(logits.view.rows(i, 1).ptr<float>(),
                             logits.view.rows(i, 1).ptr<float>() + 300);
      const float max = *std::ranges::max_element(row);
      EXPECT_EQ(get(tokens, {i}), draw::choose(row, max, as_sample_rows(sample_rows)[i]))
          << "row " << i;
    }
    EXPECT_EQ(get(tokens, {1}), 0);
    EXPECT_EQ(get(tokens, {4}), -1);
  });
}

TEST(Tokens, ComeFromTheirSlotsAndGoThere) {
  on_every_machine([](Context& ctx, Context&) {
    Owned slot_tokens(DType::kI32, {4}), ids(DType::kI32, {5}), tokens(DType::kI32, {3}),
        slots(DType::kI32, {3});
    for (const auto& [at, token, slot] : {std::array{0, 17, 2}, {1, -1, 0}, {2, 5, -1}}) {
      put(tokens, {at}, token);
      put(slots, {at}, slot);
    }
    put(slot_tokens, {1}, 41);
    put(slot_tokens, {3}, 43);
    put_slot_tokens(ctx, tokens, slots, slot_tokens);
    const int kept[] = {0, 41, 17, 43};  // a row that was not finite leaves 0
    for (std::int64_t i = 0; i < 4; ++i) EXPECT_EQ(get(slot_tokens, {i}), kept[i]);
    const int given[] = {-3, 9, -1, -4, 0}, wanted[] = {17, 9, 0, 43, 0};
    for (std::int64_t i = 0; i < 5; ++i) put(ids, {i}, given[i]);
    take_slot_tokens(ctx, slot_tokens, ids);
    for (std::int64_t i = 0; i < 5; ++i) EXPECT_EQ(get(ids, {i}), wanted[i]);
  });
}

}  // namespace
}  // namespace sluice::ops
