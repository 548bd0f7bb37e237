// Start and end of a step on the CPU. sampling/device_logit_edits_test.cpp compares the arithmetic
// of logit edits with the sampler's.
#include "ops/logit_edits.h"

#include <cmath>

#include "base/error.h"
#include "kernels/types/log_math.h"
#include "ops/graph_io.h"
#include "ops/testing/support.h"

namespace sluice::ops {
namespace {

TEST(Penalties, LogarithmsAreThoseOfTheLibrary) {
  std::mt19937_64 random(3);
  for (int i = 0; i < 200'000; ++i) {
    const double x = std::ldexp(1 + static_cast<double>(random() >> 11) * 0x1p-53,
                                static_cast<int>(random() % 120) - 60);
    const double expected = std::log(x);
    // One ulp of the larger term, and twice as much of the smaller terms.
    EXPECT_NEAR(draw::log_of(x), expected, 3 * 0x1p-53 * std::max(std::abs(expected), 0.35)) << x;
  }
  EXPECT_EQ(draw::log_of(1.0), 0.0);
}

TEST(Penalties, ALogProbabilityIsOfTheRawLogitsAndARuleIsMadeForANewToken) {
  on_every_machine([](Context& ctx, Context&) {
    Owned logits(DType::kF32, {2, 5}, 3), logit_edits(DType::kU8, {2, sizeof(LogitEdits)}),
        sampled_rows(DType::kU8, {2, sizeof(SampledRow)});
    Owned edit_lists(DType::kU8, {3, 2, sizeof(LogitEdit)}), lengths(DType::kI32, {3}),
        tokens(DType::kI32, {2});
    for (int row = 0; row < 2; ++row)
      for (int i = 0; i < 5; ++i) put(logits, {row, i}, i);
    as_logit_edits(logit_edits)[0] = {
        .slot = 2, .presence = 1.5f, .remembers = 1, .num_top_logprobs = 2};
    as_logit_edits(logit_edits)[1] = {};
    for (int slot = 0; slot < 3; ++slot) put(lengths, {slot}, 0);
    put(lengths, {2}, 1);
    as_logit_edit_list(edit_lists)[4] = {.token = 4, .count = 2, .bias = -2};
    read_logprobs(ctx, logits, logit_edits, sampled_rows);
    adjust_logits(ctx, logit_edits, edit_lists, lengths, logits);
    EXPECT_EQ(get(logits, {0, 4}), 4 - 2 - 1.5);
    EXPECT_EQ(get(logits, {1, 4}), 4);
    double sum = 0;
    for (int i = 0; i < 5; ++i) sum += std::exp(i);
    const SampledRow& choice = as_sampled_rows(sampled_rows)[0];
    for (const int token : {3, 4, 3}) {
      put(tokens, {0}, token);
      put(tokens, {1}, 1);
      record_sampled_rows(ctx, tokens, logits, logit_edits, edit_lists, lengths, sampled_rows);
      EXPECT_NEAR(choice.logprob, token - std::log(sum), 1e-6);
    }
    EXPECT_EQ(get(lengths, {2}), 2);
    EXPECT_EQ(as_logit_edit_list(edit_lists)[4].count, 3);
    EXPECT_EQ(as_logit_edit_list(edit_lists)[5].token, 3);
    EXPECT_EQ(as_logit_edit_list(edit_lists)[5].count, 2);
    put(tokens, {0}, 0);  // the list has no room for a third edit
    record_sampled_rows(ctx, tokens, logits, logit_edits, edit_lists, lengths, sampled_rows);
    EXPECT_EQ(get(lengths, {2}), 2);
    ASSERT_EQ(choice.num_top, 2);
    EXPECT_EQ(choice.top[0].token, 4);
    EXPECT_EQ(choice.top[1].token, 3);
    EXPECT_NEAR(choice.top[1].logprob, 3 - std::log(sum), 1e-6);
    EXPECT_EQ(as_sampled_rows(sampled_rows)[1].num_top, 0);
    EXPECT_TRUE(gaps_untouched(logits));
  });
}

TEST(GraphIo, AStepFetchesItsOwnSideAndNoOther) {
  on_every_machine([](Context& ctx, Context&) {
    // 64 bytes of step number, 4 ids, 2 lengths (rounded up), then a table of 2 x 3 pages.
    constexpr std::int64_t kIds = 64, kLengths = 128, kTable = 192, kBytes = 256;
    Owned first(DType::kU8, {kBytes}), second(DType::kU8, {kBytes}), inputs(DType::kU8, {kBytes}),
        counter(DType::kI64, {1});
    Owned slot_tokens(DType::kI32, {3}), tokens(DType::kI32, {2}), slots(DType::kI32, {2});
    Owned box0(DType::kI32, {2}), box1(DType::kI32, {2});
    const auto part = [](const Owned& all, std::int64_t at,
                         std::initializer_list<std::int64_t> shape) {
      return Tensor::dense(static_cast<std::byte*>(all.view.data) + at, DType::kI32, shape);
    };
    for (int i = 0; i < 3; ++i) put(slot_tokens, {i}, 100 + i);
    put(counter, {0}, 0);
    StepInputs fetch;
    fetch.sides = {first.view, second.view};
    fetch.counter = counter;
    fetch.inputs = Tensor::dense(inputs.view.data, DType::kU8, {kTable});
    fetch.ids = part(inputs, kIds, {4});
    fetch.seq_lens = part(inputs, kLengths, {2});
    fetch.page_tables = {part(inputs, kTable, {2, 3})};
    fetch.slot_tokens = slot_tokens;
    for (std::int64_t number = 0; number < 4; ++number) {
      const Owned& side = number % 2 == 0 ? first : second;
      std::memcpy(side.view.data, &number, sizeof number);
      const int ids[] = {5, -1 - 2, static_cast<int>(number), -1}, lengths[] = {65, 1},
                pages[] = {7, 8, 9, 4, 5, 6};
      std::memcpy(part(side, kIds, {4}).data, ids, sizeof ids);
      std::memcpy(part(side, kLengths, {2}).data, lengths, sizeof lengths);
      std::memcpy(part(side, kTable, {2, 3}).data, pages, sizeof pages);
      load_step_inputs(ctx, fetch);
      EXPECT_EQ(get(fetch.ids, {0}), 5);
      EXPECT_EQ(get(fetch.ids, {1}), 102);
      EXPECT_EQ(get(fetch.ids, {2}), number);
      EXPECT_EQ(get(fetch.ids, {3}), number == 0 ? 100 : 40 + number - 1);
      EXPECT_EQ(get(fetch.page_tables[0], {0, 1}), 8);
      EXPECT_EQ(get(fetch.page_tables[0], {0, 2}), -1);  // beyond the length
      EXPECT_EQ(get(fetch.page_tables[0], {1, 0}), 4);
      put(tokens, {0}, 40 + number);
      put(tokens, {1}, -1);
      put(slots, {0}, 0);
      put(slots, {1}, -1);
      store_step_tokens(ctx, tokens, slots, slot_tokens, counter, {box0.view, box1.view});
      EXPECT_EQ(get(number % 2 == 0 ? box0 : box1, {0}), 40 + number);
      EXPECT_EQ(get(number % 2 == 0 ? box0 : box1, {1}), -1);
    }
    EXPECT_THROW(load_step_inputs(ctx, fetch), Error);  // nobody has written the inputs of step 4
  });
}

}  // namespace
}  // namespace sluice::ops
