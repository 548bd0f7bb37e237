// The recurrence of linear-attention layers (gated delta rule, gated linear attention, Mamba 2),
// token by token. A warp keeps a few columns of a head's state in registers.
//   1. stage_tokens   cp.async of the inputs of some tokens, in two buffers
//   2. load_state     the lane's part of the state
//   3. scan_token     decay, delta rule, update and read-out of one token
//   4. store_state    behind the last token, and behind those that a draft follows
//
// Lane part * columns + column of a warp holds keys 4 (j parts + part) + i of its column, for i < 4
// and all j. A sum over the keys takes each i in ascending order of j, then the four i, then the
// parts by halving. So the order depends on the number of keys alone: results have the same bits
// however a prompt is cut into steps, and whatever is beside it.
#include "kernels/cuda/recurrent/recurrent.cuh"

#include "kernels/cuda/common/launch.cuh"
#include "kernels/cuda/cuda.h"

namespace sluice::cuda {
namespace {

constexpr int kWarps = 4;
constexpr int kThreads = kWarps * kWarp;
constexpr std::int64_t kStagedBytes = 40 << 10;  // inputs, both buffers
constexpr int kMaxStaged = 8;                    // tokens of a buffer

// A warp has 32 / kParts columns, and a lane kHeld keys of its column: at most kParts * kHeld keys.
// kByKey: a decay for each key instead of one for the head.
template <int kParts_, int kHeld_, bool kByKey_>
struct ScanShape {
  static constexpr int kParts = kParts_, kHeld = kHeld_;
  static constexpr bool kByKey = kByKey_;
  static constexpr int kKeys = kParts * kHeld;
  static constexpr int kColumns = kWarp / kParts;
  static constexpr int kBlockColumns = kColumns * kWarps;
  // Inputs of a token in shared memory, each at a float4: q, k, v, beta and one decay, decays of
  // keys.
  static constexpr int kFirstKey = kKeys, kFirstValue = 2 * kKeys,
                       kBeta = kFirstValue + kBlockColumns, kDecay = kBeta + 1;
  static constexpr int kFirstDecay = kBeta + 4;
  static constexpr int kTokenFloats = kFirstDecay + (kByKey ? kKeys : 0);
  static constexpr int kStaged = static_cast<int>(
      std::clamp<std::int64_t>(kStagedBytes / (2 * 4 * kTokenFloats), 1, kMaxStaged));
  static constexpr std::int64_t kBytes = 2 * 4 * kStaged * std::int64_t{kTokenFloats};
};

// Strides are in elements. dk, dv: size of a key and of a value. padded_dv: of the state.
struct ScanArgs {
  const float *q = nullptr, *k = nullptr, *v = nullptr, *decay = nullptr, *beta = nullptr,
              *skip = nullptr;
  float *state = nullptr, *out = nullptr;
  std::int64_t q_token = 0, q_head = 0, k_token = 0, k_head = 0, v_token = 0, v_head = 0,
               decay_token = 0, beta_token = 0;
  std::int64_t state_slot = 0, out_token = 0, out_head = 0;
  int dk = 0, dv = 0, padded_dv = 0, repeat = 1;  // repeat: heads of a GQA group
  bool delta = false;
  SequenceArgs sequences;
};

// Inputs need not be aligned to 16 bytes.
__device__ inline void cp_async_4(float* to, const float* from) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(shared_address(to)), "l"(from)
               : "memory");
}

// The sum over the parts of a column, in all its lanes.
template <class Shape>
__device__ float sum_parts(float x) {
#pragma unroll
  for (int step = kWarp / 2; step >= Shape::kColumns; step /= 2)
    x += __shfl_xor_sync(kAllLanes, x, step);
  return x;
}

__device__ inline void add_scaled(float4& sum, const float4& a, const float4& b) {
  sum.x = fmaf(a.x, b.x, sum.x), sum.y = fmaf(a.y, b.y, sum.y), sum.z = fmaf(a.z, b.z, sum.z),
  sum.w = fmaf(a.w, b.w, sum.w);
}

// 3. S = decay * S; u = beta * (v - k S) with the delta rule, beta * v without; S += k u. Returns q
// S for the lane's column.
template <class Shape>
__device__ __forceinline__ float scan_token(const float* in, bool delta, int part, float value,
                                            float beta, float decay, float (&state)[Shape::kHeld]) {
  constexpr int kFours = Shape::kHeld / 4;
  const auto fours = [&](int first, int j) {
    return *reinterpret_cast<const float4*>(in + first + (j * Shape::kParts + part) * 4);
  };
  float4 decayed[kFours];
#pragma unroll
  for (int j = 0; j < kFours; ++j) {
    float4 g = make_float4(decay, decay, decay, decay);
    if constexpr (Shape::kByKey) g = fours(Shape::kFirstDecay, j);
    decayed[j] = make_float4(g.x * state[4 * j], g.y * state[4 * j + 1], g.z * state[4 * j + 2],
                             g.w * state[4 * j + 3]);
  }
  float u = value;
  if (delta) {
    float4 seen{};
#pragma unroll
    for (int j = 0; j < kFours; ++j) add_scaled(seen, decayed[j], fours(Shape::kFirstKey, j));
    u -= sum_parts<Shape>((seen.x + seen.y) + (seen.z + seen.w));
  }
  u *= beta;
  // The update and the read-out share one pass over the state.
  float4 sums{};
#pragma unroll
  for (int j = 0; j < kFours; ++j) {
    const float4 k = fours(Shape::kFirstKey, j);
    decayed[j] = make_float4(fmaf(k.x, u, decayed[j].x), fmaf(k.y, u, decayed[j].y),
                             fmaf(k.z, u, decayed[j].z), fmaf(k.w, u, decayed[j].w));
    state[4 * j] = decayed[j].x, state[4 * j + 1] = decayed[j].y, state[4 * j + 2] = decayed[j].z,
              state[4 * j + 3] = decayed[j].w;
    add_scaled(sums, decayed[j], fours(0, j));
  }
  return sum_parts<Shape>((sums.x + sums.y) + (sums.z + sums.w));
}

// Grid: blocks of columns, heads, sequences.
template <class Shape>
__global__ void __launch_bounds__(kThreads) scan_kernel(const __grid_constant__ ScanArgs a) {
  extern __shared__ __align__(16) float staged[];
  begin_dependent();
  const int sequence = static_cast<int>(blockIdx.z);
  const Part rows = part_of(a.sequences, sequence);
  if (rows.tokens == 0) return;
  const std::int64_t head = blockIdx.y, key_head = head / a.repeat;
  const int first_column = static_cast<int>(blockIdx.x) * Shape::kBlockColumns;
  const int lane = threadIdx.x % kWarp, part = lane / Shape::kColumns;
  const int in_block = threadIdx.x / kWarp * Shape::kColumns + lane % Shape::kColumns,
            column = first_column + in_block;
  const bool has_column = column < a.padded_dv;

  // Zeros past the ends of keys and values; no copy writes there.
  for (int i = threadIdx.x; i < 2 * Shape::kStaged * Shape::kTokenFloats; i += kThreads)
    staged[i] = 0;
  __syncthreads();
  const auto token_at = [&](int buffer, int i) {
    return staged + (buffer * Shape::kStaged + i) * Shape::kTokenFloats;
  };
  // 1. Copies tokens from `begin` on into a buffer. A thread has one number of every token. Every
  // call commits one cp.async group.
  const auto stage_tokens = [&](std::int64_t begin, int buffer) {
    const int count = static_cast<int>(min(rows.tokens - begin, std::int64_t{Shape::kStaged}));
    const std::int64_t t = rows.first + begin;
    const auto copy = [&](int at, const float* from, std::int64_t stride) {
      float* to = token_at(buffer, 0) + at;
      for (int i = 0; i < count; ++i, to += Shape::kTokenFloats, from += stride)
        cp_async_4(to, from);
    };
    for (int d = threadIdx.x; d < a.dk; d += kThreads) {
      copy(d, a.q + t * a.q_token + key_head * a.q_head + d, a.q_token);
      copy(Shape::kFirstKey + d, a.k + t * a.k_token + key_head * a.k_head + d, a.k_token);
      if constexpr (Shape::kByKey)
        copy(Shape::kFirstDecay + d, a.decay + t * a.decay_token + head * a.dk + d, a.decay_token);
    }
    const int c = static_cast<int>(threadIdx.x);
    if (c < Shape::kBlockColumns && first_column + c < a.dv)
      copy(Shape::kFirstValue + c, a.v + t * a.v_token + head * a.v_head + first_column + c,
           a.v_token);
    // With small keys the last threads have no key to copy, so they take the scalars.
    if (c == kThreads - 1) copy(Shape::kBeta, a.beta + t * a.beta_token + head, a.beta_token);
    if (!Shape::kByKey && c == kThreads - 2)
      copy(Shape::kDecay, a.decay + t * a.decay_token + head, a.decay_token);
    cp_async_commit();
  };
  stage_tokens(0, 0);

  // 2. The state of a head: [blocks of columns][keys][kStateColumns].
  const std::int64_t block = column / ops::kStateColumns, blocks = a.padded_dv / ops::kStateColumns;
  float* const first_place =
      a.state + (head * blocks + block) * a.dk * ops::kStateColumns + column % ops::kStateColumns;
  const float* place = first_place + rows.slot * a.state_slot;
  float state[Shape::kHeld];
#pragma unroll
  for (int j = 0; j < Shape::kHeld; ++j) {
    const int d = (j / 4 * Shape::kParts + part) * 4 + j % 4;
    state[j] = has_column && d < a.dk && !rows.is_fresh ? place[d * ops::kStateColumns] : 0;
  }
  const float skip = a.skip == nullptr ? 0 : a.skip[head];
  float* out = a.out + head * a.out_head + column;

  // 4.
  const auto store_state = [&](std::int64_t token) {
    float* to = first_place + slot_behind(a.sequences, rows, sequence, token) * a.state_slot;
#pragma unroll
    for (int j = 0; j < Shape::kHeld; ++j) {
      const int d = (j / 4 * Shape::kParts + part) * 4 + j % 4;
      if (has_column && d < a.dk) to[d * ops::kStateColumns] = state[j];
    }
  };

  int buffer = 0;
  for (std::int64_t begin = 0; begin < rows.tokens; begin += Shape::kStaged, buffer ^= 1) {
    // An empty group keeps the count of cp_async_wait() right at the end.
    if (begin + Shape::kStaged < rows.tokens)
      stage_tokens(begin + Shape::kStaged, buffer ^ 1);
    else
      cp_async_commit();
    cp_async_wait<1>();
    __syncthreads();  // the copies of all threads are visible
    const int count = static_cast<int>(min(rows.tokens - begin, std::int64_t{Shape::kStaged}));
    for (int i = 0; i < count; ++i) {
      const float* in = token_at(buffer, i);
      const float value = in[Shape::kFirstValue + in_block], beta = in[Shape::kBeta],
                  decay = in[Shape::kDecay];
      const float read = scan_token<Shape>(in, a.delta, part, value, beta, decay, state);
      if (part == 0 && column < a.dv)
        out[(rows.first + begin + i) * a.out_token] = fmaf(skip, value, read);
      if (begin + i >= rows.first_saved) store_state(begin + i);
    }
    __syncthreads();  // all threads have read the buffer that the next copies overwrite
  }
}

template <int kParts, int kHeld, bool kByKey>
void launch(Context& ctx, const ScanArgs& args, std::int64_t heads, std::int64_t seqs) {
  using Shape = ScanShape<kParts, kHeld, kByKey>;
  const dim3 grid(blocks_for(args.padded_dv, Shape::kBlockColumns), static_cast<unsigned>(heads),
                  static_cast<unsigned>(seqs));
  launch_dependent(ctx, "recurrent_scan", scan_kernel<Shape>, grid, kThreads, Shape::kBytes, args);
}

template <bool kByKey>
void launch_for_keys(Context& ctx, const ScanArgs& args, std::int64_t heads, std::int64_t seqs) {
  static_assert(ops::kMaxStateKeys == 32 * 32);
  // Larger keys take more lanes of a warp for each column.
  if (args.dk <= 32) return launch<4, 8, kByKey>(ctx, args, heads, seqs);
  if (args.dk <= 64) return launch<4, 16, kByKey>(ctx, args, heads, seqs);
  if (args.dk <= 128) return launch<4, 32, kByKey>(ctx, args, heads, seqs);
  if (args.dk <= 256) return launch<8, 32, kByKey>(ctx, args, heads, seqs);
  if (args.dk <= 512) return launch<16, 32, kByKey>(ctx, args, heads, seqs);
  launch<32, 32, kByKey>(ctx, args, heads, seqs);
}

}  // namespace

void recurrent_scan(Context& ctx, const ops::ScanInputs& in, const ops::SequenceRows& rows,
                    const Tensor& state, const Tensor& out) {
  const std::int64_t heads = in.v.dim(1), seqs = rows.state_slots.dim(0);
  if (in.v.numel() == 0 || seqs == 0) return;
  const auto dk = static_cast<int>(in.k.dim(2)), dv = static_cast<int>(in.v.dim(2));
  const ScanArgs args{.q = in.q.ptr<float>(),
                      .k = in.k.ptr<float>(),
                      .v = in.v.ptr<float>(),
                      .decay = in.decay.ptr<float>(),
                      .beta = in.beta.ptr<float>(),
                      .skip = in.skip.defined() ? in.skip.ptr<float>() : nullptr,
                      .state = state.ptr<float>(),
                      .out = out.ptr<float>(),
                      .q_token = in.q.stride[0],
                      .q_head = in.q.stride[1],
                      .k_token = in.k.stride[0],
                      .k_head = in.k.stride[1],
                      .v_token = in.v.stride[0],
                      .v_head = in.v.stride[1],
                      .decay_token = in.decay.stride[0],
                      .beta_token = in.beta.stride[0],
                      .state_slot = state.stride[0],
                      .out_token = out.stride[0],
                      .out_head = out.stride[1],
                      .dk = dk,
                      .dv = dv,
                      .padded_dv = static_cast<int>((dv + ops::kStateColumns - 1) /
                                                    ops::kStateColumns * ops::kStateColumns),
                      .repeat = static_cast<int>(heads / in.k.dim(1)),
                      .delta = in.delta,
                      .sequences = sequences_of(rows, in.v, state)};
  // One decay for each head, or one for each key.
  if (in.decay.dim(1) != heads) return launch_for_keys<true>(ctx, args, heads, seqs);
  launch_for_keys<false>(ctx, args, heads, seqs);
}

}  // namespace sluice::cuda
