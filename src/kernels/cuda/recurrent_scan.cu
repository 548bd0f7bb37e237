// The recurrence of recurrent layers, token by token: a warp keeps a few columns of a head's state in registers.
//
// Lane l = part * columns + column of a warp has keys 4 (j parts + part) + i of its column, for i < 4 and all j. Sums over
// the keys go through each lane's own in ascending order and are then halved over the parts: their order depends on the
// size of a key alone, so results have the same bits however a prompt is cut into steps and whatever is beside it.
#include "kernels/cuda/recurrent.cuh"

#include "kernels/cuda/common/launch.cuh"
#include "kernels/cuda/cuda.h"

namespace sluice::cuda {
namespace {

constexpr int kWarps = 4;
constexpr int kThreads = kWarps * kWarp;
constexpr std::int64_t kStagedBytes = 40 << 10;   // of inputs, in two buffers
constexpr int kMostStaged = 8;                    // tokens of a buffer

// How a warp is shared out: 32 / kParts columns at a time, kHeld keys of a column in a lane. Keys up to kParts * kHeld.
template <int kParts_, int kHeld_>
struct ScanShape {
  static constexpr int kParts = kParts_, kHeld = kHeld_;
  static constexpr int kKeys = kParts * kHeld;
  static constexpr int kColumns = kWarp / kParts;
  static constexpr int kBlockColumns = kColumns * kWarps;
  static constexpr int kTokenFloats = 3 * kKeys + kBlockColumns + 4;   // q, k, decays, v, beta: whole float4
  static constexpr int kStaged =
      static_cast<int>(std::clamp<std::int64_t>(kStagedBytes / (2 * 4 * kTokenFloats), 1, kMostStaged));
  static constexpr std::int64_t kBytes = 2 * 4 * kStaged * std::int64_t{kTokenFloats};
};

struct ScanArgs {
  const float *q = nullptr, *k = nullptr, *v = nullptr, *decay = nullptr, *beta = nullptr, *skip = nullptr;
  float *state = nullptr, *out = nullptr;
  std::int64_t q_token = 0, q_head = 0, k_token = 0, k_head = 0, v_token = 0, v_head = 0, decay_token = 0, beta_token = 0;
  std::int64_t state_slot = 0, out_token = 0, out_head = 0;
  int dk = 0, dv = 0, padded_dv = 0, repeat = 1;   // repeat: heads that share keys
  bool by_key = false, delta = false;
  SequenceArgs sequences;
};

__device__ inline void copy_async4(float* to, const float* from) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(shared_address(to)), "l"(from) : "memory");
}

template <class Shape>
__device__ float sum_parts(float x) {
#pragma unroll
  for (int step = kWarp / 2; step >= Shape::kColumns; step /= 2) x += __shfl_xor_sync(kAllLanes, x, step);
  return x;
}

// Grid: blocks of columns, heads, sequences.
template <class Shape>
__global__ void __launch_bounds__(kThreads) scan_kernel(const __grid_constant__ ScanArgs a) {
  extern __shared__ __align__(16) float staged[];
  constexpr int kKeys = Shape::kKeys, kFours = Shape::kHeld / 4;
  begin_dependent();
  const Part rows = part_of(a.sequences, static_cast<int>(blockIdx.z));
  if (rows.tokens == 0) return;
  const std::int64_t head = blockIdx.y, key_head = head / a.repeat;
  const int first_column = static_cast<int>(blockIdx.x) * Shape::kBlockColumns;
  const int lane = threadIdx.x % kWarp, part = lane / Shape::kColumns;
  const int in_block = threadIdx.x / kWarp * Shape::kColumns + lane % Shape::kColumns, column = first_column + in_block;
  const bool exists = column < a.padded_dv;

  // What stays as it is: zeros behind the ends of keys and values.
  for (int i = threadIdx.x; i < 2 * Shape::kStaged * Shape::kTokenFloats; i += kThreads) staged[i] = 0;
  __syncthreads();
  const auto token_at = [&](int buffer, int i) { return staged + (buffer * Shape::kStaged + i) * Shape::kTokenFloats; };
  const auto stage = [&](std::int64_t begin, int buffer) {
    const int count = static_cast<int>(min(rows.tokens - begin, std::int64_t{Shape::kStaged}));
    for (int i = 0; i < count; ++i) {
      const std::int64_t t = rows.first + begin + i;
      float* to = token_at(buffer, i);
      for (int d = threadIdx.x; d < a.dk; d += kThreads) {
        copy_async4(to + d, a.q + t * a.q_token + key_head * a.q_head + d);
        copy_async4(to + kKeys + d, a.k + t * a.k_token + key_head * a.k_head + d);
        copy_async4(to + 2 * kKeys + d, a.decay + t * a.decay_token + (a.by_key ? head * a.dk + d : head));
      }
      const int c = static_cast<int>(threadIdx.x);
      if (c < Shape::kBlockColumns && first_column + c < a.dv)
        copy_async4(to + 3 * kKeys + c, a.v + t * a.v_token + head * a.v_head + first_column + c);
      if (threadIdx.x == 0) copy_async4(to + 3 * kKeys + Shape::kBlockColumns, a.beta + t * a.beta_token + head);
    }
    commit_copies();
  };
  stage(0, 0);

  const std::int64_t block = column / ops::kStateColumns, blocks = a.padded_dv / ops::kStateColumns;
  float* place = a.state + rows.slot * a.state_slot + (head * blocks + block) * a.dk * ops::kStateColumns +
                 column % ops::kStateColumns;
  float state[Shape::kHeld];
#pragma unroll
  for (int j = 0; j < Shape::kHeld; ++j) {
    const int d = (j / 4 * Shape::kParts + part) * 4 + j % 4;
    state[j] = exists && d < a.dk && !rows.fresh ? place[d * ops::kStateColumns] : 0;
  }
  const float skip = a.skip == nullptr ? 0 : a.skip[head];
  float* out = a.out + head * a.out_head + column;

  int buffer = 0;
  for (std::int64_t begin = 0; begin < rows.tokens; begin += Shape::kStaged, buffer ^= 1) {
    if (begin + Shape::kStaged < rows.tokens)
      stage(begin + Shape::kStaged, buffer ^ 1);
    else
      commit_copies();
    wait_for_copies<1>();
    __syncthreads();
    const int count = static_cast<int>(min(rows.tokens - begin, std::int64_t{Shape::kStaged}));
    for (int i = 0; i < count; ++i) {
      const float* in = token_at(buffer, i);
      const float v = in[3 * kKeys + in_block], beta = in[3 * kKeys + Shape::kBlockColumns];
      const auto fours = [&](int which, int j) {
        return *reinterpret_cast<const float4*>(in + which * kKeys + (j * Shape::kParts + part) * 4);
      };
      float u = v;
      if (a.delta) {
        float seen = 0;
#pragma unroll
        for (int j = 0; j < kFours; ++j) {
          const float4 k = fours(1, j), g = fours(2, j);
          seen = fmaf(state[4 * j], g.x * k.x, seen), seen = fmaf(state[4 * j + 1], g.y * k.y, seen);
          seen = fmaf(state[4 * j + 2], g.z * k.z, seen), seen = fmaf(state[4 * j + 3], g.w * k.w, seen);
        }
        u -= sum_parts<Shape>(seen);
      }
      u *= beta;
      float read = 0;
#pragma unroll
      for (int j = 0; j < kFours; ++j) {
        const float4 q = fours(0, j), k = fours(1, j), g = fours(2, j);
        state[4 * j] = fmaf(k.x, u, g.x * state[4 * j]), read = fmaf(q.x, state[4 * j], read);
        state[4 * j + 1] = fmaf(k.y, u, g.y * state[4 * j + 1]), read = fmaf(q.y, state[4 * j + 1], read);
        state[4 * j + 2] = fmaf(k.z, u, g.z * state[4 * j + 2]), read = fmaf(q.z, state[4 * j + 2], read);
        state[4 * j + 3] = fmaf(k.w, u, g.w * state[4 * j + 3]), read = fmaf(q.w, state[4 * j + 3], read);
      }
      read = sum_parts<Shape>(read);
      if (part == 0 && column < a.dv) out[(rows.first + begin + i) * a.out_token] = fmaf(skip, v, read);
    }
    __syncthreads();   // the buffer is done with
  }
#pragma unroll
  for (int j = 0; j < Shape::kHeld; ++j) {
    const int d = (j / 4 * Shape::kParts + part) * 4 + j % 4;
    if (exists && d < a.dk) place[d * ops::kStateColumns] = state[j];
  }
}

template <int kParts, int kHeld>
void launch(Context& ctx, const ScanArgs& args, std::int64_t heads, std::int64_t seqs) {
  using Shape = ScanShape<kParts, kHeld>;
  const dim3 grid(blocks_for(args.padded_dv, Shape::kBlockColumns), static_cast<unsigned>(heads),
                  static_cast<unsigned>(seqs));
  launch_dependent(ctx, "recurrent_scan", scan_kernel<Shape>, grid, kThreads, Shape::kBytes, args);
}

}  // namespace

void recurrent_scan(Context& ctx, const ops::ScanInputs& in, const ops::SequenceRows& rows, const Tensor& state,
                    const Tensor& out) {
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
                      .padded_dv = static_cast<int>((dv + ops::kStateColumns - 1) / ops::kStateColumns * ops::kStateColumns),
                      .repeat = static_cast<int>(heads / in.k.dim(1)),
                      .by_key = in.decay.dim(1) != heads,
                      .delta = in.delta,
                      .sequences = sequences_of(rows, in.v, state)};
  static_assert(ops::kMaxStateKeys == 32 * 32);
  if (dk <= 32) return launch<4, 8>(ctx, args, heads, seqs);
  if (dk <= 64) return launch<4, 16>(ctx, args, heads, seqs);
  if (dk <= 128) return launch<4, 32>(ctx, args, heads, seqs);
  if (dk <= 256) return launch<8, 32>(ctx, args, heads, seqs);
  if (dk <= 512) return launch<16, 32>(ctx, args, heads, seqs);
  launch<32, 32>(ctx, args, heads, seqs);
}

}  // namespace sluice::cuda
