#include "base/error.h"
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/rows.h"

namespace sluice::cpu {
namespace {

// The pairs of a block of tokens, sorted by expert and, within an expert, by token.
struct Groups {
  std::int32_t* begin;   // [E + 1]: pairs of expert e are sorted entries [begin[e], begin[e + 1])
  std::int32_t* token;   // [pairs]: token of a sorted entry
  std::int32_t* place;   // [pairs]: sorted entry of pair t * top_k + j, -1 when it has no expert here

  Groups(const MoeWorkspace& workspace, std::int64_t experts, std::int64_t pairs)
      : begin(workspace.order.ptr<std::int32_t>()), token(begin + experts + 1), place(token + pairs) {}
};

void group_pairs(Groups& groups, const Tensor& ids, std::int64_t first, std::int64_t tokens, std::int64_t experts) {
  const std::int64_t top_k = ids.dim(1);
  std::fill_n(groups.begin, experts + 1, 0);
  for (std::int64_t t = 0; t < tokens; ++t) {
    const auto* id = row<std::int32_t>(ids, first + t);
    std::int32_t last = -1;
    for (std::int64_t j = 0; j < top_k; ++j) {
      if (id[j] == -1) continue;
      check(id[j] > last && id[j] < experts, "expert {} after expert {} of token {}: {} experts, ascending ids wanted",
            id[j], last, first + t, experts);
      last = id[j];
      ++groups.begin[id[j] + 1];
    }
  }
  for (std::int64_t e = 0; e < experts; ++e) groups.begin[e + 1] += groups.begin[e];
  for (std::int64_t t = 0; t < tokens; ++t) {
    const auto* id = row<std::int32_t>(ids, first + t);
    for (std::int64_t j = 0; j < top_k; ++j) {
      std::int32_t& place = groups.place[t * top_k + j];
      place = id[j] == -1 ? -1 : groups.begin[id[j]]++;
      if (place >= 0) groups.token[place] = static_cast<std::int32_t>(first + t);
    }
  }
  // The counts ran up to the ends: shift them back to the beginnings.
  for (std::int64_t e = experts; e > 0; --e) groups.begin[e] = groups.begin[e - 1];
  groups.begin[0] = 0;
}

constexpr std::int64_t kColumnUnit = 8;

// For every expert that has pairs: out[pairs of e, columns] = x[pairs of e] w[e]^T. Each thread takes the same share
// of the columns of every expert, so uneven experts do not matter.
template <class After>
void expert_products(Context& ctx, const Groups& groups, const Tensor& x, const std::int32_t* x_rows, const Tensor& w,
                     const Tensor& out, After&& after) {
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
                       .w = static_cast<const std::byte*>(w.data) + e * w.stride[0] * dtype_size(w.dtype),
                       .w_stride = w.stride[1],
                       .out = at<float>(out, p0),
                       .out_stride = out.stride[0],
                       .k = k};
      if (x_rows != nullptr)
        args.x_rows = x_rows + p0;
      else
        args.x = static_cast<const std::byte*>(x.data) + p0 * x.stride[0] * dtype_size(x.dtype);
      gemm(args, 0, count, n0, n1);
    }
    after(n0, n1);
  });
}

}  // namespace

void fused_experts(Context& ctx, const Tensor& x, const Tensor& w13, const Tensor& w2, const Tensor& weights,
                   const Tensor& ids, Activation activation, const MoeWorkspace& workspace, const Tensor& out) {
  const std::int64_t experts = w13.dim(0), top_k = ids.dim(1);
  const std::int64_t block = workspace.gate_up.dim(0) / top_k;
  for (std::int64_t first = 0; first < x.dim(0); first += block) {
    const std::int64_t tokens = std::min(block, x.dim(0) - first);
    Groups groups(workspace, experts, workspace.gate_up.dim(0));
    group_pairs(groups, ids, first, tokens, experts);
    const std::int64_t pairs = groups.begin[experts];
    const Tensor hidden = workspace.hidden.rows(0, pairs);
    const Tensor down = workspace.down.rows(0, pairs);
    expert_products(ctx, groups, x, groups.token, w13, workspace.gate_up, [](std::int64_t, std::int64_t) {});
    act_and_mul(ctx, activation, workspace.gate_up.rows(0, pairs), hidden);
    const auto combine = [&](std::int64_t n0, std::int64_t n1) {
      for (std::int64_t t = 0; t < tokens; ++t) {
        float* to = row<float>(out, first + t);
        std::fill(to + n0, to + n1, 0.0f);
        for (std::int64_t j = 0; j < top_k; ++j) {
          const std::int32_t place = groups.place[t * top_k + j];
          if (place < 0) continue;
          const float weight = row<float>(weights, first + t)[j];
          const float* from = at<float>(down, place);
          for (std::int64_t i = n0; i < n1; ++i) to[i] += weight * from[i];
        }
      }
    };
    expert_products(ctx, groups, hidden, nullptr, w2, down, combine);
  }
}

}  // namespace sluice::cpu
