// SwiGLU and its relatives (act(gate) * up), single activations, and RoPE: one element or pair a
// thread.
#include "kernels/cuda/common/activations.cuh"
#include "kernels/cuda/common/alignment.h"
#include "kernels/cuda/common/map.cuh"
#include "kernels/cuda/cuda.h"

namespace sluice::cuda {
namespace {

template <class In>
constexpr int kTogether = 16 / sizeof(In);  // elements of a 16-byte load
// Elements of one aligned load or store.
template <class T, int kCount>
struct alignas(kCount * sizeof(T) < 16 ? kCount * sizeof(T) : 16) Pack {
  T element[kCount];
};

// out = act(gate) * up of rows [gate, up]. Grid: rows, parts of a row. kAligned: rows and their
// halves begin on 16 bytes.
template <class In, class Out, Activation kFn, bool kAligned>
__global__ void gate_rows(const In* gate_up, std::int64_t stride, Out* out, std::int64_t out_stride,
                          std::int64_t n) {
  begin_dependent();
  const In* gate = gate_up + blockIdx.x * stride;
  Out* to = out + blockIdx.x * out_stride;
  constexpr int kEach = kAligned ? kTogether<In> : 1;
  const std::int64_t step = std::int64_t{gridDim.y} * blockDim.x * kEach;
  for (std::int64_t i = (std::int64_t{blockIdx.y} * blockDim.x + threadIdx.x) * kEach; i < n;
       i += step) {
    if constexpr (kAligned) {
      using Loaded = Pack<In, kEach>;
      const Loaded a = *reinterpret_cast<const Loaded*>(gate + i),
                   b = *reinterpret_cast<const Loaded*>(gate + n + i);
      Pack<Out, kEach> made;
#pragma unroll
      for (int j = 0; j < kEach; ++j) {
        const float x = widen(a.element[j]);
        // Between two bfloat16 GEMMs the result is rounded anyway, so an approximate activation is
        // enough. A float32 input gets the exact one.
        const float opened = sizeof(In) == 2 ? activated_roughly<kFn>(x) : activated<kFn>(x);
        made.element[j] = narrow<Out>(opened * widen(b.element[j]));
      }
      *reinterpret_cast<Pack<Out, kEach>*>(to + i) = made;
    } else {
      to[i] = narrow<Out>(activated<kFn>(widen(gate[i])) * widen(gate[n + i]));
    }
  }
}

template <Activation kFn>
struct Activate {
  __device__ float operator()(float x) const { return activated<kFn>(x); }
};

// xIELU: with a = softplus(alpha_p) and b = beta + softplus(alpha_n), x > 0: a x^2 + beta x;
// otherwise b (expm1(min(x, eps)) - x) + beta x.
struct Xielu {
  const float* params;  // alpha_p, alpha_n, beta, eps

  __device__ static float softplus(float x) { return x > 20 ? x : log1pf(expf(x)); }
  __device__ float operator()(float x) const {
    const float beta = params[2], eps = params[3];
    if (x > 0) return softplus(params[0]) * x * x + beta * x;
    return (expm1f(eps < x ? eps : x) - x) * (beta + softplus(params[1])) + beta * x;
  }
};

// out = x * sigmoid(gate), one gate for each row.
__global__ void sigmoid_rows(RowsOf<const float> x, const float* gate, std::int64_t gate_stride,
                             RowsOf<float> out, std::int64_t n) {
  const float factor = sigmoid_of(gate[blockIdx.x * gate_stride]);
  const float* from = x.row(blockIdx.x);
  float* to = out.row(blockIdx.x);
  for (std::int64_t i = threadIdx.x; i < n; i += blockDim.x) to[i] = from[i] * factor;
}

// Angles reach the length of the context: sine and cosine are taken in double, as on the CPU.
//
// Hazard: later kernels read the inputs of the step and the keys of the step before without a wait.
// They rely on this kernel, which must not let the next one start before all earlier ones have
// ended.
__global__ void fill_cos_sin(const std::int32_t* positions, const float* inv_freq, float factor,
                             float* cos_sin, std::int64_t stride, int half) {
  wait_for_earlier_kernels();
  start_next_kernel();
  for (int i = threadIdx.x; i < half; i += blockDim.x) {
    // The angle is rounded to float32 first, as in the reference implementations.
    const float angle = __fmul_rn(static_cast<float>(positions[blockIdx.x]), inv_freq[i]);
    double sine, cosine;
    sincos(static_cast<double>(angle), &sine, &cosine);
    cos_sin[blockIdx.x * stride + i] = static_cast<float>(cosine) * factor;
    cos_sin[blockIdx.x * stride + half + i] = static_cast<float>(sine) * factor;
  }
}

// Rotates x in place. Grid: tokens, parts of the pairs of all heads. Pairs are (2 i, 2 i + 1) if
// interleaved, otherwise (i, half + i).
__global__ void rotate(const float* cos_sin, std::int64_t stride, float* x,
                       std::int64_t token_stride, std::int64_t head_stride, int heads, int half,
                       bool interleaved) {
  begin_dependent();
  const float* cosine = cos_sin + blockIdx.x * stride;
  for (int pair = blockIdx.y * blockDim.x + threadIdx.x; pair < heads * half;
       pair += gridDim.y * blockDim.x) {
    const int i = pair % half;
    float* row = x + blockIdx.x * token_stride + pair / half * head_stride;
    const int first = interleaved ? 2 * i : i, second = interleaved ? 2 * i + 1 : half + i;
    const float a = row[first], b = row[second], c = cosine[i], s = cosine[half + i];
    row[first] = a * c - b * s;
    row[second] = b * c + a * s;
  }
}

}  // namespace

// A bfloat16 gate/up input, as norm_gate_up() makes it, has a bfloat16 output.
void act_and_mul(Context& ctx, Activation activation, const Tensor& gate_up, const Tensor& out) {
  if (out.numel() == 0) return;
  const std::int64_t n = out.dim(1), together = 16 / dtype_size(gate_up.dtype);
  const bool aligned = n % together == 0 && rows_aligned(gate_up) && rows_aligned(out);
  const std::int64_t groups = aligned ? n / together : n;
  const int threads = block_for(groups);
  // Few rows are shared by several CTAs each.
  const dim3 grid(static_cast<unsigned>(out.dim(0)), std::min(blocks_for(groups, threads), 64u));
  const auto run = [&]<class In, class Out>(In, Out) {
    with_activation(activation, [&](auto fn) {
      const auto kernel =
          aligned ? gate_rows<In, Out, fn(), true> : gate_rows<In, Out, fn(), false>;
      launch_dependent(ctx, "act_and_mul", kernel, grid, threads, 0,
                       static_cast<const In*>(gate_up.data), gate_up.stride[0],
                       static_cast<Out*>(out.data), out.stride[0], n);
    });
  };
  if (gate_up.dtype == DType::kBF16) return run(Bf16{}, Bf16{});
  with_plane_type(out.dtype, [&](auto to) { run(float{}, to); });
}

void activate(Context& ctx, Activation activation, const Tensor& x, const Tensor& out) {
  with_activation(activation,
                  [&](auto fn) { map_elements(ctx, "activate", x, out, Activate<fn()>{}); });
}

void xielu(Context& ctx, const Tensor& x, const Tensor& params, const Tensor& out) {
  map_elements(ctx, "xielu", x, out, Xielu{params.ptr<float>()});
}

void sigmoid_mul(Context& ctx, const Tensor& x, const Tensor& gate, const Tensor& out) {
  if (out.numel() == 0) return;
  sigmoid_rows<<<static_cast<unsigned>(x.dim(0)), block_for(x.dim(1)), 0, stream_of(ctx)>>>(
      rows_of<const float>(x), gate.ptr<float>(), gate.stride[0], rows_of<float>(out), x.dim(1));
  check_launch("sigmoid_mul");
}

void rope_cos_sin(Context& ctx, const Tensor& positions, const Tensor& inv_freq,
                  float attention_factor, const Tensor& cos_sin) {
  if (cos_sin.numel() == 0) return;
  launch_dependent(ctx, "rope_cos_sin", fill_cos_sin, static_cast<unsigned>(positions.dim(0)),
                   block_for(inv_freq.dim(0)), 0, positions.ptr<std::int32_t>(),
                   inv_freq.ptr<float>(), attention_factor, cos_sin.ptr<float>(), cos_sin.stride[0],
                   static_cast<int>(inv_freq.dim(0)));
}

void rope(Context& ctx, const Tensor& cos_sin, const Tensor& x, bool interleaved) {
  if (x.numel() == 0) return;
  const int half = static_cast<int>(x.dim(2) / 2);
  const int heads = static_cast<int>(x.dim(1)), threads = block_for(std::int64_t{heads} * half);
  const dim3 grid(static_cast<unsigned>(x.dim(0)),
                  std::min(blocks_for(std::int64_t{heads} * half, threads), 8u));
  launch_dependent(ctx, "rope", rotate, grid, threads, 0, cos_sin.ptr<float>(), cos_sin.stride[0],
                   x.ptr<float>(), x.stride[0], x.stride[1], heads, half, interleaved);
}

}  // namespace sluice::cuda
