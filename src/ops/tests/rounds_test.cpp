// Rounds of drafts: which are right, and where the rows behind them go.
#include <vector>

#include "kernels/types/op_params.h"
#include "kernels/types/uniform.h"
#include "ops/testing/support.h"
#include "ops/tokens.h"

namespace sluice::ops {
namespace {

struct Ints : Owned {
  explicit Ints(const std::vector<std::int32_t>& values)
      : Owned(DType::kI32, {std::ssize(values)}) {
    std::ranges::copy(values, view.ptr<std::int32_t>());
  }
  std::vector<std::int32_t> all() const {
    const auto* const first = view.ptr<std::int32_t>();
    return {first, first + view.dim(0)};
  }
};
using Values = std::vector<std::int32_t>;

struct Keys : Owned {
  Keys(std::int64_t rows, std::int32_t first) : Owned(DType::kU8, {rows, sizeof(RowKey)}) {
    for (std::int64_t i = 0; i < rows; ++i)
      as_row_keys(view)[i] = {.seed = 7, .position = first + static_cast<std::int32_t>(i)};
  }
};

struct Round {
  Ints slots, moved, ids, tokens;
  Ints next = Ints(Values(slots.all().size(), -9));
  Ints slot_tokens{{90, 91, 92, 93}}, wrong{{5, 6, 2, 8}}, first{{0, 0, 0, 0}},
      behind{{0, 0, 0, 0}}, last{{-1, -1, -1, -1}};

  void run(Context& ctx, const Tensor& chances = {}, const Tensor& row_keys = {}) {
    accept_drafts(ctx,
                  {.slots = slots,
                   .moved = moved,
                   .ids = ids,
                   .tokens = tokens,
                   .next_tokens = next,
                   .slot_tokens = slot_tokens,
                   .chances = chances,
                   .row_keys = row_keys},
                  {.wrong = wrong, .wrong_first = first, .wrong_next = behind, .last_rows = last});
  }
};

TEST(Rounds, DraftsAreRightUpToTheFirstThatIsNot) {
  on_every_machine([](Context& ctx, Context&) {
    // Slot 2 has a right draft and two wrong ones, slot 0 none, slot 3 two right ones; the row of
    // the host's slot keeps its tokens.
    Round round{.slots = Ints({2, 2, 2, 2, 0, -1, -1, 3, 3, 3}),
                .moved = Ints({2, 2, 2, 2, -1, -1, -1, -1, -1, -1}),
                .ids = Ints({10, 11, 12, 13, 20, 30, 31, 40, 41, 42}),
                .tokens = Ints({11, 55, 13, 14, 21, 77, 78, 41, 42, 43})};
    round.run(ctx);
    EXPECT_EQ(round.tokens.all(), Values({11, 55, -2, -2, 21, 77, 78, 41, 42, 43}));
    EXPECT_EQ(round.next.all(), Values({11, 55, 0, 0, 21, -9, -9, 41, 42, 43}));
    EXPECT_EQ(round.slot_tokens.all(), Values({21, 91, 55, 43}));
    EXPECT_EQ(round.wrong.all(), Values({0, 6, 2, 0}));
    EXPECT_EQ(round.first.all(), Values({0, 0, 2, 0})) << "slot 2 counted two too many";
    EXPECT_EQ(round.behind.all(), Values({0, 0, 4, 0}));
    EXPECT_EQ(round.last.all(), Values({4, -1, 1, 9}));
  });
}

// A row that is not finite fails its item where it is the first one. Behind a draft it is left for
// the next step.
TEST(Rounds, ARowWithoutATokenEndsTheDrafts) {
  on_every_machine([](Context& ctx, Context&) {
    Round round{.slots = Ints({1, 1, 1, 0, 0}),
                .moved = Ints({-1, -1, -1, -1, -1}),
                .ids = Ints({10, 11, 12, 20, 21}),
                .tokens = Ints({11, 12, -1, -1, 22})};
    round.run(ctx);
    EXPECT_EQ(round.tokens.all(), Values({11, 12, -2, -1, -2}));
    EXPECT_EQ(round.slot_tokens.all(), Values({0, 12, 92, 93}));
    EXPECT_EQ(round.wrong.all(), Values({1, 1, 2, 8}));
    EXPECT_EQ(round.last.all(), Values({3, 1, -1, -1}));
  });
}

TEST(Rounds, MeasurementsPretend) {
  on_every_machine([](Context& ctx, Context&) {
    Owned chances(DType::kF64, {2});
    chances.view.ptr<double>()[0] = 1;
    chances.view.ptr<double>()[1] = 0;
    const Keys keys(3, 100);
    Round round{.slots = Ints({1, 1, 1}),
                .moved = Ints({-1, -1, -1}),
                .ids = Ints({0, 1, 2}),
                .tokens = Ints({50, 51, 52})};
    round.run(ctx, chances, keys);
    EXPECT_EQ(round.tokens.all(), Values({1, 3, -2})) << "no row holds 3";
  });
}

TEST(Rounds, RowsGoBackToTheirPages) {
  on_every_machine([](Context& ctx, Context&) {
    const Ints slots({2, 2, -1, 0}), moved({0, 9, 3, 9}), last({3, 0, 1, 0});
    Ints positions({65, 66, 65, 7}), lengths({66, 67, 66, 8}), places({4, 5, 6, 7}),
        sources({-1, -1, 8, -1});
    Owned table(DType::kI32, {4, 3}), locs(DType::kI64, {4}),
        samples(DType::kU8, {4, sizeof(SampleRow)});
    for (int i = 0; i < 4; ++i) {
      for (int j = 0; j < 3; ++j) put(table, {i, j}, 10 * i + j + 1);
      put(locs, {i}, -5);
      as_sample_rows(samples)[i] = {.temperature = 1, .uniform = 2};
    }
    const Keys keys(4, 66);
    place_rows(ctx,
               {.slots = slots,
                .positions = positions,
                .seq_lens = lengths,
                .page_tables = {table},
                .out_cache_locs = {locs},
                .row_keys = keys,
                .sample_rows = samples,
                .logit_slots = places,
                .sources = sources},
               moved, last);
    EXPECT_EQ(positions.all(), Values({62, 63, 65, 7}));
    EXPECT_EQ(lengths.all(), Values({63, 64, 66, 8}));
    EXPECT_EQ(get(locs, {0}), 1 * 64 + 62);
    EXPECT_EQ(get(locs, {1}), 11 * 64 + 63);
    EXPECT_EQ(get(locs, {2}), -5) << "the host has placed it";
    EXPECT_EQ(get(locs, {3}), 31 * 64 + 7);
    EXPECT_EQ(places.all(), Values({-1, 5, 6, 7}));
    EXPECT_EQ(sources.all(), Values({1, 1, 8, 3}));
    EXPECT_EQ(as_sample_rows(samples)[1].uniform, draw::uniform_at(7, 67 - 3));
    EXPECT_EQ(as_sample_rows(samples)[2].uniform, 2);
  });
}

TEST(Rounds, DraftsGoToTheirSlots) {
  on_every_machine([](Context& ctx, Context&) {
    const Ints tokens({3, -1, 2, 1}), slots({2, 0, -1, 1}), places({0, 1, 2, -1});
    Ints table({70, 71, 72});
    put_draft_tokens(ctx, tokens, slots, places, {}, table);
    EXPECT_EQ(table.all(), Values({0, 71, 3}));
    Owned map(DType::kI32, {4, 1});
    for (int i = 0; i < 4; ++i) put(map, {i, 0}, 40 + i);
    put_draft_tokens(ctx, tokens, slots, places, map, table);
    EXPECT_EQ(table.all(), Values({40, 71, 43}));
  });
}

}  // namespace
}  // namespace sluice::ops
