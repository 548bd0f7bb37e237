// Attention over bfloat16 pages, on the tensor cores of every GPU from compute capability 8.0 on,
// with all that AttentionParams may ask for. Up to 64 query rows (heads that share keys, times
// neighbouring tokens of one sequence) go through the keys they see, a step at a time, in two
// buffers of shared memory. Where rows stand alone and blocks are few, several share the keys of a
// row.
//
// Source: Dao, "FlashAttention-2", arXiv 2307.08691, algorithm 1.
#include "kernels/cuda/attention/attention_general.h"
#include "kernels/cuda/attention/attention_plan.h"
#include "kernels/cuda/common/alignment.h"
#include "kernels/cuda/common/launch.cuh"
#include "kernels/cuda/common/session.h"

namespace sluice::cuda {
namespace {

constexpr int kTileWarps = 4;
constexpr int kTileThreads = kTileWarps * kWarp;
constexpr int kRows = 16 * kTileWarps;
constexpr float kLog2E = 1.4426950408889634f;

struct TileArgs {
  const float* q = nullptr;
  const void *k = nullptr, *v = nullptr;
  float* out = nullptr;
  const float *sinks = nullptr, *slopes = nullptr;
  const std::int32_t *page_table = nullptr, *row_seq = nullptr, *positions = nullptr;
  std::int64_t q_token = 0, q_head = 0, k_slot = 0, v_slot = 0, out_token = 0, out_head = 0;
  std::int64_t table_stride = 0, num_seqs = 0, max_pages = 0, num_slots = 0, tokens = 0, group = 1;
  std::int64_t window = 0, chunk = 0;
  int tile_heads = 1, tile_tokens = 1, head_blocks = 1;
  bool skip_single_rows = false,
       single_rows_only = false;               // rows whose neighbours belong to other sequences
  int splits = 1;                              // blocks that share the keys of a run
  float *part = nullptr, *part_lse = nullptr;  // JoinArgs
  float scale = 1, softcap = 0;

  __device__ std::int64_t first_key(std::int64_t position) const {
    if (window > 0) return max(position - window + 1, std::int64_t{0});
    return chunk > 0 ? position / chunk * chunk : 0;
  }
};

template <int kKeyDim_, int kValueDim_, int kStep_>
struct TileShape {
  static constexpr int kKeyDim = kKeyDim_, kValueDim = kValueDim_,
                       kStep = kStep_;  // kStep keys at a time
  static constexpr int kKeyRow = kKeyDim * 2 + 16,
                       kValueRow = kValueDim * 2 + 16;  // bytes: 8 rows lie in different banks
  static constexpr int kQueryBytes = kRows * kKeyRow;
  static constexpr int kStageBytes = kStep * (kKeyRow + kValueRow);
  static constexpr int kBytes = kQueryBytes + 2 * kStageBytes;
  static_assert(kStep % 16 == 0 && kPageSize % kStep == 0);
};

// What a lane knows of its two rows of the tile.
struct LaneRow {
  std::int64_t begin = 0, end = 0;  // keys that it sees
  float slope = 0;
  float top = -INFINITY, total = 0;  // of scores times log2(e)
};

__device__ inline float capped(float x, float cap) {
  // tanh(y) = 1 - 2 / (1 + e^2y), whose error is some units of 1.
  return cap * (1.0f - __fdividef(2.0f, 1.0f + exp2_fast(x / cap * (2 * kLog2E))));
}

// Rows [0, num_tokens * heads) of a run: row r is (token t0 + r / heads, head h0 + r % heads). All
// threads call.
template <class Shape>
__device__ void attend_run(const TileArgs& a, std::int64_t t0, int num_tokens, std::int64_t kv,
                           std::int64_t h0, int heads, int split, std::uint32_t shared,
                           unsigned char* memory) {
  constexpr int kSteps = Shape::kKeyDim / 16, kKeyTiles = Shape::kStep / 8,
                kValueTiles = Shape::kValueDim / 8;
  const int rows = num_tokens * heads, warp = threadIdx.x / kWarp, lane = threadIdx.x % kWarp,
            g = lane / 4, quad = lane % 4;
  const std::int64_t seq = a.row_seq[t0];
  const std::int64_t last = a.positions[t0 + num_tokens - 1] + 1;
  const std::int64_t first = a.first_key(a.positions[t0]);  // of all rows: positions ascend
  expect_below((last - 1) / kPageSize, a.max_pages);
  const std::int32_t* table = a.page_table + seq * a.table_stride;
  const Bf16* k = static_cast<const Bf16*>(a.k) + kv * Shape::kKeyDim;
  const Bf16* v = static_cast<const Bf16*>(a.v) + kv * Shape::kValueDim;

  __syncthreads();  // the run before may still read
  auto* query = reinterpret_cast<Bf16*>(memory);
  for (int i = threadIdx.x; i < kRows * Shape::kKeyDim / 2; i += kTileThreads) {
    const int r = i / (Shape::kKeyDim / 2), at = i % (Shape::kKeyDim / 2) * 2;
    std::uint32_t both = 0;
    if (r < rows) {
      const float* from = a.q + (t0 + r / heads) * a.q_token + (h0 + r % heads) * a.q_head + at;
      both = pack_bf16(from[0], from[1]);
    }
    *reinterpret_cast<std::uint32_t*>(query + r * (Shape::kKeyRow / 2) + at) = both;
  }
  const std::int64_t whole = first / Shape::kStep * Shape::kStep,
                     steps = (last - whole + Shape::kStep - 1) / Shape::kStep;
  const std::int64_t share = (steps + a.splits - 1) / a.splits,
                     start = whole + split * share * Shape::kStep;
  const std::int64_t stop = min(last, start + share * Shape::kStep);
  const auto issue = [&](std::int64_t key, int stage) {
    if (key < stop) {
      const std::int64_t page = table[key / kPageSize];
      expect_below(page, a.num_slots / kPageSize);
      const std::int64_t slot = page * kPageSize + key % kPageSize;
      const std::uint32_t to = shared + Shape::kQueryBytes + stage * Shape::kStageBytes;
      // Rows that nobody sees become zeros, so that 0 x what lies there is 0.
      const auto copy = [&](std::uint32_t at, const Bf16* from, std::int64_t stride, int dim,
                            int row_bytes) {
        const int pieces = dim / 8;
        for (int i = threadIdx.x; i < Shape::kStep * pieces; i += kTileThreads) {
          const int row = i / pieces, piece = i % pieces;
          const bool wanted = key + row >= first && key + row < last;
          cp_async_16(at + row * row_bytes + piece * 16,
                      from + (wanted ? (slot + row) * stride + piece * 8 : 0), wanted);
        }
      };
      copy(to, k, a.k_slot, Shape::kKeyDim, Shape::kKeyRow);
      copy(to + Shape::kStep * Shape::kKeyRow, v, a.v_slot, Shape::kValueDim, Shape::kValueRow);
    }
    commit_copies();
  };

  LaneRow row[2];
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const int r = warp * 16 + g + 8 * i;
    if (r >= rows) continue;
    const std::int64_t position = a.positions[t0 + r / heads];
    row[i].begin = a.first_key(position);
    row[i].end = position + 1;
    if (a.slopes != nullptr) row[i].slope = a.slopes[h0 + r % heads];
  }
  float out[kValueTiles][4];
#pragma unroll
  for (int n = 0; n < kValueTiles; ++n)
#pragma unroll
    for (int j = 0; j < 4; ++j) out[n][j] = 0;

  const std::uint32_t q_lane = shared + (warp * 16 + lane % 16) * Shape::kKeyRow + lane / 16 * 16;
  const std::uint32_t k_lane = (lane / 16 * 8 + lane % 8) * Shape::kKeyRow + lane / 8 % 2 * 16;
  const std::uint32_t v_lane =
      Shape::kStep * Shape::kKeyRow + lane % 16 * Shape::kValueRow + lane / 16 * 16;
  // Keys that every row of the run sees need no look at each.
  const std::int64_t all_begin = a.first_key(last - 1), all_end = a.positions[t0] + 1;
  issue(start, 0);
  int stage = 0;
  for (std::int64_t key = start; key < stop; key += Shape::kStep, stage ^= 1) {
    issue(key + Shape::kStep, stage ^ 1);
    wait_for_copies<1>();
    __syncthreads();
    if (warp * 16 < rows) {  // the other warps copy only
      const std::uint32_t keys = shared + Shape::kQueryBytes + stage * Shape::kStageBytes;
      float score[kKeyTiles][4];
#pragma unroll
      for (int n = 0; n < kKeyTiles; ++n)
#pragma unroll
        for (int j = 0; j < 4; ++j) score[n][j] = 0;
#pragma unroll
      for (int s = 0; s < kSteps; ++s) {
        std::uint32_t q[4];
        load_matrices(q, q_lane + s * 32);
#pragma unroll
        for (int n = 0; n < kKeyTiles; n += 2) {
          std::uint32_t some[4];
          load_matrices(some, keys + k_lane + n * 8 * Shape::kKeyRow + s * 32);
          mma_m16n8k16(score[n], q, some[0], some[1]);
          mma_m16n8k16(score[n + 1], q, some[2], some[3]);
        }
      }
      const bool clean = key >= all_begin && key + Shape::kStep <= all_end;
      float most[2] = {-INFINITY, -INFINITY};
#pragma unroll
      for (int n = 0; n < kKeyTiles; ++n)
#pragma unroll
        for (int j = 0; j < 4; ++j) {
          const LaneRow& mine = row[j / 2];
          const std::int64_t number = key + n * 8 + quad * 2 + j % 2;
          float x = score[n][j] * a.scale;
          if (a.softcap > 0) x = capped(x, a.softcap);
          if (a.slopes != nullptr)
            x = fmaf(static_cast<float>(number + 1 - mine.end), mine.slope, x);
          x *= kLog2E;
          if (!clean && (number < mine.begin || number >= mine.end)) x = -INFINITY;
          score[n][j] = x;
          most[j / 2] = fmaxf(most[j / 2], x);
        }
      float keep[2];
#pragma unroll
      for (int i = 0; i < 2; ++i) {
#pragma unroll
        for (int step = 1; step < 4; step *= 2)
          most[i] = fmaxf(most[i], __shfl_xor_sync(kAllLanes, most[i], step));
        const float joined = fmaxf(row[i].top, most[i]);
        keep[i] = joined == -INFINITY ? 1.0f : exp2_fast(row[i].top - joined);
        row[i].top = joined;
        row[i].total *= keep[i];
      }
#pragma unroll
      for (int n = 0; n < kKeyTiles; ++n)
#pragma unroll
        for (int j = 0; j < 4; ++j) {
          const LaneRow& mine = row[j / 2];
          score[n][j] = mine.top == -INFINITY ? 0.0f : exp2_fast(score[n][j] - mine.top);
          row[j / 2].total += score[n][j];
        }
#pragma unroll
      for (int n = 0; n < kValueTiles; ++n)
#pragma unroll
        for (int j = 0; j < 4; ++j) out[n][j] *= keep[j / 2];
#pragma unroll
      for (int n = 0; n < kKeyTiles; n += 2) {
        const std::uint32_t weight[4] = {pack_bf16(score[n][0], score[n][1]),
                                         pack_bf16(score[n][2], score[n][3]),
                                         pack_bf16(score[n + 1][0], score[n + 1][1]),
                                         pack_bf16(score[n + 1][2], score[n + 1][3])};
#pragma unroll
        for (int c = 0; c < kValueTiles; c += 2) {
          std::uint32_t values[4];
          load_matrices_transposed(values, keys + v_lane + n * 8 * Shape::kValueRow + c * 16);
          mma_m16n8k16(out[c], weight, values[0], values[1]);
          mma_m16n8k16(out[c + 1], weight, values[2], values[3]);
        }
      }
    }
    __syncthreads();  // the buffer is done with
  }
  wait_for_copies<0>();

#pragma unroll
  for (int i = 0; i < 2; ++i) {
    float total = row[i].total;
#pragma unroll
    for (int step = 1; step < 4; step *= 2) total += __shfl_xor_sync(kAllLanes, total, step);
    const int r = warp * 16 + g + 8 * i;
    if (r >= rows) continue;
    const std::int64_t head = h0 + r % heads;
    float inverse = total == 0 ? 0 : 1.0f / total;
    if (a.splits > 1) {
      const std::int64_t at =
          ((t0 + r / heads) * (gridDim.y / a.head_blocks) * a.group + head) * a.splits + split;
      float* to = a.part + at * Shape::kValueDim + quad * 2;
#pragma unroll
      for (int n = 0; n < kValueTiles; ++n) {
        to[n * 8] = out[n][2 * i] * inverse;
        to[n * 8 + 1] = out[n][2 * i + 1] * inverse;
      }
      if (quad == 0) a.part_lse[at] = total == 0 ? -INFINITY : (row[i].top + log2f(total)) / kLog2E;
      continue;
    }
    if (a.sinks != nullptr && total != 0) {
      const float sink = a.sinks[head] * kLog2E, joined = fmaxf(row[i].top, sink),
                  kept = exp2_fast(row[i].top - joined);
      inverse = kept / (total * kept + exp2_fast(sink - joined));
    }
    float* to = a.out + (t0 + r / heads) * a.out_token + head * a.out_head + quad * 2;
#pragma unroll
    for (int n = 0; n < kValueTiles; ++n) {
      to[n * 8] = out[n][2 * i] * inverse;
      to[n * 8 + 1] = out[n][2 * i + 1] * inverse;
    }
  }
}

// Grid: token tiles, the last of them first because their rows see the most; key heads times blocks
// of a group's heads; splits.
template <class Shape>
__global__ void __launch_bounds__(kTileThreads) tiles_kernel(const __grid_constant__ TileArgs a) {
  extern __shared__ __align__(16) unsigned char memory[];
  begin_dependent();
  const std::int64_t t_begin = std::int64_t{gridDim.x - 1 - blockIdx.x} * a.tile_tokens;
  const std::int64_t t_end = min(t_begin + a.tile_tokens, a.tokens);
  const std::int64_t kv = blockIdx.y / a.head_blocks,
                     in_group = std::int64_t{blockIdx.y % a.head_blocks} * a.tile_heads;
  const int heads = static_cast<int>(min(std::int64_t{a.tile_heads}, a.group - in_group));
  for (std::int64_t t = t_begin; t < t_end;) {
    const std::int64_t seq = a.row_seq[t];
    expect_below(seq, a.num_seqs);
    std::int64_t next = t + 1;
    while (next < t_end && a.row_seq[next] == seq) ++next;
    const bool alone = next == t + 1 && (t == 0 || a.row_seq[t - 1] != seq) &&
                       (next == a.tokens || a.row_seq[next] != seq);
    if (alone ? !a.skip_single_rows : !a.single_rows_only)
      attend_run<Shape>(a, t, static_cast<int>(next - t), kv, kv * a.group + in_group, heads,
                        static_cast<int>(blockIdx.z), shared_address(memory), memory);
    t = next;
  }
}

template <int kKeyDim, int kValueDim, int kStep>
void launch(Context& ctx, const TileArgs& a, std::int64_t kv_heads) {
  using Shape = TileShape<kKeyDim, kValueDim, kStep>;
  const dim3 grid(blocks_for(a.tokens, a.tile_tokens),
                  static_cast<unsigned>(kv_heads * a.head_blocks), static_cast<unsigned>(a.splits));
  launch_dependent(ctx, "attention of tiles", tiles_kernel<Shape>, grid, kTileThreads,
                   Shape::kBytes, a);
}

void launch_for_dim(Context& ctx, const TileArgs& a, std::int64_t kv_heads, std::int64_t dim) {
  switch (dim) {
    case 64:
      return launch<64, 64, 64>(ctx, a, kv_heads);
    case 96:
      return launch<96, 96, 64>(ctx, a, kv_heads);
    case 128:
      return launch<128, 128, 64>(ctx, a, kv_heads);
    case 192:
      return launch<192, 128, 32>(ctx, a, kv_heads);
    default:
      return launch<256, 256, 32>(ctx, a, kv_heads);
  }
}

// Rows one by one, their keys shared by as many blocks as keep the GPU busy.
void attend_rows(Context& ctx, TileArgs a, std::int64_t kv_heads, std::int64_t dim,
                 std::int64_t value_dim) {
  const std::int64_t heads = kv_heads * a.group;
  a.tile_tokens = 1;
  a.splits = attention_splits({.blocks = a.tokens * kv_heads * a.head_blocks,
                               .blocks_of_each = 3,
                               .max_pages = a.max_pages,
                               .split_bytes = 4 * a.tokens * heads * (value_dim + 1),
                               .scratch_bytes = ctx.cuda->scratch_bytes(),
                               .num_sms = ctx.cuda->info().num_sms});
  if (a.splits == 1) return launch_for_dim(ctx, a, kv_heads, dim);
  a.part = static_cast<float*>(ctx.cuda->scratch());
  a.part_lse = a.part + a.tokens * heads * a.splits * value_dim;
  launch_for_dim(ctx, a, kv_heads, dim);
  join_splits(ctx, {.part = a.part,
                    .lse = a.part_lse,
                    .sinks = a.sinks,
                    .out = a.out,
                    .out_token = a.out_token,
                    .out_head = a.out_head,
                    .tokens = a.tokens,
                    .heads = heads,
                    .dim = value_dim,
                    .splits = a.splits});
}

}  // namespace

bool attend_general(Context& ctx, const Tensor& q, const Tensor& k_plane, const Tensor& v_plane,
                    std::int64_t kv_heads, const PagedRows& rows, const AttentionParams& params,
                    const Tensor& out) {
  if (ctx.cuda == nullptr) return false;
  const std::int64_t seqs = rows.page_table.dim(0), group = q.dim(1) / kv_heads;
  const AttentionInputs inputs{.tokens = q.dim(0),
                               .seqs = seqs,
                               .group = group,
                               .dim = q.dim(2),
                               .value_dim = out.dim(2),
                               .plane = k_plane.dtype,
                               .aligned = rows_aligned(k_plane) && rows_aligned(v_plane),
                               .deterministic = ctx.deterministic,
                               .sm = ctx.cuda->info().sm};
  if (!tiles_are_fast(inputs)) return false;
  TileArgs a{.q = q.ptr<float>(),
             .k = k_plane.data,
             .v = v_plane.data,
             .out = out.ptr<float>(),
             .sinks = params.sinks.defined() ? params.sinks.ptr<float>() : nullptr,
             .slopes = params.slopes.defined() ? params.slopes.ptr<float>() : nullptr,
             .page_table = rows.page_table.ptr<std::int32_t>(),
             .row_seq = rows.row_seq.ptr<std::int32_t>(),
             .positions = rows.positions.ptr<std::int32_t>(),
             .q_token = q.stride[0],
             .q_head = q.stride[1],
             .k_slot = k_plane.stride[0],
             .v_slot = v_plane.stride[0],
             .out_token = out.stride[0],
             .out_head = out.stride[1],
             .table_stride = rows.page_table.stride[0],
             .num_seqs = seqs,
             .max_pages = rows.page_table.dim(1),
             .num_slots = k_plane.dim(0),
             .tokens = q.dim(0),
             .group = group,
             .window = params.window,
             .chunk = params.chunk,
             .scale = params.scale,
             .softcap = params.softcap};
  a.tile_heads = static_cast<int>(std::min<std::int64_t>(group, kRows));
  a.tile_tokens = kRows / a.tile_heads;
  a.head_blocks = static_cast<int>((group + a.tile_heads - 1) / a.tile_heads);
  if (rows_one_by_one(inputs)) {
    attend_rows(ctx, a, kv_heads, q.dim(2), out.dim(2));
    return true;
  }
  a.skip_single_rows = seqs > 1;
  launch_for_dim(ctx, a, kv_heads, q.dim(2));
  if (seqs == 1) return true;
  // Rows that decode in a step that also prefills.
  a.skip_single_rows = false;
  a.single_rows_only = true;
  a.tile_tokens = 1;
  launch_for_dim(ctx, a, kv_heads, q.dim(2));
  return true;
}

}  // namespace sluice::cuda
