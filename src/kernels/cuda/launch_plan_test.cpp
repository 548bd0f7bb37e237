#include "kernels/cuda/launch_plan.h"

#include <gtest/gtest.h>

#include "base/error.h"

namespace sluice::cuda {
namespace {

GemmFacts facts(std::int64_t m, DType x, DType w, bool library = true) {
  return {.m = m, .n = 4096, .k = 4096, .x = x, .w = w, .library = library};
}

TEST(LaunchPlan, ProductsOfEqualTypesWithManyRowsGoToTheLibrary) {
  EXPECT_EQ(choose_gemm(facts(9, DType::kBF16, DType::kBF16)), GemmKernel::kLibrary);
  EXPECT_EQ(choose_gemm(facts(64, DType::kF32, DType::kF32)), GemmKernel::kRows);
  EXPECT_EQ(choose_gemm(facts(65, DType::kF32, DType::kF32)), GemmKernel::kLibrary);
}

TEST(LaunchPlan, SmallBatchesInBfloat16StreamTheWeights) {
  EXPECT_EQ(choose_gemm(facts(16, DType::kBF16, DType::kBF16, true)), GemmKernel::kLibrary);
  EXPECT_EQ(choose_gemm(facts(16, DType::kBF16, DType::kBF16, false)), GemmKernel::kSkinny);
  for (const std::int64_t m : {1, 8})
    for (const bool library : {false, true}) {
      EXPECT_EQ(choose_gemm(facts(m, DType::kBF16, DType::kBF16, library)), GemmKernel::kSkinny) << m;
      EXPECT_EQ(choose_gemm(facts(m, DType::kF32, DType::kBF16, library)), GemmKernel::kRows) << m;
    }
  GemmFacts crooked = facts(1, DType::kBF16, DType::kBF16);
  crooked.aligned = false;
  EXPECT_EQ(choose_gemm(crooked), GemmKernel::kRows);
  GemmFacts odd = facts(1, DType::kBF16, DType::kBF16);
  odd.k = 4100;
  EXPECT_EQ(choose_gemm(odd), GemmKernel::kRows);
}

// Products of one row on an H200.
SkinnyFacts of_row(std::int64_t n, std::int64_t k) { return {.m = 1, .n = n, .k = k, .multiprocessors = 132, .sm = 90}; }

TEST(LaunchPlan, AProductHasAMultiprocessorOfItsOwnUnlessItEndsInASum) {
  EXPECT_EQ(2 * plan_skinny(of_row(4096, 4096)).shared_bytes, 227 << 10);
  SkinnyFacts sum = of_row(4096, 4096);
  sum.add = true;
  EXPECT_LT(plan_skinny(sum).shared_bytes, 100 << 10);
  EXPECT_EQ(plan_skinny(sum).stages, 5);
}

TEST(LaunchPlan, SkinnyProductsFitInTheSharedMemoryThatThereIs) {
  for (const int sm : {75, 80, 86, 89, 90, 100, 120})
    for (const bool gated : {false, true})
      for (const bool norm : {false, true})
        for (const std::int64_t m : {1, 3, 8, 16})
          for (const std::int64_t k : {8, 2048, 4096, 14336, 53248}) {
            SkinnyFacts f{.m = m, .n = 4096, .k = k, .gated = gated, .norm = norm, .multiprocessors = 108, .sm = sm};
            const SkinnyPlan plan = plan_skinny(f);
            EXPECT_TRUE(plan.stages == 0 || plan.shared_bytes + 1024 <= most_shared_bytes(sm)) << sm << ' ' << m << ' ' << k;
            // What is neither gated nor normalised runs everywhere that kSkinny does.
            EXPECT_TRUE(plan.stages > 0 || gated || norm || sm < 80) << sm << ' ' << m << ' ' << k;
          }
  SkinnyFacts gates{.m = 1, .n = 8192, .k = 2048, .gated = true, .norm = true, .multiprocessors = 128, .sm = 89};
  EXPECT_EQ(plan_skinny(gates).stages, 2);
  gates.sm = 80;
  EXPECT_EQ(plan_skinny(gates).stages, 3);
  gates = {.m = 8, .n = 8192, .k = 2048, .gated = true, .norm = true, .multiprocessors = 128, .sm = 89};
  EXPECT_EQ(plan_skinny(gates).stages, 0);   // x does not find room: the operations one after the other
}

TEST(LaunchPlan, ManyRowsAreNotNormalisedByEveryBlock) {
  SkinnyFacts f = of_row(4096, 4096);
  f.norm = true;
  f.m = 4;
  EXPECT_GT(plan_skinny(f).stages, 0);
  f.m = 5;
  EXPECT_EQ(plan_skinny(f).stages, 0);
}

TEST(LaunchPlan, WhatTheLibraryDoesNotServeStaysHere) {
  EXPECT_EQ(choose_gemm(facts(512, DType::kF32, DType::kBF16)), GemmKernel::kTiled);
  EXPECT_EQ(choose_gemm(facts(512, DType::kBF16, DType::kBF16, false)), GemmKernel::kTiled);
  EXPECT_EQ(choose_gemm(facts(32, DType::kBF16, DType::kBF16, false)), GemmKernel::kRows);
  GemmFacts crooked = facts(512, DType::kBF16, DType::kBF16);
  crooked.aligned = false;
  EXPECT_EQ(choose_gemm(crooked), GemmKernel::kTiled);
  GemmFacts narrow = facts(512, DType::kF32, DType::kF32);
  narrow.n = 1;
  EXPECT_EQ(choose_gemm(narrow), GemmKernel::kTiled);
}

TEST(LaunchPlan, OneKernelForEveryBatchWhereItMustBeDeterministic) {
  for (const std::int64_t m : {1, 8, 9, 64, 65, 8192})
    for (const DType x : {DType::kF32, DType::kBF16}) {
      GemmFacts f = facts(m, x, DType::kBF16);
      f.deterministic = true;
      EXPECT_EQ(choose_gemm(f), GemmKernel::kRows) << m;
    }
}

TEST(LaunchPlan, OnHopperThatIsAKernelOfTensorCores) {
  for (const std::int64_t m : {1, 8, 9, 64, 65, 8192}) {
    GemmFacts f = facts(m, DType::kBF16, DType::kBF16);
    f.deterministic = true;
    f.sm = 90;
    EXPECT_EQ(choose_gemm(f), GemmKernel::kAnchored) << m;
    f.sm = 80;
    EXPECT_EQ(choose_gemm(f), GemmKernel::kRows) << m;
    f.sm = 90;
    f.batch = 16;
    EXPECT_EQ(choose_gemm(f), GemmKernel::kRows) << m;
    f.batch = 1;
    f.aligned = false;
    EXPECT_EQ(choose_gemm(f), GemmKernel::kRows) << m;
    f.aligned = true;
    f.x = DType::kF32;
    EXPECT_EQ(choose_gemm(f), GemmKernel::kRows) << m;
  }
}

TEST(LaunchPlan, RowsAtOnceCoverSmallBatches) {
  EXPECT_EQ(gemm_rows_at_once(1), 1);
  EXPECT_EQ(gemm_rows_at_once(2), 2);
  EXPECT_EQ(gemm_rows_at_once(3), 4);
  EXPECT_EQ(gemm_rows_at_once(5), 8);
  EXPECT_EQ(gemm_rows_at_once(1000), 8);
}

TEST(LaunchPlan, ExpertsOfSmallBatchesStream) {
  const ExpertsFacts few{.pairs = 256, .experts = 128, .hidden = 2048, .width = 768, .x = DType::kBF16, .w = DType::kBF16, .sm = 90};
  EXPECT_EQ(choose_experts(few), ExpertsKernel::kStream);
  ExpertsFacts other = few;
  other.pairs = 769;
  EXPECT_EQ(choose_experts(other), ExpertsKernel::kTiles);
  other.sm = 80;
  EXPECT_EQ(choose_experts(other), ExpertsKernel::kStream);
  other.sm = 86;   // too little shared memory
  EXPECT_EQ(choose_experts(other), ExpertsKernel::kRows);
  other.sm = 80;
  other.pairs = kMaxStreamedPairs + 1;
  EXPECT_EQ(choose_experts(other), ExpertsKernel::kRows);
  EXPECT_EQ(streamed_rows(512, 128), 8);
  EXPECT_EQ(streamed_rows(513, 128), 16);
  EXPECT_EQ(expert_row_groups(1024, 128), 1);
  EXPECT_EQ(expert_row_groups(32768, 128), 2);
  other = few;
  other.deterministic = true;
  for (const std::int64_t pairs : {8, 769, 100000}) {
    other.pairs = pairs;
    other.sm = 90;
    EXPECT_EQ(choose_experts(other), ExpertsKernel::kTiles) << pairs;
    other.sm = 80;
    EXPECT_EQ(choose_experts(other), ExpertsKernel::kRows) << pairs;
  }
  other = few;
  other.x = DType::kF32;
  EXPECT_EQ(choose_experts(other), ExpertsKernel::kRows);
  other = few;
  other.width = 767;
  EXPECT_EQ(choose_experts(other), ExpertsKernel::kRows);
}

TEST(LaunchPlan, AttentionOnTensorCoresIsForBfloat16Pages) {
  const AttentionFacts decode{
      .tokens = 64, .seqs = 64, .group = 4, .dim = 128, .value_dim = 128, .plane = DType::kBF16, .sm = 90};
  EXPECT_EQ(choose_attention(decode), AttentionChoice::kSingleRows);
  AttentionFacts other = decode;
  other.plane = DType::kF32;
  EXPECT_EQ(choose_attention(other), AttentionChoice::kReference);
  other = decode;
  other.deterministic = true;
  for (const std::int64_t tokens : {1, 64, 4096})
    for (const std::int64_t seqs : {1, 64}) {
      other.tokens = tokens, other.seqs = seqs;
      EXPECT_EQ(choose_attention(other), AttentionChoice::kTiles) << tokens;   // whatever the batch
    }
  other.sm = 80;
  EXPECT_EQ(choose_attention(other), AttentionChoice::kReference);
  other.sm = 90;
  other.dim = other.value_dim = 96;
  EXPECT_EQ(choose_attention(other), AttentionChoice::kReference);
  EXPECT_EQ(tile_tokens(decode, 128, 8, 132), 1);
  other = decode;
  other.seqs = 2;
  EXPECT_EQ(tile_tokens(other, 128, 8, 132), 4);     // 64 tokens: as many tiles as multiprocessors, but no smaller ones
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
  other.sm = 89;   // a block has not the memory for heads of 128 there
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
  other.sm = 100;   // the tiles are Hopper's
  EXPECT_EQ(choose_attention(other), AttentionChoice::kReference);
}

TEST(LaunchPlan, RowsAreSplitUntilEveryMultiprocessorReads) {
  const DecodeFacts one{.rows = 1, .kv_heads = 8, .group = 4, .dim = 128, .max_pages = 512, .multiprocessors = 132};
  const DecodePlan plan = plan_decode(one);
  EXPECT_EQ(plan.head_tiles, 1);
  EXPECT_EQ(plan.head_blocks, 1);
  EXPECT_GE(plan.splits * 8, 120);
  DecodeFacts many = one;
  many.rows = 64;
  EXPECT_EQ(plan_decode(many).splits, 1);
  DecodeFacts brief = one;
  brief.max_pages = 3;
  EXPECT_LE(plan_decode(brief).splits, 3);
  DecodeFacts wide = one;
  wide.group = 20;
  EXPECT_EQ(plan_decode(wide).head_tiles, 2);
  EXPECT_EQ(plan_decode(wide).head_blocks, 2);
  wide.dim = 256;
  EXPECT_EQ(plan_decode(wide).head_tiles, 1);
  EXPECT_EQ(plan_decode(wide).head_blocks, 3);
}

TEST(LaunchPlan, SharedMemoryIsThatOfTheGpu) {
  EXPECT_EQ(most_shared_bytes(80), 163 << 10);
  EXPECT_EQ(most_shared_bytes(89), 99 << 10);
  EXPECT_EQ(most_shared_bytes(90), 227 << 10);
  EXPECT_EQ(most_shared_bytes(120), 99 << 10);
}

TEST(LaunchPlan, SplitsOfFewRowsAreClusters) {
  const DecodeFacts one{
      .rows = 1, .kv_heads = 8, .group = 4, .dim = 128, .max_pages = 512, .multiprocessors = 132, .clusters = true};
  DecodePlan plan = plan_decode(one);
  EXPECT_TRUE(plan.together);
  EXPECT_EQ(plan.splits, 16);
  EXPECT_EQ(plan.head_blocks, 1);
  EXPECT_EQ(plan.heads_each, 4);
  DecodeFacts other = one;
  other.kv_heads = 4;
  other.group = 7;
  plan = plan_decode(other);
  EXPECT_TRUE(plan.together);
  EXPECT_EQ(plan.head_blocks, 2);
  EXPECT_EQ(plan.heads_each, 4);
  for (const auto change : {+[](DecodeFacts& f) { f.clusters = false; }, +[](DecodeFacts& f) { f.rows = 2; },
                            +[](DecodeFacts& f) { f.kv_heads = 2; }, +[](DecodeFacts& f) { f.max_pages = 15; }}) {
    other = one;
    change(other);
    plan = plan_decode(other);
    EXPECT_FALSE(plan.together);
    EXPECT_EQ(plan.heads_each, 8);
  }
}

TEST(LaunchPlan, PartialResultsOfAttentionFitTheScratch) {
  for (const std::int64_t rows : {1, 2, 7, 33, 128, 1000, 100000})
    for (const std::int64_t kv_heads : {1, 2, 8, 64})
      for (const std::int64_t dim : {64, 128, 256}) {
        const std::int64_t group = 16;
        const DecodePlan plan = plan_decode(
            {.rows = rows, .kv_heads = kv_heads, .group = group, .dim = dim, .max_pages = 2048, .multiprocessors = 132});
        if (plan.splits == 1) continue;
        const std::int64_t units = rows * kv_heads * plan.head_blocks;
        EXPECT_LE(units * plan.splits * 8 * plan.head_tiles * (dim + 1) * 4, (64 << 20) - (64 << 10)) << rows;
        EXPECT_LE(units * 4, 64 << 10) << rows;
      }
}

TEST(LaunchPlan, TilesTakeRunsOfBfloat16RowsOnEveryGpu) {
  const AttentionFacts prefill{.tokens = 100, .seqs = 3, .group = 7, .dim = 256, .value_dim = 256, .plane = DType::kBF16, .sm = 80};
  EXPECT_TRUE(tiles_are_fast(prefill));
  for (const auto change : {+[](AttentionFacts& f) { f.plane = DType::kF32; }, +[](AttentionFacts& f) { f.aligned = false; },
                            +[](AttentionFacts& f) { f.deterministic = true; }, +[](AttentionFacts& f) { f.sm = 75; },
                            +[](AttentionFacts& f) { f.dim = f.value_dim = 80; }, +[](AttentionFacts& f) { f.value_dim = 128; }}) {
    AttentionFacts other = prefill;
    change(other);
    EXPECT_FALSE(tiles_are_fast(other));
  }
  EXPECT_FALSE(rows_one_by_one(prefill));
  AttentionFacts decode = prefill;
  decode.seqs = 50;
  EXPECT_TRUE(rows_one_by_one(decode));
  decode = prefill;
  decode.tokens = 16;
  EXPECT_TRUE(rows_one_by_one(decode));
  AttentionFacts narrow_values = prefill;
  narrow_values.dim = 192;
  narrow_values.value_dim = 128;
  EXPECT_TRUE(tiles_are_fast(narrow_values));
}

TEST(LaunchPlan, PlainAttentionIsSplitWhereBlocksAreFewAndKeysAreMany) {
  const SplitFacts one{.blocks = 8, .max_pages = 512, .split_bytes = 64 * 65 * 4, .scratch_bytes = 64 << 20, .multiprocessors = 132};
  EXPECT_EQ(attention_splits(one), 64);
  SplitFacts other = one;
  other.blocks = 132;
  EXPECT_EQ(attention_splits(other), 8);
  other.blocks = 2000;   // a prefill keeps the GPU busy
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

TEST(LaunchPlan, AttentionTilesHoldHeadsFirst) {
  EXPECT_EQ(choose_attention_tile(4096, 1, 4, false).tokens, 2);
  EXPECT_EQ(choose_attention_tile(64, 64, 4, false).tokens, 1);    // decode: a token a sequence
  EXPECT_EQ(choose_attention_tile(4096, 1, 1, false).tokens, 8);
  EXPECT_EQ(choose_attention_tile(4096, 1, 1, true).tokens, 1);
  for (const std::int64_t group : {1, 3, 7, 8, 16, 128})
    EXPECT_LE(choose_attention_tile(4096, 1, group, false).rows(), kMaxTileRows) << group;
}

TEST(LaunchPlan, AttentionFitsTheSharedMemoryOfEveryGpu) {
  for (const std::int64_t value_dim : {1, 64, 128, 192, 256, 512, 1024}) {
    const AttentionLaunch launch = plan_attention(kMaxTileRows, 1152, value_dim);
    EXPECT_GE(launch.columns * launch.threads, value_dim);
    EXPECT_LE(launch.shared_bytes, 99 << 10);   // compute capability 8.6 and 8.9
  }
  EXPECT_THROW(plan_attention(1, 64, 1025), Error);
}

}  // namespace
}  // namespace sluice::cuda
