#include "batch/step_message.h"

#include <gtest/gtest.h>

#include <vector>

#include "batch/result_message.h"

namespace sluice {
namespace {

Step full_step() {
  Batch batch;
  batch.mode = ForwardMode::kMixed;
  batch.deterministic = batch.is_round = true;
  batch.max_drafts = 3;
  batch.items = {
      {.sequence = 1ull << 40, .slot = 3, .first = 64, .count = 2, .next_token = 9},
      {.sequence = 7, .slot = 0, .first = 5, .count = 1, .decode = true, .is_ahead = true}};
  batch.token_ids = {11, 12, kTokenFromSlot};
  batch.groups = {{.offsets = {0, 2, 3}, .pages = {4, -1, 8}}, {.offsets = {0, 0, 0}, .pages = {}}};
  batch.state_slots = {2, 1};
  batch.copies = {{.group = 1, .from = 2, .to = 3, .tokens = 4}};
  SlotInit init;
  init.slot = 3;
  init.prompt = {1, 2, 3};
  init.output = {4};
  init.num_output = 1;
  init.params = {.temperature = 0.5f,
                 .top_k = 7,
                 .top_p = 0.25f,
                 .min_p = 0.125f,
                 .frequency_penalty = -1,
                 .presence_penalty = 2,
                 .repetition_penalty = 1.5f,
                 .logit_bias = {{5, -100.0f}, {6, 3.5f}},
                 .seed = ~0ull,
                 .min_new_tokens = 2,
                 .stop_token_ids = {0, 1},
                 .num_top_logprobs = 20};
  batch.slot_inits = {init};
  batch.logit_rows = {
      {.item = 1, .row = 2, .position = 6, .sample = true, .has_mask = true},
      {.item = 0, .row = 1, .position = 66, .target = 3, .num_top_logprobs = 4, .want_hash = true}};
  batch.pooled_rows = {{.item = 0, .row = 0, .count = 2}};
  batch.logit_rows[0].behind = 4;
  batch.branches = {{.item = 1, .parents = {-1}, .first_page = 0, .num_pages = 1, .pages = {3, 4}}};
  Step step{.id = 99,
            .dp = {batch, Batch{}},
            .global_tokens = {3, 0},
            .expert_moves = {{.layer = 1, .expert = 5, .from = 2, .to = 9, .end = 4096}}};
  step.hash = hash_step(step);
  return step;
}

TEST(StepMessage, AStepComesBackWithItsHash) {
  const Step step = full_step();
  ByteWriter out;
  write_step(step, out);
  ByteReader in(out.bytes());
  const Step back = read_step(in);
  in.expect_end();
  EXPECT_EQ(back.id, step.id);
  EXPECT_EQ(back.hash, step.hash);
  EXPECT_EQ(hash_step(back), step.hash);
  ByteWriter again;  // what the hash leaves out
  write_step(back, again);
  EXPECT_EQ(std::vector(again.bytes().begin(), again.bytes().end()),
            std::vector(out.bytes().begin(), out.bytes().end()));
}

TEST(ResultMessage, AResultComesBackAndEveryLengthIsChecked) {
  BatchResult result;
  result.token_offsets = {0, 2, 2};
  result.tokens = {7, 9};
  result.token_logprobs = {{.logprob = -0.5f, .logits_hash = 3, .top = {{7, -0.5f}, {1, -2}}}, {}};
  result.prompt_offsets = {0, 0, 1};
  result.prompt_logprobs = {{.logprob = -4, .top = {}}};
  result.failed = {0, 1};
  result.pooled_states = {0.25f, -1};
  result.draft_offsets = {0, 1, 1};
  result.drafts = {12};
  result.draft_parents = {0};
  ByteWriter out;
  write_result(result, out);
  ByteReader in(out.bytes());
  const BatchResult back = read_result(in);
  in.expect_end();
  EXPECT_EQ(back.tokens_of(0)[1], 9);
  EXPECT_EQ(back.token_logprobs[0].top, result.token_logprobs[0].top);
  EXPECT_EQ(back.failed, result.failed);
  ByteWriter again;
  write_result(back, again);
  const std::vector<std::byte> whole(out.bytes().begin(), out.bytes().end());
  EXPECT_EQ(std::vector(again.bytes().begin(), again.bytes().end()), whole);
  for (std::size_t size = 0; size < whole.size(); ++size) {
    ByteReader cut(std::span<const std::byte>(whole).first(size));
    EXPECT_THROW(read_result(cut), Error) << size << " of " << whole.size() << " bytes";
  }
}

TEST(StepMessage, EveryLengthIsChecked) {
  ByteWriter out;
  write_step(full_step(), out);
  const std::vector<std::byte> whole(out.bytes().begin(), out.bytes().end());
  for (std::size_t size = 0; size < whole.size(); ++size) {
    ByteReader in(std::span<const std::byte>(whole).first(size));
    EXPECT_THROW(read_step(in), Error) << size << " of " << whole.size() << " bytes";
  }
  // A byte that counts too much takes no memory, and one that is no flag is no step.
  int refused = 0;
  for (std::size_t at = 0; at < whole.size(); ++at) {
    std::vector<std::byte> bytes = whole;
    bytes[at] = std::byte{0xff};
    ByteReader in(bytes);
    try {
      const Step step = read_step(in);
      in.expect_end();
      refused += hash_step(step) != step.hash;
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kFatal);
      ++refused;
    }
  }
  EXPECT_GT(refused, static_cast<int>(whole.size()) * 8 / 10);
}

TEST(StepMessage, MasksComeBack) {
  const std::vector<SampleInputs> inputs = {
      {.masks = {{.logit_row = 2, .bits = {1, 2, ~0u}},
                 {.logit_row = 3, .bits = {}, .is_skipped = true}}},
      {}};
  ByteWriter out;
  write_sample_inputs(inputs, out);
  ByteReader in(out.bytes());
  const std::vector<SampleInputs> back = read_sample_inputs(in);
  in.expect_end();
  ASSERT_EQ(back.size(), 2u);
  ASSERT_EQ(back[0].masks.size(), 2u);
  EXPECT_EQ(back[0].masks[0].bits, inputs[0].masks[0].bits);
  EXPECT_EQ(back[0].masks[0].logit_row, 2);
  EXPECT_TRUE(back[0].masks[1].is_skipped);
  EXPECT_TRUE(back[1].masks.empty());
}

}  // namespace
}  // namespace sluice
