// Routing and the MLPs of experts.
#include <array>
#include <cmath>

#include "away.h"
#include "ops/moe.h"
#include "oracle.h"

namespace sluice::oracle {
namespace {

void check_routing(Bench& bench) {
  struct Case {
    const char* name;
    std::int64_t experts;
    ops::RouterParams params;
    bool bias;
  };
  const Case cases[] = {{"mixtral", 8, ops::softmax_router(2, true), false},
                        {"qwen3-moe", 128, ops::softmax_router(8, true), false},
                        {"qwen2-moe", 60, ops::softmax_router(4, false), false},
                        {"deepseek-v2", 160, ops::deepseek_v2_router(6, 8, 3, false, 16.0f), false},
                        {"deepseek-v3", 256, ops::deepseek_v3_router(8, 8, 4, true, 2.5f), true},
                        {"one group", 64, ops::deepseek_v3_router(6, 1, 1, true, 2.446f), true},
                        {"ernie", 64, ops::ernie_router(6, 1e-12f), true},
                        {"llama4", 16, ops::llama4_router(1), false},
                        {"sparse mixer", 16, ops::sparse_mixer(0.01f), false},
                        {"sparse mixer, wide", 40, ops::sparse_mixer(0.4f), false},
                        {"every expert", 5, ops::softmax_router(5, true), false},
                        {"the most", 1024, ops::softmax_router(8, true), false}};
  for (const Case& c : cases)
    for (const std::int64_t tokens : {1, 77}) {
      Twin logits(bench, DType::kF32, {tokens, c.experts}, 4),
          bias(bench, DType::kF32, {c.experts});
      Twin weights(bench, DType::kF32, {tokens, c.params.top_k}),
          ids(bench, DType::kI32, {tokens, c.params.top_k});
      bias.fill(72, 0.3);
      for (const bool ties : {false, true}) {
        logits.fill(71, 4);
        // Few different values: of equal scores the lower id is first.
        if (ties)
          logits.set([](std::int64_t t, std::int64_t e, std::int64_t) {
            return static_cast<double>((t + e * 7) % 3);
          });
        if (ties) bias.set([](std::int64_t, std::int64_t, std::int64_t) { return 0.25; });
        bench.compare("route", fmt::format("{} {}{}", c.name, tokens, ties ? " with ties" : ""),
                      {{&ids, {.exact = true}},
                       {&weights, {.relative = (24 + 2.0 * c.params.top_k) * kUnit}}},
                      [&](Context& ctx) {
                        ops::route(ctx, logits(ctx), c.bias ? bias(ctx) : Tensor{}, c.params,
                                   weights(ctx), ids(ctx));
                      });
      }
    }
}

void check_places(Bench& bench) {
  for (const std::int64_t experts : {1, 60, 1024})
    for (const std::int64_t tokens : {1, 33, 700}) {
      constexpr std::int64_t kTopK = 8;
      Twin places(bench, DType::kI32, {experts}), ids(bench, DType::kI32, {tokens, kTopK}, 3);
      places.set([](std::int64_t e, std::int64_t, std::int64_t) {
        return static_cast<double>(e % 2 == 0 ? e / 2 : -1);
      });
      ids.set([&](std::int64_t t, std::int64_t j, std::int64_t) {
        return static_cast<double>((t * 7 + j) % experts);
      });
      bench.compare("place_experts", fmt::format("{} tokens, {} experts", tokens, experts),
                    {{&ids, {.exact = true}}},
                    [&](Context& ctx) { ops::place_experts(ctx, places(ctx), ids(ctx)); });
    }
}

// Each option of an expert's MLP, alone and in the combinations of gpt-oss and Llama 4.
enum class Extra : std::uint8_t { kNone, kGelu, kRelu2, kClamped, kBiased, kGptOss, kWeighed };
constexpr std::array kExtras = {Extra::kNone,   Extra::kGelu,   Extra::kRelu2,  Extra::kClamped,
                                Extra::kBiased, Extra::kGptOss, Extra::kWeighed};

struct Shape {
  std::int64_t tokens, experts, top_k, hidden, width;
};

void check_mlps(Bench& bench, Extra extra, Away away) {
  for (const Shape& s :
       {Shape{1, 8, 2, 64, 32}, Shape{5, 4, 3, 33, 17}, Shape{64, 128, 8, 256, 96},
        Shape{700, 16, 4, 128, 64}, Shape{3, 6, 6, 1024, 768},
        // Streamed in passes of 16 rows; tiles of 64 and of 128 rows, with partial tiles.
        Shape{12, 4, 3, 72, 40}, Shape{30, 16, 2, 512, 264}, Shape{300, 8, 2, 200, 72},
        // More rows of an expert than one streaming pass; rows that do not fit in shared memory.
        Shape{72, 128, 8, 256, 96}, Shape{30, 16, 2, 2560, 64}, Shape{32, 8, 1, 128, 3608}})
    for (const DType x_type : {DType::kF32, DType::kBF16})
      for (const DType w_type : {DType::kF32, DType::kBF16, DType::kF16}) {
        if ((extra != Extra::kNone || away != Away::kFew) &&
            s.experts * s.width * s.hidden > 5 << 19)
          continue;  // one pass over all sizes is enough
        Twin x(bench, x_type, {s.tokens, s.hidden}, 8),
            w13(bench, w_type, {s.experts, 2 * s.width, s.hidden});
        Twin w2(bench, w_type, {s.experts, s.hidden, s.width}),
            weights(bench, DType::kF32, {s.tokens, s.top_k});
        Twin ids(bench, DType::kI32, {s.tokens, s.top_k}),
            out(bench, DType::kF32, {s.tokens, s.hidden}, 4);
        const double size = 2 / std::sqrt(static_cast<double>(s.hidden));
        x.fill(81);
        w13.fill(82, size);
        w2.fill(83);
        weights.set(
            [&](std::int64_t t, std::int64_t j, std::int64_t) { return 1.0 / (1.0 + t % 3 + j); });
        // Ascending ids; some belong to another rank.
        ids.set([&](std::int64_t t, std::int64_t j, std::int64_t) {
          if (is_away(away, t, j)) return -1.0;
          return static_cast<double>(j + (s.experts - s.top_k) * (t % 4) / 4);
        });
        // gate and up are below about 3, and act(gate) times up is below 8. Their errors have
        // either sign and add up like those of a sum. In bfloat16 a handful of values, those near a
        // tie, round to their other neighbour.
        const auto width = static_cast<double>(s.width);
        Twin up_bias(bench, DType::kF32, {s.experts, 2 * s.width}),
            down_bias(bench, DType::kF32, {s.experts, s.hidden});
        up_bias.fill(84);
        down_bias.fill(85);
        const auto params = [&](Context& ctx) {
          ops::ExpertParams p(extra == Extra::kGelu    ? Activation::kGelu
                              : extra == Extra::kRelu2 ? Activation::kRelu2
                                                       : Activation::kSilu);
          if (extra == Extra::kClamped || extra == Extra::kGptOss) p.clamp = 1.5f;
          p.interleaved = extra == Extra::kGptOss;
          p.groups = groups_of(away);
          p.weigh_input = extra == Extra::kWeighed;
          if (extra == Extra::kBiased || extra == Extra::kGptOss)
            p.up_bias = up_bias(ctx), p.down_bias = down_bias(ctx);
          return p;
        };
        // With biases, a further 1 beside `up` or a square: below 32.
        const double largest = extra == Extra::kNone ? 8 : 32;
        const double products = largest * (sum_error(s.hidden) + 64 * kUnit) * std::sqrt(width);
        const double flips = x_type == DType::kBF16 ? 4 * largest * 2 * kBf16Unit : 0;
        const Allowed allowed{.absolute = static_cast<double>(s.top_k) *
                                          (products + sum_error(s.width) * width + flips)};
        bench.compare(
            "fused_experts",
            fmt::format("{} tokens, {} of {}, {} x {} {} by {}, form {}, away {}", s.tokens,
                        s.top_k, s.experts, s.hidden, s.width, dtype_name(x_type),
                        dtype_name(w_type), static_cast<int>(extra), static_cast<int>(away)),
            {{&out, allowed}}, [&](Context& ctx) {
              const ops::MoeWorkspace workspace = ops::take_moe_workspace(
                  *ctx.arena, s.tokens, s.top_k, s.experts, s.hidden, s.width, {x_type, s.width});
              ops::fused_experts(ctx, x(ctx), w13(ctx), w2(ctx), weights(ctx), ids(ctx),
                                 params(ctx), workspace, out(ctx));
            });
      }
}

}  // namespace

void check_experts(Bench& bench) {
  check_routing(bench);
  check_places(bench);
  for (const Extra extra : kExtras) check_mlps(bench, extra, Away::kFew);
  for (const Away away : {Away::kHalf, Away::kAll}) {
    check_mlps(bench, Extra::kNone, away);
    check_mlps(bench, Extra::kGptOss, away);
  }
}

}  // namespace sluice::oracle
