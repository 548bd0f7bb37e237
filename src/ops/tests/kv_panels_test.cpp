// Panels give the bits that planes of rows give.
#include <cmath>
#include <limits>

#include "base/error.h"
#include "ops/attention.h"
#include "ops/elementwise.h"
#include "ops/fused.h"
#include "ops/heads.h"
#include "ops/indexer.h"
#include "ops/testing/paged_batch.h"

namespace sluice::ops {
namespace {

// The same tokens as rows and as panels. Slots without an owner are NaN in both.
struct Twice {
  Twice(const Case& batch, PlaneForm form, std::int64_t heads, std::int64_t dim, unsigned seed)
      : rows(DType::kBF16, {batch.num_slots(), heads * dim}),
        bytes(DType::kBF16, {batch.num_slots(), heads * dim}),
        panels(bytes.view, form, heads) {
    batch.write(rows, seed);
    batch.write(panels, seed);
  }
  // Sets one element of a slot in both.
  void put_both(std::int64_t slot, std::int64_t element, double value) {
    Machine machine(CpuIsa::kAvx2);
    Owned source(DType::kF32, {1, rows->dim(1)}), at(DType::kI64, {1});
    for (std::int64_t i = 0; i < rows->dim(1); ++i) put(source, {0, i}, get(rows, {slot, i}));
    put(source, {0, element}, value);
    put(at, {0}, static_cast<double>(slot));
    kv_write(machine.ctx, source, at, rows);
    kv_write(machine.ctx, source, at, panels);
  }

  Owned rows, bytes;
  KvPlane panels;
};

struct Dims {
  std::int64_t heads, kv, d, dv, window;
};

TEST(KvPanels, AttentionGivesTheBitsOfRows) {
  const Dims all[] = {{4, 2, 16, 16, 0},   {6, 1, 32, 48, 0},    {16, 8, 128, 128, 0},
                      {8, 2, 32, 64, 7},   {70, 1, 16, 16, 100}, {9, 3, 64, 64, 0},
                      {5, 5, 32, 128, 300}};
  const Case batch({600, 70, 257, 256, 1, 300}, 7);
  std::vector<std::pair<int, int>> decode;
  for (int s = 0; s < std::ssize(batch.lens); ++s) decode.emplace_back(s, batch.lens[s] - 1);
  for (const auto& list : {mixed_rows(batch), decode})
    for (const Dims& dims : all) {
      SCOPED_TRACE(std::to_string(dims.heads) + " heads of " + std::to_string(dims.d));
      const Rows rows(batch, list);
      const Twice k(batch, PlaneForm::kKeyPanels, dims.kv, dims.d, 100);
      const Twice v(batch, PlaneForm::kValuePanels, dims.kv, dims.dv, 200);
      Owned q(DType::kF32, {rows.count(), dims.heads, dims.d});
      fill(q, 5, 2.0);
      on_every_machine([&](Context& ctx, Context&) {
        Owned a(DType::kF32, {rows.count(), dims.heads, dims.dv}),
            b(DType::kF32, {rows.count(), dims.heads, dims.dv}, 2);
        paged_attention(ctx, q, k.rows, v.rows, dims.kv, rows.rows,
                        {.scale = 0.2f, .window = dims.window}, a);
        paged_attention(ctx, q, k.panels, v.panels, dims.kv, rows.rows,
                        {.scale = 0.2f, .window = dims.window}, b);
        ASSERT_TRUE(same_bits(a, b));
        ASSERT_TRUE(gaps_untouched(b));
        for_each(a, [&](std::int64_t t, std::int64_t h, std::int64_t i) {
          ASSERT_TRUE(std::isfinite(get(a, {t, h, i})));
        });
      });
      if (::testing::Test::HasFatalFailure()) return;
    }
}

// KV split: several threads share the keys of a single row; with one thread, one tile has them all.
TEST(KvPanels, ARowAloneHasTheBitsOfRows) {
  const Dims all[] = {{16, 8, 128, 128, 0}, {16, 8, 128, 128, 700}, {6, 2, 64, 64, 0},
                      {5, 5, 32, 128, 0},   {70, 35, 16, 16, 0},    {70, 35, 32, 64, 0}};
  for (const std::int64_t length : {257, 511, 513, 1300}) {
    const Case batch({length}, 11);
    const Rows rows(batch, {{0, static_cast<int>(length) - 1}});
    for (const Dims& dims : all) {
      SCOPED_TRACE(std::to_string(dims.heads) + " heads of " + std::to_string(dims.d) + " over " +
                   std::to_string(length));
      const Twice k(batch, PlaneForm::kKeyPanels, dims.kv, dims.d, 100),
          v(batch, PlaneForm::kValuePanels, dims.kv, dims.dv, 200);
      Owned q(DType::kF32, {1, dims.heads, dims.d}), sinks(DType::kF32, {dims.heads}),
          slopes(DType::kF32, {dims.heads});
      fill(q, 5, 2.0);
      fill(sinks, 6);
      fill(slopes, 7, 0.01);
      const AttentionParams plain = {.scale = 0.2f, .window = dims.window};
      AttentionParams modified = plain;
      modified.sinks = sinks;
      modified.slopes = slopes;
      modified.softcap = 3.0f;
      on_every_machine([&](Context& ctx, Context&) {
        for (const AttentionParams& params : {plain, modified}) {
          Owned a(DType::kF32, {1, dims.heads, dims.dv}),
              b(DType::kF32, {1, dims.heads, dims.dv}, 2);
          paged_attention(ctx, q, k.rows, v.rows, dims.kv, rows.rows, params, a);
          paged_attention(ctx, q, k.panels, v.panels, dims.kv, rows.rows, params, b);
          ASSERT_TRUE(same_bits(a, b));
          ASSERT_TRUE(gaps_untouched(b));
        }
      });
      if (::testing::Test::HasFatalFailure()) return;
    }
  }
}

// Values that only other rows of a tile see (later ones, or earlier ones of a window) may be
// anything.
TEST(KvPanels, ValuesThatARowDoesNotSeeNeverTouchIt) {
  const Case batch({40}, 3);
  Twice k(batch, PlaneForm::kKeyPanels, 1, 16, 1), v(batch, PlaneForm::kValuePanels, 1, 32, 2);
  std::vector<std::pair<int, int>> list;
  for (int p = 0; p < 40; ++p) list.emplace_back(0, p);
  const Rows rows(batch, list);
  Owned q(DType::kF32, {40, 2, 16});
  fill(q, 4);
  for (const std::int64_t window : {0, 3})
    for (const bool panels : {false, true})
      for (const double wrong : {std::nan(""), std::numeric_limits<double>::infinity()})
        on_every_machine([&](Context& ctx, Context&) {
          Owned before(DType::kF32, {40, 2, 32}), after(DType::kF32, {40, 2, 32});
          const KvPlane keys = panels ? k.panels : k.rows, values = panels ? v.panels : v.rows;
          paged_attention(ctx, q, keys, values, 1, rows.rows, {.scale = 0.25f, .window = window},
                          before);
          const double saved = get(v.rows, {batch.slot(0, 9), 20});
          v.put_both(batch.slot(0, 9), 20, wrong);
          paged_attention(ctx, q, keys, values, 1, rows.rows, {.scale = 0.25f, .window = window},
                          after);
          v.put_both(batch.slot(0, 9), 20, saved);
          EXPECT_TRUE(same_bits(before->rows(0, 9), after->rows(0, 9)));
          EXPECT_FALSE(std::isfinite(get(after, {9, 1, 20})));
          EXPECT_TRUE(std::isfinite(get(after, {9, 1, 19})));
          if (window == 3) {
            EXPECT_TRUE(same_bits(before->rows(12, 28), after->rows(12, 28)));
          }
        });
}

TEST(KvPanels, MovesAreThoseOfRows) {
  const Case batch({300, 200}, 5);
  constexpr std::int64_t kMoved = 130;
  Owned from(DType::kI64, {kMoved}), to(DType::kI64, {kMoved});
  for (std::int64_t i = 0; i < kMoved; ++i) {
    put(from, {i}, static_cast<double>(batch.slot(0, i + 101)));
    put(to, {i}, static_cast<double>(batch.slot(1, i)));
  }
  const Rows rows(batch, {{0, 299}, {1, 199}, {1, 129}});
  Owned q(DType::kF32, {3, 4, 32});
  fill(q, 4);
  on_every_machine([&](Context& ctx, Context&) {
    const Twice k(batch, PlaneForm::kKeyPanels, 2, 32, 1),
        v(batch, PlaneForm::kValuePanels, 2, 16, 2);
    Owned a(DType::kF32, {3, 4, 16}), b(DType::kF32, {3, 4, 16}), unmoved(DType::kF32, {3, 4, 16});
    paged_attention(ctx, q, k.panels, v.panels, 2, rows.rows, {.scale = 0.2f}, unmoved);
    const KvPlane planes[] = {k.rows, v.rows, k.panels, v.panels};
    kv_move(ctx, planes, from, to);
    paged_attention(ctx, q, k.rows, v.rows, 2, rows.rows, {.scale = 0.2f}, a);
    paged_attention(ctx, q, k.panels, v.panels, 2, rows.rows, {.scale = 0.2f}, b);
    EXPECT_TRUE(same_bits(a, b));
    EXPECT_TRUE(same_bits(unmoved->rows(0, 1), b->rows(0, 1)));
    EXPECT_FALSE(same_bits(unmoved->rows(1, 2), b->rows(1, 2)));
  });
}

TEST(KvPanels, TheIndexerChoosesTheSameKeys) {
  const Case batch({700, 130}, 7);
  const Rows rows(batch, {{0, 699}, {0, 698}, {0, 650}, {1, 129}, {1, 100}});
  const Twice k(batch, PlaneForm::kKeyPanels, 1, 128, 3);
  for (const std::int64_t heads : {1, 8, 32}) {
    Owned q(DType::kF32, {rows.count(), heads, 128}), weights(DType::kF32, {rows.count(), heads});
    fill(q, 1);
    fill(weights, 2);
    on_every_machine([&](Context& ctx, Context&) {
      Owned a(DType::kI32, {rows.count(), 32}), b(DType::kI32, {rows.count(), 32});
      Owned scores_a(DType::kF32, {5, 704}), scores_b(DType::kF32, {5, 704});
      index_topk(ctx, q, weights, k.rows, rows.rows, scores_a, a);
      index_topk(ctx, q, weights, k.panels, rows.rows, scores_b, b);
      EXPECT_TRUE(same_bits(a, b));
      for (std::int64_t t = 0; t < rows.count(); ++t) {
        const auto length = static_cast<std::int64_t>(get(rows.position, {t})) + 1;
        EXPECT_TRUE(same_bits(scores_a->rows(t, 1).slice(1, 0, length),
                              scores_b->rows(t, 1).slice(1, 0, length)));
      }
    });
  }
}

// One pass over the heads if rows share no keys, separate operations if they do.
TEST(KvPanels, WritingAndAttendingAtOnceGivesTheSameBits) {
  const Case batch({600, 70, 257, 256, 1, 300}, 7);
  std::vector<std::pair<int, int>> decode;
  for (int s = 0; s < std::ssize(batch.lens); ++s) decode.emplace_back(s, batch.lens[s] - 1);
  std::vector<std::pair<int, int>> mixed = decode;
  for (int p = 280; p < 299; ++p) mixed.emplace_back(5, p);
  constexpr std::int64_t kHeads = 8, kKv = 4, kDim = 32, kValues = 48;
  for (const std::int64_t window : {0, 270})
    for (const auto& list : {decode, mixed}) {
      const AttentionParams params = {.scale = 0.2f, .window = window};
      const Rows rows(batch, list);
      Owned q(DType::kF32, {rows.count(), kHeads, kDim}),
          new_k(DType::kF32, {rows.count(), kKv * kDim}, 3);
      Owned new_v(DType::kF32, {rows.count(), kKv * kValues}), slots(DType::kI64, {rows.count()});
      fill(q, 5, 2.0);
      fill(new_k, 6);
      fill(new_v, 7);
      for (std::int64_t t = 0; t < rows.count(); ++t)
        put(slots, {t}, static_cast<double>(batch.slot(list[t].first, list[t].second)));
      on_every_machine([&](Context& ctx, Context&) {
        const Twice k(batch, PlaneForm::kKeyPanels, kKv, kDim, 1),
            v(batch, PlaneForm::kValuePanels, kKv, kValues, 2);
        Owned a(DType::kF32, {rows.count(), kHeads, kValues}),
            b(DType::kF32, {rows.count(), kHeads, kValues}, 2);
        kv_write(ctx, new_k, slots, k.rows);
        kv_write(ctx, new_v, slots, v.rows);
        paged_attention(ctx, q, k.rows, v.rows, kKv, rows.rows, params, a);
        write_and_attend(ctx, q, new_k, new_v, slots, k.panels, v.panels, kKv, rows.rows, params,
                         b);
        EXPECT_TRUE(same_bits(a, b));
        EXPECT_TRUE(gaps_untouched(b));
        paged_attention(ctx, q, k.panels, v.panels, kKv, rows.rows, params, b);
        EXPECT_TRUE(same_bits(a, b));
        write_and_attend(ctx, q, new_k, new_v, slots, k.rows, v.rows, kKv, rows.rows, params, b);
        EXPECT_TRUE(same_bits(a, b));
        put(slots, {1}, static_cast<double>(batch.num_slots()));
        EXPECT_THROW(write_and_attend(ctx, q, new_k, new_v, slots, k.panels, v.panels, kKv,
                                      rows.rows, params, b),
                     Error);
        put(slots, {1}, static_cast<double>(batch.slot(list[1].first, list[1].second)));
      });
    }
}

// RoPE, write, attention and rounding: one pass over the heads of panels, or separate operations.
TEST(KvPanels, TurningAndRoundingInTheSamePassGivesTheSameBits) {
  const Case batch({600, 70, 257, 256, 1, 300}, 7);
  std::vector<std::pair<int, int>> decode;
  for (int s = 0; s < std::ssize(batch.lens); ++s) decode.emplace_back(s, batch.lens[s] - 1);
  constexpr std::int64_t kHeads = 8, kKv = 4, kDim = 32, kValues = 48, kTurned = 24;
  const Rows rows(batch, decode);
  const std::int64_t tokens = rows.count();
  Owned q(DType::kF32, {tokens, kHeads, kDim}, 2), new_k(DType::kF32, {tokens, kKv * kDim}, 3);
  Owned new_v(DType::kF32, {tokens, kKv * kValues}), slots(DType::kI64, {tokens});
  Owned angles(DType::kF32, {tokens, kTurned}), q_weight(DType::kF32, {kDim}),
      k_weight(DType::kBF16, {kDim});
  fill(new_v, 7);
  fill(angles, 8);
  fill(q_weight, 9);
  fill(k_weight, 10);
  for (std::int64_t t = 0; t < tokens; ++t)
    put(slots, {t}, static_cast<double>(batch.slot(decode[t].first, decode[t].second)));
  const auto begin = [&] {
    fill(q, 5, 2.0);
    fill(new_k, 6);
  };
  for (const bool normed : {true, false})
    for (const bool interleaved : {true, false})
      on_every_machine([&](Context& ctx, Context&) {
        const Twice k(batch, PlaneForm::kKeyPanels, kKv, kDim, 1),
            v(batch, PlaneForm::kValuePanels, kKv, kValues, 2);
        const HeadRotation rotation{.q_weight = normed ? q_weight.view : Tensor{},
                                    .k_weight = normed ? k_weight.view : Tensor{},
                                    .eps = 1e-6f,
                                    .cos_sin = angles.view,
                                    .interleaved = interleaved};
        Owned wanted(DType::kF32, {tokens, kHeads, kValues}),
            mixed(DType::kF32, {tokens, kHeads, kValues}, 2);
        Owned wanted_rounded(DType::kBF16, {tokens, kHeads, kValues}),
            rounded(DType::kBF16, {tokens, kHeads, kValues}, 2);
        begin();
        norm_and_rotate_heads(ctx, q, heads_of_rows(new_k, kKv), rotation.q_weight,
                              rotation.k_weight, rotation.eps, angles, interleaved);
        write_and_attend(ctx, q, new_k, new_v, slots, k.rows, v.rows, kKv, rows.rows,
                         {.scale = 0.2f}, wanted);
        convert(ctx, wanted, wanted_rounded);
        begin();
        rotate_write_and_attend(ctx, q, new_k, new_v, rotation, slots, k.panels, v.panels, kKv,
                                rows.rows, {.scale = 0.2f}, mixed, rounded);
        EXPECT_TRUE(same_bits(wanted_rounded, rounded));
        EXPECT_TRUE(gaps_untouched(rounded));
        EXPECT_TRUE(gaps_untouched(mixed));
        begin();
        rotate_write_and_attend(ctx, q, new_k, new_v, rotation, slots, k.panels, v.panels, kKv,
                                rows.rows, {.scale = 0.2f}, mixed, mixed);
        EXPECT_TRUE(same_bits(wanted, mixed));
      });
}

// Rows of runs read the keys of the rows before them, whichever thread writes those.
TEST(KvPanels, RowsOfRunsReadTheKeysOfTheirRun) {
  constexpr std::int64_t kHeads = 8, kKv = 4, kDim = 32;
  const Case batch({600, 65, 8, 300}, 7);
  std::vector<std::pair<int, int>> list, places;
  for (const auto& [seq, count] : {std::pair{0, 5}, {1, 3}, {2, 8}, {3, 1}})
    for (int i = 0; i < count; ++i) {
      list.emplace_back(seq, batch.lens[static_cast<std::size_t>(seq)] - count + i);
      places.emplace_back(i, 0);
    }
  const Rows rows(batch, list);
  const std::int64_t tokens = rows.count();
  // As decode rows alone, each with the pages of its sequence.
  Owned table(DType::kI32, {tokens, batch.table->view.dim(1)}), seqs(DType::kI32, {tokens}),
      place(DType::kI32, {tokens}), slots(DType::kI64, {tokens});
  for (std::int64_t t = 0; t < tokens; ++t) {
    const auto& [seq, position] = list[static_cast<std::size_t>(t)];
    for (std::int64_t p = 0; p < table.view.dim(1); ++p)
      put(table, {t, p}, get(*batch.table, {seq, p}));
    put(seqs, {t}, static_cast<double>(t));
    put(place, {t}, places[static_cast<std::size_t>(t)].first);
    put(slots, {t}, static_cast<double>(batch.slot(seq, position)));
  }
  const PagedRows alone{
      table.view, seqs.view, rows.position.view, {}, {.places = place.view, .longest = 8}};
  Owned q(DType::kF32, {tokens, kHeads, kDim}), new_k(DType::kF32, {tokens, kKv * kDim}),
      new_v(DType::kF32, {tokens, kKv * kDim}), angles(DType::kF32, {tokens, kDim});
  fill(new_v, 7);
  fill(angles, 8);
  const HeadRotation rotation{
      .q_weight = {}, .k_weight = {}, .eps = 1e-6f, .cos_sin = angles.view, .interleaved = false};
  const auto begin = [&] {
    fill(q, 5, 2.0);
    fill(new_k, 6);
  };
  on_every_machine([&](Context& ctx, Context&) {
    const Twice k(batch, PlaneForm::kKeyPanels, kKv, kDim, 1),
        v(batch, PlaneForm::kValuePanels, kKv, kDim, 2);
    Owned wanted(DType::kF32, {tokens, kHeads, kDim}), mixed(DType::kF32, {tokens, kHeads, kDim});
    Owned rounded(DType::kBF16, {tokens, kHeads, kDim}),
        wanted_rounded(DType::kBF16, {tokens, kHeads, kDim});
    // Stale keys are in the slots of the new ones. Each row by itself, in order, is what is wanted.
    begin();
    norm_and_rotate_heads(ctx, q, heads_of_rows(new_k, kKv), {}, {}, 1e-6f, angles, false);
    for (std::int64_t t = 0; t < tokens; ++t)
      write_and_attend(ctx, q.view.rows(t, 1), new_k.view.rows(t, 1), new_v.view.rows(t, 1),
                       slots.view.rows(t, 1), k.rows, v.rows, kKv, rows.one(t), {.scale = 0.2f},
                       wanted.view.rows(t, 1));
    convert(ctx, wanted, wanted_rounded);
    begin();
    rotate_write_and_attend(ctx, q, new_k, new_v, rotation, slots, k.panels, v.panels, kKv, alone,
                            {.scale = 0.2f}, mixed, rounded);
    EXPECT_TRUE(same_bits(wanted, mixed));
    EXPECT_TRUE(same_bits(wanted_rounded, rounded));
  });
}

TEST(KvPanels, OtherFormsAreBugs) {
  const Case batch({100}, 3);
  const Twice k(batch, PlaneForm::kKeyPanels, 2, 16, 1),
      v(batch, PlaneForm::kValuePanels, 2, 16, 2);
  const Rows rows(batch, {{0, 99}});
  Owned q(DType::kF32, {1, 2, 16}), out(DType::kF32, {1, 2, 16}), source(DType::kF32, {1, 32}),
      slot(DType::kI64, {1});
  fill(source, 1);
  put(slot, {0}, 0);
  Machine machine(CpuIsa::kAvx2);
  EXPECT_THROW(
      paged_attention(machine.ctx, q, k.panels, v.rows, 2, rows.rows, {.scale = 0.2f}, out), Error);
  EXPECT_THROW(
      paged_attention(machine.ctx, q, v.panels, k.panels, 2, rows.rows, {.scale = 0.2f}, out),
      Error);
  EXPECT_THROW(kv_write(machine.ctx, source, slot, KvPlane(k.bytes, PlaneForm::kKeyPanels, 4)),
               Error);
  Owned wide(DType::kF32, {128, 32});
  EXPECT_THROW(kv_write(machine.ctx, source, slot, KvPlane(wide, PlaneForm::kKeyPanels, 2)), Error);
}

}  // namespace
}  // namespace sluice::ops
