// Tokens and log-probabilities that the device chooses by rules are the sampler's, bit for bit.
#include "sampling/device_logit_edits.h"

#include <gtest/gtest.h>

#include <random>

#include "ops/logit_edits.h"
#include "ops/tokens.h"

namespace sluice {
namespace {

constexpr int kVocab = 700, kSlots = 12;

// Requests with every kind of rule, alone and together; slot 0 wants nothing.
SamplingParams params_of(int slot, std::mt19937& random) {
  SamplingParams params;
  params.seed = static_cast<std::uint64_t>(slot);
  params.temperature = slot % 3 == 0 ? 0.0f : 0.9f;
  if (slot % 2 == 1) params.top_p = 0.8f;
  if (slot % 4 >= 2) params.repetition_penalty = 1.3f;
  if (slot % 5 >= 2) params.frequency_penalty = 0.7f;
  if (slot % 6 >= 4) params.presence_penalty = -0.4f;
  if (slot % 3 == 1) {
    params.logit_bias.emplace_back(kVocab + 5, 3.0f);  // nobody's: skipped
    for (int token = 3; token < kVocab; token += 1 + static_cast<int>(random() % 90))
      params.logit_bias.emplace_back(token, token % 2 == 0 ? 2.5f : -100.0f);
  }
  if (slot % 4 == 1) {
    params.min_new_tokens = 5;
    params.stop_token_ids = {7, 11, 650};
  }
  return params;
}

class Rules : public ::testing::Test {
 protected:
  Rules() : device_(kSlots, kSlots, DeviceLogitEdits::edits_of_slot(kVocab), {}, stream_) {
    ctx_.pool = &pool_;
    for (int slot = 0; slot < kSlots; ++slot) start(slot, slot % 4 == 0 ? 9 : 0);
  }

  // A sequence whose prompt and first `num_output` tokens are random.
  void start(int slot, int num_output) {
    SlotInit init{.slot = slot,
                  .params = params_of(slot, random_),
                  .prompt = {},
                  .output = {},
                  .num_output = num_output};
    for (int i = 0; i < 30; ++i)
      init.prompt.push_back(static_cast<std::int32_t>(random_() % kVocab));
    for (int i = 0; i < num_output; ++i)
      init.output.push_back(static_cast<std::int32_t>(random_() % kVocab));
    for (HostSampler* sampler : {&host_, &mirror_}) sampler->apply(std::span(&init, 1));
    device_.invalidate(std::span(&init, 1));
  }

  // A step of every slot, `position` of all; every fourth row wants log-probabilities.
  Batch step(int position) const {
    Batch batch;
    for (std::int32_t i = 0; i < kSlots; ++i) {
      batch.items.push_back(
          {static_cast<std::uint64_t>(i), (i * 5 + position) % kSlots, position - 1, 1, true});
      batch.token_ids.push_back(kTokenFromSlot);
      batch.logit_rows.push_back({i, i, position, true, -1, i % 4 == 3 ? i - 3 : -1, false});
    }
    return batch;
  }

  // The most likely entries are few and come again, so that counts grow and ties occur.
  std::vector<float> logits() {
    std::vector<float> out(kSlots * kVocab);
    for (float& x : out) x = static_cast<float>(static_cast<int>(random_() % 4000) - 3000) / 300;
    for (int row = 0; row < kSlots; ++row)
      for (int i = 0; i < 8; ++i)
        out[static_cast<std::size_t>(row * kVocab + i * 7)] = 4.0f + static_cast<float>(i % 3);
    return out;
  }
  static Tensor rows(std::vector<float>& values) {
    return Tensor::dense(values.data(), DType::kF32, {kSlots, kVocab});
  }

  // As ModelRunner does it; `num_ahead` tokens of each slot have not been seen by the host.
  std::vector<std::int32_t> choose(const Batch& batch, std::vector<float> values, int num_ahead) {
    device_.refresh(batch, mirror_);
    std::vector<ops::SampleRow> sample_rows;
    std::vector<ops::LogitEdits> logit_edits;
    for (const LogitRow& row : batch.logit_rows) {
      const std::int32_t slot = batch.items[static_cast<std::size_t>(row.item)].slot;
      sample_rows.push_back(mirror_.sample_row_of(row, slot));
      logit_edits.push_back(mirror_.logit_edits_of(row, slot, num_ahead));
    }
    const Tensor draw =
        Tensor::dense(sample_rows.data(), DType::kU8, {kSlots, sizeof(ops::SampleRow)});
    const Tensor row_edits =
        Tensor::dense(logit_edits.data(), DType::kU8, {kSlots, sizeof(ops::LogitEdits)});
    std::vector<std::int32_t> tokens(kSlots);
    const Tensor chosen = Tensor::dense(tokens.data(), DType::kI32, {kSlots});
    const Tensor logits = rows(values);
    device_.before(ctx_, logits, row_edits);
    ops::sample_tokens(ctx_, logits, draw, chosen);
    device_.after(ctx_, chosen, logits, row_edits);
    return tokens;
  }

  std::mt19937 random_{5};
  ThreadPool pool_{2};
  Context ctx_;
  Stream stream_;
  HostSampler host_{kSlots, kVocab},
      mirror_{kSlots, kVocab};  // one chooses, the other learns what the device chose
  DeviceLogitEdits device_;
};

void expect_same(const BatchResult& a, const BatchResult& b, int position) {
  EXPECT_EQ(a.tokens, b.tokens) << position;
  EXPECT_EQ(a.failed, b.failed) << position;
  ASSERT_EQ(a.token_logprobs.size(), b.token_logprobs.size());
  for (std::size_t i = 0; i < a.token_logprobs.size(); ++i) {
    EXPECT_EQ(a.token_logprobs[i].logprob, b.token_logprobs[i].logprob) << position << " row " << i;
    EXPECT_EQ(a.token_logprobs[i].top, b.token_logprobs[i].top) << position << " row " << i;
  }
}

TEST_F(Rules, ChoicesAreTheSamplersWithAStepInFlight) {
  struct StepInFlight {
    Batch batch;
    std::vector<std::int32_t> tokens;
    std::vector<ops::SampledRow> sampled_rows;
  };
  std::vector<StepInFlight> flights;
  int differ = 0;
  const auto land = [&] {
    const StepInFlight flight = std::move(flights.front());
    flights.erase(flights.begin());
    EXPECT_EQ(mirror_.accept(flight.batch, flight.tokens, flight.sampled_rows.data()).failed,
              std::vector<std::uint8_t>(kSlots, 0));
  };
  for (int position = 40; position < 90; ++position) {
    const Batch batch = step(position);
    ASSERT_FALSE(mirror_.any_needs_host(batch));
    EXPECT_TRUE(device_.wanted(batch, mirror_));
    std::vector<float> values = logits(), scratch = values;
    const BatchResult wanted = host_.sample(ctx_, batch, rows(scratch));
    StepInFlight flight{batch, choose(batch, values, static_cast<int>(flights.size())), {}};
    const auto* sampled_rows = ops::as_sampled_rows(device_.sampled_rows());
    flight.sampled_rows.assign(sampled_rows, sampled_rows + kSlots);
    EXPECT_EQ(flight.tokens, wanted.tokens) << position;
    for (std::size_t i = 3; i < kSlots; i += 4) {
      EXPECT_EQ(flight.sampled_rows[i].logprob, wanted.token_logprobs[i].logprob)
          << position << " row " << i;
      ASSERT_EQ(flight.sampled_rows[i].num_top,
                static_cast<int>(wanted.token_logprobs[i].top.size()));
      for (int k = 0; k < flight.sampled_rows[i].num_top; ++k) {
        EXPECT_EQ(flight.sampled_rows[i].top[k].token,
                  wanted.token_logprobs[i].top[static_cast<std::size_t>(k)].token);
        EXPECT_EQ(flight.sampled_rows[i].top[k].logprob,
                  wanted.token_logprobs[i].top[static_cast<std::size_t>(k)].logprob);
      }
    }
    // Rules must have changed something, or the test shows nothing.
    for (int i = 0; i < kSlots; ++i) {
      const auto* row = values.data() + i * kVocab;
      differ +=
          wanted.tokens[static_cast<std::size_t>(i)] != std::max_element(row, row + kVocab) - row;
    }
    flights.push_back(std::move(flight));
    if (flights.size() == 2) land();
    if (position ==
        60) {  // sequences end and others take their slots, when nothing of theirs is on its way
      while (!flights.empty()) land();
      start(4, 3);
      start(7, 0);
    }
    if (position ==
        75) {  // the host samples a step by itself, and the device goes on with its lists
      while (!flights.empty()) land();
      const Batch own = step(76);
      std::vector<float> a = logits(), b = a;
      expect_same(host_.sample(ctx_, own, rows(a)), mirror_.sample(ctx_, own, rows(b)), 76);
      device_.invalidate(own.items);
      ++position;
    }
  }
  EXPECT_GT(differ, 100);
}

TEST_F(Rules, RowsThatAreNotFiniteFailWhateverTheRulesSay) {
  const Batch batch = step(40);
  std::vector<float> values = logits();
  for (int row = 0; row < kSlots; ++row)
    values[static_cast<std::size_t>(row * kVocab + 7)] = row % 2 == 0 ? NAN : INFINITY;
  std::vector<float> scratch = values;
  EXPECT_EQ(host_.sample(ctx_, batch, rows(scratch)).failed, std::vector<std::uint8_t>(kSlots, 1));
  const std::vector<std::int32_t> tokens = choose(batch, values, 0);
  EXPECT_EQ(tokens, std::vector<std::int32_t>(kSlots, -1));
  EXPECT_EQ(mirror_.accept(batch, tokens, ops::as_sampled_rows(device_.sampled_rows())).failed,
            std::vector<std::uint8_t>(kSlots, 1));
}

TEST_F(Rules, WhatOnlyTheHostDoesIsLeftToIt) {
  Batch batch = step(40);
  batch.logit_rows[3].want_hash = true;
  EXPECT_TRUE(mirror_.any_needs_host(batch));
  SlotInit init{.slot = 1, .params = {}, .prompt = {}, .output = {}, .num_output = 0};
  init.params.logit_bias = {{5, 1.0f}, {5, 2.0f}};  // added one by one
  mirror_.apply(std::span(&init, 1));
  EXPECT_TRUE(mirror_.any_needs_host(step(40)));
  init.params.logit_bias = {{5, 1.0f}};
  mirror_.apply(std::span(&init, 1));
  EXPECT_FALSE(mirror_.any_needs_host(step(40)));
  init.params.repetition_penalty = 1.5f;
  for (int i = 0; i < HostSampler::kMaxEdits; ++i) init.prompt.push_back(i);
  mirror_.apply(std::span(&init, 1));
  EXPECT_TRUE(mirror_.any_needs_host(step(40)));
}

}  // namespace
}  // namespace sluice
