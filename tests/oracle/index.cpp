// The lightning indexer. Its numbers are small integers, whose sums are exact in any order. So the
// selection must be equal, ties included.
#include <cmath>
#include <limits>

#include "batch.h"
#include "ops/indexer.h"
#include "ops/kv.h"
#include "oracle.h"

namespace sluice::oracle {
namespace {

struct Shape {
  std::int64_t heads, dim, topk;
};

void check_choice(Bench& bench, const Batch& batch, const char* what, const Shape& s, DType dtype) {
  const std::int64_t tokens = batch.tokens();
  Twin q(bench, DType::kF32, {tokens, s.heads, s.dim}, 16),
      weights(bench, DType::kF32, {tokens, s.heads}, 1);
  Twin keys(bench, dtype, {batch.slots(), s.dim}), indices(bench, DType::kI32, {tokens, s.topk}, 3);
  q.set([](std::int64_t t, std::int64_t h, std::int64_t i) {
    return static_cast<double>((t * 7 + h * 5 + i * 3) % 5 - 2);
  });
  weights.set([](std::int64_t t, std::int64_t h, std::int64_t) {
    return 0.25 * static_cast<double>((t + h * 3) % 7 - 2);
  });
  keys.set([](std::int64_t slot, std::int64_t i, std::int64_t) {
    return static_cast<double>((slot * 13 + slot / 64 * 7 + i * (slot % 11 + 1)) % 7 - 3);
  });
  const auto choose = [&](Context& ctx, const ops::KvPlane& plane) {
    const ops::IndexWorkspaceShape shape = ops::index_topk_workspace(ctx, tokens, batch.longest());
    const Tensor workspace = ctx.arena->take(DType::kF32, {shape.rows, shape.max_len});
    ops::index_topk(ctx, q(ctx), weights(ctx), plane, batch.rows(ctx), workspace, indices(ctx));
  };
  const std::string shape =
      fmt::format("{}: {} heads of {}, the best {}", what, s.heads, s.dim, s.topk);
  bench.compare("index_topk", fmt::format("{} {}", shape, dtype_name(dtype)),
                {{&indices, {.exact = true}}}, [&](Context& ctx) { choose(ctx, keys(ctx)); });
  if (dtype != DType::kF32) return;
  // The same keys as e4m3 numbers, which hold them exactly.
  Twin pages(bench, DType::kU8, {batch.slots(), s.dim + ops::kKeyScaleBytes}),
      slots(bench, DType::kI64, {batch.slots()});
  slots.set([&](std::int64_t i, std::int64_t, std::int64_t) {
    return static_cast<double>(batch.slots() - 1 - i);
  });
  Twin moved(bench, DType::kF32, {batch.slots(), s.dim});
  moved.set([&](std::int64_t i, std::int64_t j, std::int64_t) {
    return keys.at(keys.host.data, batch.slots() - 1 - i, j, 0);
  });
  bench.compare("index_topk", shape + " scaled pages",
                {{&indices, {.exact = true}}, {&pages, {.exact = true}}}, [&](Context& ctx) {
                  const ops::KvPlane plane(pages(ctx), ops::PlaneForm::kScaledPages, 1);
                  ops::kv_write(ctx, moved(ctx), slots(ctx), plane);
                  choose(ctx, plane);
                });
}

// Keys of any size as e4m3 numbers, NaN and infinity included; and some of them copied between
// pages.
void check_scaled_keys(Bench& bench) {
  constexpr std::int64_t kKeys = 128, kDim = 128;
  Twin keys(bench, DType::kF32, {kKeys, kDim}, 4), slots(bench, DType::kI64, {kKeys}),
      from(bench, DType::kI64, {40}), to(bench, DType::kI64, {40});
  Twin pages(bench, DType::kU8, {2 * kKeys, kDim + ops::kKeyScaleBytes});
  keys.fill(93, 3);
  slots.set([](std::int64_t i, std::int64_t, std::int64_t) {
    return static_cast<double>(i * 77 % kKeys);
  });
  from.set([](std::int64_t i, std::int64_t, std::int64_t) { return static_cast<double>(i * 3); });
  to.set([](std::int64_t i, std::int64_t, std::int64_t) {
    return static_cast<double>(kKeys + i * 2);
  });
  bench.compare("kv_write", "scaled pages", {{&pages, {.exact = true}}}, [&](Context& ctx) {
    const ops::KvPlane plane(pages(ctx), ops::PlaneForm::kScaledPages, 1);
    ops::kv_write(ctx, keys(ctx), slots(ctx), plane);
    ops::kv_move(ctx, std::span(&plane, 1), from(ctx), to(ctx));
  });
  keys.set([](std::int64_t i, std::int64_t j, std::int64_t) {
    if (i == 5 && j == 100) return std::numeric_limits<double>::quiet_NaN();
    if (i == 6 && j == 3) return std::numeric_limits<double>::infinity();
    return i == 7 ? 0.0
                  : std::ldexp(static_cast<double>((i * 131 + j * 17) % 257 - 128),
                               static_cast<int>(i * 2 - 120 - j % 24));
  });
  bench.compare("kv_write", "scaled pages, from tiny to large, NaN and infinity",
                {{&pages, {.exact = true}}}, [&](Context& ctx) {
                  ops::kv_write(ctx, keys(ctx), slots(ctx),
                                ops::KvPlane(pages(ctx), ops::PlaneForm::kScaledPages, 1));
                });
}

}  // namespace

void check_index(Bench& bench) {
  for (const std::int64_t n : {1, 2, 64, 128, 4096}) {
    Twin x(bench, DType::kF32, {9, n}, 4), heads(bench, DType::kF32, {5, 3, n}, n);
    x.fill(91);
    heads.fill(92);
    // Both sides do the same additions; 1 / sqrt(n) may differ in its last bit.
    const Allowed allowed{.relative = 4 * kUnit};
    bench.compare("hadamard", fmt::format("{}", n), {{&x, allowed}},
                  [&](Context& ctx) { ops::hadamard(ctx, x(ctx)); });
    bench.compare("hadamard", fmt::format("heads of {}", n), {{&heads, allowed}},
                  [&](Context& ctx) { ops::hadamard(ctx, heads(ctx)); });
  }
  check_scaled_keys(bench);
  const Batch mixed(bench, {900, 70, 5000, 33},
                    {{0, 880, 900}, {1, 60, 70}, {2, 4999, 5000}, {3, 0, 33}});
  for (const Shape& s : {Shape{64, 128, 512}, Shape{32, 128, 64}, Shape{4, 32, 16}, Shape{3, 17, 1},
                         Shape{8, 64, 2048}, Shape{1, 128, 64}})
    for (const DType dtype : {DType::kF32, DType::kBF16})
      check_choice(bench, mixed, "mixed", s, dtype);
  // The published shape. For decode rows a row's scores are split over several CTAs.
  const Batch decode(bench, {131072, 2048, 2049, 40000, 5, 32768},
                     {{0, 131071, 131072},
                      {1, 2047, 2048},
                      {2, 2048, 2049},
                      {3, 39999, 40000},
                      {4, 4, 5},
                      {5, 32767, 32768}});
  const Batch prefill(bench, {9000}, {{0, 8883, 9000}});
  for (const std::int64_t heads : {64, 32}) {
    for (const DType dtype : {DType::kBF16, DType::kF32}) {
      check_choice(bench, decode, "decode", {heads, 128, 2048}, dtype);
      check_choice(bench, prefill, "prefill", {heads, 128, 2048}, dtype);
    }
  }
}

}  // namespace sluice::oracle
