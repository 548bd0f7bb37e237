// Attention over pages, selected keys and contiguous keys; and merging of partial results.
#include <algorithm>
#include <cmath>
#include <functional>
#include <memory>
#include <numeric>
#include <random>
#include <utility>
#include <vector>

#include "batch.h"
#include "kernels/types/latent_rows.h"
#include "latents.h"
#include "ops/attention.h"
#include "ops/mla.h"
#include "oracle.h"

namespace sluice::oracle {
namespace {

// Outputs are averages of values below 1, weighted by exponentials of scores below `top`. An error
// of a score is a relative error of its weight. Sums over keys and the units of the exponentials
// are added.
Allowed attention_error(std::int64_t dim, std::int64_t keys, double top) {
  return {.absolute = 2 * top * (sum_error(dim) + 4 * kUnit) + sum_error(keys) + 32 * kUnit};
}

struct Heads {
  std::int64_t heads, kv_heads, dim, value_dim;
};

// Modifications of scores; sinks and slopes by head, null: none.
struct Bend {
  std::int64_t window = 0, chunk = 0;
  double softcap = 0;
  const Twin *sinks = nullptr, *slopes = nullptr;

  std::int64_t first_key(std::int64_t position) const {
    if (chunk > 0) return position / chunk * chunk;
    return window > 0 ? std::max<std::int64_t>(position + 1 - window, 0) : 0;
  }
  double weight(double score, std::int64_t head, std::int64_t distance) const {
    if (softcap > 0) score = softcap * std::tanh(score / softcap);
    if (slopes != nullptr)
      score += static_cast<double>(distance) * slopes->at(slopes->host.data, head, 0, 0);
    return std::exp(score);
  }
};

// Kernels on tensor cores round each weight to bfloat16 before it multiplies a value below 1. This
// gives independent errors of kBf16Unit times the weight. Their sum stays below 6 times their root
// mean square (oracle.h, sum_error) but for one case in 10^7. The spread is that root over the sum
// of the weights, for every output. (Queries times the scale are exact: the queries of check_paged
// are bfloat16 numbers and its scale is ln 2 / 8, which makes weights powers of two of q k / 8.)
// `k_scales`: of e4m3, by KV head; null: 1.
void set_weight_spread(Twin& spread, const Batch& batch, const Twin& q, const Twin& k,
                       std::int64_t kv_heads, float scale, const Bend& bend,
                       const Twin* k_scales = nullptr) {
  const std::int64_t heads = q.host.dim(1), dim = q.host.dim(2), width = kv_heads * dim;
  std::vector<float> keys(static_cast<std::size_t>(batch.slots() * width));
  for (std::int64_t slot = 0; slot < batch.slots(); ++slot)
    for (std::int64_t i = 0; i < width; ++i)
      keys[static_cast<std::size_t>(slot * width + i)] = static_cast<float>(
          k.at(k.host.data, slot, i, 0) *
          (k_scales == nullptr ? 1 : k_scales->at(k_scales->host.data, i / dim, 0, 0)));
  std::vector<double> roots(static_cast<std::size_t>(batch.tokens() * heads));
  for (std::int64_t t = 0; t < batch.tokens(); ++t) {
    const std::int64_t end = batch.position(t) + 1, begin = bend.first_key(end - 1);
    for (std::int64_t kv = 0; kv < kv_heads; ++kv) {
      const std::int64_t group = heads / kv_heads;
      std::vector<double> sum(static_cast<std::size_t>(group)), squares(sum);
      for (std::int64_t h = 0; h < group && bend.sinks != nullptr; ++h)
        sum[static_cast<std::size_t>(h)] =
            std::exp(bend.sinks->at(bend.sinks->host.data, kv * group + h, 0, 0));
      for (std::int64_t p = begin; p < end; ++p) {
        const float* key = keys.data() + batch.slot(t, p) * width + kv * dim;
        for (std::int64_t h = 0; h < group; ++h) {
          const float* query = q.host.ptr<float>() + q.offset(t, kv * group + h, 0);
          float dot[8] = {};
          for (std::int64_t i = 0; i < dim; ++i) dot[i % 8] += query[i] * key[i];
          const double weight =
              bend.weight(scale * std::accumulate(dot, dot + 8, 0.0), kv * group + h, p + 1 - end);
          sum[static_cast<std::size_t>(h)] += weight;
          squares[static_cast<std::size_t>(h)] += weight * weight;
        }
      }
      for (std::int64_t h = 0; h < group; ++h)
        roots[static_cast<std::size_t>(t * heads + kv * group + h)] =
            std::sqrt(squares[static_cast<std::size_t>(h)]) / sum[static_cast<std::size_t>(h)];
    }
  }
  spread.set([&](std::int64_t t, std::int64_t h, std::int64_t) {
    return roots[static_cast<std::size_t>(t * heads + h)];
  });
}

// As set_weight_spread(), for latent attention: `keys` of a row are its positions.
void set_latent_spread(Twin& spread, const Batch& batch, const Twin& q, const Twin& q_rope,
                       const Twin& plane, float scale,
                       const std::function<std::vector<std::int64_t>(std::int64_t t)>& keys) {
  const std::int64_t heads = q.host.dim(1), latent = q.host.dim(2), rope = q_rope.host.dim(2);
  std::vector<float> row(static_cast<std::size_t>(latent + rope));
  std::vector<double> roots(static_cast<std::size_t>(batch.tokens() * heads));
  for (std::int64_t t = 0; t < batch.tokens(); ++t) {
    std::vector<double> sum(static_cast<std::size_t>(heads)), squares(sum);
    for (const std::int64_t p : keys(t)) {
      const BF16* stored = plane.host.ptr<BF16>() + batch.slot(t, p) * plane.host.stride[0];
      std::transform(stored, stored + latent + rope, row.begin(),
                     [](BF16 x) { return static_cast<float>(x); });
      for (std::int64_t h = 0; h < heads; ++h) {
        const float *first = q.host.ptr<float>() + q.offset(t, h, 0),
                    *second = q_rope.host.ptr<float>() + q_rope.offset(t, h, 0);
        const double dot = std::inner_product(first, first + latent, row.begin(), 0.0) +
                           std::inner_product(second, second + rope, row.begin() + latent, 0.0);
        const double weight = std::exp(scale * dot);
        sum[static_cast<std::size_t>(h)] += weight;
        squares[static_cast<std::size_t>(h)] += weight * weight;
      }
    }
    for (std::size_t h = 0; h < sum.size(); ++h)
      roots[static_cast<std::size_t>(t * heads) + h] =
          sum[h] > 0 ? std::sqrt(squares[h]) / sum[h] : 0;
  }
  spread.set([&](std::int64_t t, std::int64_t h, std::int64_t) {
    return roots[static_cast<std::size_t>(t * heads + h)];
  });
}

// A plane; of e4m3 with its scales.
ops::KvPlane plane_of(const Twin& plane, const Twin& scales, bool scaled, const Context& ctx) {
  ops::KvPlane view = plane(ctx);
  if (scaled) view.scales = scales(ctx);
  return view;
}
// The spread is that of float16 for e4m3, whose weights below 2^-14 have errors of 2^-25. With
// `widened` pages of e4m3 some rows have weights in bfloat16, others in float16.
void allow_rounded_weights(Allowed& allowed, DType dtype, std::int64_t keys, const Twin& spread,
                           double sides, bool widened = false) {
  if (dtype == DType::kF32) return;
  const bool is_fp8 = dtype == DType::kF8E4M3;
  allowed.bound = 6 * std::sqrt(sides) * (is_fp8 && !widened ? kF16Unit : kBf16Unit);
  allowed.scale = &spread;
  if (is_fp8) allowed.absolute += static_cast<double>(keys) * 0x1p-25;
}

void check_paged(Bench& bench, const Batch& batch, const char* what,
                 const std::vector<Heads>& shapes, const std::vector<DType>& dtypes) {
  for (const Heads& h : shapes)
    for (const DType dtype : dtypes)
      for (const std::int64_t window : {0, 100}) {
        const std::int64_t tokens = batch.tokens(), slots = batch.slots();
        Twin q(bench, DType::kF32, {tokens, h.heads, h.dim}, 8),
            k(bench, dtype, {slots, h.kv_heads * h.dim});
        Twin v(bench, dtype, {slots, h.kv_heads * h.value_dim}),
            out(bench, DType::kF32, {tokens, h.heads, h.value_dim});
        Twin spread(bench, DType::kF32, {tokens, h.heads, h.value_dim});
        Twin k_scales(bench, DType::kF32, {h.kv_heads}), v_scales(bench, DType::kF32, {h.kv_heads});
        q.fill(51, 2);
        q.round_to_bf16();
        batch.fill_keys(k, 52);
        batch.fill_keys(v, 53);
        // Scales of at most 1 keep scores and values as small as without. Those of keys are powers
        // of two, so that queries times them are exact.
        const bool scaled = dtype == DType::kF8E4M3 && window > 0;
        k_scales.set(
            [&](std::int64_t kv, std::int64_t, std::int64_t) { return std::exp2(-(kv % 3)); });
        v_scales.set(
            [&](std::int64_t kv, std::int64_t, std::int64_t) { return 0.9 - 0.1 * (kv % 7); });
        const auto scale = static_cast<float>(std::log(2.0) / 8);
        Allowed allowed =
            attention_error(h.dim, batch.longest(), 0.6 * std::sqrt(static_cast<double>(h.dim)));
        if (dtype != DType::kF32)
          set_weight_spread(spread, batch, q, k, h.kv_heads, scale, {.window = window},
                            scaled ? &k_scales : nullptr);
        Allowed in_order = allowed;
        allow_rounded_weights(in_order, dtype, batch.longest(), spread, 1);
        const bool widened = batch.has_tiles() && (h.dim == 64 || h.dim == 128);
        allow_rounded_weights(allowed, dtype, batch.longest(), spread, 1, widened);
        const std::string label =
            fmt::format("{}: {} of {} heads, {}/{} {} window {}", what, h.heads, h.kv_heads, h.dim,
                        h.value_dim, dtype_name(dtype), window);
        const auto attend = [&](Context& ctx) {
          ops::paged_attention(ctx, q(ctx), plane_of(k, k_scales, scaled, ctx),
                               plane_of(v, v_scales, scaled, ctx), h.kv_heads, batch.rows(ctx),
                               {.scale = scale, .window = window}, out(ctx));
        };
        bench.compare("paged_attention", label, {{&out, allowed}}, attend);
        bench.compare("paged_attention", label + ", deterministic", {{&out, in_order}},
                      [&](Context& ctx) {
                        Context own = deterministic(ctx);
                        attend(own);
                      });
      }
}

// Score modifications: on the reference kernels, on tensor core tiles for prefills in bfloat16, and
// sinks on the kernels of plain attention. `widened_alone`: these over pages of e4m3 alone.
void check_score_mods(Bench& bench, const Batch& batch, const char* what, const Heads& h,
                      bool widened_alone = false) {
  const std::int64_t tokens = batch.tokens(), slots = batch.slots();
  Twin sinks(bench, DType::kF32, {h.heads}), slopes(bench, DType::kF32, {h.heads});
  sinks.fill(54, 3);
  slopes.set([&](std::int64_t j, std::int64_t, std::int64_t) {
    return std::exp2(-8.0 * (j + 1) / static_cast<double>(h.heads));
  });
  struct Case {
    const char* name;
    std::int64_t window, chunk;
    float softcap;
    bool sinks, slopes;
  };
  constexpr Case kCases[] = {
      {"chunk", 0, 100, 0, false, false},     {"chunk of a page", 0, 64, 0, false, false},
      {"soft cap", 0, 0, 1.5f, false, false}, {"soft cap and window", 100, 0, 1.5f, false, false},
      {"sinks", 0, 0, 0, true, false},        {"sinks and window", 100, 0, 0, true, false},
      {"slopes", 0, 0, 0, false, true},       {"all of them", 0, 100, 1.5f, true, true}};
  for (const Case& c : kCases)
    for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF8E4M3}) {
      if (widened_alone && (!c.sinks || c.chunk > 0 || dtype != DType::kF8E4M3)) continue;
      Twin q(bench, DType::kF32, {tokens, h.heads, h.dim}, 8),
          k(bench, dtype, {slots, h.kv_heads * h.dim});
      Twin v(bench, dtype, {slots, h.kv_heads * h.value_dim}),
          out(bench, DType::kF32, {tokens, h.heads, h.value_dim});
      Twin spread(bench, DType::kF32, {tokens, h.heads, h.value_dim});
      q.fill(51, 2);
      q.round_to_bf16();
      batch.fill_keys(k, 52);
      batch.fill_keys(v, 53);
      const auto scale = static_cast<float>(std::log(2.0) / 8);
      Allowed allowed =
          attention_error(h.dim, batch.longest(), 0.6 * std::sqrt(static_cast<double>(h.dim)));
      // tanh is within 4 units of 1 on either side. A distance times a slope is rounded once, for
      // weights of at least e^-32 of the maximum.
      allowed.absolute += 2 * (16 * c.softcap + (c.slopes ? 2 * 64 : 0)) * kUnit;
      if (dtype != DType::kF32)
        set_weight_spread(spread, batch, q, k, h.kv_heads, scale,
                          {.window = c.window,
                           .chunk = c.chunk,
                           .softcap = c.softcap,
                           .sinks = c.sinks ? &sinks : nullptr,
                           .slopes = c.slopes ? &slopes : nullptr});
      const bool widened = c.chunk == 0 && c.softcap == 0 && !c.slopes && batch.has_tiles() &&
                           (h.dim == 64 || h.dim == 128);
      // Either side rounds.
      allow_rounded_weights(allowed, dtype, batch.longest(), spread, 2, widened);
      bench.compare("paged_attention",
                    fmt::format("{}: {}, {} of {} heads, {}/{} {}", what, c.name, h.heads,
                                h.kv_heads, h.dim, h.value_dim, dtype_name(dtype)),
                    {{&out, allowed}}, [&](Context& ctx) {
                      ops::paged_attention(ctx, q(ctx), k(ctx), v(ctx), h.kv_heads, batch.rows(ctx),
                                           {.scale = scale,
                                            .window = c.window,
                                            .chunk = c.chunk,
                                            .sinks = c.sinks ? sinks(ctx) : Tensor{},
                                            .softcap = c.softcap,
                                            .slopes = c.slopes ? slopes(ctx) : Tensor{}},
                                           out(ctx));
                    });
    }
}

}  // namespace

void check_attention(Bench& bench) {
  // Kernels for any head size.
  const std::vector<Heads> plain = {{4, 2, 64, 64},   {32, 8, 128, 128}, {7, 7, 80, 80},
                                    {9, 1, 192, 128}, {24, 2, 256, 256}, {3, 3, 17, 5}};
  // Kernels on tensor cores: groups from one head to more than a tile.
  const std::vector<Heads> halves = {
      {5, 5, 64, 64}, {16, 1, 128, 128}, {12, 2, 96, 96}, {48, 1, 128, 128}, {14, 2, 64, 64}};
  const std::vector<DType> both = {DType::kF32, DType::kBF16, DType::kF8E4M3},
                           half = {DType::kBF16, DType::kF8E4M3};
  // Prefill with a prefix, a whole prefill, decode rows; then decode rows alone.
  const Batch mixed(bench, {300, 70, 1, 257, 64},
                    {{0, 290, 300}, {1, 0, 70}, {2, 0, 1}, {3, 256, 257}, {4, 63, 64}});
  check_paged(bench, mixed, "mixed", plain, both);
  check_paged(bench, mixed, "mixed", halves, half);
  const Batch decode(bench, {1, 64, 65, 1000},
                     {{0, 0, 1}, {1, 63, 64}, {2, 64, 65}, {3, 999, 1000}});
  check_paged(bench, decode, "decode", plain, both);
  check_paged(bench, decode, "decode", halves, half);
  // Many KV splits of a row, and several rows of one sequence processed singly.
  const Batch one(bench, {1900}, {{0, 1899, 1900}});
  check_paged(bench, one, "one row", {{8, 2, 128, 128}, {4, 1, 256, 256}}, half);
  const Batch few(bench, {200}, {{0, 190, 200}});
  check_paged(bench, few, "few rows", {{8, 2, 128, 128}, {4, 1, 64, 64}}, half);
  for (const Heads& h : {Heads{12, 4, 64, 64}, Heads{16, 2, 128, 128}, Heads{5, 5, 40, 24},
                         Heads{7, 1, 256, 256}, Heads{4, 2, 192, 128}, Heads{3, 3, 96, 96}}) {
    check_score_mods(bench, mixed, "mixed", h);
    check_score_mods(bench, decode, "decode", h);
  }
  check_score_mods(bench, Batch(bench, {700}, {{0, 300, 700}}), "one prefill", {80, 1, 128, 128});
  // Tiles with one sequence, with the end of one and the beginning of the next, and with decode
  // rows.
  const Batch prefill(bench, {400, 150, 90, 40},
                      {{0, 130, 400}, {1, 149, 150}, {2, 80, 90}, {3, 0, 40}});
  check_paged(bench, prefill, "prefill", {{8, 2, 128, 128}, {3, 3, 64, 64}, {5, 1, 128, 128}},
              half);
  // More tiles than the GPU has SMs: persistent CTAs process several tiles.
  check_paged(bench, prefill, "prefill", {{128, 128, 128, 128}, {192, 192, 64, 64}}, half);
  const Batch end(bench, {2500}, {{0, 2330, 2500}});
  check_paged(bench, end, "end of a long prefill", {{8, 2, 128, 128}, {8, 2, 64, 64}}, half);
  // Pages of e4m3 of a few heads at a time, and of two runs beside decode rows.
  check_score_mods(bench, end, "end of a long prefill", {40, 40, 128, 128}, true);
  check_paged(bench, end, "end of a long prefill", {{40, 40, 128, 128}, {70, 70, 64, 64}},
              {DType::kF8E4M3});
  const Batch two(bench, {1100, 900, 777, 130, 64},
                  {{0, 900, 1100}, {1, 899, 900}, {2, 576, 777}, {3, 129, 130}, {4, 63, 64}});
  check_paged(bench, two, "two prefills", {{32, 8, 128, 128}, {32, 8, 64, 64}, {40, 20, 128, 128}},
              {DType::kF8E4M3});
  const Batch whole(bench, {600}, {{0, 0, 600}});
  check_paged(bench, whole, "whole prefill", {{4, 1, 128, 128}, {4, 1, 64, 64}}, half);
}

namespace {

void check_latent(Bench& bench, const Batch& batch, const char* what) {
  struct Shape {
    std::int64_t heads, latent, rope;
  };
  for (const Shape& s : {Shape{16, 512, 64}, Shape{4, 32, 16}, Shape{128, 512, 64},
                         Shape{5, 1000, 24}, Shape{3, 200, 7}})
    for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF8E4M3}) {
      const std::int64_t tokens = batch.tokens(), dim = s.latent + s.rope;
      const bool in_codes = dtype == DType::kF8E4M3;
      Twin q(bench, DType::kF32, {tokens, s.heads, s.latent}),
          q_rope(bench, DType::kF32, {tokens, s.heads, s.rope}, 32);
      // With codes the plane has the same numbers.
      Twin plane(bench, in_codes ? DType::kBF16 : dtype, {batch.slots(), dim}),
          codes(bench, DType::kF8E4M3, {batch.slots(), ops::LatentRow{s.latent, s.rope}.bytes()}),
          out(bench, DType::kF32, {tokens, s.heads, s.latent});
      const Twin& stored = in_codes ? codes : plane;
      Twin spread(bench, DType::kF32, {tokens, s.heads, s.latent});
      q.fill(61);
      q_rope.fill(62);
      q.round_to_bf16();
      q_rope.round_to_bf16();
      batch.fill_keys(plane, 63);
      if (in_codes) store_codes(bench, s.latent, plane, codes);
      const auto scale = static_cast<float>(std::log(2.0) / 16);
      Allowed allowed =
          attention_error(dim, batch.longest(), 0.3 * std::sqrt(static_cast<double>(dim)));
      const auto set_bound =
          [&](const std::function<std::vector<std::int64_t>(std::int64_t)>& keys) {
            if (dtype == DType::kF32) return;
            set_latent_spread(spread, batch, q, q_rope, plane, scale, keys);
            allowed.bound = 6 * std::sqrt(2.0) * kBf16Unit;  // either side rounds
            allowed.scale = &spread;
          };
      set_bound([&](std::int64_t t) {
        std::vector<std::int64_t> all(static_cast<std::size_t>(batch.position(t) + 1));
        std::iota(all.begin(), all.end(), 0);
        return all;
      });
      const std::string label =
          fmt::format("{}: {} heads, {}+{} {}", what, s.heads, s.latent, s.rope, dtype_name(dtype));
      const auto attend = [&](Context& ctx, const Tensor& keys) {
        ops::mla_attention(ctx, q(ctx), q_rope(ctx), keys, batch.rows(ctx), scale, out(ctx));
      };
      bench.compare("mla_attention", label, {{&out, allowed}},
                    [&](Context& ctx) { attend(ctx, stored(ctx)); });
      bench.compare("mla_attention, in order", label, {{&out, allowed}}, [&](Context& ctx) {
        Context own = deterministic(ctx);
        attend(own, stored(ctx));
      });
      if (in_codes)
        expect_bits_of_numbers(bench, "mla_attention", label, plane, codes, out, attend);
      // Every third position; the first row has none, the last row has all.
      constexpr std::int64_t kTopk = 300;
      Twin indices(bench, DType::kI32, {tokens, kTopk});
      indices.set([&](std::int64_t t, std::int64_t i, std::int64_t) {
        const std::int64_t step = t == tokens - 1 ? 1 : 3;
        return (t > 0 || tokens == 1) && i * step <= batch.position(t)
                   ? static_cast<double>(i * step)
                   : -1.0;
      });
      set_bound([&](std::int64_t t) {
        std::vector<std::int64_t> chosen;
        for (std::int64_t i = 0; i < kTopk; ++i)
          if (const double p = indices.at(indices.host.data, t, i, 0); p >= 0)
            chosen.push_back(static_cast<std::int64_t>(p));
        return chosen;
      });
      const auto attend_chosen = [&](Context& ctx, const Tensor& keys) {
        ops::mla_sparse_attention(ctx, q(ctx), q_rope(ctx), keys, batch.rows(ctx), indices(ctx),
                                  scale, out(ctx));
      };
      bench.compare("mla_sparse_attention", label, {{&out, allowed}},
                    [&](Context& ctx) { attend_chosen(ctx, stored(ctx)); });
      if (in_codes)
        expect_bits_of_numbers(bench, "mla_sparse_attention", label, plane, codes, out,
                               attend_chosen);
    }
}

// The published shape: 128 heads, 2,048 selected keys of a long sequence.
void check_published(Bench& bench) {
  const Batch batch(bench, {32768, 3000}, {{0, 32766, 32768}, {1, 2999, 3000}});
  const std::int64_t tokens = batch.tokens(), heads = 128, latent = 512, rope = 64, topk = 2048;
  Twin q(bench, DType::kF32, {tokens, heads, latent}),
      q_rope(bench, DType::kF32, {tokens, heads, rope});
  Twin plane(bench, DType::kBF16, {batch.slots(), latent + rope}),
      codes(bench, DType::kF8E4M3, {batch.slots(), ops::LatentRow{latent, rope}.bytes()}),
      out(bench, DType::kF32, {tokens, heads, latent});
  Twin spread(bench, DType::kF32, {tokens, heads, latent}),
      indices(bench, DType::kI32, {tokens, topk});
  q.fill(61);
  q_rope.fill(62);
  q.round_to_bf16();
  q_rope.round_to_bf16();
  batch.fill_keys(plane, 63);
  store_codes(bench, latent, plane, codes);
  const auto scale = static_cast<float>(std::log(2.0) / 16);
  const auto chosen = [&](std::int64_t t, std::int64_t i) {
    return i * (batch.position(t) + 1) / topk;
  };
  indices.set([&](std::int64_t t, std::int64_t i, std::int64_t) {
    return static_cast<double>(chosen(t, i));
  });
  set_latent_spread(spread, batch, q, q_rope, plane, scale, [&](std::int64_t t) {
    std::vector<std::int64_t> all;
    for (std::int64_t i = 0; i < topk; ++i) all.push_back(chosen(t, i));
    return all;
  });
  Allowed allowed =
      attention_error(latent + rope, topk, 0.3 * std::sqrt(static_cast<double>(latent + rope)));
  allowed.bound = 6 * std::sqrt(2.0) * kBf16Unit;
  allowed.scale = &spread;
  const auto attend = [&](Context& ctx, const Tensor& keys) {
    ops::mla_sparse_attention(ctx, q(ctx), q_rope(ctx), keys, batch.rows(ctx), indices(ctx), scale,
                              out(ctx));
  };
  const std::string label = "2048 of 32768 keys, 128 heads";
  bench.compare("mla_sparse_attention", label, {{&out, allowed}},
                [&](Context& ctx) { attend(ctx, plane(ctx)); });
  bench.compare("mla_sparse_attention", label + ", e4m3", {{&out, allowed}},
                [&](Context& ctx) { attend(ctx, codes(ctx)); });
  expect_bits_of_numbers(bench, "mla_sparse_attention", label, plane, codes, out, attend);
}

}  // namespace

void check_mla(Bench& bench) {
  check_latent_codes(bench);
  const Batch batch(bench, {300, 70, 257}, {{0, 290, 300}, {1, 40, 70}, {2, 256, 257}});
  check_latent(bench, batch, "mixed");
  // The keys of a row are split over CTAs.
  const Batch one(bench, {3000}, {{0, 2999, 3000}});
  check_latent(bench, one, "one row");
  check_published(bench);
  for (const Heads& h : {Heads{3, 3, 24, 16}, Heads{16, 16, 192, 128}}) {
    constexpr std::int64_t kTokens = 40, kKeys = 333;
    Twin q(bench, DType::kF32, {kTokens, h.heads, h.dim}),
        k(bench, DType::kF32, {kKeys, h.heads, h.dim}, 4);
    Twin v(bench, DType::kF32, {kKeys, h.heads, h.value_dim}), begin(bench, DType::kI32, {kTokens}),
        end(bench, DType::kI32, {kTokens});
    Twin out(bench, DType::kF32, {kTokens, h.heads, h.value_dim}),
        lse(bench, DType::kF32, {kTokens, h.heads});
    q.fill(64);
    k.fill(65);
    v.fill(66);
    begin.set([](std::int64_t t, std::int64_t, std::int64_t) { return t / 10 * 50; });
    end.set([](std::int64_t t, std::int64_t, std::int64_t) {
      return t == 7 ? 0 : t / 10 * 50 + t % 10 * 20;
    });
    const Allowed allowed =
        attention_error(h.dim, kKeys, 0.3 * std::sqrt(static_cast<double>(h.dim)));
    bench.compare("mha_attention", fmt::format("{} heads, {}/{}", h.heads, h.dim, h.value_dim),
                  {{&out, allowed}, {&lse, allowed}}, [&](Context& ctx) {
                    ops::mha_attention(ctx, q(ctx), k(ctx), v(ctx), begin(ctx), end(ctx), 0.1f,
                                       out(ctx), lse(ctx));
                  });
    Twin other(bench, DType::kF32, {kTokens, h.heads, h.value_dim}),
        other_lse(bench, DType::kF32, {kTokens, h.heads});
    Twin mine(bench, DType::kF32, {kTokens, h.heads, h.value_dim}),
        mine_lse(bench, DType::kF32, {kTokens, h.heads});
    other.fill(67);
    mine.fill(68);
    const auto nothing = [](std::int64_t t, int which) { return t % 4 == which || t % 4 == 3; };
    other_lse.set([&](std::int64_t t, std::int64_t j, std::int64_t) {
      return nothing(t, 1) ? -INFINITY : 0.3 * j;
    });
    mine_lse.set([&](std::int64_t t, std::int64_t j, std::int64_t) {
      return nothing(t, 2) ? -INFINITY : 1.7 - 0.2 * j;
    });
    bench.compare("merge_state", "with empty sides, in place",
                  {{&mine, {.absolute = 8 * kUnit}}, {&mine_lse, {.absolute = 8 * kUnit}}},
                  [&](Context& ctx) {
                    ops::merge_state(ctx, mine(ctx), mine_lse(ctx), other(ctx), other_lse(ctx),
                                     mine(ctx), mine_lse(ctx));
                  });
  }
}

}  // namespace sluice::oracle
