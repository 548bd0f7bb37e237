// Fused operations (ops/fused.h), against the separate operations on the CPU.
#include <cmath>

#include "away.h"
#include "batch.h"
#include "ops/elementwise.h"
#include "ops/fused.h"
#include "ops/moe.h"
#include "oracle.h"

namespace sluice::oracle {
namespace {

// Root mean square of uniform numbers in [-1, 1).
const double kUniform = 1 / std::sqrt(3.0);

// Normalised rows are rounded to bfloat16 at different steps on the two sides. On either side this
// gives K independent errors of kBf16Unit times an element times a weight of root mean square `w`.
// Their sum stays below 6 times its root mean square but for one case in 10^7.
double rounding(std::int64_t k, double w) {
  return 6 * std::sqrt(2.0 * static_cast<double>(k)) * kBf16Unit * kUniform * w;
}

struct Shape {
  std::int64_t m, n, k, pad;
};
constexpr Shape kShapes[] = {
    {1, 16, 8, 0},       {1, 48, 64, 8},     {3, 200, 520, 0},   {8, 513, 4096, 8},
    {1, 1000, 12288, 0}, {5, 4100, 2048, 0}, {8, 40, 8192, 0},   {9, 64, 256, 0},
    {2, 33, 130, 2},     {4, 2200, 1032, 8}, {40, 256, 512, 0},  {100, 96, 520, 8},
    {1, 2112, 2048, 8},  {1, 4400, 4096, 0}, {4, 2304, 1024, 8}, {1, 64, 512, 0}};

// A matrix in rows whose GEMM reads `input`.
ops::Weight reads(ops::Weight w, DType input) {
  w.input = input;
  return w;
}

// What reads the columns that gate and up rows of w make.
ops::Weight second_of(ops::Weight w, DType input) {
  w.columns = w.rows / 2;
  return reads(w, input);
}

void check_fused_gemms(Bench& bench) {
  for (const Shape& s : kShapes)
    for (const DType type : {DType::kBF16, DType::kF32}) {
      const double size = 1 / std::sqrt(static_cast<double>(s.k));
      const std::string label = fmt::format("{} x {} x {} {}", s.m, s.n, s.k, dtype_name(type));
      Twin x(bench, DType::kF32, {s.m, s.k}, s.pad), weight(bench, DType::kF32, {s.k}),
          w(bench, type, {2 * s.n, s.k});
      Twin bias(bench, DType::kF32, {2 * s.n});
      Twin both(bench, DType::kF32, {s.m, 2 * s.n}), gated(bench, type, {s.m, s.n}, s.pad);
      x.fill(101, 3);
      weight.fill(102);
      w.fill(103, size);
      bias.fill(104, 0.1);
      const ops::RowNorm norm_host{weight.host, 1e-5f}, norm_device{weight.device, 1e-5f};
      const auto norm = [&](const Context& ctx) {
        return ctx.device.kind == DeviceKind::kCpu ? norm_host : norm_device;
      };
      const double exact = sum_error(s.k) * 0.3 * std::sqrt(static_cast<double>(s.k)) + 16 * kUnit;
      const double error = exact + (type == DType::kBF16 ? rounding(s.k, size * kUniform) : 0);
      for (const bool biased : {false, true})
        bench.compare("norm_linear", label + (biased ? " and bias" : ""),
                      {{&both, {.absolute = error}}}, [&](Context& ctx) {
                        ops::Residual stream{.hidden = x(ctx), .branch = {}};
                        ops::norm_linear(ctx, {stream, norm(ctx)}, reads(w(ctx), type),
                                         biased ? bias(ctx) : Tensor{}, both(ctx));
                      });
      // Outputs of the gate/up projections are below `top`. The derivative of x sigmoid(x) is below
      // 1.1, that of the tanh form below 1.13.
      const double top = 6 * kUniform * kUniform + 0.1;
      // With many rows the outputs of the gate/up projections are rounded as well.
      const double halves = type == DType::kBF16 && s.m > ops::kMaxFusedRows ? top * kBf16Unit : 0;
      const Allowed gates{.absolute = 2.2 * top * (error + halves),
                          .relative = type == DType::kBF16 ? 2 * kBf16Unit : 0};
      for (const Activation activation : {Activation::kSilu, Activation::kGeluTanh})
        for (const bool biased : {false, true})
          bench.compare("norm_gate_up", label + (biased ? " and bias" : ""), {{&gated, gates}},
                        [&](Context& ctx) {
                          ops::Residual stream{.hidden = x(ctx), .branch = {}};
                          ops::norm_gate_up(ctx, {stream, norm(ctx)}, reads(w(ctx), type),
                                            biased ? bias(ctx) : Tensor{}, activation,
                                            second_of(w(ctx), type), gated(ctx));
                        });
      Twin input(bench, type, {s.m, s.k}, s.pad), product(bench, DType::kF32, {s.m, 2 * s.n});
      Twin sum(bench, DType::kF32, {s.m, 2 * s.n}, s.pad);
      input.fill(105);
      sum.fill(106, 5);
      bench.compare("linear_add", label, {{&sum, {.absolute = exact, .relative = 2 * kUnit}}},
                    [&](Context& ctx) {
                      ops::Residual stream{.hidden = sum(ctx), .branch = product(ctx)};
                      ops::linear_add(ctx, input(ctx), reads(w(ctx), type), bias(ctx), false,
                                      stream);
                      ops::add_branch(ctx, stream);
                    });
    }
}

// Gate/up projections of many rows, which a GPU may fuse with their activation. The first three
// shapes nearly fill one of 132 SMs. They have partial tiles, several tiles per CTA, more than one
// band of tiles, and a partial last K step.
void check_gates_of_many(Bench& bench) {
  for (const Shape& s :
       {Shape{380, 8440, 1032, 8}, Shape{760, 8448, 264, 0}, Shape{4200, 760, 320, 8},
        Shape{130, 264, 1032, 8}, Shape{256, 128, 256, 0}, Shape{777, 1000, 520, 8}}) {
    const double size = 1 / std::sqrt(static_cast<double>(s.k));
    Twin x(bench, DType::kBF16, {s.m, s.k}, s.pad), w(bench, DType::kBF16, {2 * s.n, s.k}, s.pad);
    Twin gated(bench, DType::kBF16, {s.m, s.n}, s.pad);
    x.fill(107, 3);
    w.fill(108, size);
    // As above: the terms of the sums have an absolute mean of 3 / 4 times `size`. The sums are
    // below `top` and may be rounded in between.
    const double error = sum_error(s.k) * 0.9 * std::sqrt(static_cast<double>(s.k)) + 16 * kUnit,
                 top = 6 * 3 * kUniform * kUniform;
    const Allowed allowed{.absolute = 2.2 * top * (error + top * kBf16Unit),
                          .relative = 2 * kBf16Unit};
    for (const Activation activation : {Activation::kSilu, Activation::kGeluTanh})
      bench.compare("norm_gate_up", fmt::format("{} x {} x {} of bf16", s.m, s.n, s.k),
                    {{&gated, allowed}}, [&](Context& ctx) {
                      ops::norm_gate_up(ctx, x(ctx), reads(w(ctx), DType::kBF16), {}, activation,
                                        second_of(w(ctx), DType::kBF16), gated(ctx));
                    });
  }
}

struct Heads {
  std::int64_t heads, kv_heads, dim, rotated;
  bool norm, interleaved;
};

// One batch and one kind of heads: all windows, both types of the output. `runs`: the batch as
// decode rows alone; null: as it is, and also with moves.
void check_rotated_attention(Bench& bench, const Batch& batch, const std::string& name,
                             const Heads& h, DType cache, const BatchRuns* runs = nullptr) {
  const std::int64_t tokens = batch.tokens(), kv_width = h.kv_heads * h.dim;
  Twin q0(bench, DType::kF32, {tokens, h.heads, h.dim}), k0(bench, DType::kF32, {tokens, kv_width});
  Twin q(bench, DType::kF32, {tokens, h.heads, h.dim}),
      k(bench, DType::kF32, {tokens, kv_width}, 8);
  Twin v(bench, DType::kF32, {tokens, kv_width}, 8),
      angles(bench, DType::kF32, {tokens, h.rotated});
  Twin q_weight(bench, DType::kF32, {h.dim}), k_weight(bench, DType::kF32, {h.dim}),
      slots(bench, DType::kI64, {tokens}), sinks(bench, DType::kF32, {h.heads});
  Twin k_plane(bench, cache, {batch.slots(), kv_width});
  Twin v_plane(bench, cache, {batch.slots(), kv_width});
  Twin k_scales(bench, DType::kF32, {h.kv_heads}), v_scales(bench, DType::kF32, {h.kv_heads});
  const bool is_fp8 = cache == DType::kF8E4M3;
  k_scales.set([](std::int64_t kv, std::int64_t, std::int64_t) { return 1 - 0.03 * (kv % 7); });
  v_scales.set([](std::int64_t kv, std::int64_t, std::int64_t) { return 0.7 + 0.03 * (kv % 7); });
  const auto plane = [&](const Twin& rows, const Twin& scales, const Context& ctx) {
    ops::KvPlane view = rows(ctx);
    if (is_fp8) view.scales = scales(ctx);
    return view;
  };
  q0.fill(111);
  k0.fill(112);
  v.fill(113);
  q_weight.fill(114);
  k_weight.fill(115);
  sinks.fill(119, 3);
  angles.set([&](std::int64_t t, std::int64_t i, std::int64_t) {
    const double angle = static_cast<double>(batch.position(t)) *
                         std::pow(0.7, static_cast<double>(i % (h.rotated / 2)));
    return i < h.rotated / 2 ? std::cos(angle) : std::sin(angle);
  });
  batch.fill_keys(k_plane, 116);
  batch.fill_keys(v_plane, 117);
  slots.set([&](std::int64_t t, std::int64_t, std::int64_t) {
    return static_cast<double>(batch.slot(t, batch.position(t)));
  });
  // The last row of a sequence sees what its first row has written, in the place of its own key.
  Twin from_slots(bench, DType::kI64, {3}), to_slots(bench, DType::kI64, {3});
  const auto moved_to = [&](std::int64_t t) {
    const std::int64_t last = batch.position(0) + tokens - 1;
    const bool is_one = batch.position(tokens - 1) == last;
    return batch.slot(0, t == 0 && is_one ? last : batch.position(0));
  };
  from_slots.set([&](std::int64_t, std::int64_t, std::int64_t) {
    return static_cast<double>(batch.slot(0, batch.position(0)));
  });
  to_slots.set(
      [&](std::int64_t t, std::int64_t, std::int64_t) { return static_cast<double>(moved_to(t)); });
  // The GPU rounds queries to bfloat16. That is an error of a score and so a relative error of its
  // weight. Weights are rounded too. Values are below 1.
  const double query = kUniform, key = kUniform;
  const auto scale = 0.1f;
  const double score = scale * 6 * kBf16Unit * query * key * std::sqrt(static_cast<double>(h.dim));
  // A value near a tie may go either way: by one unit of its last bit. In e4m3 that is an eighth,
  // and 2^-9 below 2^-6.
  const Allowed stored = is_fp8 ? Allowed{.absolute = 0x1p-9, .relative = 0x1p-3}
                                : Allowed{.absolute = 1e-6, .relative = 2 * kBf16Unit};
  // At most one element of a new key does. Heads have elements of up to 3 then, queries too.
  const double tie = is_fp8 ? scale * 3 * 3 * 0x1p-3 : 0;
  for (const DType out_type : {DType::kF32, DType::kBF16}) {
    Twin mixed(bench, DType::kF32, {tokens, h.heads, h.dim}),
        out(bench, out_type, {tokens, h.heads, h.dim});
    Allowed allowed{.absolute = 2 * (score + 2 * kBf16Unit + tie)};
    if (out_type == DType::kBF16) allowed.relative = 2 * kBf16Unit;
    // A window of 3 keys begins within a run.
    for (const std::int64_t window : runs ? std::vector{0, 3, 50} : std::vector{0, 50})
      for (const bool other : {false, true}) {
        const bool moves = other && !runs, in_order = other && runs;
        if (in_order && window == 50) continue;
        const bool has_sinks = (window > 0) == (out_type == DType::kF32);
        bench.compare(
            moves  ? "rotate_write_then_attend"
            : runs ? in_order ? "runs in order" : "runs"
                   : "rotate_write_and_attend",
            fmt::format("{}: {} of {} heads of {} {}, window {}, to {}{}", name, h.heads,
                        h.kv_heads, h.dim, dtype_name(cache), window, dtype_name(out_type),
                        has_sinks ? ", sinks" : ""),
            {{&out, allowed}, {&k_plane, stored}, {&v_plane, {.exact = true}}},
            [&](Context& given) {
              Context ctx = in_order ? deterministic(given) : given;
              ops::convert(ctx, q0(ctx), q(ctx));
              ops::convert(ctx, k0(ctx), k(ctx));
              const ops::HeadRotation rotation{.q_weight = h.norm ? q_weight(ctx) : Tensor{},
                                               .k_weight = h.norm ? k_weight(ctx) : Tensor{},
                                               .eps = 1e-6f,
                                               .cos_sin = angles(ctx),
                                               .interleaved = h.interleaved};
              const Tensor& to = out_type == DType::kF32 ? out(ctx) : mixed(ctx);
              const ops::KvPlane keys = plane(k_plane, k_scales, ctx),
                                 values = plane(v_plane, v_scales, ctx);
              const ops::AttentionParams params{
                  .scale = scale, .window = window, .sinks = has_sinks ? sinks(ctx) : Tensor{}};
              if (moves)
                ops::rotate_write_then_attend(ctx, q(ctx), k(ctx), v(ctx), rotation, slots(ctx),
                                              keys, values, h.kv_heads, batch.rows(ctx), params, to,
                                              out(ctx), from_slots(ctx), to_slots(ctx));
              else
                ops::rotate_write_and_attend(
                    ctx, q(ctx), k(ctx), v(ctx), rotation, slots(ctx), keys, values, h.kv_heads,
                    runs ? runs->rows(ctx) : batch.rows(ctx), params, to, out(ctx));
            });
      }
  }
}

void check_heads(Bench& bench) {
  struct Case {
    const char* name;
    std::vector<std::int64_t> lengths;
    std::vector<RowRun> runs;
  };
  // Newest keys at every kind of position: the first key of all, beside a page's end, in the last
  // of many KV splits.
  const Case cases[] = {
      {"decode",
       {1, 2, 64, 65, 127, 1000},
       {{0, 0, 1}, {1, 1, 2}, {2, 63, 64}, {3, 64, 65}, {4, 126, 127}, {5, 999, 1000}}},
      {"one row", {2047}, {{0, 2046, 2047}}},
      {"rows of one sequence", {70}, {{0, 60, 70}}},
      {"prefill", {230}, {{0, 65, 230}}},
      {"mixed", {90, 30}, {{0, 40, 90}, {1, 29, 30}}}};
  for (const Case& c : cases) {
    const Batch batch(bench, c.lengths, c.runs);
    for (const Heads& h : {Heads{8, 2, 128, 128, true, false}, Heads{16, 1, 128, 64, false, false},
                           Heads{4, 1, 64, 64, true, true}, Heads{5, 5, 96, 96, false, false},
                           Heads{4, 2, 256, 64, true, false}, Heads{40, 2, 128, 128, true, false},
                           Heads{3, 3, 80, 80, true, false}, Heads{8, 2, 64, 64, true, false},
                           Heads{8, 2, 64, 64, false, false}, Heads{192, 48, 128, 128, true, false},
                           Heads{32, 2, 128, 64, false, true}, Heads{8, 2, 128, 20, true, false},
                           Heads{8, 2, 64, 16, false, false}, Heads{24, 2, 96, 48, true, false},
                           Heads{4, 2, 96, 96, false, true}, Heads{8, 1, 256, 256, false, false},
                           Heads{4, 2, 256, 128, true, true}})
      for (const DType cache : {DType::kBF16, DType::kF8E4M3})
        check_rotated_attention(bench, batch, c.name, h, cache);
  }
}

// Rows of drafts: each reads the keys of the rows before it, which the same launch writes.
void check_runs(Bench& bench) {
  struct Case {
    const char* name;
    std::vector<std::int64_t> lengths;  // the last rows of each sequence are a run
    std::vector<std::int64_t> rows;
  };
  // Runs within 16 keys, over two warps, over two pages, over two splits; from the first key of
  // all; as clusters where there are few heads; longer than the kernel takes.
  const Case cases[] = {
      {"short", {1, 7, 8, 64, 65, 127, 128, 129, 80, 83}, {1, 7, 8, 4, 3, 8, 6, 5, 2, 7}},
      {"long", {1000, 64, 5000, 5000, 1027}, {4, 1, 8, 2, 5}},
      {"four rows", {1026}, {4}},
      {"eight rows", {5000}, {8}},
      {"two rows", {65}, {2}},
      {"twelve rows", {130, 70}, {12, 3}}};
  for (const Case& c : cases) {
    std::vector<RowRun> ends;
    for (std::size_t s = 0; s < c.lengths.size(); ++s)
      ends.push_back({static_cast<std::int64_t>(s), c.lengths[s] - c.rows[s], c.lengths[s]});
    const Batch batch(bench, c.lengths, ends);
    const BatchRuns runs(bench, batch);
    for (const Heads& h : {Heads{8, 2, 128, 128, true, false}, Heads{16, 1, 128, 64, false, false},
                           Heads{12, 1, 64, 64, true, true}, Heads{5, 5, 96, 96, false, false},
                           Heads{12, 1, 96, 96, true, false}, Heads{4, 2, 256, 64, true, false},
                           Heads{32, 8, 128, 128, true, false}, Heads{3, 3, 80, 80, true, false},
                           Heads{8, 2, 64, 64, false, false}, Heads{32, 2, 128, 64, false, true},
                           Heads{40, 2, 128, 128, true, false}, Heads{8, 2, 128, 20, true, false},
                           Heads{8, 2, 64, 16, false, false}})
      for (const DType cache : {DType::kBF16, DType::kF8E4M3})
        check_rotated_attention(bench, batch, fmt::format("runs, {}", c.name), h, cache, &runs);
  }
}

void check_mixtures(Bench& bench) {
  struct Mixture {
    std::int64_t tokens, experts, top_k, hidden, width;
  };
  for (const Mixture& s :
       {Mixture{1, 32, 8, 2048, 768}, Mixture{8, 32, 8, 2048, 768}, Mixture{3, 5, 5, 72, 40},
        Mixture{2, 60, 4, 1000, 264}, Mixture{8, 8, 2, 4096, 512}, Mixture{12, 16, 2, 256, 96},
        Mixture{1, 300, 6, 2304, 136}, Mixture{1, 32, 4, 2880, 96}}) {
    const double size = 1 / std::sqrt(static_cast<double>(s.hidden));
    const std::string label = fmt::format("{} tokens, {} of {}, {} x {}", s.tokens, s.top_k,
                                          s.experts, s.hidden, s.width);
    Twin x(bench, DType::kF32, {s.tokens, s.hidden}, 4), weight(bench, DType::kF32, {s.hidden});
    Twin router(bench, DType::kF32, {s.experts, s.hidden}), bias(bench, DType::kF32, {s.experts});
    Twin correction(bench, DType::kF32, {s.experts}),
        rounded(bench, DType::kBF16, {s.tokens, s.hidden}, 8);
    ops::Weight next;  // the experts', which read the rows
    next.format = ops::Format::kBf16;
    next.columns = s.hidden;
    next.input = DType::kBF16;
    Twin weights(bench, DType::kF32, {s.tokens, s.top_k}),
        ids(bench, DType::kI32, {s.tokens, s.top_k});
    x.fill(121, 2);
    weight.fill(122);
    router.fill(123, 8 * size);
    bias.fill(124);
    correction.fill(125, 0.2);
    // A logit is a sum of terms of about 8 / 4 times `size` each.
    const double logit =
        2 * (sum_error(s.hidden) + 16 * kUnit) * std::sqrt(static_cast<double>(s.hidden));
    for (const bool noaux : {false, true}) {
      const ops::RouterParams params =
          noaux ? ops::deepseek_v3_router(static_cast<int>(s.top_k), 1, 1, true, 2.5f)
                : ops::softmax_router(static_cast<int>(s.top_k), true);
      bench.compare(
          "norm_route", label + (noaux ? " noaux" : ""),
          {{&ids, {.exact = true}},
           {&weights, {.relative = 4 * logit}},
           {&rounded, {.absolute = 1e-30, .relative = 2 * kBf16Unit + sum_error(s.hidden)}}},
          [&](Context& ctx) {
            ops::Residual stream{.hidden = x(ctx), .branch = {}};
            ops::norm_route(ctx, {stream, {weight(ctx), 1e-6f}}, router(ctx),
                            noaux ? bias(ctx) : Tensor{}, noaux ? correction(ctx) : Tensor{},
                            params, next, rounded(ctx), weights(ctx), ids(ctx));
          });
    }
    Twin input(bench, DType::kBF16, {s.tokens, s.hidden}, 8),
        w13(bench, DType::kBF16, {s.experts, 2 * s.width, s.hidden});
    Twin w2(bench, DType::kBF16, {s.experts, s.hidden, s.width}),
        product(bench, DType::kF32, {s.tokens, s.hidden});
    Twin sum(bench, DType::kF32, {s.tokens, s.hidden}, 4);
    input.fill(126);
    w13.fill(127, 2 * size);
    w2.fill(128);
    sum.fill(129, 3);
    weights.set(
        [&](std::int64_t t, std::int64_t j, std::int64_t) { return 1.0 / (1.0 + t % 3 + j); });
    // As in experts.cpp: errors of the two GEMMs, and roundings of a handful of values near a tie.
    const auto width = static_cast<double>(s.width);
    const double products =
        8 * (sum_error(s.hidden) + 64 * kUnit) * std::sqrt(width) + sum_error(s.width) * width;
    const Allowed allowed{.absolute = static_cast<double>(s.top_k) * (products + 64 * kBf16Unit)};
    for (const Away away : {Away::kFew, Away::kHalf, Away::kAll}) {
      ids.set([&](std::int64_t t, std::int64_t j, std::int64_t) {
        if (is_away(away, t, j)) return -1.0;
        return static_cast<double>(j * (s.experts / s.top_k) +
                                   t % std::max<std::int64_t>(s.experts / s.top_k, 1));
      });
      bench.compare("experts_add", fmt::format("{}, away {}", label, static_cast<int>(away)),
                    {{&sum, allowed}}, [&](Context& ctx) {
                      ops::Residual stream{.hidden = sum(ctx), .branch = product(ctx)};
                      ops::experts_add(ctx, input(ctx), reads(w13(ctx), DType::kBF16),
                                       reads(w2(ctx), DType::kBF16), weights(ctx), ids(ctx),
                                       Activation::kSilu, false, stream);
                      ops::add_branch(ctx, stream);
                    });
    }
  }
}

}  // namespace

void check_fused(Bench& bench) {
  check_fused_gemms(bench);
  check_gates_of_many(bench);
  check_heads(bench);
  check_runs(bench);
  check_mixtures(bench);
}

}  // namespace sluice::oracle
