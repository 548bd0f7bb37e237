// Absorbed MLA (multi-head latent attention) over rows of 512 + 64, on Hopper's wgmma: every key up
// to the row's own, or a list of selected keys. Rows are bfloat16, or e4m3 codes with scales, which
// become the same tiles of bfloat16.
//
// A CTA has 64 heads of one row and a split of its keys, 64 at a time in two stages.
//   1. copy_steps      a producer warpgroup gathers keys by cp.async (mla_producer_sm90.cuh)
//   2. load_queries    two consumer warpgroups; then for each step, each consumer:
//   3. scores          S = Q K^T for half of the keys
//   4. online_softmax  maxima exchanged through shared memory: row_max, row_sum, rescale
//   5. exchange        weights of the other half of the keys
//   6. accumulate      O = rescale * O + P V for half of the latent columns
//   7. epilogue        output, or the partial result of a split
//   8. merge_kernel    merges the splits of a row in ascending order
//
// Maxima and sums as in FlashAttention-2 (arXiv 2307.08691).
#include "kernels/cuda/attention/attention_fast.h"
#include "kernels/cuda/attention/mla_fast.h"
#include "kernels/cuda/attention/mla_plan.h"
#include "kernels/cuda/attention/mla_producer_sm90.cuh"
#include "kernels/cuda/common/alignment.h"
#include "kernels/cuda/common/launch.cuh"
#include "kernels/cuda/common/wgmma.cuh"

namespace sluice::cuda {
namespace {

using namespace mla;

constexpr int kThreads = 3 * kGroupThreads;  // two consumer warpgroups, one producer
constexpr int kHalf = kMlaChunk / 2;         // keys of a step whose scores a consumer has
static_assert(kMlaHeadTile == 64);

// Shared memory after the queries and the stages.
struct Exchange {
  uint4 weight[2][2][kGroupThreads];  // A fragments of P: half of the keys, 16 keys, thread
  // The two consumers exchange maxima, sums and weights here.
  float row[2][kMlaHeadTile];  // maximum or sum of a half
  std::uint64_t full[kStages], empty[kStages];
};
constexpr int kSharedBytes = (1 + kStages) * kStageBytes + static_cast<int>(sizeof(Exchange)) +
                             1024;  // tiles begin on 1024 bytes
static_assert(kSharedBytes + 64 <= 227 << 10);

// The length of a list: entries that are not -1. All threads of the CTA call.
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

// 2. Queries times the scale, as bfloat16 in swizzled tiles. Heads past the last one are zeros.
__device__ void load_queries(const TilesArgs& a, std::int64_t t, int first_head,
                             unsigned char* shared) {
  for (int c = threadIdx.x; c < kMlaHeadTile * kPieces; c += 2 * kGroupThreads) {
    const int r = c / kPieces, piece = c % kPieces, head = first_head + r;
    uint4 values{};
    if (head < a.heads) {
      const bool is_rope = piece >= kMlaLatent / 8;
      const float* q =
          is_rope ? a.q_rope + t * a.rope_token + head * a.rope_head + (piece * 8 - kMlaLatent)
                  : a.q_latent + t * a.latent_token + head * a.latent_head + piece * 8;
      const float s = a.scale_log2;
      values = {pack_bf16(q[0] * s, q[1] * s), pack_bf16(q[2] * s, q[3] * s),
                pack_bf16(q[4] * s, q[5] * s), pack_bf16(q[6] * s, q[7] * s)};
    }
    *reinterpret_cast<uint4*>(shared + piece / 8 * kTileBytes + swizzled(r, piece % 8)) = values;
  }
}

// State of a consumer thread for its two heads.
struct RowState {
  float acc[2][64];  // 128 columns each
  float row_max[2], row_sum[2];
};

// Barrier of the two consumer warpgroups.
__device__ void sync_consumers() {
  asm volatile("bar.sync 3, 256;" ::: "memory");
}

// 3. to 6. One step of 64 keys, of which the first `count` exist. `half`: which consumer this is.
__device__ void attend_step(RowState& row, std::uint32_t queries, std::uint32_t stage,
                            Exchange& exchange, int half, int count) {
  const int lane = threadIdx.x % kWarp, thread = threadIdx.x % kGroupThreads,
            row0 = thread / kWarp * 16 + lane / 4;
  // 3. Scores: 64 heads by 32 keys, one wgmma group.
  float score[kHalf / 2];
  pin_registers(score);
  wgmma_fence();
#pragma unroll
  for (int s = 0; s < kRow / 16; ++s) {
    const std::uint32_t at = s / 4 * kTileBytes + s % 4 * 32;
    wgmma_m64n32(score, tile_descriptor(queries + at, 16),
                 tile_descriptor(stage + at + half * kHalf * kSwizzleBytes, 16), s > 0);
  }
  wgmma_commit();
  wgmma_wait<0>();
  pin_registers(score);
  // The last step of a row may be partial.
  if (count < kMlaChunk) {
    const int first = half * kHalf + lane % 4 * 2;
#pragma unroll
    for (int i = 0; i < kHalf / 2; ++i)
      if (first + i / 4 * 8 + i % 2 >= count) score[i] = -INFINITY;
  }
  // 4. Both consumers need the maximum over all 64 keys.
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    float half_max = -INFINITY;
#pragma unroll
    for (int j = 0; j < kHalf / 8; ++j)
      half_max = fmaxf(half_max, fmaxf(score[4 * j + 2 * r], score[4 * j + 2 * r + 1]));
    half_max = fmaxf(half_max, __shfl_xor_sync(kAllLanes, half_max, 1));
    half_max = fmaxf(half_max, __shfl_xor_sync(kAllLanes, half_max, 2));
    if (lane % 4 == 0) exchange.row[half][row0 + 8 * r] = half_max;
  }
  sync_consumers();
  float rescale[2];
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    const float new_max =
        fmaxf(row.row_max[r], fmaxf(exchange.row[0][row0 + 8 * r], exchange.row[1][row0 + 8 * r]));
    rescale[r] = exp2_fast(row.row_max[r] - new_max);  // finite: every step has a key
    row.row_max[r] = new_max;
    row.row_sum[r] *= rescale[r];
  }
  // Weights as A fragments: two 16-key blocks of this half.
  std::uint32_t mine[2][4];
#pragma unroll
  for (int j = 0; j < kHalf / 8; ++j)
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const float p = exp2_fast(score[4 * j + 2 * r] - row.row_max[r]),
                  q = exp2_fast(score[4 * j + 2 * r + 1] - row.row_max[r]);
      row.row_sum[r] += p + q;
      mine[j / 2][j % 2 * 2 + r] = pack_bf16(p, q);
    }
  // 5. The same thread of the other consumer has the same rows, so fragments go across as they are.
#pragma unroll
  for (int s = 0; s < 2; ++s)
    exchange.weight[half][s][thread] = {mine[s][0], mine[s][1], mine[s][2], mine[s][3]};
#pragma unroll
  for (int part = 0; part < 2; ++part)
#pragma unroll
    for (int i = 0; i < 64; ++i) row.acc[part][i] *= rescale[i / 2 % 2];
  sync_consumers();
  // Fragments of all 64 keys in ascending order, the same in both consumers.
  std::uint32_t weight[4][4];
#pragma unroll
  for (int s = 0; s < 2; ++s) {
    const uint4 other = exchange.weight[1 - half][s][thread];
    const std::uint32_t theirs[4] = {other.x, other.y, other.z, other.w};
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      weight[s][k] = half == 0 ? mine[s][k] : theirs[k];
      weight[2 + s][k] = half == 0 ? theirs[k] : mine[s][k];
    }
  }
  // 6. Each consumer has half of the latent columns, over all 64 keys.
  const std::uint32_t values = stage + half * 4 * kTileBytes;
  pin_registers(row.acc[0]);
  pin_registers(row.acc[1]);
  wgmma_fence();
#pragma unroll
  for (int s = 0; s < kMlaChunk / 16; ++s)
#pragma unroll
    for (int part = 0; part < 2; ++part)
      wgmma_rs_mn(
          row.acc[part], weight[s],
          tile_descriptor(values + part * 2 * kTileBytes + s * 16 * kSwizzleBytes, kTileBytes));
  wgmma_commit();
  wgmma_wait<0>();
  pin_registers(row.acc[0]);
  pin_registers(row.acc[1]);
}

// Grid: splits, tiles of heads, rows. Barriers of a stage: "full" has an arrival of every producer
// thread, "empty" one of every consumer warp. Rows: the form of the plane.
template <class Rows>
__global__ void __launch_bounds__(kThreads, 1) tiles_kernel(const __grid_constant__ TilesArgs a) {
  extern __shared__ unsigned char shared_memory[];
  wait_for_earlier_kernels();
  start_next_kernel();
  unsigned char* shared = shared_memory + (1024 - shared_address(shared_memory) % 1024) % 1024;
  const std::uint32_t queries = shared_address(shared), stages = queries + kStageBytes;
  Exchange& exchange = *reinterpret_cast<Exchange*>(shared + (1 + kStages) * kStageBytes);
  const std::uint32_t full = shared_address(exchange.full), empty = shared_address(exchange.empty);
  if (threadIdx.x == 0)
    for (int i = 0; i < kStages; ++i) {
      mbarrier_init(full + i * 8, kGroupThreads);
      mbarrier_init(empty + i * 8, 2 * kGroupThreads / kWarp);
    }
  const std::int64_t t = blockIdx.z;
  // Splits come first in the grid, so the CTAs of a row start together.
  const int split = blockIdx.x, first_head = blockIdx.y * kMlaHeadTile;
  const std::int64_t seq = a.row_seq[t];
  expect_below(seq, a.num_seqs);
  const int length =
      a.list == nullptr ? a.positions[t] + 1 : length_of(a.list + t * a.list_stride, a.list_width);
  // Splits take whole steps of keys.
  const int all = (length + kMlaChunk - 1) / kMlaChunk, each = (all + a.splits - 1) / a.splits;
  const int first_step = min(split * each, all), num_steps = min(each, all - first_step);
  __syncthreads();  // the mbarriers are initialised

  const int warpgroup = threadIdx.x / kGroupThreads;
  // The third warpgroup is the producer.
  if (warpgroup == 2) {
    setmaxnreg_dec<Rows::kCopyRegisters>();
    copy_steps<Rows>(a, {seq, t, first_step, num_steps, length}, stages, full, empty);
    return;
  }
  setmaxnreg_inc<Rows::kMmaRegisters>();
  load_queries(a, t, first_head, shared);
  fence_async_proxy();
  sync_consumers();
  // Each lane has two rows (heads): row0 and row0 + 8.
  RowState row;
#pragma unroll
  for (int i = 0; i < 64; ++i) row.acc[0][i] = row.acc[1][i] = 0;
#pragma unroll
  for (int r = 0; r < 2; ++r) row.row_max[r] = -INFINITY, row.row_sum[r] = 0;
  // The lane has rows row0 and row0 + 8 of the tile (PTX ISA, wgmma accumulator layout).
  const int lane = threadIdx.x % kWarp, row0 = threadIdx.x % kGroupThreads / kWarp * 16 + lane / 4;
  for (int i = 0; i < num_steps; ++i) {
    mbarrier_wait(full + i % kStages * 8, i / kStages % 2);
    attend_step(row, queries, stages + i % kStages * kStageBytes, exchange, warpgroup,
                min(kMlaChunk, length - (first_step + i) * kMlaChunk));
    // One arrival for each consumer warp releases the stage.
    __syncwarp();
    if (lane == 0) mbarrier_arrive(empty + i % kStages * 8);
  }

#pragma unroll
  for (int r = 0; r < 2; ++r) {
    row.row_sum[r] += __shfl_xor_sync(kAllLanes, row.row_sum[r], 1);
    row.row_sum[r] += __shfl_xor_sync(kAllLanes, row.row_sum[r], 2);
  }
  // 7. Each consumer has the sum over its half of the keys.
  sync_consumers();  // the maxima have been read
  if (lane % 4 == 0)
    for (int r = 0; r < 2; ++r) exchange.row[warpgroup][row0 + 8 * r] = row.row_sum[r];
  sync_consumers();
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    const float total = exchange.row[0][row0 + 8 * r] + exchange.row[1][row0 + 8 * r];
    const int head = first_head + row0 + 8 * r;
    if (head >= a.heads) continue;
    // A row without keys (an empty list) becomes zeros.
    const float inverse = total == 0 ? 0.0f : 1.0f / total;
    const std::int64_t part = (t * a.heads + head) * a.splits + split;
    float* to =
        a.splits == 1 ? a.out + t * a.out_token + head * a.out_head : a.partial + part * kMlaLatent;
    to += warpgroup * (kMlaLatent / 2) + lane % 4 * 2;
#pragma unroll
    for (int half = 0; half < 2; ++half)
#pragma unroll
      for (int j = 0; j < 16; ++j) {
        to[half * 128 + j * 8] = row.acc[half][4 * j + 2 * r] * inverse;
        to[half * 128 + j * 8 + 1] = row.acc[half][4 * j + 2 * r + 1] * inverse;
      }
    if (a.splits > 1 && warpgroup == 0 && lane % 4 == 0)
      a.partial_lse[part] = total == 0 ? -INFINITY : row.row_max[r] + log2f(total);
  }
}

constexpr int kMergeThreads = 128;
static_assert(kMlaLatent == 4 * kMergeThreads);

// 8. Grid: heads, rows. Four columns a thread.
__global__ void __launch_bounds__(kMergeThreads) merge_kernel(const __grid_constant__ TilesArgs a) {
  wait_for_earlier_kernels();
  start_next_kernel();
  // Two passes over the log sums: the maximum, then the weights.
  const std::int64_t t = blockIdx.y, head = blockIdx.x, first = (t * a.heads + head) * a.splits;
  float new_max = -INFINITY, sum = 0;
  for (int s = 0; s < a.splits; ++s) new_max = fmaxf(new_max, a.partial_lse[first + s]);
  // Splits in ascending order: one fixed order of summation.
  float4 value{};
  for (int s = 0; s < a.splits; ++s) {
    const float lse = a.partial_lse[first + s];
    const float weight = lse == -INFINITY ? 0.0f : exp2_fast(lse - new_max);
    const float4 part =
        reinterpret_cast<const float4*>(a.partial + (first + s) * kMlaLatent)[threadIdx.x];
    sum += weight;
    value.x = fmaf(weight, part.x, value.x), value.y = fmaf(weight, part.y, value.y);
    value.z = fmaf(weight, part.z, value.z), value.w = fmaf(weight, part.w, value.w);
  }
  const float inverse = sum == 0 ? 0.0f : 1.0f / sum;
  float* to = a.out + t * a.out_token + head * a.out_head + threadIdx.x * 4;
  to[0] = value.x * inverse, to[1] = value.y * inverse, to[2] = value.z * inverse,
  to[3] = value.w * inverse;
}

// Rows of bfloat16 are copied by 16 bytes, codes by 4.
bool is_aligned(const Tensor& plane) {
  if (plane.dtype != DType::kF8E4M3) return rows_aligned(plane);
  return reinterpret_cast<std::uintptr_t>(plane.data) % 4 == 0 && plane.stride[0] % 4 == 0;
}

}  // namespace

bool mla_attend_fast(Context& ctx, const Tensor& q_latent, const Tensor& q_rope,
                     const Tensor& plane, const ops::PagedRows& rows, const Tensor& indices,
                     float scale, const Tensor& out) {
  if (ctx.cuda == nullptr || !mla_is_fast({.latent = q_latent.dim(2),
                                           .rope = q_rope.dim(2),
                                           .plane = plane.dtype,
                                           .aligned = is_aligned(plane),
                                           .deterministic = ctx.deterministic,
                                           .sm = ctx.cuda->info().sm}))
    return false;
  const std::int64_t tokens = q_latent.dim(0), heads = q_latent.dim(1);
  if (tokens == 0) return true;
  // The splits of a row depend on what a captured graph keeps, not on lengths.
  const bool sparse = indices.defined();
  const int splits =
      mla_splits({.rows = tokens,
                  .heads = heads,
                  .max_keys = sparse ? indices.dim(1) : rows.page_table.dim(1) * kPageSize,
                  .scratch_bytes = ctx.cuda->scratch_bytes(),
                  .num_sms = ctx.cuda->info().num_sms});
  TilesArgs args{.q_latent = q_latent.ptr<float>(),
                 .q_rope = q_rope.ptr<float>(),
                 .latent_token = q_latent.stride[0],
                 .latent_head = q_latent.stride[1],
                 .rope_token = q_rope.stride[0],
                 .rope_head = q_rope.stride[1],
                 .plane = plane.data,
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
  // Scratch: partial outputs first, then their log sums.
  args.partial_lse = args.partial + tokens * heads * splits * kMlaLatent;
  const auto kernel =
      plane.dtype == DType::kF8E4M3 ? tiles_kernel<CodeRows> : tiles_kernel<Bf16Rows>;
  constexpr std::int64_t kRowsAtOnce = 32768;  // a grid's third dimension has at most 65535
  for (std::int64_t first = 0; first < tokens; first += kRowsAtOnce) {
    const auto count = static_cast<unsigned>(std::min(kRowsAtOnce, tokens - first));
    // Long batches take several launches, because of the limit of the grid.
    TilesArgs part = args;
    part.q_latent += first * part.latent_token;
    part.q_rope += first * part.rope_token;
    part.out += first * part.out_token;
    part.row_seq += first;
    if (sparse)
      part.list += first * part.list_stride;
    else
      part.positions += first;
    launch_dependent(ctx, "latent attention", kernel,
                     dim3(static_cast<unsigned>(splits), blocks_for(heads, kMlaHeadTile), count),
                     kThreads, kSharedBytes, part);
    if (splits > 1)
      launch_dependent(ctx, "merging latent attention", merge_kernel,
                       dim3(static_cast<unsigned>(heads), count), kMergeThreads, 0, part);
  }
  return true;
}

}  // namespace sluice::cuda
