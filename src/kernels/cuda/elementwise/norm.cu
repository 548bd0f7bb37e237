// RMSNorm and LayerNorm of rows. The order of a sum depends on the length of the row alone, never
// on the number of rows.
//   rms_norm_held   a CTA for each row, which stays in registers: the row is read once
//   rms_norm_many   the same sums for many rows: persistent CTAs keep the weights, and the next row
//                   loads while one is summed
//   rms_norm_rows   any length and alignment: the row is read twice
#include "kernels/cuda/common/launch.cuh"
#include "kernels/cuda/cuda.h"

namespace sluice::cuda {
namespace {

constexpr int kHeld = 4;  // float4 of a row in the registers of a thread
constexpr int kMaxThreads = 512;

// Four weights as float32.
template <class Weight>
__device__ float4 widen_four(const Weight* p) {
  return {widen(p[0]), widen(p[1]), widen(p[2]), widen(p[3])};
}

// Four outputs for one aligned store.
template <class Out>
struct alignas(4 * sizeof(Out)) Four {
  Out element[4];
};

// Rows of at most 4 kHeld elements a thread, aligned to 16 bytes. A thread keeps the row between
// sum and output. With a residual: residual += x, and the sum is normalised.
template <class Weight, class Out>
__global__ void __launch_bounds__(kMaxThreads)
    rms_norm_held(RowsOf<const float> x, RowsOf<float> residual, const Weight* weight, float eps,
                  RowsOf<Out> out, std::int64_t n) {
  const auto at = [](int j) { return (j * std::int64_t{blockDim.x} + threadIdx.x) * 4; };
  float4 w[kHeld];  // loaded before the wait, because no kernel writes weights
#pragma unroll
  for (int j = 0; j < kHeld; ++j)
    if (at(j) < n) w[j] = widen_four(weight + at(j));
  begin_dependent();
  const float* from = x.row(blockIdx.x);
  float* sum = residual.data == nullptr ? nullptr : residual.row(blockIdx.x);
  // The row stays in registers between the two loops.
  float4 held[kHeld];
  float squares = 0;
#pragma unroll
  for (int j = 0; j < kHeld; ++j) {
    const std::int64_t i = at(j);
    if (i >= n) break;
    held[j] = *reinterpret_cast<const float4*>(from + i);
    if (sum != nullptr) {
      const float4 more = *reinterpret_cast<const float4*>(sum + i);
      held[j] = {more.x + held[j].x, more.y + held[j].y, more.z + held[j].z, more.w + held[j].w};
      *reinterpret_cast<float4*>(sum + i) = held[j];
    }
    squares = fmaf(held[j].x, held[j].x, squares), squares = fmaf(held[j].y, held[j].y, squares);
    squares = fmaf(held[j].z, held[j].z, squares), squares = fmaf(held[j].w, held[j].w, squares);
  }
  // A single warp needs no shared memory.
  const float total = blockDim.x == kWarp ? warp_sum(squares) : block_sum(squares);
  // Rows are scaled by the reciprocal root of the mean square.
  const float factor = 1.0f / sqrtf(total / static_cast<float>(n) + eps);
  Out* to = out.row(blockIdx.x);
#pragma unroll
  for (int j = 0; j < kHeld; ++j) {
    if (at(j) >= n) break;
    *reinterpret_cast<Four<Out>*>(to + at(j)) = {
        narrow<Out>(held[j].x * factor * w[j].x), narrow<Out>(held[j].y * factor * w[j].y),
        narrow<Out>(held[j].z * factor * w[j].z), narrow<Out>(held[j].w * factor * w[j].w)};
  }
}

constexpr std::int64_t kManyRows = 1024;  // minimum rows for rms_norm_many
constexpr int kCtasPerSm = 4;

// Has the sums of rms_norm_held with twice as many threads: a thread stands for two of its threads,
// and every partial sum stays separate. So the bits of a row do not depend on the number of rows.
// The next row loads while one is summed.
template <class Weight, class Out, int kGroups>
__global__ void __launch_bounds__(kMaxThreads / 2, kCtasPerSm)
    rms_norm_many(RowsOf<const float> x, RowsOf<float> residual, const Weight* weight, float eps,
                  RowsOf<Out> out, int n, std::int64_t rows) {
  constexpr int kEach = 2 * kGroups;
  __shared__ float part[2][kMaxThreads / kWarp];
  // Threads and warps of the stand-ins.
  const int threads = 2 * blockDim.x, warps = threads / kWarp;
  // The first element of group e / 2 of stand-in e % 2.
  const auto at = [&](int e) {
    return (e / 2 * threads + e % 2 * static_cast<int>(blockDim.x) +
            static_cast<int>(threadIdx.x)) *
           4;
  };
  // Weights stay for all rows; `coming` is the row after this one.
  float4 w[kEach], held[kEach], coming[kEach];
#pragma unroll
  for (int e = 0; e < kEach; ++e)
    if (at(e) < n) w[e] = widen_four(weight + at(e));
  // The weights load before the wait, because no kernel writes them.
  begin_dependent();
  const auto fetch = [&](std::int64_t r) {
    if (r >= rows) return;
    const float* from = x.row(r);
#pragma unroll
    for (int e = 0; e < kEach; ++e)
      if (at(e) < n) coming[e] = *reinterpret_cast<const float4*>(from + at(e));
  };
  fetch(blockIdx.x);
  for (std::int64_t r = blockIdx.x, turn = 0; r < rows; r += gridDim.x, turn ^= 1) {
    float* sum = residual.data == nullptr ? nullptr : residual.row(r);
    float squares[2] = {0, 0};
#pragma unroll
    for (int e = 0; e < kEach; ++e) held[e] = coming[e];
    // In flight while this row is summed.
    fetch(r + gridDim.x);
#pragma unroll
    for (int e = 0; e < kEach; ++e) {
      if (at(e) >= n) continue;
      if (sum != nullptr) {
        const float4 more = *reinterpret_cast<const float4*>(sum + at(e));
        held[e] = {more.x + held[e].x, more.y + held[e].y, more.z + held[e].z, more.w + held[e].w};
        *reinterpret_cast<float4*>(sum + at(e)) = held[e];
      }
      float& s = squares[e % 2];
      s = fmaf(held[e].x, held[e].x, s), s = fmaf(held[e].y, held[e].y, s);
      s = fmaf(held[e].z, held[e].z, s), s = fmaf(held[e].w, held[e].w, s);
    }
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      // Warp sums of both stand-ins, in the places that rms_norm_held gives them.
      const float of_warp = warp_sum(squares[h]);
      if (threadIdx.x % kWarp == 0)
        part[turn][(h * static_cast<int>(blockDim.x) + static_cast<int>(threadIdx.x)) / kWarp] =
            of_warp;
    }
    __syncthreads();  // one barrier a row is enough: `part` has two buffers
    float total = 0;
    // Every thread adds the warp sums in ascending order.
    for (int i = 0; i < warps; ++i) total += part[turn][i];
    const float factor = 1.0f / sqrtf(total / static_cast<float>(n) + eps);
    Out* to = out.row(r);
#pragma unroll
    for (int e = 0; e < kEach; ++e)
      if (at(e) < n)
        *reinterpret_cast<Four<Out>*>(to + at(e)) = {
            narrow<Out>(held[e].x * factor * w[e].x), narrow<Out>(held[e].y * factor * w[e].y),
            narrow<Out>(held[e].z * factor * w[e].z), narrow<Out>(held[e].w * factor * w[e].w)};
  }
}

// All rows begin on 16 bytes.
bool on_sixteen_bytes(const Tensor& t) {
  bool aligned = reinterpret_cast<std::uintptr_t>(t.data) % 16 == 0;
  for (int axis = 0; axis + 1 < t.rank; ++axis)
    aligned = aligned && t.stride[static_cast<std::size_t>(axis)] % 4 == 0;
  return aligned;
}

// Any length and alignment. With a residual: residual += x, and the sum is normalised.
template <class Weight, class Out>
__global__ void rms_norm_rows(RowsOf<const float> x, RowsOf<float> residual, const Weight* weight,
                              float eps, RowsOf<Out> out, std::int64_t n) {
  const float* from = x.row(blockIdx.x);
  float squares = 0;
  if (residual.data != nullptr) {
    float* sum = residual.row(blockIdx.x);
    for (std::int64_t i = threadIdx.x; i < n; i += blockDim.x) {
      const float value = sum[i] + from[i];
      sum[i] = value;
      squares = fmaf(value, value, squares);
    }
    from = sum;  // each thread reads back what it wrote itself
  } else {
    for (std::int64_t i = threadIdx.x; i < n; i += blockDim.x)
      squares = fmaf(from[i], from[i], squares);
  }
  // One barrier pair, then every thread has the sum.
  const float mean = block_sum(squares) / static_cast<float>(n);
  const float factor = 1.0f / sqrtf(mean + eps);
  Out* to = out.row(blockIdx.x);
  for (std::int64_t i = threadIdx.x; i < n; i += blockDim.x)
    to[i] = narrow<Out>(from[i] * factor * widen(weight[i]));
}

// Two passes: the variance is summed around the mean, which loses no digits.
template <class Weight, class Bias>
__global__ void layer_norm_rows(RowsOf<const float> x, const Weight* weight, const Bias* bias,
                                float eps, RowsOf<float> out, std::int64_t n) {
  const float* from = x.row(blockIdx.x);
  float sum = 0;
  for (std::int64_t i = threadIdx.x; i < n; i += blockDim.x) sum += from[i];
  const float mean = block_sum(sum) / static_cast<float>(n);
  float squares = 0;
  for (std::int64_t i = threadIdx.x; i < n; i += blockDim.x)
    squares = fmaf(from[i] - mean, from[i] - mean, squares);
  const float factor = 1.0f / sqrtf(block_sum(squares) / static_cast<float>(n) + eps);
  float* to = out.row(blockIdx.x);
  for (std::int64_t i = threadIdx.x; i < n; i += blockDim.x) {
    const float value = (from[i] - mean) * factor * widen(weight[i]);
    to[i] = bias == nullptr ? value : value + widen(bias[i]);
  }
}

// residual: null, or the sum of x and residual goes to residual.
void launch_rms_norm(Context& ctx, const char* what, const Tensor& x, const Tensor* residual,
                     const Tensor& weight, float eps, const Tensor& out) {
  if (x.numel() == 0) return;
  const std::int64_t n = x.dim(-1);
  const RowsOf<float> sums = residual == nullptr ? RowsOf<float>{} : rows_of<float>(*residual);
  // The choice between held and not held depends on length and alignment alone, because the two sum
  // in different orders.
  // As many threads as a row has float4, in whole warps.
  const int threads = static_cast<int>(
      std::clamp<std::int64_t>((n / 4 + kWarp - 1) / kWarp * kWarp, kWarp, kMaxThreads));
  const bool is_held = n % 4 == 0 && n <= std::int64_t{threads} * 4 * kHeld &&
                       on_sixteen_bytes(x) && on_sixteen_bytes(out) &&
                       (residual == nullptr || on_sixteen_bytes(*residual));
  with_float_type(weight.dtype, [&](auto w) {
    with_plane_type(out.dtype, [&](auto o) {
      using Weight = decltype(w);
      using Out = decltype(o);
      // float4 of a thread in rms_norm_held. With up to two, registers hold the next row as well.
      const std::int64_t groups = (n / 4 + threads - 1) / threads;
      if (is_held && num_rows(x) >= kManyRows && threads % (2 * kWarp) == 0 && groups <= 2 &&
          ctx.cuda != nullptr) {
        const auto kernel =
            groups == 1 ? rms_norm_many<Weight, Out, 1> : rms_norm_many<Weight, Out, 2>;
        const auto blocks = static_cast<unsigned>(ctx.cuda->info().num_sms * kCtasPerSm);
        launch_dependent(ctx, what, kernel, blocks, threads / 2, 0, rows_of<const float>(x), sums,
                         static_cast<const Weight*>(weight.data), eps, rows_of<Out>(out),
                         static_cast<int>(n), num_rows(x));
        return;
      }
      if (is_held) {
        launch_dependent(ctx, what, rms_norm_held<Weight, Out>, static_cast<unsigned>(num_rows(x)),
                         threads, 0, rows_of<const float>(x), sums,
                         static_cast<const Weight*>(weight.data), eps, rows_of<Out>(out), n);
        return;
      }
      rms_norm_rows<<<static_cast<unsigned>(num_rows(x)), block_for(n), 0, stream_of(ctx)>>>(
          rows_of<const float>(x), sums, static_cast<const Weight*>(weight.data), eps,
          rows_of<Out>(out), n);
    });
  });
  check_launch(what);
}

}  // namespace

void rms_norm(Context& ctx, const Tensor& x, const Tensor& weight, float eps, const Tensor& out) {
  launch_rms_norm(ctx, "rms_norm", x, nullptr, weight, eps, out);
}

void add_rms_norm(Context& ctx, const Tensor& x, const Tensor& residual, const Tensor& weight,
                  float eps, const Tensor& out) {
  launch_rms_norm(ctx, "add_rms_norm", x, &residual, weight, eps, out);
}

void layer_norm(Context& ctx, const Tensor& x, const Tensor& weight, const Tensor& bias, float eps,
                const Tensor& out) {
  if (x.numel() == 0) return;
  const std::int64_t n = x.dim(-1);
  with_float_type(weight.dtype, [&](auto w) {
    with_float_type(bias.dtype, [&](auto b) {
      using Weight = decltype(w);
      using Bias = decltype(b);
      layer_norm_rows<<<static_cast<unsigned>(num_rows(x)), block_for(n), 0, stream_of(ctx)>>>(
          rows_of<const float>(x), static_cast<const Weight*>(weight.data),
          static_cast<const Bias*>(bias.data), eps, rows_of<float>(out), n);
    });
  });
  check_launch("layer_norm");
}

}  // namespace sluice::cuda
