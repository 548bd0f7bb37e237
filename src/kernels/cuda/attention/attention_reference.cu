// Softmax attention for any head size, over pages, chosen keys or plain keys: one kernel, float32
// arithmetic.
//
// A block has up to 8 query rows that read the same keys. Keys come in chunks of 64 counted from
// position 0 (from the first of a list, from ks); each chunk's scores join a running maximum and
// sum. A row's bits depend on its query and its keys alone: not on the rows beside it, on page
// numbers or on the step. Where that is not asked for and blocks are few, several share the chunks
// of a row and a second kernel joins their results.
#include <limits>

#include "kernels/cuda/attention/attention_fast.h"
#include "kernels/cuda/attention/attention_general.h"
#include "kernels/cuda/attention/attention_plan.h"
#include "kernels/cuda/attention/mla_fast.h"
#include "kernels/cuda/common/common.cuh"
#include "kernels/cuda/common/session.h"
#include "kernels/cuda/cuda.h"

namespace sluice::cuda {
namespace {

constexpr int kChunk = 64;
constexpr int kThreads = 128;
constexpr int kWarps = kThreads / kWarp;
static_assert(kChunk == kPageSize);

// Where the visible keys of a token are.
struct Keys {
  const std::int32_t* page_table = nullptr;  // null: slot = begin[t] + i
  std::int64_t table_stride = 0, num_seqs = 0, max_pages = 0;
  const std::int32_t* row_seq = nullptr;
  const std::int32_t* positions = nullptr;  // null with `list`: its length says how many
  std::int64_t window = 0, chunk = 0;
  const std::int32_t* list = nullptr;  // [T, list_width] positions, then -1
  std::int64_t list_stride = 0, list_width = 0;
  const std::int32_t* begin = nullptr;  // plain keys [begin[t], end[t])
  const std::int32_t* end = nullptr;
  std::int64_t num_slots = 0;  // rows of the plane
};

// A query is the part `first` and then `second`; the planes hold the keys' heads side by side.
struct AttendArgs {
  const float *first = nullptr, *second = nullptr;
  std::int64_t first_token = 0, first_head = 0, first_dim = 0;  // strides and size
  std::int64_t second_token = 0, second_head = 0, second_dim = 0;
  const void *k = nullptr, *v = nullptr;
  std::int64_t k_slot = 0, k_head = 0, v_slot = 0, v_head = 0;  // strides
  float* out = nullptr;
  std::int64_t out_token = 0, out_head = 0;
  float* lse = nullptr;
  std::int64_t lse_token = 0, lse_head = 0;
  std::int64_t tokens = 0, group = 1, value_dim = 0;
  int tile_heads = 1, tile_tokens = 1, head_blocks = 1;  // of a group
  int splits = 1;                                        // blocks that share the chunks of a run
  float *part = nullptr, *part_lse = nullptr;  // [tokens, heads, splits, value_dim], [.., splits]
  float scale = 1, softcap = 0;
  const float *sinks = nullptr, *slopes = nullptr;  // by head of the model
  Keys keys;

  // The score of a key at `distance` (0 or less) from the row, from its product with the query.
  __device__ float score(float product, std::int64_t head, std::int64_t distance) const {
    float s = product * scale;
    if (softcap > 0) s = softcap * tanhf(s / softcap);
    return slopes == nullptr ? s : fmaf(static_cast<float>(distance), slopes[head], s);
  }
};

struct Range {
  std::int64_t begin, end;  // key numbers
};

__device__ std::int64_t sequence_of(const Keys& keys, std::int64_t t) {
  if (keys.page_table == nullptr) return keys.begin[t];
  const std::int64_t seq = keys.row_seq[t];
  expect_below(seq, keys.num_seqs);
  return seq;
}

__device__ Range visible(const Keys& keys, std::int64_t t) {
  if (keys.page_table == nullptr) return {0, max(keys.end[t] - keys.begin[t], 0)};
  if (keys.list != nullptr) {
    // Entries are positions, then -1: the first -1 by bisection.
    const std::int32_t* list = keys.list + t * keys.list_stride;
    std::int64_t low = 0, high = keys.list_width;
    while (low < high) {
      const std::int64_t middle = (low + high) / 2;
      if (list[middle] >= 0)
        low = middle + 1;
      else
        high = middle;
    }
    return {0, low};
  }
  const std::int64_t position = keys.positions[t];
  if (keys.chunk > 0) return {position / keys.chunk * keys.chunk, position + 1};
  return {keys.window > 0 ? max(position - keys.window + 1, std::int64_t{0}) : 0, position + 1};
}

__device__ std::int64_t slot_of(const Keys& keys, std::int64_t seq, std::int64_t t,
                                std::int64_t i) {
  std::int64_t slot = seq + i;
  if (keys.page_table != nullptr) {
    const std::int64_t position = keys.list == nullptr ? i : keys.list[t * keys.list_stride + i];
    expect_below(position / kPageSize, keys.max_pages);
    const std::int64_t page = keys.page_table[seq * keys.table_stride + position / kPageSize];
    slot = page * kPageSize + position % kPageSize;
  }
  expect_below(slot, keys.num_slots);
  return slot;
}

// Everything of a run of rows [0, rows) that read the keys of one sequence; row r is (token t0 + r
// / heads, head h0 + r % heads). All threads of the block call.
template <class T, int kColumns>
__device__ void attend_run(const AttendArgs& a, std::int64_t t0, int num_tokens, std::int64_t kv,
                           std::int64_t h0, int heads, int split, float* shared) {
  const std::int64_t dim = a.first_dim + a.second_dim;
  const int rows = num_tokens * heads, warp = threadIdx.x / kWarp, lane = threadIdx.x % kWarp;
  auto* slots = reinterpret_cast<std::int64_t*>(shared);
  float* scores = shared + 2 * kChunk;      // [rows][kChunk]
  float* queries = scores + rows * kChunk;  // [rows][dim]
  __shared__ float row_max[kMaxTileRows], row_sum[kMaxTileRows], row_keep[kMaxTileRows];
  __shared__ std::int64_t row_begin[kMaxTileRows], row_end[kMaxTileRows];

  __syncthreads();  // the run before may still read
  if (threadIdx.x < rows) {
    const Range range = visible(a.keys, t0 + threadIdx.x / heads);
    row_begin[threadIdx.x] = range.begin;
    row_end[threadIdx.x] = range.end;
    row_max[threadIdx.x] = -INFINITY;
    row_sum[threadIdx.x] = 0;
  }
  for (int r = warp; r < rows; r += kWarps) {
    const std::int64_t t = t0 + r / heads, h = h0 + r % heads;
    for (std::int64_t i = lane; i < a.first_dim; i += kWarp)
      queries[r * dim + i] = a.first[t * a.first_token + h * a.first_head + i];
    for (std::int64_t i = lane; i < a.second_dim; i += kWarp)
      queries[r * dim + a.first_dim + i] = a.second[t * a.second_token + h * a.second_head + i];
  }
  __syncthreads();
  std::int64_t first = row_begin[0], last = row_end[0];
  for (int r = 1; r < rows; ++r) {
    first = min(first, row_begin[r]);
    last = max(last, row_end[r]);
  }
  if (a.splits > 1) {
    const std::int64_t from = first / kChunk, chunks = (last + kChunk - 1) / kChunk - from;
    const std::int64_t share = (chunks + a.splits - 1) / a.splits;
    first = max(first, (from + split * share) * kChunk);
    last = min(last, (from + (split + 1) * share) * kChunk);
  }
  float acc[kMaxTileRows][kColumns] = {};
  const std::int64_t seq = sequence_of(a.keys, t0);
  const T* k = static_cast<const T*>(a.k) + kv * a.k_head;
  const T* v = static_cast<const T*>(a.v) + kv * a.v_head;

  for (std::int64_t chunk = first / kChunk * kChunk; chunk < last; chunk += kChunk) {
    const int begin = static_cast<int>(max(first - chunk, std::int64_t{0}));
    const int end = static_cast<int>(min(last - chunk, std::int64_t{kChunk}));
    __syncthreads();
    if (threadIdx.x >= begin && threadIdx.x < end)
      slots[threadIdx.x] = slot_of(a.keys, seq, t0, chunk + threadIdx.x);
    __syncthreads();
    for (int key = begin + warp; key < end; key += kWarps) {
      const T* row = k + slots[key] * a.k_slot;
      float dot[kMaxTileRows] = {};
      for (std::int64_t i = lane; i < dim; i += kWarp) {
        const float value = widen(row[i]);
#pragma unroll
        for (int r = 0; r < kMaxTileRows; ++r)
          if (r < rows) dot[r] = fmaf(queries[r * dim + i], value, dot[r]);
      }
#pragma unroll
      for (int r = 0; r < kMaxTileRows; ++r) {
        if (r >= rows) continue;
        const float sum = warp_sum(dot[r]);
        const std::int64_t number = chunk + key, distance = number + 1 - row_end[r];
        const bool seen = number >= row_begin[r] && distance <= 0;
        if (lane == 0)
          scores[r * kChunk + key] = seen ? a.score(sum, h0 + r % heads, distance) : -INFINITY;
      }
    }
    __syncthreads();
    for (int r = warp; r < rows; r += kWarps) {
      float* score = scores + r * kChunk;
      const float low = lane >= begin && lane < end ? score[lane] : -INFINITY;
      const float high =
          lane + kWarp >= begin && lane + kWarp < end ? score[lane + kWarp] : -INFINITY;
      const bool broken = __any_sync(kAllLanes, isnan(low) || isnan(high));
      const float top = broken ? NAN : warp_max(fmaxf(low, high));
      const float joined = fmaxf(row_max[r], top);
      // A chunk without a visible key leaves the row as it is.
      const bool nothing = top == -INFINITY;
      const float p_low = nothing ? 0 : expf(low - joined),
                  p_high = nothing ? 0 : expf(high - joined);
      score[lane] = broken ? NAN : p_low;
      score[lane + kWarp] = broken ? NAN : p_high;
      const float sum = warp_sum(p_low + p_high);
      __syncwarp();
      if (lane == 0) {
        row_keep[r] = nothing ? 1 : row_sum[r] == 0 ? 0 : expf(row_max[r] - joined);
        if (!nothing) {
          row_sum[r] = broken ? NAN : row_sum[r] * row_keep[r] + sum;
          row_max[r] = joined;
        }
      }
    }
    __syncthreads();
#pragma unroll
    for (int r = 0; r < kMaxTileRows; ++r)
      for (int c = 0; c < kColumns; ++c)
        if (r < rows) acc[r][c] *= row_keep[r];
    for (int key = begin; key < end; ++key) {
      const T* row = v + slots[key] * a.v_slot;
      float value[kColumns];
#pragma unroll
      for (int c = 0; c < kColumns; ++c) {
        const std::int64_t column = threadIdx.x + c * kThreads;
        value[c] = column < a.value_dim ? widen(row[column]) : 0.0f;
      }
#pragma unroll
      for (int r = 0; r < kMaxTileRows; ++r) {
        if (r >= rows) continue;
        const float p = scores[r * kChunk + key];
#pragma unroll
        for (int c = 0; c < kColumns; ++c) acc[r][c] = fmaf(p, value[c], acc[r][c]);
      }
    }
  }
#pragma unroll
  for (int r = 0; r < kMaxTileRows; ++r) {
    if (r >= rows) continue;
    const std::int64_t t = t0 + r / heads, h = h0 + r % heads;
    float inverse = row_sum[r] == 0 ? 0 : 1.0f / row_sum[r];
    if (a.splits > 1) {
      const std::int64_t at = (t * gridDim.z * a.group + h) * a.splits + split;
#pragma unroll
      for (int c = 0; c < kColumns; ++c) {
        const std::int64_t column = threadIdx.x + c * kThreads;
        if (column < a.value_dim) a.part[at * a.value_dim + column] = acc[r][c] * inverse;
      }
      if (threadIdx.x == 0)
        a.part_lse[at] = row_sum[r] == 0 ? -INFINITY : row_max[r] + logf(row_sum[r]);
      continue;
    }
    if (a.sinks != nullptr && row_sum[r] != 0) {
      const float joined = fmaxf(row_max[r], a.sinks[h]), keep = expf(row_max[r] - joined);
      inverse = keep / (row_sum[r] * keep + expf(a.sinks[h] - joined));
    }
#pragma unroll
    for (int c = 0; c < kColumns; ++c) {
      const std::int64_t column = threadIdx.x + c * kThreads;
      if (column < a.value_dim)
        a.out[t * a.out_token + h * a.out_head + column] = acc[r][c] * inverse;
    }
    if (a.lse != nullptr && threadIdx.x == 0)
      a.lse[t * a.lse_token + h * a.lse_head] =
          row_sum[r] == 0 ? -INFINITY
                          : static_cast<float>(static_cast<double>(row_max[r]) +
                                               log(static_cast<double>(row_sum[r])));
  }
}

// Grid: token blocks times splits, then head blocks of a group, then key heads. Neighbouring tokens
// of one sequence are a run.
template <class T, int kColumns>
__global__ void __launch_bounds__(kThreads) attend_kernel(const __grid_constant__ AttendArgs a) {
  extern __shared__ __align__(16) float shared[];
  const std::int64_t t_begin = std::int64_t{blockIdx.x} / a.splits * a.tile_tokens;
  const int split = static_cast<int>(blockIdx.x % a.splits);
  const std::int64_t t_end = min(t_begin + a.tile_tokens, a.tokens);
  const std::int64_t in_group = std::int64_t{blockIdx.y} * a.tile_heads, kv = blockIdx.z;
  const int heads = static_cast<int>(min(std::int64_t{a.tile_heads}, a.group - in_group));
  for (std::int64_t t = t_begin; t < t_end;) {
    std::int64_t next = t + 1;
    const std::int64_t seq = sequence_of(a.keys, t);
    while (next < t_end && sequence_of(a.keys, next) == seq) ++next;
    attend_run<T, kColumns>(a, t, static_cast<int>(next - t), kv, kv * a.group + in_group, heads,
                            split, shared);
    t = next;
  }
}

template <class T>
void launch(Context& ctx, const char* what, AttendArgs& a, std::int64_t kv_heads,
            std::int64_t seqs) {
  const AttentionTile tile = choose_attention_tile(a.tokens, seqs, a.group, a.keys.list != nullptr);
  a.tile_heads = tile.heads;
  a.tile_tokens = tile.tokens;
  const AttentionLaunch plan = plan_attention(tile.rows(), a.first_dim + a.second_dim, a.value_dim);
  const auto kernel = plan.columns == 1   ? attend_kernel<T, 1>
                      : plan.columns == 2 ? attend_kernel<T, 2>
                      : plan.columns == 4 ? attend_kernel<T, 4>
                                          : attend_kernel<T, 8>;
  // More than 48 KiB must be asked for.
  if (plan.shared_bytes > 48 << 10)
    cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                         static_cast<int>(plan.shared_bytes));
  dim3 grid(blocks_for(a.tokens, a.tile_tokens), blocks_for(a.group, tile.heads),
            static_cast<unsigned>(kv_heads));
  const std::int64_t rows = a.tokens * a.group * kv_heads;
  // Lists and plain keys have no splits.
  if (ctx.cuda != nullptr && !ctx.deterministic && a.keys.page_table != nullptr &&
      a.keys.list == nullptr)
    a.splits = attention_splits({.blocks = std::int64_t{grid.x} * grid.y * grid.z,
                                 .max_pages = a.keys.max_pages,
                                 .split_bytes = 4 * rows * (a.value_dim + 1),
                                 .scratch_bytes = ctx.cuda->scratch_bytes(),
                                 .num_sms = ctx.cuda->info().num_sms});
  if (a.splits > 1) {
    a.part = static_cast<float*>(ctx.cuda->scratch());
    a.part_lse = a.part + rows * a.splits * a.value_dim;
    grid.x *= static_cast<unsigned>(a.splits);
  }
  kernel<<<grid, kThreads, static_cast<std::size_t>(plan.shared_bytes), stream_of(ctx)>>>(a);
  check_launch(what);
  if (a.splits > 1)
    merge_splits(ctx, {.part = a.part,
                       .lse = a.part_lse,
                       .sinks = a.sinks,
                       .out = a.out,
                       .out_token = a.out_token,
                       .out_head = a.out_head,
                       .tokens = a.tokens,
                       .heads = a.group * kv_heads,
                       .dim = a.value_dim,
                       .splits = a.splits});
}

Keys paged_keys(const PagedRows& rows, std::int64_t slots) {
  Keys keys;
  keys.page_table = rows.page_table.ptr<std::int32_t>();
  keys.table_stride = rows.page_table.stride[0];
  keys.num_seqs = rows.page_table.dim(0);
  keys.max_pages = rows.page_table.dim(1);
  keys.row_seq = rows.row_seq.ptr<std::int32_t>();
  keys.positions = rows.positions.ptr<std::int32_t>();
  keys.num_slots = slots;
  return keys;
}

void set_query(AttendArgs& a, const Tensor& q) {
  a.first = q.ptr<float>();
  a.first_token = q.stride[0];
  a.first_head = q.stride[1];
  a.first_dim = q.dim(2);
  a.tokens = q.dim(0);
}

void set_out(AttendArgs& a, const Tensor& out) {
  a.out = out.ptr<float>();
  a.out_token = out.stride[0];
  a.out_head = out.stride[1];
  a.value_dim = out.dim(2);
}

void launch_mla(Context& ctx, const char* what, const Tensor& q_latent, const Tensor& q_rope,
                const Tensor& plane, Keys keys, float scale, const Tensor& out) {
  if (out.numel() == 0) return;
  AttendArgs a;
  set_query(a, q_latent);
  a.second = q_rope.ptr<float>();
  a.second_token = q_rope.stride[0];
  a.second_head = q_rope.stride[1];
  a.second_dim = q_rope.dim(2);
  set_out(a, out);
  a.k = a.v = plane.data;
  a.k_slot = a.v_slot = plane.stride[0];
  a.group = q_latent.dim(1);
  a.scale = scale;
  a.keys = keys;
  with_plane_type(plane.dtype,
                  [&](auto t) { launch<decltype(t)>(ctx, what, a, 1, keys.num_seqs); });
}

}  // namespace

void paged_attention(Context& ctx, const Tensor& q, const Tensor& k_plane, const Tensor& v_plane,
                     std::int64_t kv_heads, const PagedRows& rows, const AttentionParams& params,
                     const Tensor& out) {
  if (out.numel() == 0) return;
  if (attend_fast(ctx, q, k_plane, v_plane, kv_heads, rows, params, out)) return;
  if (attend_general(ctx, q, k_plane, v_plane, kv_heads, rows, params, out)) return;
  AttendArgs a;
  set_query(a, q);
  set_out(a, out);
  a.k = k_plane.data;
  a.v = v_plane.data;
  a.k_slot = k_plane.stride[0];
  a.v_slot = v_plane.stride[0];
  a.k_head = q.dim(2);
  a.v_head = out.dim(2);
  a.group = q.dim(1) / kv_heads;
  a.scale = params.scale;
  a.keys = paged_keys(rows, k_plane.dim(0));
  a.keys.window = params.window;
  a.keys.chunk = params.chunk;
  a.softcap = params.softcap;
  if (params.sinks.defined()) a.sinks = params.sinks.ptr<float>();
  if (params.slopes.defined()) a.slopes = params.slopes.ptr<float>();
  with_plane_type(k_plane.dtype, [&](auto t) {
    launch<decltype(t)>(ctx, "paged_attention", a, kv_heads, a.keys.num_seqs);
  });
}

void mla_attention(Context& ctx, const Tensor& q_latent, const Tensor& q_rope,
                   const Tensor& latent_plane, const PagedRows& rows, float scale,
                   const Tensor& out) {
  if (mla_attend_fast(ctx, q_latent, q_rope, latent_plane, rows, {}, scale, out)) return;
  launch_mla(ctx, "mla_attention", q_latent, q_rope, latent_plane,
             paged_keys(rows, latent_plane.dim(0)), scale, out);
}

void mla_sparse_attention(Context& ctx, const Tensor& q_latent, const Tensor& q_rope,
                          const Tensor& latent_plane, const PagedRows& rows, const Tensor& indices,
                          float scale, const Tensor& out) {
  if (mla_attend_fast(ctx, q_latent, q_rope, latent_plane, rows, indices, scale, out)) return;
  Keys keys = paged_keys(rows, latent_plane.dim(0));
  keys.list = indices.ptr<std::int32_t>();
  keys.list_stride = indices.stride[0];
  keys.list_width = indices.dim(1);
  launch_mla(ctx, "mla_sparse_attention", q_latent, q_rope, latent_plane, keys, scale, out);
}

void mha_attention(Context& ctx, const Tensor& q, const Tensor& k, const Tensor& v,
                   const Tensor& ks, const Tensor& ke, float scale, const Tensor& out,
                   const Tensor& lse) {
  if (q.dim(0) == 0 || q.dim(1) == 0) return;
  AttendArgs a;
  set_query(a, q);
  set_out(a, out);
  a.k = k.data;
  a.v = v.data;
  a.k_slot = k.stride[0];
  a.v_slot = v.stride[0];
  a.k_head = k.stride[1];
  a.v_head = v.stride[1];
  a.lse = lse.ptr<float>();
  a.lse_token = lse.stride[0];
  a.lse_head = lse.stride[1];
  a.scale = scale;
  a.keys.begin = ks.ptr<std::int32_t>();
  a.keys.end = ke.ptr<std::int32_t>();
  a.keys.num_slots = k.dim(0);
  launch<float>(ctx, "mha_attention", a, q.dim(1), 1);
}

}  // namespace sluice::cuda
