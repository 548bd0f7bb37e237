// Expert MLPs in float32 for any type and shape: the oracle of the other MoE kernels, and what runs
// with --deterministic.
//   1. group_pairs     pairs (token, expert) sorted by expert
//   2. expert_kernel   gate/up projections of each expert's rows
//   3. gate_pairs      activation
//   4. expert_kernel   down projection
//   5. combine         the weighted sum of a token's experts
#include "kernels/cuda/common/session.h"
#include "kernels/cuda/cuda.h"
#include "kernels/cuda/gemm/gemm_rows.cuh"
#include "kernels/cuda/moe/experts.cuh"
#include "kernels/cuda/moe/experts_plan.h"

namespace sluice::cuda {
namespace {

constexpr int kGroupThreads = 1024;
static_assert(ops::kMaxExperts <= kGroupThreads);

// The pairs of a block of tokens, sorted by expert and, within an expert, by token; see
// kernels/cpu/moe/moe.cpp.
struct Groups {
  std::int32_t* begin;  // [E + 1]
  std::int32_t* token;  // [pairs]
  std::int32_t* place;  // [pairs], -1: no expert here
};

// 1. One CTA. Thread e counts and places the pairs of expert e, so the order needs no atomics.
__global__ void __launch_bounds__(kGroupThreads)
    group_pairs(const std::int32_t* ids, std::int64_t stride, int first, int tokens, int top_k,
                int experts, Groups groups) {
  __shared__ std::int32_t count[kGroupThreads];
  const int e = threadIdx.x;
  std::int32_t mine = 0;
  for (int p = threadIdx.x; p < tokens * top_k; p += blockDim.x) {
    const std::int32_t id = ids[(first + p / top_k) * stride + p % top_k];
    if (id < -1 || id >= experts) __trap();
    groups.place[p] = id;  // overwritten by the pair's place below
  }
  __syncthreads();
  if (e < experts)
    for (int p = 0; p < tokens * top_k; ++p) mine += groups.place[p] == e;
  count[e] = mine;
  __syncthreads();
  // Inclusive prefix sum of the counts over the experts. Two barriers a step: read, then write.
  for (int step = 1; step < kGroupThreads; step *= 2) {
    const std::int32_t left = e >= step ? count[e - step] : 0;
    __syncthreads();
    count[e] += left;
    __syncthreads();
  }
  if (e < experts) groups.begin[e + 1] = count[e];
  if (e == 0) groups.begin[0] = 0;
  std::int32_t place = count[e] - mine;
  // Hazard: places overwrite the copied ids, and a place could look like an id. So ids are read
  // from the source again.
  __syncthreads();
  if (e < experts && mine > 0)
    for (int p = 0; p < tokens * top_k; ++p) {
      if (ids[(first + p / top_k) * stride + p % top_k] != e) continue;
      groups.token[place] = first + p / top_k;
      groups.place[p] = place++;
    }
}

constexpr int kRowsAtOnce = 8;
constexpr int kWarps = 4;

// Row p of the input belongs to pair p of the sorted order.
struct ExpertArgs {
  const void* x;              // rows of token[p], or p itself
  const std::int32_t* token;  // null: row p
  const void* w;              // [E, n, k]
  float* out;                 // [pairs, n]
  std::int64_t x_stride, n, k;
  const std::int32_t* begin;
};

// 2. and 4. Grid: columns, experts. A warp has one column and takes the expert's rows, eight at a
// time: eight rows share each load of a weight. The sum of an output does not depend on the other
// rows.
template <class TX, class TW, bool kAligned>
__global__ void __launch_bounds__(kWarps* kWarp) expert_kernel(ExpertArgs a) {
  const std::int64_t n = std::int64_t{blockIdx.x} * kWarps + threadIdx.x / kWarp;
  const std::int64_t e = blockIdx.y;
  // The pairs of this expert in sorted order.
  const std::int32_t first = a.begin[e], last = a.begin[e + 1];
  if (n >= a.n || first == last) return;
  const TW* w = static_cast<const TW*>(a.w) + (e * a.n + n) * a.k;
  const TX* base = static_cast<const TX*>(a.x);
  const auto row = [&](std::int32_t p) {
    return base + std::int64_t{a.token == nullptr ? p : a.token[p]} * a.x_stride;
  };
  for (std::int32_t p0 = first; p0 < last; p0 += kRowsAtOnce) {
    const int lane = threadIdx.x % kWarp;
    // One row alone: the same sum without seven repeated rows.
    if (last - p0 == 1) {
      const TX* x[1] = {row(p0)};
      float acc[1];
      dot_rows<TX, TW, 1, kAligned>(x, w, a.k, acc);
      if (lane == 0) a.out[p0 * a.n + n] = acc[0];
      continue;
    }
    // Rows past the last one repeat the last row: their sums are not stored.
    const TX* x[kRowsAtOnce];
    for (int r = 0; r < kRowsAtOnce; ++r) x[r] = row(min(p0 + r, last - 1));
    float acc[kRowsAtOnce];
    dot_rows<TX, TW, kRowsAtOnce, kAligned>(x, w, a.k, acc);
    if (lane != 0) continue;
    for (int r = 0; r < kRowsAtOnce; ++r)
      if (p0 + r < last) a.out[std::int64_t{p0 + r} * a.n + n] = acc[r];
  }
}

// 3. Grid: pairs of a block of tokens, parts of the columns.
template <class Out>
__global__ void gate_pairs(const float* gate_up, const std::int32_t* place, const std::int32_t* ids,
                           std::int64_t ids_stride, Out* hidden, std::int64_t hidden_stride,
                           const __grid_constant__ ExpertRules rules) {
  const std::int64_t pair = blockIdx.x;
  // -1: the pair has no expert here.
  const std::int32_t p = place[pair];
  if (p < 0) return;
  const std::int32_t expert = ids[pair / rules.top_k * ids_stride + pair % rules.top_k];
  const float* both = gate_up + p * 2 * rules.width;
  for (std::int64_t i = std::int64_t{blockIdx.y} * blockDim.x + threadIdx.x; i < rules.width;
       i += gridDim.y * blockDim.x)
    hidden[p * hidden_stride + i] =
        narrow<Out>(rules.inner(both[rules.gate_row(i)], both[rules.up_row(i)], expert, pair, i));
}

// 5. Grid: tokens, parts of the columns. Experts are added in ascending order.
__global__ void combine(const float* down, const std::int32_t* place, const std::int32_t* ids,
                        std::int64_t ids_stride, float* out, std::int64_t out_stride,
                        const __grid_constant__ ExpertRules rules) {
  const std::int64_t t = blockIdx.x, n = rules.hidden;
  for (std::int64_t i = std::int64_t{blockIdx.y} * blockDim.x + threadIdx.x; i < n;
       i += gridDim.y * blockDim.x) {
    float sum = 0;
    for (int j = 0; j < rules.top_k; ++j) {
      const std::int64_t pair = t * rules.top_k + j;
      const std::int32_t p = place[pair];
      if (p >= 0) sum = rules.add_weighted(sum, down[p * n + i], ids[t * ids_stride + j], pair, i);
    }
    out[t * out_stride + i] = sum;
  }
}

// `token`: the row of x of each sorted pair; null: the pairs themselves are the rows.
void expert_gemm(Context& ctx, const Tensor& x, const std::int32_t* token, const Tensor& w,
                 const Groups& groups, const Tensor& out) {
  const ExpertArgs args = {.x = x.data,
                           .token = token,
                           .w = w.data,
                           .out = out.ptr<float>(),
                           .x_stride = x.stride[0],
                           .n = w.dim(1),
                           .k = w.dim(2),
                           .begin = groups.begin};
  const dim3 grid(blocks_for(args.n, kWarps), static_cast<unsigned>(w.dim(0)));
  const bool aligned = rows_aligned(x) && rows_aligned(w.data, w.dim(2), dtype_size(w.dtype));
  with_plane_type(x.dtype, [&](auto tx) {
    with_float_type(w.dtype, [&](auto tw) {
      using TX = decltype(tx);
      using TW = decltype(tw);
      const auto kernel = aligned ? expert_kernel<TX, TW, true> : expert_kernel<TX, TW, false>;
      kernel<<<grid, kWarps * kWarp, 0, stream_of(ctx)>>>(args);
    });
  });
  check_launch("expert GEMM");
}

}  // namespace

// Chooses the kernel by shape; every kernel gives the same result up to rounding.
void fused_experts(Context& ctx, const Tensor& x, const Tensor& w13, const Tensor& w2,
                   const Tensor& weights, const Tensor& ids, const ExpertParams& params,
                   const MoeWorkspace& workspace, const Tensor& out) {
  const auto aligned = [](const Tensor& t) {
    return rows_aligned(t) && t.dim(-1) * dtype_size(t.dtype) % 16 == 0;
  };
  const ExpertsInputs inputs = {
      .pairs = x.dim(0) * ids.dim(1),
      .experts = w13.dim(0),
      .hidden = out.dim(1),
      .width = w2.dim(2),
      .groups = params.groups,
      .x = x.dtype,
      .w = w13.dtype,
      .aligned = aligned(x) && aligned(w13) && aligned(w2) && aligned(workspace.hidden),
      .deterministic = ctx.deterministic || ctx.cuda == nullptr,
      .sm = ctx.cuda == nullptr ? 0 : ctx.cuda->info().sm};
  if (inputs.pairs == 0) return;
  // The workspace may be too small for the kernel that the plan prefers.
  const ExpertsKernel kernel = choose_experts(inputs);
  // The workspace holds a block of tokens. The stream kernels take all pairs at once, so all of
  // them must fit; the other kernels take one block after the other.
  if (kernel == ExpertsKernel::kStream && inputs.pairs <= workspace.hidden.dim(0))
    return stream_experts(ctx, x, w13, w2, weights, ids, params, workspace, out);
  if (kernel == ExpertsKernel::kTiles)
    return tile_experts(ctx, x, w13, w2, weights, ids, params, workspace, out);
  const std::int64_t experts = w13.dim(0), top_k = ids.dim(1), pairs = workspace.gate_up.dim(0);
  const std::int64_t block = pairs / top_k;
  Groups groups{.begin = workspace.order.ptr<std::int32_t>(), .token = nullptr, .place = nullptr};
  groups.token = groups.begin + experts + 1;
  groups.place = groups.token + pairs;
  // One block of tokens after the other.
  for (std::int64_t first = 0; first < x.dim(0); first += block) {
    const std::int64_t tokens = std::min(block, x.dim(0) - first);
    group_pairs<<<1, kGroupThreads, 0, stream_of(ctx)>>>(
        ids.ptr<std::int32_t>(), ids.stride[0], static_cast<int>(first), static_cast<int>(tokens),
        static_cast<int>(top_k), static_cast<int>(experts), groups);
    check_launch("grouping by expert");
    expert_gemm(ctx, x, groups.token, w13, groups, workspace.gate_up);
    const Tensor some = ids.rows(first, tokens);
    const std::int64_t width = w2.dim(2), hidden = out.dim(1);
    const ExpertRules rules = rules_of(params, weights.rows(first, tokens), width, hidden);
    const int threads = block_for(hidden), inner_threads = block_for(width);
    with_plane_type(workspace.hidden.dtype, [&](auto to) {
      using Out = decltype(to);
      const dim3 pairs_grid(static_cast<unsigned>(tokens * top_k),
                            std::min(blocks_for(width, inner_threads), 16u));
      gate_pairs<Out><<<pairs_grid, inner_threads, 0, stream_of(ctx)>>>(
          workspace.gate_up.ptr<float>(), groups.place, some.ptr<std::int32_t>(), some.stride[0],
          static_cast<Out*>(workspace.hidden.data), workspace.hidden.stride[0], rules);
    });
    check_launch("expert activation");
    expert_gemm(ctx, workspace.hidden, nullptr, w2, groups, workspace.down);
    const dim3 grid(static_cast<unsigned>(tokens), std::min(blocks_for(hidden, threads), 16u));
    const Tensor part = out.rows(first, tokens);
    combine<<<grid, threads, 0, stream_of(ctx)>>>(workspace.down.ptr<float>(), groups.place,
                                                  some.ptr<std::int32_t>(), some.stride[0],
                                                  part.ptr<float>(), part.stride[0], rules);
    check_launch("adding the experts");
  }
}

// The fused form adds the experts into the residual `sum`; otherwise `experts_out` holds them
// first.
void experts_add(Context& ctx, const Tensor& x, const Tensor& w13, const Tensor& w2,
                 const Tensor& weights, const Tensor& ids, Activation activation,
                 const MoeWorkspace& workspace, const Tensor& experts_out, const Tensor& sum) {
  const auto aligned = [](const Tensor& t) {
    return rows_aligned(t.data, t.stride[0], dtype_size(t.dtype)) &&
           t.dim(-1) * dtype_size(t.dtype) % 16 == 0;
  };
  const bool halves =
      x.dtype == DType::kBF16 && w13.dtype == DType::kBF16 && w2.dtype == DType::kBF16;
  if (ctx.cuda != nullptr && !ctx.deterministic && activation <= Activation::kGeluTanh && halves &&
      aligned(x) && aligned(w13) && aligned(w2) && aligned(workspace.hidden) &&
      pipeline_experts_fit(x.dim(0), ids.dim(1), w13.dim(0), w2.dim(1), w2.dim(2),
                           ctx.cuda->info().sm))
    return pipeline_experts(ctx, x, w13, w2, weights, ids, activation, workspace, sum);
  fused_experts(ctx, x, w13, w2, weights, ids, activation, workspace, experts_out);
  add(ctx, sum, experts_out, sum);
}

}  // namespace sluice::cuda
