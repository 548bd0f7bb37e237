// MoE layers. Per block of tokens:
// 1. group_pairs(): counting sort of the (token, expert) pairs by expert,
// 2. w13 GEMM of each expert over its pairs, then the activation,
// 3. w2 GEMM of each expert,
// 4. combine(): weighted sum per token, in ascending order of experts.
#include <algorithm>

#include "base/error.h"
#include "kernels/cpu/common/rows.h"
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/isa/tiles.h"

namespace sluice::cpu {
namespace {

// The (token, expert) pairs of a block of tokens, sorted by expert and then by token.
struct Groups {
  std::int32_t* begin;  // [E + 1]: pairs of expert e are sorted entries [begin[e], begin[e + 1])
  std::int32_t* token;  // [pairs]: token of a sorted entry
  // [pairs]: sorted entry of pair t * top_k + j; -1 if its expert is not on this rank
  std::int32_t* place;

  Groups(const MoeWorkspace& workspace, std::int64_t experts, std::int64_t pairs)
      : begin(workspace.order.ptr<std::int32_t>()),
        token(begin + experts + 1),
        place(token + pairs) {}
};

// 1. Counting sort. Validates the ids at the same time.
void group_pairs(Groups& groups, const Tensor& ids, std::int64_t first, std::int64_t tokens,
                 std::int64_t experts) {
  const std::int64_t top_k = ids.dim(1);
  std::fill_n(groups.begin, experts + 1, 0);
  // Count the pairs of each expert.
  for (std::int64_t t = 0; t < tokens; ++t) {
    const auto* id = row<std::int32_t>(ids, first + t);
    std::int32_t last = -1;
    for (std::int64_t j = 0; j < top_k; ++j) {
      if (id[j] == -1) continue;
      check(id[j] > last && id[j] < experts,
            "expert {} after expert {} of token {}: {} experts, ascending ids wanted", id[j], last,
            first + t, experts);
      last = id[j];
      ++groups.begin[id[j] + 1];
    }
  }
  // Prefix sums give the first entry of each expert.
  for (std::int64_t e = 0; e < experts; ++e) groups.begin[e + 1] += groups.begin[e];
  // Place every pair; begin[e] advances to the end of expert e.
  for (std::int64_t t = 0; t < tokens; ++t) {
    const auto* id = row<std::int32_t>(ids, first + t);
    for (std::int64_t j = 0; j < top_k; ++j) {
      std::int32_t& place = groups.place[t * top_k + j];
      place = id[j] == -1 ? -1 : groups.begin[id[j]]++;
      if (place >= 0) groups.token[place] = static_cast<std::int32_t>(first + t);
    }
  }
  // The second pass advanced each begin[e] to its end: shift them back by one expert.
  for (std::int64_t e = experts; e > 0; --e) groups.begin[e] = groups.begin[e - 1];
  groups.begin[0] = 0;
}

// 4. Columns [n0, n1) of out[first + t] = weighted sum of the results of its pairs, in ascending
//    order of experts.
void combine(const Groups& groups, const Tensor& weights, const Tensor& ids,
             const ExpertParams& params, const Tensor& down, std::int64_t first,
             std::int64_t tokens, std::int64_t n0, std::int64_t n1, const Tensor& out) {
  const std::int64_t top_k = weights.dim(1);
  for (std::int64_t t = 0; t < tokens; ++t) {
    float* to = row<float>(out, first + t);
    std::fill(to + n0, to + n1, 0.0f);
    for (std::int64_t j = 0; j < top_k; ++j) {
      const std::int32_t place = groups.place[t * top_k + j];
      if (place < 0) continue;
      // The router weight multiplies either the input or the result of the expert.
      const float weight = params.weigh_input ? 1.0f : row<float>(weights, first + t)[j];
      const float* from = at<float>(down, place);
      if (params.down_bias.defined()) {
        const float* bias = row<float>(params.down_bias, row<std::int32_t>(ids, first + t)[j]);
        for (std::int64_t i = n0; i < n1; ++i) to[i] += weight * (from[i] + bias[i]);
        continue;
      }
      for (std::int64_t i = n0; i < n1; ++i) to[i] += weight * from[i];
    }
  }
}

// Writes act(gate) * up of a pair, with the variations of `params`, to the start of `both`. In
// place: a result never lies behind an input that is still to be read.
void activate(const KernelTable& table, const ExpertParams& params, float weight,
              std::int64_t expert, std::int64_t width, float* both) {
  // The plain case: gate rows first, then up rows, without biases or clamps.
  if (params.activation_only())
    return table.act_and_mul_f32(params.activation, both, both + width, both, width);
  constexpr std::int64_t kColumns = 64;
  float gate[kColumns], up[kColumns];
  const std::int64_t step = params.interleaved ? 2 : 1, up_begin = params.interleaved ? 1 : width;
  const float* bias = params.up_bias.defined() ? row<float>(params.up_bias, expert) : nullptr;
  for (std::int64_t first = 0; first < width; first += kColumns) {
    const std::int64_t count = std::min(kColumns, width - first);
    // Gather gate and up of some columns, with input weight and bias.
    for (std::int64_t i = 0; i < count; ++i) {
      const std::int64_t g = (first + i) * step, u = up_begin + g;
      gate[i] = params.weigh_input ? weight * both[g] : both[g];
      up[i] = params.weigh_input ? weight * both[u] : both[u];
      if (bias != nullptr) gate[i] += bias[g], up[i] += bias[u];
    }
    if (params.clamp > 0) {  // g sigmoid(alpha g) = silu(alpha g) / alpha
      for (std::int64_t i = 0; i < count; ++i) {
        gate[i] = params.alpha * std::min(gate[i], params.clamp);
        up[i] = (std::clamp(up[i], -params.clamp, params.clamp) + 1) / params.alpha;
      }
    }
    table.act_and_mul_f32(params.clamp > 0 ? Activation::kSilu : params.activation, gate, up,
                          both + first, count);
  }
}

// The same for every pair of a block. store(pair, row) receives each result.
template <class Store>
void activate_pairs(Context& ctx, const Groups& groups, const Tensor& weights, const Tensor& ids,
                    const ExpertParams& params, const Tensor& gate_up, std::int64_t first,
                    std::int64_t tokens, Store&& store) {
  const std::int64_t top_k = ids.dim(1), width = gate_up.dim(1) / 2;
  parallel(ctx, tokens * top_k, 8 * width, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t pair = begin; pair < end; ++pair) {
      const std::int32_t place = groups.place[pair];
      if (place < 0) continue;
      const std::int64_t t = first + pair / top_k, j = pair % top_k;
      float* both = at<float>(gate_up, place);
      activate(kernels(ctx), params, row<float>(weights, t)[j], row<std::int32_t>(ids, t)[j], width,
               both);
      store(place, both);
    }
  });
}

constexpr std::int64_t kColumnUnit = 8;

// out[pairs of e, columns] = x[pairs of e] w[e]^T for every expert e that has pairs. Each thread
// takes the same columns of every expert, so an uneven load of the experts does not matter.
template <class After>
void expert_products(Context& ctx, const Groups& groups, const Tensor& x,
                     const std::int32_t* x_rows, const Tensor& w, const Tensor& out,
                     After&& after) {
  const std::int64_t experts = w.dim(0), n = w.dim(1), k = w.dim(2);
  const auto gemm = kernels(ctx).gemm[dtype_column(x.dtype)][dtype_column(w.dtype)];
  const std::int64_t pairs = groups.begin[experts];
  parallel(ctx, (n + kColumnUnit - 1) / kColumnUnit, kColumnUnit * pairs * k,
           [&](std::int64_t begin, std::int64_t end) {
             const std::int64_t n0 = begin * kColumnUnit, n1 = std::min(n, end * kColumnUnit);
             for (std::int64_t e = 0; e < experts; ++e) {
               const std::int64_t p0 = groups.begin[e], count = groups.begin[e + 1] - p0;
               if (count == 0) continue;
               GemmArgs args = {.x = x.data,
                                .x_stride = x.stride[0],
                                .w = static_cast<const std::byte*>(w.data) +
                                     e * w.stride[0] * dtype_size(w.dtype),
                                .w_stride = w.stride[1],
                                .out = at<float>(out, p0),
                                .out_stride = out.stride[0],
                                .k = k};
               // w13 reads listed token rows, w2 reads the consecutive rows of `hidden`.
               if (x_rows != nullptr)
                 args.x_rows = x_rows + p0;
               else
                 args.x =
                     static_cast<const std::byte*>(x.data) + p0 * x.stride[0] * dtype_size(x.dtype);
               gemm(args, 0, count, n0, n1);
             }
             after(n0, n1);
           });
}

constexpr std::int64_t kPanelTiles = 4;  // tiles of a panel: kernels/cpu/isa/tiles.h

std::int64_t panels_of(std::int64_t tiles) {
  return (tiles + kPanelTiles - 1) / kPanelTiles;
}

// The experts that have pairs, in ascending order.
struct ActiveExperts {
  std::int64_t count = 0;
  std::int32_t expert[ops::kMaxExperts];

  ActiveExperts(const Groups& groups, std::int64_t experts) {
    for (std::int64_t e = 0; e < experts; ++e)
      if (groups.begin[e + 1] > groups.begin[e]) expert[count++] = static_cast<std::int32_t>(e);
  }
  // Items are panels, `panels` per active expert. Calls body(expert, first pair, pairs, first
  // panel, end panel) for the items [begin, end), once per expert.
  template <class Body>
  void for_panels(const Groups& groups, std::int64_t panels, std::int64_t begin, std::int64_t end,
                  Body&& body) const {
    while (begin < end) {
      const std::int64_t e = expert[begin / panels], p0 = begin % panels,
                         p1 = std::min(panels, p0 + end - begin);
      body(e, std::int64_t{groups.begin[e]}, std::int64_t{groups.begin[e + 1] - groups.begin[e]},
           p0, p1);
      begin += p1 - p0;
    }
  }
};

// The product of one expert of a repacked stack.
TileProduct expert_product(const Weight& w, std::int64_t expert, const Tensor& x,
                           const Tensor& out) {
  return {.x = static_cast<const std::byte*>(x.data),
          .x_stride = x.stride[0] * dtype_size(x.dtype),
          .w = static_cast<const std::byte*>(w.data.data) + expert * w.data.stride[0],
          .rows = w.rows,
          .columns = w.columns,
          .group = w.group,
          .out = out.ptr<float>(),
          .out_stride = out.stride[0]};
}

}  // namespace

void fused_experts_tiles(Context& ctx, const Tensor& x, const Weight& w13, const Weight& w2,
                         const Tensor& weights, const Tensor& ids, const ExpertParams& params,
                         const MoeWorkspace& workspace, const Tensor& out) {
  const std::int64_t experts = w13.count, top_k = ids.dim(1), width = w2.columns;
  const std::int64_t block = workspace.gate_up.dim(0) / top_k;
  const KernelTable& table = kernels(ctx);
  const TileKernels& first_tiles = tile_kernels(ctx.cpu_isa, w13.format);
  const TileKernels& second_tiles = tile_kernels(ctx.cpu_isa, w2.format);
  // Gate and up of the same columns meet in one thread, which applies the activation while they are
  // in its cache.
  const bool fused = width % kTileWeightRows == 0 && second_tiles.input == DType::kBF16 &&
                     params.activation_only();
  const std::int64_t tiles = num_tiles(w13.rows), down_tiles = num_tiles(w2.rows);
  for (std::int64_t first = 0; first < x.dim(0); first += block) {
    const std::int64_t tokens = std::min(block, x.dim(0) - first);
    // 1. Sort.
    Groups groups(workspace, experts, workspace.gate_up.dim(0));
    group_pairs(groups, ids, first, tokens, experts);
    const std::int64_t pairs = groups.begin[experts];
    const Tensor& both = workspace.gate_up;
    const ActiveExperts active(groups, experts);
    const auto combine_all = [&] {
      parallel(ctx, down_tiles, kTileWeightRows * tokens * top_k,
               [&](std::int64_t begin, std::int64_t end) {
                 combine(groups, weights, ids, params, workspace.down, first, tokens,
                         begin * kTileWeightRows, std::min(w2.rows, end * kTileWeightRows), out);
               });
    };
    // No expert of this rank was chosen: the outputs are zero.
    if (active.count == 0) {
      combine_all();
      continue;
    }
    // 2. w13. Work items are panels of the active experts, expert by expert. A thread reads long
    //    runs of weights, and one that finishes early takes panels of another thread.
    const std::int64_t halves = fused ? 2 : 1, first_panels = panels_of(tiles / halves);
    parallel(ctx, active.count * first_panels,
             16 * kPanelTiles * halves * (pairs / active.count) * w13.columns,
             [&](std::int64_t begin, std::int64_t end) {
               active.for_panels(
                   groups, first_panels, begin, end,
                   [&](std::int64_t e, std::int64_t pair, std::int64_t count, std::int64_t p0,
                       std::int64_t p1) {
                     TileProduct product = expert_product(w13, e, x, both.rows(pair, count));
                     product.x_rows = groups.token + pair;
                     const std::int64_t t0 = p0 * kPanelTiles,
                                        t1 = std::min(tiles / halves, p1 * kPanelTiles);
                     if (!fused) return first_tiles.product(product, 0, count, t0, t1);
                     first_tiles.paired_gemm(product, 0, count, t0, t1, tiles / 2);
                     const std::int64_t n0 = t0 * kTileWeightRows, n1 = t1 * kTileWeightRows;
                     for (std::int64_t p = pair; p < pair + count; ++p) {
                       const float* gate = at<float>(both, p) + n0;
                       table.act_and_mul_bf16(params.activation, gate, gate + width,
                                              at<BF16>(workspace.hidden, p) + n0, n1 - n0);
                     }
                   });
             });
    if (!fused)
      activate_pairs(ctx, groups, weights, ids, params, both, first, tokens,
                     [&](std::int64_t pair, const float* inner) {
                       second_tiles.prepare(w2, inner, 0, width, row_bytes(workspace.hidden, pair));
                     });
    // 3. w2, partitioned in the same way.
    const std::int64_t down_panels = panels_of(down_tiles);
    parallel(ctx, active.count * down_panels, 16 * kPanelTiles * (pairs / active.count) * width,
             [&](std::int64_t begin, std::int64_t end) {
               active.for_panels(groups, down_panels, begin, end,
                                 [&](std::int64_t e, std::int64_t pair, std::int64_t count,
                                     std::int64_t p0, std::int64_t p1) {
                                   const TileProduct product =
                                       expert_product(w2, e, workspace.hidden.rows(pair, count),
                                                      workspace.down.rows(pair, count));
                                   second_tiles.product(product, 0, count, p0 * kPanelTiles,
                                                        std::min(down_tiles, p1 * kPanelTiles));
                                 });
             });
    // 4. Combine.
    combine_all();
  }
}

void fused_experts(Context& ctx, const Tensor& x, const Tensor& w13, const Tensor& w2,
                   const Tensor& weights, const Tensor& ids, const ExpertParams& params,
                   const MoeWorkspace& workspace, const Tensor& out) {
  const std::int64_t experts = w13.dim(0), top_k = ids.dim(1);
  const std::int64_t block = workspace.gate_up.dim(0) / top_k;
  for (std::int64_t first = 0; first < x.dim(0); first += block) {
    const std::int64_t tokens = std::min(block, x.dim(0) - first);
    Groups groups(workspace, experts, workspace.gate_up.dim(0));
    group_pairs(groups, ids, first, tokens, experts);
    const std::int64_t pairs = groups.begin[experts];
    const Tensor hidden = workspace.hidden.rows(0, pairs);
    // Row-major weights: the same steps. combine() runs inside the w2 loop, per range of columns.
    const Tensor down = workspace.down.rows(0, pairs);
    expert_products(ctx, groups, x, groups.token, w13, workspace.gate_up,
                    [](std::int64_t, std::int64_t) {});
    if (params.activation_only()) {
      act_and_mul(ctx, params.activation, workspace.gate_up.rows(0, pairs), hidden);
    } else {
      activate_pairs(ctx, groups, weights, ids, params, workspace.gate_up, first, tokens,
                     [&](std::int64_t pair, const float* inner) {
                       if (hidden.dtype == DType::kBF16)
                         std::transform(inner, inner + hidden.dim(1), at<BF16>(hidden, pair),
                                        [](float x) { return BF16(x); });
                       else
                         std::copy_n(inner, hidden.dim(1), at<float>(hidden, pair));
                     });
    }
    expert_products(ctx, groups, hidden, nullptr, w2, down, [&](std::int64_t n0, std::int64_t n1) {
      combine(groups, weights, ids, params, down, first, tokens, n0, n1, out);
    });
  }
}

}  // namespace sluice::cpu
