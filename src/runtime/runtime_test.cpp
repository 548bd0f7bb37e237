#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "runtime/memory_plan.h"
#include "runtime/steps/batch_buffers.h"
#include "runtime/steps/decode_graphs.h"
#include "runtime/steps/row_batch.h"

namespace sluice {
namespace {

std::vector<PageGroupSpec> two_groups() {
  PageGroupSpec full{{.name = "full", .retention = Retention::kFull, .span = 0}, {}};
  full.planes.push_back({.name = "k", .dtype = DType::kBF16, .row_elements = 8, .layers = {0, 2}});
  PageGroupSpec window{{.name = "window", .retention = Retention::kWindow, .span = 100}, {}};
  window.planes.push_back({.name = "k", .dtype = DType::kF32, .row_elements = 4, .layers = {1}});
  return {full, window};
}

constexpr std::int64_t kTokenBytes = 2 * 8 * 2 + 4 * 4;

MemoryRequest request() {
  MemoryRequest r;
  r.weight_bytes = 100 << 20;
  r.activation_bytes = 10 << 20;
  r.available_bytes = std::int64_t{1} << 30;
  r.limits.max_running_requests = 4;
  r.context_length = 1000;
  return r;
}

TEST(MemoryPlan, TakesWhatIsAskedFor) {
  MemoryRequest r = request();
  r.kv.max_total_tokens = 1000;
  const MemoryPlan plan = plan_memory(r, two_groups());
  EXPECT_EQ(plan.max_total_tokens, 1024);  // whole pages
  EXPECT_EQ(plan.kv_bytes_per_token, kTokenBytes);
  EXPECT_EQ(plan.kv_bytes, 1024 * kTokenBytes);
  EXPECT_EQ(plan.pages, (std::vector<std::int64_t>{16, 16}));
  EXPECT_EQ(plan.window_bytes_per_token, 4 * 4);
  EXPECT_THAT(plan.describe(),
              testing::HasSubstr("(1024 tokens, 32 bytes each and 16 more within windows)"));
  EXPECT_THAT(plan_memory(r, {two_groups()[0]}).describe(),
              testing::HasSubstr("(1024 tokens, 32 bytes each)"));
}

// A window of 100 touches 3 pages; one more while its next page begins.
TEST(MemoryPlan, WindowsGetWhatTheyCanUse) {
  constexpr std::int64_t kFullBytes = 64 * 2 * 8 * 2, kWindowBytes = 64 * 4 * 4;
  MemoryRequest r = request();
  r.kv.max_total_tokens = 640'000;
  r.kv.window_ratio = 0.8;
  r.limits.max_step_tokens = 640;
  EXPECT_EQ(plan_memory(r, two_groups()).pages,
            (std::vector<std::int64_t>{10'000, 2 * (4 * 4 + 10)}));
  r.limits.max_running_requests = 100'000;
  MemoryPlan plan = plan_memory(r, two_groups());
  EXPECT_EQ(plan.pages, (std::vector<std::int64_t>{10'000, 8'000}));
  EXPECT_EQ(plan.kv_bytes, 10'000 * kFullBytes + 8'000 * kWindowBytes);
  r.kv.window_ratio = 0;  // never less than one sequence needs
  EXPECT_EQ(plan_memory(r, two_groups()).pages, (std::vector<std::int64_t>{10'000, 4}));
  r.kv.max_total_tokens = 128;
  EXPECT_EQ(plan_memory(r, two_groups()).pages, (std::vector<std::int64_t>{2, 2}));

  // From memory: what the window saves goes to both, to the last page.
  r = request();
  r.limits.max_running_requests = 1'000'000;
  const std::int64_t kv_bytes = (r.available_bytes - r.activation_bytes) / 2;
  for (const double ratio : {1.0, 0.5, 0.1}) {
    r.kv.window_ratio = ratio;
    plan = plan_memory(r, two_groups());
    EXPECT_EQ(plan.pages[1], static_cast<std::int64_t>(static_cast<double>(plan.pages[0]) * ratio));
    EXPECT_LE(plan.kv_bytes, kv_bytes);
    EXPECT_GT(plan.kv_bytes, kv_bytes - 2 * (kFullBytes + kWindowBytes));
  }

  // A model of windows alone: no more than its sequences can use.
  r.limits.max_running_requests = 4;
  r.context_length = 1'000'000;
  EXPECT_EQ(plan_memory(r, {two_groups()[1]}).pages, (std::vector<std::int64_t>{2 * (4 * 4 + 1)}));
}

// 1 MiB a sequence in recurrent layers.
PageGroupSpec state_group() {
  return {
      {.name = "state", .retention = Retention::kState, .span = 0},
      {{.name = "matrix", .dtype = DType::kF32, .row_elements = 1 << 16, .layers = {0, 1, 2, 3}}}};
}

TEST(MemoryPlan, StatesShareTheMemoryWithPages) {
  const std::vector<PageGroupSpec> groups = {two_groups()[0], state_group()};
  MemoryRequest r = request();
  MemoryPlan plan = plan_memory(r, groups);
  EXPECT_EQ(plan.num_states, 16);  // four for each request
  EXPECT_EQ(plan.state_bytes, 1 << 20);
  EXPECT_EQ(plan.pages, (std::vector<std::int64_t>{4 * 17, 16}));
  EXPECT_EQ(plan.kv_bytes, (16 << 20) + 4 * 17 * groups[0].bytes_per_page());
  EXPECT_NE(plan.describe().find("16 states of 1.0 MiB"), std::string::npos);

  // memory is what limits: half of what is left, of that 0.5 to 1
  r.limits.max_running_requests = 1'000'000;
  r.kv.state_ratio = 0.5;
  plan = plan_memory(r, groups);
  EXPECT_EQ(plan.num_states, (1024 - 10) / 2 / 3);
  EXPECT_LE(plan.kv_bytes, std::int64_t{507} << 20);
  EXPECT_GT(plan.kv_bytes, std::int64_t{506} << 20);
  r.kv.max_states = 7;
  plan = plan_memory(r, groups);
  EXPECT_EQ(plan.pages.back(), 7);
  EXPECT_GT(plan.kv_bytes, std::int64_t{506} << 20);  // what states do not take, pages do

  // Nothing but states: sequences of any length.
  r = request();
  plan = plan_memory(r, {state_group()});
  EXPECT_EQ(plan.pages, (std::vector<std::int64_t>{16}));
  EXPECT_EQ(plan.max_total_tokens, 16'000);
  EXPECT_EQ(plan.kv_bytes_per_token, 0);

  r.kv.max_states = 10'000;
  try {
    plan_memory(r, groups);
    FAIL();
  } catch (const Error& e) {
    EXPECT_EQ(e.kind(), ErrorKind::kNoResources);
    EXPECT_NE(e.message().find("--max-mamba-cache-size"), std::string::npos);
  }
}

TEST(MemoryPlan, AutomaticNeverExceedsWhatRequestsCanFill) {
  const MemoryPlan plan = plan_memory(request(), two_groups());
  EXPECT_EQ(plan.max_total_tokens, 4 * 17 * 64);
  MemoryRequest r = request();
  r.limits.max_running_requests = 1'000'000;
  EXPECT_LE(plan_memory(r, two_groups()).kv_bytes, (r.available_bytes - r.activation_bytes) / 2);
}

TEST(MemoryPlan, TheFractionCountsWeights) {
  MemoryRequest r = request();
  r.limits.max_running_requests = 1'000'000;
  r.kv.mem_fraction_static = 0.5;
  const std::int64_t expected = (r.available_bytes + r.weight_bytes) / 2 - r.weight_bytes;
  const MemoryPlan plan = plan_memory(r, two_groups());
  EXPECT_LE(plan.kv_bytes, expected);
  EXPECT_GT(plan.kv_bytes, expected - 64 * kTokenBytes);
}

TEST(MemoryPlan, RefusesWhatDoesNotFitWithTheNumbers) {
  MemoryRequest r = request();
  r.kv.max_total_tokens = std::int64_t{1} << 40;
  try {
    plan_memory(r, two_groups());
    FAIL();
  } catch (const Error& e) {
    EXPECT_EQ(exit_code(e.kind()), 3);
    EXPECT_NE(e.message().find("--max-total-tokens"), std::string::npos);
  }
  r = request();
  r.available_bytes = r.activation_bytes + 1000;
  EXPECT_THROW(plan_memory(r, two_groups()), Error);
}

TEST(MemoryPlan, ReadsTheMachine) {
  EXPECT_GT(available_host_bytes(), 0);
  EXPECT_GT(resident_bytes(), 0);
  EXPECT_EQ(format_bytes(3 << 20), "3.0 MiB");
}

TEST(BatchBuffers, FillsTheViewsOfAMixedStep) {
  BatchBuffers buffers(
      {.max_tokens = 16, .max_seqs = 4, .max_seq_pages = 3, .max_logit_rows = 2, .num_groups = 2});
  const RowInfo info{.token_of_slot = [](std::int32_t slot) { return -1 - slot; },
                     .sample_row_of = {}};
  Batch batch;
  batch.mode = ForwardMode::kMixed;
  batch.items = {{.sequence = 1, .slot = 0, .first = 62, .count = 4, .decode = false},
                 {.sequence = 2, .slot = 1, .first = 5, .count = 1, .decode = true}};
  batch.token_ids = {1, 2, 3, 4, kTokenFromSlot};
  batch.groups.push_back({.offsets = {0, 2, 3}, .pages = {7, 8, 9}});
  batch.groups.push_back({.offsets = {0, 2, 3}, .pages = {0, 1, 2}});
  batch.logit_rows = {{.item = 0, .row = 3}, {.item = 1, .row = 4}, {.item = 1, .row = 4}};
  const ForwardBatch& fb = buffers.fill(batch, info);

  EXPECT_EQ(fb.num_tokens, 5);
  EXPECT_EQ(fb.num_extend_seqs, 1);
  EXPECT_EQ(std::vector<std::int32_t>(fb.input_ids.ptr<std::int32_t>(),
                                      fb.input_ids.ptr<std::int32_t>() + 5),
            (std::vector<std::int32_t>{1, 2, 3, 4, -2}));
  EXPECT_EQ(fb.max_seq_len, 66);
  EXPECT_EQ(fb.max_extend_len, 4);
  EXPECT_EQ(std::vector<std::int32_t>(fb.positions.ptr<std::int32_t>(),
                                      fb.positions.ptr<std::int32_t>() + 5),
            (std::vector<std::int32_t>{62, 63, 64, 65, 5}));
  const auto* slots = fb.groups[0].out_cache_loc.ptr<std::int64_t>();
  EXPECT_EQ(std::vector<std::int64_t>(slots, slots + 5),
            (std::vector<std::int64_t>{7 * 64 + 62, 7 * 64 + 63, 8 * 64, 8 * 64 + 1, 9 * 64 + 5}));
  EXPECT_EQ(fb.groups[1].page_table.at(1).ptr<std::int32_t>()[0], 2);
  EXPECT_EQ(fb.groups[1].page_table.at(1).ptr<std::int32_t>()[1], -1);
  EXPECT_EQ(fb.logit_rows.dim(0), 2);
  EXPECT_EQ(buffers.set_logit_rows(batch, 2, 1).logit_rows.ptr<std::int32_t>()[0], 4);

  batch.groups[0].pages[1] = -1;  // a row without a page to write to
  EXPECT_THROW(buffers.fill(batch, info), Error);
  batch.token_ids.assign(17, 0);
  EXPECT_THROW(buffers.fill(batch, info), Error);
}

TEST(BatchBuffers, PaddingWritesToTheSparePageAlone) {
  const BatchLimits limits = {
      .max_tokens = 16, .max_seqs = 4, .max_seq_pages = 3, .max_logit_rows = 4, .num_groups = 2};
  BatchBuffers buffers(limits);
  const RowInfo info{.token_of_slot = [](std::int32_t slot) { return 50 + slot; },
                     .sample_row_of =
                         [](const LogitRow& row, std::int32_t slot) {
                           return ops::SampleRow{.temperature = static_cast<float>(slot),
                                                 .uniform = 0.5 * row.position};
                         }};
  Batch batch;
  batch.mode = ForwardMode::kDecode;
  batch.items = {{.sequence = 1, .slot = 3, .first = 70, .count = 1, .decode = true}};
  batch.token_ids = {kTokenFromSlot};
  batch.groups.push_back({.offsets = {0, 2}, .pages = {7, 8}});
  batch.groups.push_back({.offsets = {0, 2}, .pages = {-1, 2}});
  batch.logit_rows = {{.item = 0, .row = 0, .position = 1, .sample = true}};
  const std::vector<std::int32_t> spare = {20, 30};
  const ForwardBatch& fb = buffers.fill_padded(batch, info, 3, spare, 128);

  const auto ints = [](const Tensor& t) {
    return std::vector<std::int32_t>(t.ptr<std::int32_t>(), t.ptr<std::int32_t>() + t.numel());
  };
  EXPECT_EQ(ints(fb.input_ids), (std::vector<std::int32_t>{53, 0, 0}));
  EXPECT_EQ(ints(fb.positions), (std::vector<std::int32_t>{70, 0, 0}));
  EXPECT_EQ(ints(fb.row_seq), (std::vector<std::int32_t>{0, 1, 2}));
  EXPECT_EQ(ints(fb.seq_lens), (std::vector<std::int32_t>{71, 1, 1}));
  EXPECT_EQ(ints(fb.extend_start_loc), (std::vector<std::int32_t>{0, 1, 2, 3}));
  EXPECT_EQ(ints(fb.logit_rows), (std::vector<std::int32_t>{0, 1, 2}));
  EXPECT_EQ(ints(buffers.sampling().logit_slots), (std::vector<std::int32_t>{3, -1, -1}));
  const auto* sample_rows = ops::as_sample_rows(buffers.sampling().sample_rows);
  EXPECT_EQ(sample_rows[0].temperature, 3);
  EXPECT_EQ(sample_rows[0].uniform, 0.5);
  for (int row : {1, 2}) EXPECT_EQ(sample_rows[row].temperature, ops::SampleRow::kLeftOut);
  EXPECT_EQ(ints(fb.groups[1].page_table),
            (std::vector<std::int32_t>{-1, 2, -1, 30, -1, -1, 30, -1, -1}));
  const auto* slots = fb.groups[0].out_cache_loc.ptr<std::int64_t>();
  EXPECT_EQ(std::vector<std::int64_t>(slots, slots + 3),
            (std::vector<std::int64_t>{8 * 64 + 6, 20 * 64, 20 * 64}));
  EXPECT_EQ(fb.max_seq_len, 128);
  EXPECT_EQ(fb.mode, ForwardMode::kDecode);

  batch.items[0].count = 2;
  batch.token_ids = {1, 2};
  EXPECT_THROW(buffers.fill_padded(batch, info, 3, spare, 128), Error);
}

// Two sequences, of which the second has two drafts: as many rows, each with its sequence's pages.
TEST(RowBatch, EachRowHasThePagesOfItsSequence) {
  Batch batch;
  batch.mode = ForwardMode::kTargetVerify;
  batch.items = {{.sequence = 1, .slot = 3, .first = 5, .count = 1, .decode = true},
                 {.sequence = 2, .slot = 0, .first = 63, .count = 3, .decode = true}};
  batch.token_ids = {9, 4, 5, 6};
  batch.groups.push_back({.offsets = {0, 1, 3}, .pages = {7, 8, 9}});
  for (std::int32_t row = 0; row < 4; ++row)
    batch.logit_rows.push_back(
        {.item = row > 0, .row = row, .position = row == 0 ? 6 : 63 + row, .sample = true});
  RowBatch rows;
  const Batch& out = rows.of(batch);
  ASSERT_EQ(out.items.size(), 4u);
  EXPECT_EQ(out.token_ids, batch.token_ids);
  EXPECT_EQ(out.groups[0].offsets, (std::vector<std::int32_t>{0, 1, 3, 5, 7}));
  EXPECT_EQ(out.groups[0].pages, (std::vector<std::int32_t>{7, 8, 9, 8, 9, 8, 9}));
  EXPECT_EQ(out.items[3].first, 65);
  EXPECT_EQ(out.items[3].slot, 0);

  BatchBuffers buffers({.max_tokens = 8,
                        .max_seqs = 6,
                        .max_seq_pages = 3,
                        .max_logit_rows = 6,
                        .num_groups = 1,
                        .draft_rows = true});
  const RowInfo info{.token_of_slot = {}, .sample_row_of = {}};
  const std::vector<std::int32_t> spare = {20};
  const ForwardBatch& fb = buffers.fill_padded(out, info, 6, spare, 128);
  EXPECT_TRUE(fb.has_draft_rows);
  EXPECT_EQ(fb.mode, ForwardMode::kTargetVerify);
  const auto* slots = fb.groups[0].out_cache_loc.ptr<std::int64_t>();
  EXPECT_EQ(
      std::vector<std::int64_t>(slots, slots + 6),
      (std::vector<std::int64_t>{7 * 64 + 5, 8 * 64 + 63, 9 * 64, 9 * 64 + 1, 20 * 64, 20 * 64}));
  EXPECT_EQ(fb.seq_lens.ptr<std::int32_t>()[3], 66);
  // The device keeps the last token of a slot that has one row.
  const auto* kept = buffers.sampling().logit_slots.ptr<std::int32_t>();
  EXPECT_EQ(std::vector<std::int32_t>(kept, kept + 6),
            (std::vector<std::int32_t>{3, -1, -1, -1, -1, -1}));
  batch.mode = ForwardMode::kDecode;
  EXPECT_THROW((void)rows.of(batch), Error);
}

// A tree of two paths: what its first row writes goes to both. Spare slots pad the moves.
TEST(RowBatch, PaddedMovesOfTreesMoveNothing) {
  Batch batch;
  batch.mode = ForwardMode::kTargetVerify;
  batch.items = {{.sequence = 1, .slot = 0, .first = 70, .count = 4, .decode = true}};
  batch.token_ids = {9, 4, 5, 6};
  for (const std::int32_t page : {7, 27})
    batch.groups.push_back({.offsets = {0, 2}, .pages = {page, page + 1}});
  // Row 1 and row 2 follow row 0, and row 3 follows row 1.
  batch.branches = {
      {.item = 0, .parents = {-1, 0, 0, 1}, .first_page = 1, .num_pages = 1, .pages = {}}};
  batch.branches[0].pages = {9, 29};
  for (std::int32_t row = 0; row < 4; ++row)
    batch.logit_rows.push_back(
        {.item = 0, .row = row, .position = 71 + (row + 1) / 2, .sample = true});
  RowBatch rows;
  const Batch& out = rows.of(batch);
  ASSERT_NE(rows.moves(), nullptr);
  EXPECT_EQ(rows.moves()->from[1], std::vector<std::int64_t>{28 * 64 + 6});

  const BatchLimits limits{.max_tokens = 8,
                           .max_seqs = 6,
                           .max_seq_pages = 3,
                           .max_logit_rows = 6,
                           .num_groups = 2,
                           .draft_rows = true,
                           .tree_rows = 4};
  BatchBuffers buffers(limits);
  const RowInfo info{.token_of_slot = {}, .sample_row_of = {}};
  const std::vector<std::int32_t> spare = {20, 40};
  const auto slots_of = [](const Tensor& slots) {
    const auto* begin = slots.ptr<std::int64_t>();
    return std::vector<std::int64_t>(begin, begin + slots.numel());
  };
  const ForwardBatch& fb = buffers.fill_padded(out, info, 5, spare, 128, false, rows.moves());
  EXPECT_TRUE(fb.has_draft_rows);
  for (const std::size_t g : {0u, 1u}) {
    std::vector<std::int64_t> from(5, std::int64_t{spare[g]} * 64), to = from;
    from[0] = std::int64_t{batch.groups[g].pages[1]} * 64 + 6;
    to[0] = std::int64_t{batch.branches[0].pages[g]} * 64 + 6;
    EXPECT_EQ(slots_of(fb.groups[g].branch_from), from);
    EXPECT_EQ(slots_of(fb.groups[g].branch_to), to);
    EXPECT_EQ(slots_of(fb.groups[g].out_cache_loc)[2], to[0] + 1);
  }
  // A chain has as many, so that one graph serves both; a plain step has none.
  batch.branches.clear();
  EXPECT_EQ(slots_of(buffers.fill_padded(rows.of(batch), info, 5, spare, 128).groups[0].branch_to),
            (std::vector<std::int64_t>(5, 20 * 64)));
  EXPECT_FALSE(buffers.fill(rows.of(batch), info).groups[0].branch_from.defined());
  BatchBuffers without({.max_tokens = 8,
                        .max_seqs = 6,
                        .max_seq_pages = 3,
                        .max_logit_rows = 6,
                        .num_groups = 2,
                        .draft_rows = true});
  EXPECT_FALSE(
      without.fill_padded(rows.of(batch), info, 5, spare, 128).groups[0].branch_to.defined());
  EXPECT_EQ(max_branch_moves(16, 16), 64);
  EXPECT_EQ(max_branch_moves(16, 0), 0);
}

TEST(DecodeGraphs, SizesCoverTheBatchAndTheLimit) {
  EXPECT_EQ(graph_sizes(1), (std::vector<std::int64_t>{1}));
  EXPECT_EQ(graph_sizes(20), (std::vector<std::int64_t>{1, 2, 4, 8, 16, 20}));
  EXPECT_EQ(graph_sizes(320).back(), 320);
  const Stream stream;
  const auto nothing = [](auto...) {};
  EXPECT_EQ(draft_graph_sizes(20), (std::vector<std::int64_t>{2, 3, 4, 5, 6, 7, 8, 12, 16, 20}));
  EXPECT_EQ(draft_graph_sizes(2), (std::vector<std::int64_t>{2}));
  const DecodeGraphs graphs({.enabled = true, .sizes = {8, 2, 64, 2}},
                            {.plain = 32, .with_drafts = 64}, stream, nothing, nothing);
  EXPECT_EQ(graphs.sizes(), (std::vector<std::int64_t>{2, 8}));
  EXPECT_EQ(graphs.sizes(true), (std::vector<std::int64_t>{2, 8, 64}));
  Batch batch;
  batch.mode = ForwardMode::kDecode;
  const auto rows = [&](std::size_t count) {
    batch.items.resize(count);
    batch.token_ids.resize(count);
    batch.logit_rows.resize(count);
    return graphs.size_for(batch);
  };
  EXPECT_EQ(rows(1), 2);
  EXPECT_EQ(rows(3), 8);
  EXPECT_EQ(rows(9), 0);
  batch.mode = ForwardMode::kTargetVerify;
  EXPECT_EQ(rows(9), 64);
  batch.mode = ForwardMode::kDecode;
  rows(2);
  batch.mode = ForwardMode::kMixed;
  EXPECT_EQ(graphs.size_for(batch), 0);
  batch.mode = ForwardMode::kDecode;
  batch.logit_rows.resize(1);  // a row whose logits nobody wants
  EXPECT_EQ(graphs.size_for(batch), 0);
  EXPECT_THROW(
      DecodeGraphs({.enabled = true, .sizes = {0}}, {.plain = 32}, stream, nothing, nothing),
      Error);
}

TEST(BatchBuffers, StatesOfRecurrentLayersByItem) {
  BatchBuffers buffers({.max_tokens = 8,
                        .max_seqs = 4,
                        .max_seq_pages = 3,
                        .max_logit_rows = 4,
                        .num_groups = 0,
                        .has_states = true});
  const RowInfo info{.token_of_slot = [](std::int32_t) { return 0; }, .sample_row_of = {}};
  Batch batch;
  batch.mode = ForwardMode::kExtend;
  batch.items = {{.sequence = 1, .slot = 0, .first = 0, .count = 4},
                 {.sequence = 2, .slot = 1, .first = 5, .count = 1}};
  batch.token_ids = {1, 2, 3, 4, 5};
  batch.state_slots = {9, 2};
  const ForwardBatch& fb = buffers.fill(batch, info);
  const auto ints = [](const Tensor& t) {
    return std::vector<std::int32_t>(t.ptr<std::int32_t>(), t.ptr<std::int32_t>() + t.numel());
  };
  EXPECT_EQ(ints(fb.state_rows.state_slots), (std::vector<std::int32_t>{9, 2}));
  EXPECT_EQ(ints(fb.state_rows.start_loc), (std::vector<std::int32_t>{0, 4, 5}));
  EXPECT_FALSE(fb.state_rows.state_sources.defined());
  batch.state_slots.pop_back();
  EXPECT_THROW(buffers.fill(batch, info), Error);

  // A known token and two drafts beside a chunk of a prompt.
  batch.mode = ForwardMode::kMixed;
  batch.items[1] = {.sequence = 2, .slot = 1, .first = 5, .count = 3, .decode = true};
  batch.token_ids = {1, 2, 3, 4, 5, 6, 7};
  batch.state_slots = {9, 2, 6, 3};
  const ForwardBatch& drafted = buffers.fill(batch, info);
  EXPECT_EQ(ints(drafted.state_rows.start_loc), (std::vector<std::int32_t>{0, 4, 5, 6, 7}));
  EXPECT_EQ(ints(drafted.state_rows.prefix_lens), (std::vector<std::int32_t>{0, 5, 6, 7}));
  EXPECT_EQ(ints(drafted.state_rows.state_slots), (std::vector<std::int32_t>{9, 2, 6, 3}));
  EXPECT_EQ(ints(drafted.state_rows.state_sources), (std::vector<std::int32_t>{9, 2, 2, 6}));
  for (const std::vector<std::int32_t>& wrong : {std::vector{9, 2, 6}, {9, 2, 6, 3, 4}}) {
    batch.state_slots = wrong;
    EXPECT_THROW(buffers.fill(batch, info), Error);
  }

  // Padding begins the spare state anew, whatever it holds, and leaves those of sequences alone.
  batch = {};
  batch.mode = ForwardMode::kDecode;
  batch.items = {{.sequence = 1, .slot = 0, .first = 7, .count = 1, .decode = true}};
  batch.token_ids = {4};
  batch.state_slots = {9};
  batch.logit_rows = {{.item = 0, .row = 0, .sample = true}};
  const std::vector<std::int32_t> spare = {31};
  const ForwardBatch& padded = buffers.fill_padded(batch, info, 3, spare, 128);
  EXPECT_EQ(ints(padded.state_rows.state_slots), (std::vector<std::int32_t>{9, 31, 31}));
  EXPECT_EQ(ints(padded.state_rows.prefix_lens), (std::vector<std::int32_t>{7, 0, 0}));
  EXPECT_EQ(ints(padded.extend_prefix_lens), (std::vector<std::int32_t>{7, 0, 0}));
  EXPECT_EQ(ints(padded.extend_start_loc), (std::vector<std::int32_t>{0, 1, 2, 3}));
  EXPECT_THROW(buffers.fill_padded(batch, info, 3, {}, 128), Error);
}

// As a GPU computes drafts: each row is an item, and a draft continues the item before.
TEST(BatchBuffers, StatesOfRowsOfDrafts) {
  BatchBuffers buffers({.max_tokens = 8,
                        .max_seqs = 8,
                        .max_seq_pages = 3,
                        .max_logit_rows = 8,
                        .num_groups = 0,
                        .has_states = true,
                        .draft_rows = true});
  const RowInfo info{.token_of_slot = [](std::int32_t) { return 0; }, .sample_row_of = {}};
  Batch batch;
  batch.mode = ForwardMode::kTargetVerify;
  batch.items = {{.sequence = 1, .slot = 0, .first = 7, .count = 3, .decode = true},
                 {.sequence = 2, .slot = 3, .first = 9, .count = 1, .decode = true}};
  batch.token_ids = {4, 5, 6, 7};
  batch.state_slots = {9, 2, 5, 6};
  for (std::int32_t row = 0; row < 4; ++row)
    batch.logit_rows.push_back({.item = row / 3, .row = row, .sample = true});
  RowBatch rows;
  const std::vector<std::int32_t> spare = {31};
  const ForwardBatch& fb = buffers.fill_padded(rows.of(batch), info, 6, spare, 128);
  const auto ints = [](const Tensor& t) {
    return std::vector<std::int32_t>(t.ptr<std::int32_t>(), t.ptr<std::int32_t>() + t.numel());
  };
  EXPECT_EQ(ints(fb.state_rows.start_loc), (std::vector<std::int32_t>{0, 1, 2, 3, 4, 5, 6}));
  EXPECT_EQ(ints(fb.state_rows.prefix_lens), (std::vector<std::int32_t>{7, 8, 9, 9, 0, 0}));
  EXPECT_EQ(ints(fb.state_rows.state_slots), (std::vector<std::int32_t>{9, 5, 6, 2, 31, 31}));
  EXPECT_EQ(ints(fb.state_rows.state_sources), (std::vector<std::int32_t>{9, 9, 5, 2, 31, 31}));
}

TEST(BatchBuffers, TheLargestStepFillsEveryLimit) {
  BatchBuffers buffers(
      {.max_tokens = 16, .max_seqs = 4, .max_seq_pages = 3, .max_logit_rows = 8, .num_groups = 1});
  const ForwardBatch& prefill = buffers.fill_largest(false, 128);
  EXPECT_EQ(prefill.num_tokens, 16);
  EXPECT_EQ(prefill.max_extend_len, 13);
  EXPECT_EQ(prefill.host_extend_start_loc.back(), 16);
  const ForwardBatch& decode = buffers.fill_largest(true, 128);
  EXPECT_EQ(decode.num_tokens, 4);
  EXPECT_EQ(decode.max_seq_len, 128);
}

}  // namespace
}  // namespace sluice
