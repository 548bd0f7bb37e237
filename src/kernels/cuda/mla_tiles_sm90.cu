// Absorbed latent attention over bfloat16 rows of 512 + 64, on Hopper's warpgroup products: every key up to the row's own,
// or a list of chosen ones.
//
// A block has 64 heads of one row and a part of its keys, 64 at a time, in two buffers of shared memory. Both warpgroups
// compute all scores of a step, and each half of the latent columns of the output: nothing but the buffers is shared
// between them. Running maxima and sums as in FlashAttention-2 (arXiv 2307.08691). Blocks that share a row leave partial
// results; a second kernel joins them in ascending order.
#include "kernels/cuda/alignment.h"
#include "kernels/cuda/common/launch.cuh"
#include "kernels/cuda/common/wgmma.cuh"
#include "kernels/cuda/mla_fast.h"
#include "kernels/cuda/mla_plan.h"

namespace sluice::cuda {
namespace {

constexpr int kRow = kMlaLatent + kMlaRope;
constexpr int kTiles = kRow / kSwizzleColumns;          // of 64 columns, side by side
constexpr int kPieces = kRow / 8;                       // of 16 bytes
constexpr int kTileBytes = 64 * kSwizzleBytes;          // 64 rows
constexpr int kStageBytes = kTiles * kTileBytes;
constexpr int kGroupThreads = 4 * kWarp;
constexpr int kThreads = 2 * kGroupThreads;
constexpr int kSharedBytes = 3 * kStageBytes + 1024;    // queries and two stages; tiles begin on 1024 bytes
constexpr float kLog2E = 1.4426950408889634f;
static_assert(kMlaChunk == 64 && kMlaHeadTile == 64 && kTiles * kSwizzleColumns == kRow && kMlaChunk == ops::kPageTokens);

struct TilesArgs {
  const float *q_latent, *q_rope;
  std::int64_t latent_token, latent_head, rope_token, rope_head;   // strides, in elements
  const Bf16* plane;
  std::int64_t slot_stride, num_slots;
  float* out;
  std::int64_t out_token, out_head;
  const std::int32_t *page_table, *row_seq, *positions;            // positions: null with a list
  std::int64_t table_stride, num_seqs, max_pages;
  const std::int32_t* list;                                        // null: every key
  std::int64_t list_stride;
  int list_width, heads, splits;
  float scale_log2;
  float *partial, *partial_lse;                                    // [row, head, split]: [latent] and one
};

// Slots of the keys of the next steps; -1: none.
struct Slots {
  std::int32_t of[2][kMlaChunk];
};

// Entries of a list before the first -1, in all threads of the block.
__device__ int length_of(const std::int32_t* list, int width) {
  __shared__ int total;
  if (threadIdx.x == 0) total = 0;
  __syncthreads();
  int mine = 0;
  for (int i = threadIdx.x; i < width; i += kThreads) mine += list[i] >= 0;
  mine = __reduce_add_sync(kAllLanes, mine);
  if (threadIdx.x % kWarp == 0) atomicAdd(&total, mine);
  __syncthreads();
  return total;
}

__device__ std::int32_t slot_of(const TilesArgs& a, std::int64_t seq, std::int64_t t, int key, int end) {
  if (key >= end) return -1;
  const std::int64_t position = a.list == nullptr ? key : a.list[t * a.list_stride + key];
  expect_below(position / ops::kPageTokens, a.max_pages);
  const std::int64_t page = a.page_table[seq * a.table_stride + position / ops::kPageTokens];
  const std::int64_t slot = page * ops::kPageTokens + position % ops::kPageTokens;
  expect_below(slot, a.num_slots);
  return static_cast<std::int32_t>(slot);
}

// Rows of the plane into a stage; keys without a slot become zeros.
__device__ void copy_rows(const TilesArgs& a, const std::int32_t* slots, std::uint32_t stage) {
#pragma unroll 6
  for (int c = threadIdx.x; c < kMlaChunk * kPieces; c += kThreads) {
    const int key = c / kPieces, piece = c % kPieces;
    const std::int64_t slot = slots[key];
    copy_async16(stage + piece / 8 * kTileBytes + swizzled(key, piece % 8),
                 a.plane + (slot < 0 ? 0 : slot * a.slot_stride + piece * 8), slot >= 0);
  }
}

__device__ void load_queries(const TilesArgs& a, std::int64_t t, int first_head, unsigned char* shared) {
  for (int c = threadIdx.x; c < kMlaHeadTile * kPieces; c += kThreads) {
    const int r = c / kPieces, piece = c % kPieces, head = first_head + r;
    uint4 values{};
    if (head < a.heads) {
      const bool rope = piece >= kMlaLatent / 8;
      const float* q = rope ? a.q_rope + t * a.rope_token + head * a.rope_head + (piece * 8 - kMlaLatent)
                            : a.q_latent + t * a.latent_token + head * a.latent_head + piece * 8;
      const float s = a.scale_log2;
      values = {pack_bf16(q[0] * s, q[1] * s), pack_bf16(q[2] * s, q[3] * s), pack_bf16(q[4] * s, q[5] * s),
                pack_bf16(q[6] * s, q[7] * s)};
    }
    *reinterpret_cast<uint4*>(shared + piece / 8 * kTileBytes + swizzled(r, piece % 8)) = values;
  }
}

struct RowState {
  float out[2][64];   // 128 columns each
  float top[2], total[2];
};

// One step of 64 keys, of which the first `count` are there. `values`: the tiles whose columns this warpgroup has.
__device__ void attend_step(RowState& row, std::uint32_t queries, std::uint32_t stage, std::uint32_t values, int count) {
  float score[32];
  hold(score);
  begin_products();
#pragma unroll
  for (int s = 0; s < kRow / 16; ++s) {
    const std::uint32_t at = s / 4 * kTileBytes + s % 4 * 32;
    multiply_64x64(score, tile_descriptor(queries + at, 16), tile_descriptor(stage + at, 16), s > 0);
  }
  commit_products();
  wait_for_products<0>();
  hold(score);
  if (count < kMlaChunk) {
    const int first = threadIdx.x % 4 * 2;
#pragma unroll
    for (int i = 0; i < 32; ++i)
      if (first + i / 4 * 8 + i % 2 >= count) score[i] = -INFINITY;
  }
  float keep[2];
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    float most = row.top[r];
#pragma unroll
    for (int j = 0; j < 8; ++j) most = fmaxf(most, fmaxf(score[4 * j + 2 * r], score[4 * j + 2 * r + 1]));
    most = fmaxf(most, __shfl_xor_sync(kAllLanes, most, 1));
    most = fmaxf(most, __shfl_xor_sync(kAllLanes, most, 2));
    keep[r] = exp2_fast(row.top[r] - most);   // every step has a key
    row.top[r] = most;
    row.total[r] *= keep[r];
  }
  std::uint32_t weight[4][4];
#pragma unroll
  for (int j = 0; j < 8; ++j)
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const float p = exp2_fast(score[4 * j + 2 * r] - row.top[r]), q = exp2_fast(score[4 * j + 2 * r + 1] - row.top[r]);
      row.total[r] += p + q;
      weight[j / 2][j % 2 * 2 + r] = pack_bf16(p, q);
    }
#pragma unroll
  for (int half = 0; half < 2; ++half) {
#pragma unroll
    for (int i = 0; i < 64; ++i) row.out[half][i] *= keep[i / 2 % 2];
    hold(row.out[half]);
  }
  begin_products();
#pragma unroll
  for (int s = 0; s < kMlaChunk / 16; ++s)
#pragma unroll
    for (int half = 0; half < 2; ++half)
      multiply_rows(row.out[half], weight[s],
                    tile_descriptor(values + half * 2 * kTileBytes + s * 16 * kSwizzleBytes, kTileBytes));
  commit_products();
  wait_for_products<0>();
  hold(row.out[0]);
  hold(row.out[1]);
}

// Grid: splits, tiles of heads, rows.
__global__ void __launch_bounds__(kThreads, 1) tiles_kernel(const __grid_constant__ TilesArgs a) {
  extern __shared__ unsigned char shared_memory[];
  __shared__ Slots slots;
  wait_for_earlier_kernels();
  start_next_kernel();
  unsigned char* shared = shared_memory + (1024 - shared_address(shared_memory) % 1024) % 1024;
  const std::uint32_t queries = shared_address(shared), stages = queries + kStageBytes;
  const std::int64_t t = blockIdx.z;
  const int split = blockIdx.x, first_head = blockIdx.y * kMlaHeadTile;
  const std::int64_t seq = a.row_seq[t];
  expect_below(seq, a.num_seqs);
  const int length = a.list == nullptr ? a.positions[t] + 1 : length_of(a.list + t * a.list_stride, a.list_width);
  const int steps = (length + kMlaChunk - 1) / kMlaChunk, each = (steps + a.splits - 1) / a.splits;
  const int first_step = min(split * each, steps), num_steps = min(each, steps - first_step);

  RowState row;
#pragma unroll
  for (int i = 0; i < 64; ++i) row.out[0][i] = row.out[1][i] = 0;
#pragma unroll
  for (int r = 0; r < 2; ++r) row.top[r] = -INFINITY, row.total[r] = 0;

  const auto find = [&](int i) {
    if (threadIdx.x < kMlaChunk && i < num_steps)
      slots.of[i % 2][threadIdx.x] = slot_of(a, seq, t, (first_step + i) * kMlaChunk + static_cast<int>(threadIdx.x), length);
  };
  find(0);
  find(1);
  __syncthreads();
  if (num_steps > 0) copy_rows(a, slots.of[0], stages);
  commit_copies();
  load_queries(a, t, first_head, shared);
  const int warpgroup = threadIdx.x / kGroupThreads;
  for (int i = 0; i < num_steps; ++i) {
    wait_for_copies<0>();
    publish_shared();
    __syncthreads();   // the step is there, and the one before has been read
    if (i + 1 < num_steps) copy_rows(a, slots.of[(i + 1) % 2], stages + (i + 1) % 2 * kStageBytes);
    commit_copies();
    const std::uint32_t stage = stages + i % 2 * kStageBytes;
    attend_step(row, queries, stage, stage + warpgroup * 4 * kTileBytes, min(kMlaChunk, length - (first_step + i) * kMlaChunk));
    find(i + 2);   // the slots of step i have been read before the barrier
  }
  wait_for_copies<0>();

  const int lane = threadIdx.x % kWarp, row0 = threadIdx.x % kGroupThreads / kWarp * 16 + lane / 4;
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    row.total[r] += __shfl_xor_sync(kAllLanes, row.total[r], 1);
    row.total[r] += __shfl_xor_sync(kAllLanes, row.total[r], 2);
    const int head = first_head + row0 + 8 * r;
    if (head >= a.heads) continue;
    const float inverse = row.total[r] == 0 ? 0.0f : 1.0f / row.total[r];
    const std::int64_t part = (t * a.heads + head) * a.splits + split;
    float* to = a.splits == 1 ? a.out + t * a.out_token + head * a.out_head : a.partial + part * kMlaLatent;
    to += warpgroup * (kMlaLatent / 2) + lane % 4 * 2;
#pragma unroll
    for (int half = 0; half < 2; ++half)
#pragma unroll
      for (int j = 0; j < 16; ++j) {
        to[half * 128 + j * 8] = row.out[half][4 * j + 2 * r] * inverse;
        to[half * 128 + j * 8 + 1] = row.out[half][4 * j + 2 * r + 1] * inverse;
      }
    if (a.splits > 1 && warpgroup == 0 && lane % 4 == 0)
      a.partial_lse[part] = row.total[r] == 0 ? -INFINITY : row.top[r] + log2f(row.total[r]);
  }
}

constexpr int kJoinThreads = 128;
static_assert(kMlaLatent == 4 * kJoinThreads);

// Grid: heads, rows. Four columns a thread.
__global__ void __launch_bounds__(kJoinThreads) join_kernel(const __grid_constant__ TilesArgs a) {
  wait_for_earlier_kernels();
  start_next_kernel();
  const std::int64_t t = blockIdx.y, head = blockIdx.x, first = (t * a.heads + head) * a.splits;
  float most = -INFINITY, sum = 0;
  for (int s = 0; s < a.splits; ++s) most = fmaxf(most, a.partial_lse[first + s]);
  float4 value{};
  for (int s = 0; s < a.splits; ++s) {
    const float lse = a.partial_lse[first + s];
    const float weight = lse == -INFINITY ? 0.0f : exp2_fast(lse - most);
    const float4 part = reinterpret_cast<const float4*>(a.partial + (first + s) * kMlaLatent)[threadIdx.x];
    sum += weight;
    value.x = fmaf(weight, part.x, value.x), value.y = fmaf(weight, part.y, value.y);
    value.z = fmaf(weight, part.z, value.z), value.w = fmaf(weight, part.w, value.w);
  }
  const float inverse = sum == 0 ? 0.0f : 1.0f / sum;
  float* to = a.out + t * a.out_token + head * a.out_head + threadIdx.x * 4;
  to[0] = value.x * inverse, to[1] = value.y * inverse, to[2] = value.z * inverse, to[3] = value.w * inverse;
}

}  // namespace

bool mla_attend_fast(Context& ctx, const Tensor& q_latent, const Tensor& q_rope, const Tensor& plane,
                     const ops::PagedRows& rows, const Tensor& indices, float scale, const Tensor& out) {
  if (ctx.cuda == nullptr || !mla_is_fast({.latent = q_latent.dim(2),
                                           .rope = q_rope.dim(2),
                                           .plane = plane.dtype,
                                           .aligned = rows_aligned(plane),
                                           .deterministic = ctx.deterministic,
                                           .sm = ctx.cuda->facts().sm}))
    return false;
  const std::int64_t tokens = q_latent.dim(0), heads = q_latent.dim(1);
  if (tokens == 0) return true;
  const bool sparse = indices.defined();
  const int splits = mla_splits({.rows = tokens,
                                 .heads = heads,
                                 .max_keys = sparse ? indices.dim(1) : rows.page_table.dim(1) * ops::kPageTokens,
                                 .scratch_bytes = ctx.cuda->scratch_bytes(),
                                 .multiprocessors = ctx.cuda->facts().num_multiprocessors});
  TilesArgs args{.q_latent = q_latent.ptr<float>(),
                 .q_rope = q_rope.ptr<float>(),
                 .latent_token = q_latent.stride[0],
                 .latent_head = q_latent.stride[1],
                 .rope_token = q_rope.stride[0],
                 .rope_head = q_rope.stride[1],
                 .plane = static_cast<const Bf16*>(plane.data),
                 .slot_stride = plane.stride[0],
                 .num_slots = plane.dim(0),
                 .out = out.ptr<float>(),
                 .out_token = out.stride[0],
                 .out_head = out.stride[1],
                 .page_table = rows.page_table.ptr<std::int32_t>(),
                 .row_seq = rows.row_seq.ptr<std::int32_t>(),
                 .positions = sparse ? nullptr : rows.positions.ptr<std::int32_t>(),
                 .table_stride = rows.page_table.stride[0],
                 .num_seqs = rows.page_table.dim(0),
                 .max_pages = rows.page_table.dim(1),
                 .list = sparse ? indices.ptr<std::int32_t>() : nullptr,
                 .list_stride = sparse ? indices.stride[0] : 0,
                 .list_width = sparse ? static_cast<int>(indices.dim(1)) : 0,
                 .heads = static_cast<int>(heads),
                 .splits = splits,
                 .scale_log2 = scale * kLog2E,
                 .partial = static_cast<float*>(ctx.cuda->scratch()),
                 .partial_lse = nullptr};
  args.partial_lse = args.partial + tokens * heads * splits * kMlaLatent;
  constexpr std::int64_t kRowsAtOnce = 32768;   // of a grid's third dimension
  for (std::int64_t first = 0; first < tokens; first += kRowsAtOnce) {
    const auto count = static_cast<unsigned>(std::min(kRowsAtOnce, tokens - first));
    TilesArgs part = args;
    part.q_latent += first * part.latent_token;
    part.q_rope += first * part.rope_token;
    part.out += first * part.out_token;
    part.row_seq += first;
    if (sparse)
      part.list += first * part.list_stride;
    else
      part.positions += first;
    launch_dependent(ctx, "latent attention", tiles_kernel,
                     dim3(static_cast<unsigned>(splits), blocks_for(heads, kMlaHeadTile), count), kThreads, kSharedBytes, part);
    if (splits > 1)
      launch_dependent(ctx, "joining latent attention", join_kernel, dim3(static_cast<unsigned>(heads), count), kJoinThreads,
                       0, part);
  }
  return true;
}

}  // namespace sluice::cuda
