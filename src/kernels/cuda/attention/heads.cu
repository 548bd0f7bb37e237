// RMSNorm and RoPE of the heads of q and k in one pass, and optionally the writes of k and v to the
// KV pool.
//   heads_kernel   any head size up to kMaxDim: a warp for each head
//   token_kernel   heads of 64 and 128 that are rotated whole: four elements a lane, several heads
//   of a
//                  token for each warp
#include "kernels/cuda/attention/attention_fast.h"
#include "kernels/cuda/attention/attention_pages.cuh"
#include "kernels/cuda/common/alignment.h"
#include "kernels/cuda/common/head_rows.cuh"
#include "kernels/cuda/common/launch.cuh"
#include "kernels/cuda/cuda.h"

namespace sluice::cuda {
namespace {

constexpr int kWarps = 4;
constexpr int kMaxDim = 512;  // of a head in shared memory; larger heads take rms_norm() and rope()

// The heads of q or of k.
struct HeadsOf {
  float* data;
  std::int64_t token_stride, head_stride;
  int count;
  const void* weight;  // null: no norm
  DType weight_type;
};

// A plane that gets heads of `dim` elements, in bfloat16 or e4m3.
struct StoredPlane {
  void* data;
  std::int64_t slot_stride;
  const float* scales;  // of e4m3: by head, or null: 1
  bool is_fp8;

  // What an element of e4m3 is multiplied with before it is rounded.
  __device__ float factor(int head) const { return scales == nullptr ? 1.0f : 1.0f / scales[head]; }
  __device__ void put(std::int64_t at, float x, float by) const {
    if (is_fp8)
      static_cast<std::uint8_t*>(data)[at] = round_to_e4m3(x * by);
    else
      static_cast<Bf16*>(data)[at] = narrow<Bf16>(x);
  }
  // Four elements; `at` is a multiple of four.
  __device__ void put_four(std::int64_t at, const float4& x, int head) const {
    if (is_fp8)
      *reinterpret_cast<std::uint32_t*>(static_cast<std::uint8_t*>(data) + at) =
          round_to_e4m3(x, factor(head));
    else
      *reinterpret_cast<uint2*>(static_cast<Bf16*>(data) + at) = {pack_bf16(x.x, x.y),
                                                                  pack_bf16(x.z, x.w)};
  }
};

// The planes that get keys and values. Null: keys are rotated in place.
struct StoredHeads {
  const float* v;
  std::int64_t v_token;
  const std::int64_t* slots;
  std::int64_t num_slots;
  StoredPlane k_plane, v_plane;
};

// half: pairs of a head that are rotated.
struct HeadsArgs {
  HeadsOf q, k;
  StoredHeads stored;
  const float* cos_sin;
  std::int64_t cos_sin_stride;
  int dim, half;
  float eps;
  bool interleaved;
};

// Norm weights of any float type.
__device__ float weight_at(const HeadsOf& heads, int i) {
  switch (heads.weight_type) {
    case DType::kBF16:
      return widen(static_cast<const Bf16*>(heads.weight)[i]);
    case DType::kF16:
      return widen(static_cast<const F16*>(heads.weight)[i]);
    default:
      return static_cast<const float*>(heads.weight)[i];
  }
}

// Grid: heads of q and k (and v), four for each CTA; tokens. A head is in shared memory between
// norm and rotation, because the two elements of a pair belong to different lanes.
__global__ void __launch_bounds__(kWarps* kWarp) heads_kernel(const __grid_constant__ HeadsArgs a) {
  __shared__ float values[kWarps][kMaxDim];
  wait_for_earlier_kernels();
  start_next_kernel();
  const int warp = threadIdx.x / kWarp, lane = threadIdx.x % kWarp;
  const int head = blockIdx.x * kWarps + warp, rotated = a.q.count + a.k.count;
  const bool stores = a.stored.v != nullptr && head >= a.q.count;
  if (head >= rotated + (stores ? a.k.count : 0)) return;
  const std::int64_t t = blockIdx.y;
  std::int64_t slot = 0;
  if (stores) expect_below(slot = a.stored.slots[t], a.stored.num_slots);
  // Values are only converted and stored.
  if (head >= rotated) {
    const float* from = a.stored.v + t * a.stored.v_token + (head - rotated) * a.dim;
    const StoredPlane& plane = a.stored.v_plane;
    const std::int64_t to = slot * plane.slot_stride + (head - rotated) * a.dim;
    const float factor = plane.factor(head - rotated);
    for (int i = lane; i < a.dim; i += kWarp) plane.put(to + i, from[i], factor);
    return;
  }
  // Queries first, then keys.
  const HeadsOf& heads = head < a.q.count ? a.q : a.k;
  float* row = heads.data + t * heads.token_stride +
               (head < a.q.count ? head : head - a.q.count) * heads.head_stride;
  float* value = values[warp];
  float squares = 0;
  // Load and norm.
  for (int i = lane; i < a.dim; i += kWarp) {
    value[i] = row[i];
    squares = fmaf(value[i], value[i], squares);
  }
  if (heads.weight != nullptr) {
    const float factor = 1.0f / sqrtf(warp_sum(squares) / static_cast<float>(a.dim) + a.eps);
    for (int i = lane; i < a.dim; i += kWarp) value[i] = value[i] * factor * weight_at(heads, i);
  }
  __syncwarp();
  const float* cosine = a.cos_sin + t * a.cos_sin_stride;
  const StoredPlane& keys = a.stored.k_plane;
  const std::int64_t key = slot * keys.slot_stride + (head - a.q.count) * a.dim;
  const float key_factor = stores ? keys.factor(head - a.q.count) : 1.0f;
  // A stored key goes to the pool only; its row keeps its value.
  const auto put = [&](int i, float x) {
    if (stores)
      keys.put(key + i, x, key_factor);
    else
      row[i] = x;
  };
  for (int i = lane; i < a.half; i += kWarp) {
    const int first = a.interleaved ? 2 * i : i, second = a.interleaved ? 2 * i + 1 : a.half + i;
    const float x = value[first], y = value[second], c = cosine[i], s = cosine[a.half + i];
    put(first, x * c - y * s);
    put(second, y * c + x * s);
  }
  // Elements past 2 half are not rotated.
  if (heads.weight != nullptr || stores)
    for (int i = 2 * a.half + lane; i < a.dim; i += kWarp) put(i, value[i]);
}

constexpr int kTokenWarps = 4;
// Few tokens leave most SMs idle, so each warp takes one head. Else it takes several.
constexpr std::int64_t kFewTokens = 32;
constexpr int kHeadsTogether = 6;

// Grid: tokens, and CTAs that share the heads of one. Heads have 4 kLanes elements and are rotated
// whole; weights are float32; everything begins on 16 bytes. A pair is in two lanes of one head,
// which exchange by shuffles. kTogether: loads of a lane in flight.
template <int kLanes, int kTogether>
__global__ void __launch_bounds__(kTokenWarps* kWarp)
    token_kernel(const __grid_constant__ HeadsArgs a) {
  // Heads of a token that the CTA takes at once.
  constexpr int kAtOnce = kTokenWarps * kWarp / kLanes;
  wait_for_earlier_kernels();
  start_next_kernel();
  const std::int64_t t = blockIdx.x;
  const int column = threadIdx.x % kLanes * 4, angle = column % (2 * kLanes);
  const bool stores = a.stored.v != nullptr;
  const int rotated = a.q.count + a.k.count, heads = rotated + (stores ? a.k.count : 0);
  const float* cosine = a.cos_sin + t * a.cos_sin_stride + angle;
  // A lane keeps its angles and weights for all heads of the token.
  const float4 c = four_at(cosine), s = four_at(cosine + 2 * kLanes);
  const auto weights_of = [&](const HeadsOf& h) {
    return h.weight == nullptr ? float4{} : four_at(static_cast<const float*>(h.weight) + column);
  };
  const float4 q_weight = weights_of(a.q), k_weight = weights_of(a.k);
  std::int64_t slot = 0;
  if (stores) expect_below(slot = a.stored.slots[t], a.stored.num_slots);
  float* const q = a.q.data + t * a.q.token_stride + column;
  float* const k = a.k.data + t * a.k.token_stride + column;
  const float* const v = stores ? a.stored.v + t * a.stored.v_token + column : nullptr;
  // The bound is the same for all lanes of a warp: a lane without a head still takes part in
  // shuffles.
  const int mine = static_cast<int>(threadIdx.x) / kLanes;
  for (int begin = static_cast<int>(blockIdx.y) * kTogether * kAtOnce; begin < heads;
       begin += static_cast<int>(gridDim.y) * kTogether * kAtOnce) {
    const int first = begin + mine;
    // All loads before the first use.
    float4 x[kTogether];
#pragma unroll
    for (int j = 0; j < kTogether; ++j) {
      // Queries, then keys, then values.
      const int head = first + j * kAtOnce;
      x[j] = {};
      if (head < heads)
        x[j] = four_at(head < a.q.count ? q + head * a.q.head_stride
                       : head < rotated ? k + (head - a.q.count) * a.k.head_stride
                                        : v + (head - rotated) * a.dim);
    }
#pragma unroll
    for (int j = 0; j < kTogether; ++j) {
      const int head = first + j * kAtOnce;
      const bool is_query = head < a.q.count;
      float4 y = x[j];
      // Lanes of one warp may have heads of q and of k. The shuffles need all lanes, so the norm is
      // computed always and used only where there is a weight.
      const float4 normed = norm_four<kLanes>(y, is_query ? q_weight : k_weight, a.eps);
      if ((is_query ? a.q : a.k).weight != nullptr) y = normed;
      y = rotate_four<kLanes>(y, c, s);
      if (head >= heads) continue;
      if (is_query)
        *reinterpret_cast<float4*>(q + head * a.q.head_stride) = y;
      else if (head >= rotated)
        a.stored.v_plane.put_four(
            slot * a.stored.v_plane.slot_stride + (head - rotated) * a.dim + column, x[j],
            head - rotated);
      else if (stores)
        a.stored.k_plane.put_four(
            slot * a.stored.k_plane.slot_stride + (head - a.q.count) * a.dim + column, y,
            head - a.q.count);
      else
        *reinterpret_cast<float4*>(k + (head - a.q.count) * a.k.head_stride) = y;
    }
  }
}

// Whether token_kernel takes the heads.
bool suits_tokens(const HeadsArgs& a) {
  // 16-byte loads and stores.
  const auto aligned = [&](const HeadsOf& h) {
    return (h.weight == nullptr ||
            (h.weight_type == DType::kF32 && rows_aligned(h.weight, 0, 4))) &&
           rows_aligned(h.data, h.token_stride, 4) && rows_aligned(h.data, h.head_stride, 4);
  };
  const auto plane_aligned = [](const StoredPlane& plane) {
    return rows_aligned(plane.data, plane.slot_stride, plane.is_fp8 ? 1 : 2);
  };
  const StoredHeads& s = a.stored;
  return (a.dim == 64 || a.dim == 128) && 2 * a.half == a.dim && !a.interleaved && aligned(a.q) &&
         aligned(a.k) && rows_aligned(a.cos_sin, a.cos_sin_stride, 4) &&
         rows_aligned(s.v, s.v_token, 4) && plane_aligned(s.k_plane) && plane_aligned(s.v_plane);
}

StoredPlane stored_plane(const KvPlane& plane) {
  return {.data = plane.data.data,
          .slot_stride = plane.data.stride[0],
          .scales = plane.head_scales(),
          .is_fp8 = plane.is_fp8()};
}

// x is [tokens, heads, dim].
HeadsOf heads_of(const Tensor& x, const Tensor& weight) {
  return {.data = x.ptr<float>(),
          .token_stride = x.stride[0],
          .head_stride = x.stride[1],
          .count = static_cast<int>(x.dim(1)),
          .weight = weight.defined() ? weight.data : nullptr,
          .weight_type = weight.dtype};
}

void launch_heads(Context& ctx, const Tensor& q, const Tensor& k, const Tensor& q_weight,
                  const Tensor& k_weight, float eps, const Tensor& cos_sin, bool interleaved,
                  const StoredHeads& stored) {
  const HeadsArgs args{.q = heads_of(q, q_weight),
                       .k = heads_of(k, k_weight),
                       .stored = stored,
                       .cos_sin = cos_sin.ptr<float>(),
                       .cos_sin_stride = cos_sin.stride[0],
                       .dim = static_cast<int>(q.dim(2)),
                       .half = static_cast<int>(cos_sin.dim(1) / 2),
                       .eps = eps,
                       .interleaved = interleaved};
  // The fast kernel, if everything is aligned.
  // Values count as heads if they are stored.
  const int heads = args.q.count + args.k.count * (stored.v == nullptr ? 1 : 2);
  if (suits_tokens(args)) {
    const bool are_few = q.dim(0) <= kFewTokens;
    const int at_once = kTokenWarps * kWarp / (args.dim / 4);
    const auto kernel = args.dim == 64
                            ? (are_few ? token_kernel<16, 1> : token_kernel<16, kHeadsTogether>)
                            : (are_few ? token_kernel<32, 1> : token_kernel<32, kHeadsTogether>);
    launch_dependent(
        ctx, "heads", kernel,
        dim3(static_cast<unsigned>(q.dim(0)), are_few ? blocks_for(heads, at_once) : 1),
        kTokenWarps * kWarp, 0, args);
    return;
  }
  constexpr std::int64_t kTokensAtOnce = 32768;  // a grid's second dimension has at most 65535
  for (std::int64_t first = 0; first < q.dim(0); first += kTokensAtOnce) {
    const auto count = static_cast<unsigned>(std::min(kTokensAtOnce, q.dim(0) - first));
    // One launch for every 32768 tokens.
    HeadsArgs part = args;
    part.q.data += first * part.q.token_stride;
    part.k.data += first * part.k.token_stride;
    part.cos_sin += first * part.cos_sin_stride;
    if (stored.v != nullptr) {
      part.stored.v += first * stored.v_token;
      part.stored.slots += first;
    }
    launch_dependent(ctx, "heads", heads_kernel, dim3(blocks_for(heads, kWarps), count),
                     kWarps * kWarp, 0, part);
  }
}

}  // namespace

void norm_and_rotate_heads(Context& ctx, const Tensor& q, const Tensor& k, const Tensor& q_weight,
                           const Tensor& k_weight, float eps, const Tensor& cos_sin,
                           bool interleaved) {
  if (q.dim(0) == 0 || q.dim(1) + k.dim(1) == 0) return;
  // Larger heads do not fit in shared memory.
  if (q.dim(2) > kMaxDim) {
    for (const auto& [heads, weight] : {std::pair{q, q_weight}, std::pair{k, k_weight}}) {
      if (heads.dim(1) == 0) continue;
      if (weight.defined()) rms_norm(ctx, heads, weight, eps, heads);
      rope(ctx, cos_sin, heads.slice(2, 0, cos_sin.dim(1)), interleaved);
    }
    return;
  }
  launch_heads(ctx, q, k, q_weight, k_weight, eps, cos_sin, interleaved, {});
}

bool rotate_and_store_heads(Context& ctx, const Tensor& q, const Tensor& k, const Tensor& v,
                            const HeadRotation& rotation, const Tensor& slots,
                            const KvPlane& k_plane, const KvPlane& v_plane, std::int64_t kv_heads,
                            bool queries) {
  if (q.dim(2) > kMaxDim || v.dim(1) != k.dim(1) ||
      (k_plane.data.dtype != DType::kBF16 && !k_plane.is_fp8()))
    return false;
  if (q.dim(0) == 0) return true;
  launch_heads(ctx, queries ? q : q.slice(1, 0, 0), ops::heads_of_rows(k, kv_heads),
               rotation.q_weight, rotation.k_weight, rotation.eps, rotation.cos_sin,
               rotation.interleaved,
               {.v = v.ptr<float>(),
                .v_token = v.stride[0],
                .slots = slots.ptr<std::int64_t>(),
                .num_slots = k_plane.data.dim(0),
                .k_plane = stored_plane(k_plane),
                .v_plane = stored_plane(v_plane)});
  return true;
}

}  // namespace sluice::cuda
