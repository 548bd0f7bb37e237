// Kernels of the indexer and the partition of their work: pure functions of shapes and device,
// tested without a GPU. They depend on what a captured graph keeps (rows, the maximum length of a
// sequence), never on lengths.
#pragma once

#include <cstdint>

#include "tensor/dtype.h"

namespace sluice::cuda {

struct IndexInputs {
  std::int64_t heads = 0, dim = 0;
  DType plane = DType::kF32;
  bool aligned = true;  // rows of keys and queries begin on 16 bytes
  bool deterministic = false;
  int sm = 0;
};
// 32 or 64 heads of 128 on Hopper, over bfloat16 keys or pages of 8-bit ones.
bool index_is_fast(const IndexInputs& inputs);

struct IndexScoresInputs {
  std::int64_t rows = 0, seqs = 0, heads = 0;
  std::int64_t max_keys = 0;  // of a row
  int num_sms = 1;
};
// A CTA has the queries of some neighbouring rows, and a part of their keys.
struct IndexScoresPlan {
  // Rows of one sequence share its keys: a CTA has kIndexTiles tiles of 64 heads.
  bool many_rows = false;
  int rows_of_block = 1;
  int parts = 1;  // CTAs that share the keys
};
inline constexpr int kIndexTiles = 4;
IndexScoresPlan plan_index_scores(const IndexScoresInputs& inputs);

// Top-k: a cluster of CTAs has a row, each CTA a slice of its scores.
struct SelectPlan {
  int cluster = 1;  // 1, 2, 4 or 8
};
SelectPlan plan_select(std::int64_t rows, std::int64_t max_keys, int num_sms);

inline constexpr int kSelectCandidates = 6144;  // candidates that fit in the first CTA of a row
// The sample has one of `share` scores. The bound is its `wanted` largest score: somewhat more than
// topk scores of the row should reach it, at most kSelectCandidates. wanted = 0: all are
// candidates.
struct SelectSample {
  int share = 1;
  int wanted = 0;
};
constexpr SelectSample sample_of(int length, int topk) {
  constexpr int kMinShare = 16, kMaxShare = 64, kEnough = 2048;  // scores of a sample
  if (length <= kSelectCandidates) return {};
  SelectSample sample{kMinShare, 0};
  while (sample.share < kMaxShare && length / sample.share > 2 * kEnough) sample.share *= 2;
  // Expected number of top-k scores in the sample. Its standard deviation is below the root; a
  // margin of four deviations is added.
  const int best = topk / sample.share + 1;
  int root = 1;
  while (root * root < best) ++root;
  sample.wanted = best + 4 * root;
  return sample;
}

}  // namespace sluice::cuda
