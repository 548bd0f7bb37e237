#include "kernels/cuda/attention/attention_plan.h"

#include <gtest/gtest.h>

#include "base/error.h"

namespace sluice::cuda {
namespace {

TEST(AttentionPlan, PagesOfE4m3TakeSingleRowsAndTilesOfMmaSync) {
  AttentionInputs inputs{.tokens = 64,
                         .seqs = 64,
                         .group = 4,
                         .dim = 128,
                         .value_dim = 128,
                         .plane = DType::kF8E4M3,
                         .sm = 90};
  EXPECT_EQ(choose_attention(inputs), AttentionChoice::kSingleRows);
  inputs.tokens = 4096, inputs.seqs = 1;
  EXPECT_EQ(choose_attention(inputs), AttentionChoice::kReference);
  EXPECT_TRUE(tiles_are_fast(inputs));
  inputs.deterministic = true;
  for (const bool is_widened : {false, true})
    for (const std::int64_t tokens : {1, 64, 4096}) {
      inputs.tokens = tokens, inputs.is_widened = is_widened;
      EXPECT_EQ(choose_attention(inputs), AttentionChoice::kReference);
      EXPECT_TRUE(tiles_are_fast(inputs));  // whatever the batch
    }
  inputs.aligned = false;
  EXPECT_FALSE(tiles_are_fast(inputs));
}

TEST(AttentionPlan, WidenedPagesOfE4m3TakeTheTilesOfBfloat16) {
  AttentionInputs inputs{.tokens = 4096,
                         .seqs = 1,
                         .group = 4,
                         .dim = 128,
                         .value_dim = 128,
                         .plane = DType::kF8E4M3,
                         .is_widened = true,
                         .sm = 90};
  EXPECT_EQ(choose_attention(inputs), AttentionChoice::kTiles);
  inputs.seqs = 64;
  EXPECT_EQ(choose_attention(inputs), AttentionChoice::kTilesAndSingleRows);
  inputs.tokens = 64;
  EXPECT_EQ(choose_attention(inputs), AttentionChoice::kSingleRows);
  inputs.tokens = 4096, inputs.group = kMaxTiledGroup + 1;
  EXPECT_EQ(choose_attention(inputs), AttentionChoice::kReference);
  inputs.group = 4, inputs.dim = inputs.value_dim = 256;
  EXPECT_EQ(choose_attention(inputs), AttentionChoice::kReference);
}

TEST(AttentionPlan, AttentionOnTensorCoresIsForBfloat16Pages) {
  const AttentionInputs decode{.tokens = 64,
                               .seqs = 64,
                               .group = 4,
                               .dim = 128,
                               .value_dim = 128,
                               .plane = DType::kBF16,
                               .sm = 90};
  EXPECT_EQ(choose_attention(decode), AttentionChoice::kSingleRows);
  AttentionInputs other = decode;
  other.plane = DType::kF32;
  EXPECT_EQ(choose_attention(other), AttentionChoice::kReference);
  other = decode;
  other.deterministic = true;
  for (const std::int64_t tokens : {1, 64, 4096})
    for (const std::int64_t seqs : {1, 64}) {
      other.tokens = tokens, other.seqs = seqs;
      EXPECT_EQ(choose_attention(other), AttentionChoice::kTiles) << tokens;  // whatever the batch
    }
  other.sm = 80;
  EXPECT_EQ(choose_attention(other), AttentionChoice::kReference);
  other.sm = 90;
  other.dim = other.value_dim = 96;
  EXPECT_EQ(choose_attention(other), AttentionChoice::kReference);
  EXPECT_EQ(tile_tokens(decode, 128, 8, 132), 1);
  other = decode;
  other.seqs = 2;
  EXPECT_EQ(tile_tokens(other, 128, 8, 132),
            4);  // 64 tokens: as many tiles as SMs, but no smaller ones
  other.tokens = 128;
  EXPECT_EQ(tile_tokens(other, 128, 8, 132), 8);
  EXPECT_EQ(tile_tokens(other, 128, 4, 132), 4);
  other.tokens = 4096;
  EXPECT_EQ(tile_tokens(other, 128, 8, 132), 32);
  other.group = 64;
  EXPECT_EQ(tile_tokens(other, 128, 1, 132), 2);
  other = decode;
  other.value_dim = 64;
  EXPECT_EQ(choose_attention(other), AttentionChoice::kReference);
  other = decode;
  other.dim = other.value_dim = 80;
  EXPECT_EQ(choose_attention(other), AttentionChoice::kReference);
  other = decode;
  other.sm = 80;
  EXPECT_EQ(choose_attention(other), AttentionChoice::kSingleRows);
  other.sm = 89;  // a CTA has too little shared memory for heads of 128
  EXPECT_EQ(choose_attention(other), AttentionChoice::kReference);
  other.dim = other.value_dim = 64;
  EXPECT_EQ(choose_attention(other), AttentionChoice::kSingleRows);
  other = decode;
  other.tokens = 4096;
  EXPECT_EQ(choose_attention(other), AttentionChoice::kTilesAndSingleRows);
  other.seqs = 1;
  EXPECT_EQ(choose_attention(other), AttentionChoice::kTiles);
  other.tokens = 16;
  EXPECT_EQ(choose_attention(other), AttentionChoice::kSingleRows);
  other.tokens = 4096;
  other.sm = 100;  // the tiles need Hopper
  EXPECT_EQ(choose_attention(other), AttentionChoice::kReference);
}

TEST(AttentionPlan, RowsAreSplitUntilEverySmReads) {
  const DecodeInputs one{
      .rows = 1, .kv_heads = 8, .group = 4, .dim = 128, .max_pages = 512, .num_sms = 132};
  const DecodePlan plan = plan_decode(one);
  EXPECT_EQ(plan.head_tiles, 1);
  EXPECT_EQ(plan.head_blocks, 1);
  EXPECT_GE(plan.splits * 8, 120);
  DecodeInputs many = one;
  many.rows = 64;
  EXPECT_EQ(plan_decode(many).splits, 1);
  DecodeInputs brief = one;
  brief.max_pages = 3;
  EXPECT_LE(plan_decode(brief).splits, 3);
  DecodeInputs wide = one;
  wide.group = 20;
  EXPECT_EQ(plan_decode(wide).head_tiles, 2);
  EXPECT_EQ(plan_decode(wide).head_blocks, 2);
  wide.dim = 256;
  EXPECT_EQ(plan_decode(wide).head_tiles, 1);
  EXPECT_EQ(plan_decode(wide).head_blocks, 3);
}

TEST(AttentionPlan, SplitsOfFewRowsAreClusters) {
  const DecodeInputs one{.rows = 1,
                         .kv_heads = 8,
                         .group = 4,
                         .dim = 128,
                         .max_pages = 512,
                         .num_sms = 132,
                         .clusters = true};
  DecodePlan plan = plan_decode(one);
  EXPECT_TRUE(plan.is_cluster);
  EXPECT_EQ(plan.splits, 16);
  EXPECT_EQ(plan.head_blocks, 1);
  EXPECT_EQ(plan.heads_each, 4);
  DecodeInputs other = one;
  other.kv_heads = 4;
  other.group = 7;
  plan = plan_decode(other);
  EXPECT_TRUE(plan.is_cluster);
  EXPECT_EQ(plan.head_blocks, 2);
  EXPECT_EQ(plan.heads_each, 4);
  for (const auto change :
       {+[](DecodeInputs& f) { f.clusters = false; }, +[](DecodeInputs& f) { f.rows = 2; },
        +[](DecodeInputs& f) { f.kv_heads = 2; }, +[](DecodeInputs& f) { f.max_pages = 15; }}) {
    other = one;
    change(other);
    plan = plan_decode(other);
    EXPECT_FALSE(plan.is_cluster);
    EXPECT_EQ(plan.heads_each, 8);
  }
}

TEST(AttentionPlan, PartialResultsOfAttentionFitTheScratch) {
  for (const std::int64_t rows : {1, 2, 7, 33, 128, 1000, 100000})
    for (const std::int64_t kv_heads : {1, 2, 8, 64})
      for (const std::int64_t dim : {64, 128, 256}) {
        const std::int64_t group = 16;
        const DecodePlan plan = plan_decode({.rows = rows,
                                             .kv_heads = kv_heads,
                                             .group = group,
                                             .dim = dim,
                                             .max_pages = 2048,
                                             .num_sms = 132});
        if (plan.splits == 1) continue;
        const std::int64_t units = rows * kv_heads * plan.head_blocks;
        EXPECT_LE(units * plan.splits * 8 * plan.head_tiles * (dim + 1) * 4,
                  (64 << 20) - (64 << 10))
            << rows;
        EXPECT_LE(units * 4, 64 << 10) << rows;
      }
}

TEST(AttentionPlan, TilesTakeRunsOfBfloat16RowsOnEveryGpu) {
  const AttentionInputs prefill{.tokens = 100,
                                .seqs = 3,
                                .group = 7,
                                .dim = 256,
                                .value_dim = 256,
                                .plane = DType::kBF16,
                                .sm = 80};
  EXPECT_TRUE(tiles_are_fast(prefill));
  for (const auto change :
       {+[](AttentionInputs& f) { f.plane = DType::kF32; },
        +[](AttentionInputs& f) { f.aligned = false; },
        +[](AttentionInputs& f) { f.deterministic = true; }, +[](AttentionInputs& f) { f.sm = 75; },
        +[](AttentionInputs& f) { f.dim = f.value_dim = 80; },
        +[](AttentionInputs& f) { f.value_dim = 128; }}) {
    AttentionInputs other = prefill;
    change(other);
    EXPECT_FALSE(tiles_are_fast(other));
  }
  EXPECT_FALSE(rows_one_by_one(prefill));
  AttentionInputs decode = prefill;
  decode.seqs = 50;
  EXPECT_TRUE(rows_one_by_one(decode));
  decode = prefill;
  decode.tokens = 16;
  EXPECT_TRUE(rows_one_by_one(decode));
  AttentionInputs narrow_values = prefill;
  narrow_values.dim = 192;
  narrow_values.value_dim = 128;
  EXPECT_TRUE(tiles_are_fast(narrow_values));
}

TEST(AttentionPlan, PlainAttentionIsSplitWhereBlocksAreFewAndKeysAreMany) {
  const SplitInputs one{.blocks = 8,
                        .max_pages = 512,
                        .split_bytes = 64 * 65 * 4,
                        .scratch_bytes = 64 << 20,
                        .num_sms = 132};
  EXPECT_EQ(attention_splits(one), 64);
  SplitInputs other = one;
  other.blocks = 132;
  EXPECT_EQ(attention_splits(other), 8);
  other.blocks = 2000;  // a prefill keeps the GPU busy
  EXPECT_EQ(attention_splits(other), 1);
  other = one;
  other.max_pages = 3;
  EXPECT_EQ(attention_splits(other), 3);
  other = one;
  other.scratch_bytes = 5 * one.split_bytes + 1;
  EXPECT_EQ(attention_splits(other), 5);
  other.scratch_bytes = 0;
  EXPECT_EQ(attention_splits(other), 1);
}

TEST(AttentionPlan, AttentionTilesHoldHeadsFirst) {
  EXPECT_EQ(choose_attention_tile(4096, 1, 4, false).tokens, 2);
  EXPECT_EQ(choose_attention_tile(64, 64, 4, false).tokens, 1);  // decode: a token a sequence
  EXPECT_EQ(choose_attention_tile(4096, 1, 1, false).tokens, 8);
  EXPECT_EQ(choose_attention_tile(4096, 1, 1, true).tokens, 1);
  for (const std::int64_t group : {1, 3, 7, 8, 16, 128})
    EXPECT_LE(choose_attention_tile(4096, 1, group, false).rows(), kMaxTileRows) << group;
}

TEST(AttentionPlan, AttentionFitsTheSharedMemoryOfEveryGpu) {
  for (const std::int64_t value_dim : {1, 64, 128, 192, 256, 512, 1024}) {
    const AttentionLaunch launch = plan_attention(kMaxTileRows, 1152, value_dim);
    EXPECT_GE(launch.columns * launch.threads, value_dim);
    EXPECT_LE(launch.shared_bytes, 99 << 10);  // compute capability 8.6 and 8.9
  }
  EXPECT_THROW(plan_attention(1, 64, 1025), Error);
}

}  // namespace
}  // namespace sluice::cuda
