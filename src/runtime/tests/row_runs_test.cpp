// The runs of rows that decode attention reads (ops::RowRuns).
#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

#include "base/error.h"
#include "runtime/steps/batch_buffers.h"
#include "runtime/steps/row_batch.h"

namespace sluice {
namespace {

// A sequence, one with two drafts, one with one: what a row sees of its step is known by its place.
TEST(RowRuns, RowsKnowTheirPlacesInTheirRuns) {
  Batch batch;
  batch.mode = ForwardMode::kTargetVerify;
  // Neighbours may have the same slot (draft_runner_graphs.cpp), and follow each other.
  batch.items = {{.sequence = 1, .slot = 0, .first = 5, .count = 1, .decode = true},
                 {.sequence = 2, .slot = 0, .first = 6, .count = 3, .decode = true},
                 {.sequence = 3, .slot = 1, .first = 9, .count = 2, .decode = true}};
  batch.token_ids = {9, 4, 5, 6, 7, 8};
  batch.groups.push_back({.offsets = {0, 1, 2, 3}, .pages = {7, 8, 9}});
  for (std::int32_t row = 0; row < 6; ++row)
    batch.logit_rows.push_back(
        {.item = row == 0 ? 0 : 1 + row / 4, .row = row, .position = 5 + row, .sample = true});
  BatchLimits limits{.max_tokens = 8,
                     .max_seqs = 8,
                     .max_seq_pages = 3,
                     .max_logit_rows = 8,
                     .num_groups = 1,
                     .draft_rows = true,
                     .run_rows = 3};
  const RowInfo info{.token_of_slot = {}, .sample_row_of = {}};
  const std::vector<std::int32_t> spare = {20};
  const auto places_of = [](const ForwardBatch& fb) {
    const auto* places = fb.row_runs.places.ptr<std::int32_t>();
    return std::vector<std::int32_t>(places, places + fb.row_runs.places.numel());
  };
  RowBatch rows;
  const Batch& out = rows.of(batch);
  BatchBuffers buffers(limits);
  const ForwardBatch& fb = buffers.fill(out, info);
  EXPECT_EQ(places_of(fb), (std::vector<std::int32_t>{0, 0, 1, 2, 0, 1}));
  EXPECT_EQ(fb.row_runs.longest, 3);
  (void)buffers.fill_padded(out, info, 8, spare, 128);
  EXPECT_EQ(places_of(fb), (std::vector<std::int32_t>{0, 0, 1, 2, 0, 1, 0, 0}));
  // What is recorded without rows is as all steps of its size.
  Batch padding;
  padding.mode = ForwardMode::kTargetVerify;
  (void)buffers.fill_padded(padding, info, 4, spare, 128);
  EXPECT_EQ(places_of(fb), (std::vector<std::int32_t>{0, 0, 0, 0}));
  EXPECT_EQ(fb.row_runs.longest, 3);
  // Rows of trees are no runs, and those of a plain step are alone.
  const BranchMoves moves{.from = {{}}, .to = {{}}};
  EXPECT_FALSE(buffers.fill(out, info, &moves).row_runs.places.defined());
  EXPECT_TRUE(buffers.fill(out, info).row_runs.places.defined());
  padding.mode = ForwardMode::kDecode;
  EXPECT_FALSE(buffers.fill_padded(padding, info, 4, spare, 128).row_runs.places.defined());
  EXPECT_TRUE(buffers.fill(out, info).row_runs.places.defined());
  EXPECT_FALSE(buffers.fill_largest(true, 128).row_runs.places.defined());

  limits.run_rows = 2;
  BatchBuffers narrow(limits);
  EXPECT_THROW(narrow.fill(out, info), Error);
  limits.run_rows = 0;
  BatchBuffers without(limits);
  EXPECT_FALSE(without.fill(out, info).row_runs.places.defined());
}

}  // namespace
}  // namespace sluice
