// Who samples a batch, and masks that come after its forward.
#include "sampling/sampler.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "base/thread_pool.h"

namespace sluice {
namespace {

constexpr int kVocab = 70, kSlots = 3;

class Sampling : public testing::Test {
 protected:
  Sampling() { ctx_.pool = &pool_; }

  Sampler sampler(int steps_in_flight) {
    return Sampler({.max_slots = kSlots,
                    .vocab_size = kVocab,
                    .max_rows = 2,
                    .steps_in_flight = steps_in_flight,
                    .device = {}},
                   stream_);
  }

  // A decode row of each of the first `rows` slots, greedy.
  static Batch decode(int rows) {
    Batch batch;
    for (std::int32_t i = 0; i < rows; ++i) {
      batch.items.push_back({static_cast<std::uint64_t>(i), i, 4, 1, true});
      batch.token_ids.push_back(1);
      batch.logit_rows.push_back({.item = i, .row = i, .position = 5, .sample = true});
      batch.slot_inits.push_back(
          {.slot = i, .params = {}, .prompt = {}, .output = {}, .num_output = 0});
      batch.slot_inits.back().params.temperature = 0;
    }
    return batch;
  }

  // Row r is largest at token 10 + r, then falls with the token.
  Tensor logits(std::int64_t first, std::int64_t count) {
    values_.assign(static_cast<std::size_t>(count * kVocab), 0);
    for (std::int64_t r = 0; r < count; ++r)
      for (int t = 0; t < kVocab; ++t)
        values_[static_cast<std::size_t>(r * kVocab + t)] =
            t == 10 + first + r ? 9.0f : -0.01f * static_cast<float>(t);
    return Tensor::dense(values_.data(), DType::kF32, {count, kVocab});
  }

  BatchResult run(Sampler& sampler, const Batch& batch, const SampleInputs& inputs) {
    SampleState state = sampler.begin(batch);
    const auto rows = static_cast<std::int64_t>(batch.logit_rows.size());
    StepTensors step(sampler, state, batch, rows <= 2 ? logits(0, rows) : Tensor{});
    sampler.sample(
        ctx_, batch, inputs, step.rows,
        [&](std::int64_t first, std::int64_t n) { return logits(first, n); }, state);
    return sampler.collect(std::move(state));
  }

  // What a runner has of a step.
  struct StepTensors {
    StepTensors(const Sampler& sampler, const SampleState& state, const Batch& batch,
                const Tensor& logits) {
      const RowInfo info = sampler.row_info(state);
      for (const LogitRow& row : batch.logit_rows) {
        const std::int32_t slot = batch.items[static_cast<std::size_t>(row.item)].slot;
        slots.push_back(slot);
        samples.push_back(info.sample_row_of ? info.sample_row_of(row, slot) : ops::SampleRow{});
        edits.push_back(info.logit_edits_of ? info.logit_edits_of(row, slot) : ops::LogitEdits{});
      }
      const auto count = static_cast<std::int64_t>(slots.size());
      rows.logits = logits;
      rows.rows.logit_slots = Tensor::dense(slots.data(), DType::kI32, {count});
      rows.rows.sample_rows =
          Tensor::dense(samples.data(), DType::kU8, {count, sizeof(ops::SampleRow)});
      rows.rows.logit_edits =
          Tensor::dense(edits.data(), DType::kU8, {count, sizeof(ops::LogitEdits)});
    }
    std::vector<std::int32_t> slots;
    std::vector<ops::SampleRow> samples;
    std::vector<ops::LogitEdits> edits;
    Sampler::StepRows rows;
  };

  static TokenMask mask_of(std::int32_t row, std::initializer_list<int> tokens) {
    TokenMask mask{.logit_row = row, .bits = std::vector<std::uint32_t>((kVocab + 31) / 32)};
    for (const int token : tokens) mask.bits[token / 32] |= 1u << (token % 32);
    return mask;
  }

  ThreadPool pool_{2};
  Context ctx_;
  Stream stream_;
  std::vector<float> values_;
};

TEST_F(Sampling, AMaskThatCameAfterTheForwardLimitsItsRowAlone) {
  for (const int steps_in_flight : {1, 2}) {
    Sampler all = sampler(steps_in_flight);
    // Three rows are more than the device takes at once.
    for (const int num_rows : {2, 3}) {
      Batch batch = decode(num_rows);
      batch.logit_rows[1].has_mask = true;
      EXPECT_EQ(std::holds_alternative<DevicePending>(all.begin(batch)),
                steps_in_flight == 2 && num_rows == 2);
      SampleInputs inputs;
      inputs.masks.push_back(mask_of(1, {33, 40, 69}));
      const std::vector<std::int32_t> expected{10, 33, 12};
      EXPECT_EQ(run(all, batch, inputs).tokens,
                std::vector(expected.begin(), expected.begin() + num_rows));
    }
  }
}

TEST_F(Sampling, AMaskIsTheLastEditOfARow) {
  for (const int steps_in_flight : {1, 2}) {
    Sampler all = sampler(steps_in_flight);
    Batch batch = decode(1);
    batch.logit_rows[0].has_mask = true;
    batch.logit_rows[0].num_top_logprobs = 1;
    batch.slot_inits[0].params.logit_bias = {{10, 100.0f}, {69, 50.0f}};
    const BatchResult result = run(all, batch, {{mask_of(0, {5, 69})}});
    EXPECT_EQ(result.tokens[0], 69) << "a bias does not lift it";
    EXPECT_EQ(result.token_logprobs[0].top[0].token, 10) << "log-probabilities are of raw logits";
    EXPECT_LT(result.token_logprobs[0].logprob, -9);
    EXPECT_EQ(run(all, batch, {{mask_of(0, {})}}).failed[0], 1) << "no token is left";
  }
}

TEST_F(Sampling, AMaskThatIsMissingOrForAnotherRowIsABug) {
  Sampler all = sampler(2);
  Batch batch = decode(2);
  EXPECT_THROW(run(all, batch, {{mask_of(0, {1})}}), Error) << "the device samples this batch";
  batch.logit_rows[1].has_mask = true;
  EXPECT_THROW(run(all, batch, {}), Error);
  EXPECT_THROW(run(all, batch, {{mask_of(0, {1})}}), Error);
}

TEST_F(Sampling, ABatchIsCollectedOnlyAfterItWasSampled) {
  Sampler all = sampler(1);
  EXPECT_THROW(all.collect(all.begin(decode(1))), Error);
}

}  // namespace
}  // namespace sluice
