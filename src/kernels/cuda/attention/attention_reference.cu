// Softmax attention for any head size in float32, over pages, selected keys or contiguous keys. The
// oracle of the tensor-core kernels, and the kernel of whatever they do not take.
//
// A CTA takes up to 8 query rows that read the same keys. The phases of attend_run()
// (attention_reference_phases.cuh):
//   1. load rows                  queries to shared memory, the keys that the rows see
//   for each chunk of 64 keys, counted from position 0 (of a list from its start, else from ks):
//   2. find slots                 page table, or list of selected positions
//   3. scores                     a key for each warp
//   4. online_softmax             a row for each warp: row_max, row_sum, rescale
//   5. accumulate                 columns for each thread
//   then:
//   6. epilogue                   normalise; sinks; or store the partial result of a split
//
// Without splits, a row's bits depend on its query and its keys alone: not on the rows beside it,
// on page numbers or on the step. With splits (few CTAs, not deterministic) several CTAs share the
// chunks of a row, and kernels/cuda/attention/attention_merge.cu merges their results.
#include <type_traits>

#include "kernels/cuda/attention/attention_fast.h"
#include "kernels/cuda/attention/attention_general.h"
#include "kernels/cuda/attention/attention_plan.h"
#include "kernels/cuda/attention/attention_reference_phases.cuh"
#include "kernels/cuda/attention/mla_fast.h"
#include "kernels/cuda/common/session.h"
#include "kernels/cuda/cuda.h"

namespace sluice::cuda {
namespace {

using namespace reference;

// The phases in order, for rows [0, num_rows) of one sequence: row r is (token first_token + r /
// heads, head first_head + r % heads). All threads of the CTA call. Shared memory: slots of a
// chunk, scores of all rows, queries.
template <class T, int kColumns>
__device__ void attend_run(const AttendArgs& a, std::int64_t first_token, int num_tokens,
                           std::int64_t kv_head, std::int64_t first_head, int heads, int split,
                           float* shared) {
  const std::int64_t dim = a.first_dim + a.second_dim;
  const int num_rows = num_tokens * heads, warp = threadIdx.x / kWarp, lane = threadIdx.x % kWarp;
  auto* slots = reinterpret_cast<std::int64_t*>(shared);
  float* scores = shared + 2 * kChunk;          // [rows][kChunk]
  float* queries = scores + num_rows * kChunk;  // [rows][dim]
  __shared__ float row_max[kMaxTileRows], row_sum[kMaxTileRows], row_rescale[kMaxTileRows];
  __shared__ std::int64_t row_begin[kMaxTileRows], row_end[kMaxTileRows];
  const RowState state{row_max, row_sum, row_rescale, row_begin, row_end};

  // 1. The keys of each row, and the queries as float32.
  __syncthreads();  // a warp may still read the rows of the run before
  if (threadIdx.x < num_rows) {
    const Range range = visible(a.keys, first_token + threadIdx.x / heads);
    row_begin[threadIdx.x] = range.begin;
    row_end[threadIdx.x] = range.end;
    row_max[threadIdx.x] = -INFINITY;
    row_sum[threadIdx.x] = 0;
  }
  for (int row = warp; row < num_rows; row += kWarps) {
    const std::int64_t token = first_token + row / heads, head = first_head + row % heads;
    for (std::int64_t i = lane; i < a.first_dim; i += kWarp)
      queries[row * dim + i] = a.first[token * a.first_token + head * a.first_head + i];
    for (std::int64_t i = lane; i < a.second_dim; i += kWarp)
      queries[row * dim + a.first_dim + i] =
          a.second[token * a.second_token + head * a.second_head + i];
  }
  __syncthreads();
  // Keys [first, last) are seen by some row. Splits share whole chunks of them.
  std::int64_t first = row_begin[0], last = row_end[0];
  for (int row = 1; row < num_rows; ++row) {
    first = min(first, row_begin[row]);
    last = max(last, row_end[row]);
  }
  if (a.splits > 1) {
    const std::int64_t from = first / kChunk, chunks = (last + kChunk - 1) / kChunk - from;
    const std::int64_t share = (chunks + a.splits - 1) / a.splits;
    first = max(first, (from + split * share) * kChunk);
    last = min(last, (from + (split + 1) * share) * kChunk);
  }
  float acc[kMaxTileRows][kColumns] = {};
  const std::int64_t seq = sequence_of(a.keys, first_token);
  float k_scale = 1, v_scale = 1;
  if constexpr (std::is_same_v<T, ops::E4M3>) {
    if (a.k_scales != nullptr) k_scale = a.k_scales[kv_head];
    if (a.v_scales != nullptr) v_scale = a.v_scales[kv_head];
  }
  const T* k = static_cast<const T*>(a.k) + kv_head * a.k_head;
  const T* v = static_cast<const T*>(a.v) + kv_head * a.v_head;

  // Chunks start at multiples of 64, whatever the rows of the run see: the order of a row's sums
  // must not depend on the rows beside it.
  for (std::int64_t chunk = first / kChunk * kChunk; chunk < last; chunk += kChunk) {
    const int begin = static_cast<int>(max(first - chunk, std::int64_t{0}));
    const int end = static_cast<int>(min(last - chunk, std::int64_t{kChunk}));
    // 2. The first barrier: all warps have read the slots and weights of the chunk before.
    __syncthreads();
    if (threadIdx.x >= begin && threadIdx.x < end)
      slots[threadIdx.x] = slot_of(a.keys, seq, first_token, chunk + threadIdx.x);
    __syncthreads();
    // 3. A warp takes a key at a time, and reads it once for all rows. A lane has some columns.
    for (int key = begin + warp; key < end; key += kWarps) {
      const T* k_row = k + slots[key] * a.k_slot;
      float dot[kMaxTileRows] = {};
      for (std::int64_t i = lane; i < dim; i += kWarp) {
        const float value = number_of(a, k_row, i);
#pragma unroll
        for (int row = 0; row < kMaxTileRows; ++row)
          if (row < num_rows) dot[row] = fmaf(queries[row * dim + i], value, dot[row]);
      }
#pragma unroll
      for (int row = 0; row < kMaxTileRows; ++row) {
        if (row >= num_rows) continue;
        const float sum = warp_sum(dot[row]);
        const std::int64_t number = chunk + key, distance = number + 1 - row_end[row];
        const bool is_visible = number >= row_begin[row] && distance <= 0;
        // The rows of a run see different keys: -inf hides a key from one of them.
        if (lane == 0)
          scores[row * kChunk + key] =
              is_visible ? a.score(sum * k_scale, first_head + row % heads, distance) : -INFINITY;
      }
    }
    __syncthreads();
    online_softmax(state, scores, num_rows, begin, end, warp, lane);
    __syncthreads();
    accumulate(acc, a, state, scores, slots, v, num_rows, begin, end);
  }
  epilogue(acc, a, state, first_token, first_head, heads, num_rows, split, v_scale);
}

// Grid: token tiles times splits; head blocks of a GQA group; KV heads. Neighbouring tokens of one
// sequence are a run.
template <class T, int kColumns>
__global__ void __launch_bounds__(kThreads) attend_kernel(const __grid_constant__ AttendArgs a) {
  extern __shared__ __align__(16) float shared[];
  const std::int64_t t_begin = std::int64_t{blockIdx.x} / a.splits * a.tile_tokens;
  const int split = static_cast<int>(blockIdx.x % a.splits);
  const std::int64_t t_end = min(t_begin + a.tile_tokens, a.tokens);
  const std::int64_t group_head = std::int64_t{blockIdx.y} * a.tile_heads, kv = blockIdx.z;
  const int heads = static_cast<int>(min(std::int64_t{a.tile_heads}, a.group - group_head));
  for (std::int64_t t = t_begin; t < t_end;) {
    std::int64_t next = t + 1;
    const std::int64_t seq = sequence_of(a.keys, t);
    while (next < t_end && sequence_of(a.keys, next) == seq) ++next;
    attend_run<T, kColumns>(a, t, static_cast<int>(next - t), kv, kv * a.group + group_head, heads,
                            split, shared);
    t = next;
  }
}

// The kernel with at least so many columns of the output a thread.
template <class T>
auto kernel_of(int columns) {
  // Latents in codes are rare here, so they have fewer kernels.
  if constexpr (std::is_same_v<T, LatentCode>)
    return columns <= 4 ? attend_kernel<T, 4> : attend_kernel<T, 8>;
  else
    return columns == 1   ? attend_kernel<T, 1>
           : columns == 2 ? attend_kernel<T, 2>
           : columns == 4 ? attend_kernel<T, 4>
                          : attend_kernel<T, 8>;
}

// T: the element type of the planes. A CTA holds plan.columns columns of the output a thread.
template <class T>
void launch(Context& ctx, const char* what, AttendArgs& a, std::int64_t kv_heads,
            std::int64_t seqs) {
  const AttentionTile tile = choose_attention_tile(a.tokens, seqs, a.group, a.keys.list != nullptr);
  a.tile_heads = tile.heads;
  a.tile_tokens = tile.tokens;
  const AttentionLaunch plan = plan_attention(tile.rows(), a.first_dim + a.second_dim, a.value_dim);
  const auto kernel = kernel_of<T>(plan.columns);
  // CUDA gives more than 48 KiB of dynamic shared memory only on request.
  if (plan.shared_bytes > 48 << 10)
    cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                         static_cast<int>(plan.shared_bytes));
  dim3 grid(blocks_for(a.tokens, a.tile_tokens), blocks_for(a.group, tile.heads),
            static_cast<unsigned>(kv_heads));
  const std::int64_t rows = a.tokens * a.group * kv_heads;
  // Splits change the order of a row's sums. Lists and contiguous keys have none.
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

// The keys of pages, up to each row's own position.
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

// [tokens, heads, dim].
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

// Absorbed MLA: one KV head whose value is the latent part of its key.
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
  const auto run = [&](auto t) { launch<decltype(t)>(ctx, what, a, 1, keys.num_seqs); };
  if (plane.dtype == DType::kF8E4M3) return run(LatentCode{});
  with_plane_type(plane.dtype, run);
}

}  // namespace

// The kernels on tensor cores come first; each refuses shapes that it does not support.
void paged_attention(Context& ctx, const Tensor& q, const KvPlane& k_plane, const KvPlane& v_plane,
                     std::int64_t kv_heads, const PagedRows& rows, const AttentionParams& params,
                     const Tensor& out) {
  if (out.numel() == 0) return;
  if (attend_fast(ctx, q, k_plane, v_plane, kv_heads, rows, params, out)) return;
  if (attend_general(ctx, q, k_plane, v_plane, kv_heads, rows, params, out)) return;
  AttendArgs a;
  set_query(a, q);
  set_out(a, out);
  a.k = k_plane.data.data;
  a.v = v_plane.data.data;
  a.k_scales = k_plane.head_scales();
  a.v_scales = v_plane.head_scales();
  a.k_slot = k_plane.data.stride[0];
  a.v_slot = v_plane.data.stride[0];
  a.k_head = q.dim(2);
  a.v_head = out.dim(2);
  a.group = q.dim(1) / kv_heads;
  a.scale = params.scale;
  a.keys = paged_keys(rows, k_plane.data.dim(0));
  a.keys.window = params.window;
  a.keys.chunk = params.chunk;
  a.softcap = params.softcap;
  if (params.sinks.defined()) a.sinks = params.sinks.ptr<float>();
  if (params.slopes.defined()) a.slopes = params.slopes.ptr<float>();
  const auto run = [&](auto t) {
    launch<decltype(t)>(ctx, "paged_attention", a, kv_heads, a.keys.num_seqs);
  };
  if (k_plane.is_fp8()) return run(ops::E4M3{});
  with_plane_type(k_plane.data.dtype, run);
}

// The keys of a row are all positions up to its own.
void mla_attention(Context& ctx, const Tensor& q_latent, const Tensor& q_rope,
                   const Tensor& latent_plane, const PagedRows& rows, float scale,
                   const Tensor& out) {
  if (mla_attend_fast(ctx, q_latent, q_rope, latent_plane, rows, {}, scale, out)) return;
  launch_mla(ctx, "mla_attention", q_latent, q_rope, latent_plane,
             paged_keys(rows, latent_plane.dim(0)), scale, out);
}

// Keys come from a list of selected positions instead of a range.
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

// Contiguous keys of a prompt, one KV head for each head.
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
