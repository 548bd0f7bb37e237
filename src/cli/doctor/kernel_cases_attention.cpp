// Attention over pages of keys and values, over latents, and the indexer's choice.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>
#include <vector>

#include "cli/doctor/kernel_cases.h"
#include "kernels/types/fp8.h"
#include "kernels/types/latent_rows.h"
#include "ops/attention.h"
#include "ops/indexer.h"
#include "ops/kv.h"
#include "ops/mla.h"

namespace sluice {
namespace {

// Two sequences in pages that lie in another order than their tokens; the rows are their last
// tokens.
struct Pages {
  static constexpr std::int64_t kLengths[] = {700, 65};
  static constexpr std::int64_t kTable[2][11] = {{12, 3, 7, 0, 9, 5, 2, 11, 6, 1, 8},
                                                 {4, 10, -1, -1, -1, -1, -1, -1, -1, -1, -1}};
  static constexpr std::int64_t kSlots = 13 * kPageSize, kTokens = 765, kSeqs = 2;

  explicit Pages(KernelCheck& check)
      : table(check, DType::kI32, {kSeqs, 11}),
        seq(check, DType::kI32, {kSeqs}),
        position(check, DType::kI32, {kSeqs}),
        slots(check, DType::kI64, {kTokens}) {
    table.set([](std::int64_t i) { return static_cast<double>(kTable[i / 11][i % 11]); });
    seq.set([](std::int64_t i) { return static_cast<double>(i); });
    position.set([](std::int64_t i) { return static_cast<double>(kLengths[i] - 1); });
    slots.set([](std::int64_t i) {
      return static_cast<double>(i < kLengths[0] ? slot(0, i) : slot(1, i - kLengths[0]));
    });
  }
  static std::int64_t slot(std::int64_t s, std::int64_t p) {
    return kTable[s][p / kPageSize] * kPageSize + p % kPageSize;
  }
  static std::int64_t token(std::int64_t s, std::int64_t p) { return s * kLengths[0] + p; }
  ops::PagedRows rows(const Context& ctx) const { return {table(ctx), seq(ctx), position(ctx)}; }

  Sample table, seq, position, slots;
};

// Softmax attention of one row in float64. Scores are off by sum_error(d) of their terms, which
// moves a probability by twice that relative; exponentials, sums over n keys and the merge add n +
// 16 units at most, and probabilities that meet bfloat16 values are rounded to it (queries are
// multiples of bfloat16 here).
template <class Key, class Value>
void attend(std::int64_t first, std::int64_t keys, std::int64_t d, std::int64_t dv, double scale,
            bool bf16, const Key& product, const Value& value, Expected& expected) {
  std::vector<double> weight;
  double top = -1e300, error = 0, sum = 0;
  for (std::int64_t p = first; p < keys; ++p) {
    double dot = 0, size = 0;
    for (std::int64_t i = 0; i < d; ++i) {
      const double term = product(p, i);
      dot += term;
      size += std::abs(term);
    }
    weight.push_back(dot * scale);
    error = std::max(error, size * scale * (sum_error(d) + 2 * kFloatUnit));
    top = std::max(top, weight.back());
  }
  for (double& w : weight) sum += w = std::exp(w - top);
  const double relative = 2 * error + static_cast<double>(weight.size() + 16) * kFloatUnit +
                          (bf16 ? kBf16Unit / 2 : 0);  // doubled below
  for (std::int64_t i = 0; i < dv; ++i) {
    double want = 0, size = 0;
    for (std::int64_t p = first; p < keys; ++p) {
      const double term = weight[static_cast<std::size_t>(p - first)] / sum * value(p, i);
      want += term;
      size += std::abs(term);
    }
    expected.add(want, 2 * relative * size);
  }
}

// Numbers that every type of plane holds: below 1, they also are e4m3 numbers after a scale of 2^-8
// or less.
void round_to_e4m3(Sample& sample) {
  static const std::array<float, 256> e4m3 = ops::e4m3_values();
  std::vector<double> numbers;
  for (std::int64_t i = 0; i < sample.size(); ++i)
    numbers.push_back(e4m3[ops::to_e4m3(static_cast<float>(sample.at(i)))]);
  sample.set([&](std::int64_t i) { return numbers[static_cast<std::size_t>(i)]; });
}

void check_heads(KernelCheck& check, const ModelConfig& config, int window) {
  const std::int64_t heads = config.num_heads, kv = config.num_kv_heads, d = config.head_dim,
                     dv = config.value_dim();
  const Pages pages(check);
  const float scale = 1 / std::sqrt(static_cast<float>(d));
  Sample q(check, DType::kF32, {Pages::kSeqs, heads, d}),
      out(check, DType::kF32, {Pages::kSeqs, heads, dv});
  Sample k(check, DType::kF32, {Pages::kTokens, kv * d}),
      v(check, DType::kF32, {Pages::kTokens, kv * dv});
  q.fill(11, 2);
  k.fill(12);
  v.fill(13);
  for (Sample* each : {&k, &v}) round_to_e4m3(*each);
  for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF8E4M3}) {
    Expected expected;
    for (std::int64_t s = 0; s < Pages::kSeqs; ++s)
      for (std::int64_t h = 0; h < heads; ++h) {
        const std::int64_t head = h / (heads / kv), keys = Pages::kLengths[s];
        attend(
            window > 0 ? std::max<std::int64_t>(0, keys - window) : 0, keys, d, dv, scale,
            dtype != DType::kF32,
            [&](std::int64_t p, std::int64_t i) {
              return q.at((s * heads + h) * d + i) * k.at((Pages::token(s, p) * kv + head) * d + i);
            },
            [&](std::int64_t p, std::int64_t i) {
              return v.at((Pages::token(s, p) * kv + head) * dv + i);
            },
            expected);
      }
    Sample k_plane(check, dtype, {Pages::kSlots, kv * d}),
        v_plane(check, dtype, {Pages::kSlots, kv * dv});
    const bool panels =
        !check.on_gpu() && ops::fits_panels(dtype, d) && ops::fits_panels(dtype, dv);
    const auto run = [&](Context& ctx, const ops::KvPlane& keys, const ops::KvPlane& values) {
      ops::kv_write(ctx, k(ctx), pages.slots(ctx), keys);
      ops::kv_write(ctx, v(ctx), pages.slots(ctx), values);
      ops::paged_attention(ctx, q(ctx), keys, values, kv, pages.rows(ctx),
                           {.scale = scale, .window = window}, out(ctx));
    };
    const std::string shape =
        fmt::format("{} heads of {}, {} of keys, {}{}", heads, d, kv, dtype_name(dtype),
                    window > 0 ? fmt::format(", window {}", window) : "");
    check.compare(dtype == DType::kF8E4M3 ? "paged_attention FP8" : "paged_attention", shape, out,
                  expected, [&](Context& ctx) { run(ctx, k_plane(ctx), v_plane(ctx)); });
    if (panels)
      check.compare("paged_attention panels", shape, out, expected, [&](Context& ctx) {
        run(ctx, {k_plane(ctx), ops::PlaneForm::kKeyPanels, kv},
            {v_plane(ctx), ops::PlaneForm::kValuePanels, kv});
      });
  }
}

// A tree of drafts behind 70 tokens: a token, two drafts of the next place, and one behind each.
// The second path has a tail page of its own (docs/decisions/075-trees-of-drafts.md).
void check_tree(KernelCheck& check, const ModelConfig& config) {
  constexpr std::int64_t kKnown = 70, kNodes = 5, kTokens = kKnown + kNodes, kPages = 4;
  constexpr std::int64_t kParents[kNodes] = {-1, 0, 0, 1, 2}, kDepths[kNodes] = {0, 1, 1, 2, 2},
                         kPaths[kNodes] = {0, 0, 1, 0, 1};
  constexpr std::int64_t kTable[2][2] = {{2, 0}, {2, 3}}, kTail = kKnown / kPageSize * kPageSize;
  const std::int64_t heads = config.num_heads, kv = config.num_kv_heads, d = config.head_dim,
                     dv = config.value_dim();
  const auto slot = [&](std::int64_t path, std::int64_t position) {
    return kTable[path][position / kPageSize] * kPageSize + position % kPageSize;
  };
  Sample table(check, DType::kI32, {2, 2}), seq(check, DType::kI32, {kNodes}),
      position(check, DType::kI32, {kNodes}), slots(check, DType::kI64, {kTokens});
  // What both paths see beyond the first page: known tokens and the first node.
  constexpr std::int64_t kMoved = kKnown + 1 - kTail;
  Sample from(check, DType::kI64, {kMoved}), to(check, DType::kI64, {kMoved});
  table.set([&](std::int64_t i) { return static_cast<double>(kTable[i / 2][i % 2]); });
  seq.set([&](std::int64_t i) { return static_cast<double>(kPaths[i]); });
  position.set([&](std::int64_t i) { return static_cast<double>(kKnown + kDepths[i]); });
  slots.set([&](std::int64_t i) {
    const std::int64_t node = i - kKnown;
    return static_cast<double>(node < 0 ? slot(0, i) : slot(kPaths[node], kKnown + kDepths[node]));
  });
  from.set([&](std::int64_t i) { return static_cast<double>(slot(0, kTail + i)); });
  to.set([&](std::int64_t i) { return static_cast<double>(slot(1, kTail + i)); });
  const float scale = 1 / std::sqrt(static_cast<float>(d));
  Sample q(check, DType::kF32, {kNodes, heads, d}), out(check, DType::kF32, {kNodes, heads, dv});
  Sample k(check, DType::kF32, {kTokens, kv * d}), v(check, DType::kF32, {kTokens, kv * dv});
  q.fill(17, 2);
  k.fill(18);
  v.fill(19);
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    Expected expected;
    for (std::int64_t node = 0; node < kNodes; ++node) {
      std::vector<std::int64_t> seen(kKnown);
      std::iota(seen.begin(), seen.end(), 0);
      for (std::int64_t at = node; at >= 0; at = kParents[at]) seen.push_back(kKnown + at);
      std::sort(seen.begin(), seen.end());
      for (std::int64_t h = 0; h < heads; ++h) {
        const std::int64_t head = h / (heads / kv);
        const auto token = [&](std::int64_t p) { return seen[static_cast<std::size_t>(p)]; };
        attend(
            0, std::ssize(seen), d, dv, scale, dtype == DType::kBF16,
            [&](std::int64_t p, std::int64_t i) {
              return q.at((node * heads + h) * d + i) * k.at((token(p) * kv + head) * d + i);
            },
            [&](std::int64_t p, std::int64_t i) { return v.at((token(p) * kv + head) * dv + i); },
            expected);
      }
    }
    Sample k_plane(check, dtype, {kPages * kPageSize, kv * d}),
        v_plane(check, dtype, {kPages * kPageSize, kv * dv});
    check.compare("tree attention", fmt::format("{} heads of {}, {}", heads, d, dtype_name(dtype)),
                  out, expected, [&](Context& ctx) {
                    const ops::KvPlane planes[] = {k_plane(ctx), v_plane(ctx)};
                    ops::kv_write(ctx, k(ctx), slots(ctx), planes[0]);
                    ops::kv_write(ctx, v(ctx), slots(ctx), planes[1]);
                    ops::kv_move(ctx, planes, from(ctx), to(ctx));
                    ops::paged_attention(ctx, q(ctx), planes[0], planes[1], kv,
                                         {table(ctx), seq(ctx), position(ctx)}, {.scale = scale},
                                         out(ctx));
                  });
  }
}

}  // namespace

void check_attention_kernels(KernelCheck& check, const ModelConfig& config) {
  if (config.mla) return;
  check_heads(check, config, 0);
  check_tree(check, config);
  for (const LayerConfig& layer : config.layers)
    if (layer.window > 0) return check_heads(check, config, layer.window);
}

void check_latent_kernels(KernelCheck& check, const ModelConfig& config) {
  if (!config.mla) return;
  const std::int64_t heads = config.num_heads, latent = config.mla->kv_lora_rank,
                     rope = config.mla->qk_rope_head_dim;
  const std::int64_t row = latent + rope;
  const Pages pages(check);
  const float scale = 1 / std::sqrt(static_cast<float>(config.mla->qk_head_dim()));
  Sample q(check, DType::kF32, {Pages::kSeqs, heads, latent}),
      q_rope(check, DType::kF32, {Pages::kSeqs, heads, rope});
  Sample keys(check, DType::kF32, {Pages::kTokens, row}),
      out(check, DType::kF32, {Pages::kSeqs, heads, latent});
  q.fill(14);
  q_rope.fill(15);
  keys.fill(16);
  round_to_e4m3(keys);
  // Every third key of each row, as an indexer would choose them.
  constexpr std::int64_t kChosen = 234;
  Sample indices(check, DType::kI32, {Pages::kSeqs, kChosen});
  indices.set([](std::int64_t i) {
    const std::int64_t s = i / kChosen, p = i % kChosen * 3;
    return p < Pages::kLengths[s] ? static_cast<double>(p) : -1.0;
  });
  for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF8E4M3})
    for (const bool sparse : {false, true}) {
      Expected expected;
      for (std::int64_t s = 0; s < Pages::kSeqs; ++s)
        for (std::int64_t h = 0; h < heads; ++h) {
          const std::int64_t step = sparse ? 3 : 1, count = (Pages::kLengths[s] + step - 1) / step;
          const auto key = [&](std::int64_t p, std::int64_t i) {
            return keys.at(Pages::token(s, p * step) * row + i);
          };
          attend(
              0, count, row, latent, scale, dtype != DType::kF32,
              [&](std::int64_t p, std::int64_t i) {
                return key(p, i) * (i < latent ? q.at((s * heads + h) * latent + i)
                                               : q_rope.at((s * heads + h) * rope + i - latent));
              },
              key, expected);
        }
      const bool codes = dtype == DType::kF8E4M3;
      Sample plane(check, dtype,
                   {Pages::kSlots, codes ? ops::LatentRow{latent, rope}.bytes() : row});
      check.compare(
          std::string(sparse ? "mla_sparse_attention" : "mla_attention") + (codes ? " FP8" : ""),
          fmt::format("{} heads, {} + {}, {}", heads, latent, rope, dtype_name(dtype)), out,
          expected, [&](Context& ctx) {
            ops::write_latents(ctx, keys(ctx).slice(1, 0, latent), keys(ctx).slice(1, latent, rope),
                               pages.slots(ctx), plane(ctx));
            if (sparse)
              ops::mla_sparse_attention(ctx, q(ctx), q_rope(ctx), plane(ctx), pages.rows(ctx),
                                        indices(ctx), scale, out(ctx));
            else
              ops::mla_attention(ctx, q(ctx), q_rope(ctx), plane(ctx), pages.rows(ctx), scale,
                                 out(ctx));
          });
    }
}

// Scores that are whole numbers, all different: what is chosen is then the same for every order of
// summation.
void check_indexer(KernelCheck& check, const ModelConfig& config) {
  if (!config.indexer) return;
  const std::int64_t heads = config.indexer->num_heads, d = config.indexer->head_dim;
  const std::int64_t topk = std::min<std::int64_t>(config.indexer->topk, 256);
  const Pages pages(check);
  const auto score = [](std::int64_t token) {
    return 1 + token * 389 % Pages::kTokens;
  };  // 389 and 765 have no common factor
  Sample q(check, DType::kF32, {Pages::kSeqs, heads, d}),
      weights(check, DType::kF32, {Pages::kSeqs, heads});
  Sample keys(check, DType::kF32, {Pages::kTokens, d}),
      out(check, DType::kI32, {Pages::kSeqs, topk});
  q.set([&](std::int64_t i) {
    return i % (heads * d) == 0 ? 64.0 : i % (heads * d) == 1 ? 1.0 : 0.0;
  });
  weights.set([&](std::int64_t i) { return i % heads == 0 ? 1.0 : 0.0; });
  keys.set([&](std::int64_t i) {
    const std::int64_t s = score(i / d);
    return static_cast<double>(i % d == 0 ? s / 64 : i % d == 1 ? s % 64 : 0);
  });
  Expected expected;
  for (std::int64_t s = 0; s < Pages::kSeqs; ++s) {
    std::vector<std::int64_t> order;
    for (std::int64_t p = 0; p < Pages::kLengths[s]; ++p) order.push_back(p);
    std::sort(order.begin(), order.end(), [&](auto a, auto b) {
      return score(Pages::token(s, a)) > score(Pages::token(s, b));
    });
    order.resize(std::min(order.size(), static_cast<std::size_t>(topk)));
    std::sort(order.begin(), order.end());
    for (std::int64_t i = 0; i < topk; ++i)
      expected.add(
          i < std::ssize(order) ? static_cast<double>(order[static_cast<std::size_t>(i)]) : -1.0,
          0);
  }
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    Sample plane(check, dtype, {Pages::kSlots, d});
    check.compare(
        "index_topk", fmt::format("{} of {}, {}", topk, Pages::kLengths[0], dtype_name(dtype)), out,
        expected, [&](Context& ctx) {
          const ops::IndexWorkspaceShape shape =
              ops::index_topk_workspace(ctx, Pages::kSeqs, Pages::kLengths[0]);
          const Tensor workspace = ctx.arena->take(DType::kF32, {shape.rows, shape.max_len});
          ops::kv_write(ctx, keys(ctx), pages.slots(ctx), plane(ctx));
          ops::index_topk(ctx, q(ctx), weights(ctx), plane(ctx), pages.rows(ctx), workspace,
                          out(ctx));
        });
  }
}

}  // namespace sluice
