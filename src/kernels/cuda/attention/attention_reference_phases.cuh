// The phases of attend_run() in attention_reference.cu, over the state of one run of rows:
//   4. online_softmax   5. accumulate   6. epilogue
// Phases 1 to 3 are in attend_run() itself: as functions they cost registers (nvcc 13.0).
//
// Every sum has one order: a dot product over columns lane, lane + 32, ..., then over lanes by
// halving; a row's sum and output over keys in ascending order, chunk by chunk.
#pragma once

#include "kernels/cuda/attention/attention_pages.cuh"
#include "kernels/cuda/attention/attention_plan.h"
#include "kernels/cuda/attention/latent_codes.cuh"
#include "kernels/cuda/common/common.cuh"
#include "kernels/cuda/cuda.h"
#include "kernels/types/latent_rows.h"

namespace sluice::cuda::reference {

inline constexpr int kChunk = 64;  // keys: two for each lane of a warp
inline constexpr int kThreads = 128;
inline constexpr int kWarps = kThreads / kWarp;
static_assert(kChunk == kPageSize);

// Where the visible keys of a token are: in pages, in pages at listed positions, or contiguous.
struct Keys {
  const std::int32_t* page_table = nullptr;  // null: slot = begin[t] + i
  std::int64_t table_stride = 0, num_seqs = 0, max_pages = 0;
  const std::int32_t* row_seq = nullptr;
  const std::int32_t* positions = nullptr;  // null with `list`, which has its own length
  std::int64_t window = 0, chunk = 0;
  const std::int32_t* list = nullptr;  // [T, list_width] positions, then -1
  std::int64_t list_stride = 0, list_width = 0;
  const std::int32_t* begin = nullptr;  // contiguous keys [begin[t], end[t])
  const std::int32_t* end = nullptr;
  std::int64_t num_slots = 0;  // rows of the plane
};

// A query is the concatenation of `first` and `second` (of MLA: latent and RoPE part). A slot of
// the planes holds all KV heads side by side. Strides are in elements.
struct AttendArgs {
  const float *first = nullptr, *second = nullptr;
  std::int64_t first_token = 0, first_head = 0, first_dim = 0;  // strides and size
  std::int64_t second_token = 0, second_head = 0, second_dim = 0;
  const void *k = nullptr, *v = nullptr;
  const float *k_scales = nullptr, *v_scales = nullptr;         // of e4m3: [kv heads], or null: 1
  std::int64_t k_slot = 0, k_head = 0, v_slot = 0, v_head = 0;  // strides
  float* out = nullptr;
  std::int64_t out_token = 0, out_head = 0;
  float* lse = nullptr;
  std::int64_t lse_token = 0, lse_head = 0;
  std::int64_t tokens = 0, group = 1, value_dim = 0;
  int tile_heads = 1, tile_tokens = 1, head_blocks = 1;  // of a group
  int splits = 1;                                        // CTAs that share the chunks of a run
  float *part = nullptr, *part_lse = nullptr;  // [tokens, heads, splits, value_dim], [.., splits]
  float scale = 1, softcap = 0;
  const float *sinks = nullptr, *slopes = nullptr;  // by head of the model
  Keys keys;

  // Scale, soft cap and ALiBi for a key at `distance` (0 or less) from the row.
  __device__ float score(float dot, std::int64_t head, std::int64_t distance) const {
    float scaled = dot * scale;
    if (softcap > 0) scaled = softcap * tanhf(scaled / softcap);
    return slopes == nullptr ? scaled : fmaf(static_cast<float>(distance), slopes[head], scaled);
  }
};

// Key numbers [begin, end).
struct Range {
  std::int64_t begin, end;
};

// The sequence of a token; of contiguous keys their first slot, which serves as well for grouping
// neighbours into runs.
__device__ inline std::int64_t sequence_of(const Keys& keys, std::int64_t t) {
  if (keys.page_table == nullptr) return keys.begin[t];
  const std::int64_t seq = keys.row_seq[t];
  expect_below(seq, keys.num_seqs);
  return seq;
}

// A byte of a row of latents in e4m3 (kernels/types/latent_rows.h).
struct LatentCode {
  std::uint8_t bits;
};

// Number i of a row of a plane, as float32.
template <class T>
__device__ __forceinline__ float number_of(const AttendArgs&, const T* row, std::int64_t i) {
  return widen(row[i]);
}
__device__ __forceinline__ float number_of(const AttendArgs& a, const LatentCode* row,
                                           std::int64_t number) {
  const int i = static_cast<int>(number), latent = static_cast<int>(a.first_dim),
            rope_at = (latent + 1) / 2 * 2;
  if (i >= latent) return widen(reinterpret_cast<const Bf16*>(row + rope_at)[i - latent]);
  const int exponents_at = rope_at + 2 * static_cast<int>(a.second_dim);
  return widen(ops::E4M3{row[i].bits}) *
         latent_scale(row[exponents_at + i / static_cast<int>(ops::kLatentGroup)].bits);
}

// The keys that a token sees, as numbers: positions, or entries of its list.
__device__ inline Range visible(const Keys& keys, std::int64_t t) {
  if (keys.page_table == nullptr) return {0, max(keys.end[t] - keys.begin[t], 0)};
  if (keys.list != nullptr) {
    // The list ends at its first -1, found by bisection.
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

// The slot of key number i.
__device__ inline std::int64_t slot_of(const Keys& keys, std::int64_t seq, std::int64_t t,
                                       std::int64_t i) {
  std::int64_t slot = seq + i;
  if (keys.page_table != nullptr) {
    // A corrupt table or list must not become a read outside the pool: expect_below() traps.
    const std::int64_t position = keys.list == nullptr ? i : keys.list[t * keys.list_stride + i];
    expect_below(position / kPageSize, keys.max_pages);
    const std::int64_t page = keys.page_table[seq * keys.table_stride + position / kPageSize];
    slot = page * kPageSize + position % kPageSize;
  }
  expect_below(slot, keys.num_slots);
  return slot;
}

// State of the rows of a run in static shared memory.
struct RowState {
  float (&row_max)[kMaxTileRows];
  float (&row_sum)[kMaxTileRows];
  float (&rescale)[kMaxTileRows];
  std::int64_t (&begin)[kMaxTileRows];  // the row sees keys [begin, end)
  std::int64_t (&end)[kMaxTileRows];
};

// 4. A warp takes a row at a time: every lane has two keys of the chunk. fmaxf() drops a NaN, so a
// NaN among the scores is looked for and makes the whole row NaN. A chunk without a visible key
// leaves the row as it is. `p`: [rows][kChunk], scores before and weights after.
__device__ __forceinline__ void online_softmax(const RowState& state, float* p, int num_rows,
                                               int begin, int end, int warp, int lane) {
  for (int row = warp; row < num_rows; row += kWarps) {
    float* score = p + row * kChunk;
    const float low = lane >= begin && lane < end ? score[lane] : -INFINITY;
    const float high =
        lane + kWarp >= begin && lane + kWarp < end ? score[lane + kWarp] : -INFINITY;
    const bool has_nan = __any_sync(kAllLanes, isnan(low) || isnan(high));
    const float chunk_max = has_nan ? NAN : warp_max(fmaxf(low, high));
    const float new_max = fmaxf(state.row_max[row], chunk_max);
    const bool is_empty = chunk_max == -INFINITY;
    const float p_low = is_empty ? 0 : expf(low - new_max),
                p_high = is_empty ? 0 : expf(high - new_max);
    score[lane] = has_nan ? NAN : p_low;
    score[lane + kWarp] = has_nan ? NAN : p_high;
    const float sum = warp_sum(p_low + p_high);
    __syncwarp();
    // The first chunk of a row rescales by 0: row_max is -inf, and -inf - -inf would be NaN.
    if (lane == 0) {
      state.rescale[row] = is_empty                  ? 1
                           : state.row_sum[row] == 0 ? 0
                                                     : expf(state.row_max[row] - new_max);
      if (!is_empty) {
        state.row_sum[row] = has_nan ? NAN : state.row_sum[row] * state.rescale[row] + sum;
        state.row_max[row] = new_max;
      }
    }
  }
}

// 5. A thread has its columns of all rows, so a value is read once. Keys ascend.
template <class T, int kColumns>
__device__ __forceinline__ void accumulate(float (&acc)[kMaxTileRows][kColumns],
                                           const AttendArgs& a, const RowState& state,
                                           const float* p, const std::int64_t* slots, const T* v,
                                           int num_rows, int begin, int end) {
#pragma unroll
  for (int row = 0; row < kMaxTileRows; ++row)
    for (int c = 0; c < kColumns; ++c)
      if (row < num_rows) acc[row][c] *= state.rescale[row];
  // A key that no row sees is outside [begin, end), so its value is never read.
  for (int key = begin; key < end; ++key) {
    const T* v_row = v + slots[key] * a.v_slot;
    float value[kColumns];
#pragma unroll
    for (int c = 0; c < kColumns; ++c) {
      const std::int64_t column = threadIdx.x + c * kThreads;
      value[c] = column < a.value_dim ? number_of(a, v_row, column) : 0.0f;
    }
#pragma unroll
    for (int row = 0; row < kMaxTileRows; ++row) {
      if (row >= num_rows) continue;
      const float weight = p[row * kChunk + key];
#pragma unroll
      for (int c = 0; c < kColumns; ++c) acc[row][c] = fmaf(weight, value[c], acc[row][c]);
    }
  }
}

// 6. With splits: normalised partial results and their log sums, for merge_splits(). Without: the
// output, with the head's sink as one more key without a value, and the log sum if wanted.
template <int kColumns>
__device__ __forceinline__ void epilogue(const float (&acc)[kMaxTileRows][kColumns],
                                         const AttendArgs& a, const RowState& state,
                                         std::int64_t first_token, std::int64_t first_head,
                                         int heads, int num_rows, int split, float v_scale) {
#pragma unroll
  for (int row = 0; row < kMaxTileRows; ++row) {
    if (row >= num_rows) continue;
    const std::int64_t token = first_token + row / heads, head = first_head + row % heads;
    const float row_max = state.row_max[row], row_sum = state.row_sum[row];
    float inverse = row_sum == 0 ? 0 : 1.0f / row_sum * v_scale;
    if (a.splits > 1) {
      const std::int64_t at = (token * gridDim.z * a.group + head) * a.splits + split;
#pragma unroll
      for (int c = 0; c < kColumns; ++c) {
        const std::int64_t column = threadIdx.x + c * kThreads;
        if (column < a.value_dim) a.part[at * a.value_dim + column] = acc[row][c] * inverse;
      }
      if (threadIdx.x == 0) a.part_lse[at] = row_sum == 0 ? -INFINITY : row_max + logf(row_sum);
      continue;
    }
    if (a.sinks != nullptr && row_sum != 0) {
      const float new_max = fmaxf(row_max, a.sinks[head]), rescale = expf(row_max - new_max);
      inverse = rescale / (row_sum * rescale + expf(a.sinks[head] - new_max)) * v_scale;
    }
#pragma unroll
    for (int c = 0; c < kColumns; ++c) {
      const std::int64_t column = threadIdx.x + c * kThreads;
      if (column < a.value_dim)
        a.out[token * a.out_token + head * a.out_head + column] = acc[row][c] * inverse;
    }
    // The logarithm is taken in double, as on the CPU.
    if (a.lse != nullptr && threadIdx.x == 0)
      a.lse[token * a.lse_token + head * a.lse_head] =
          row_sum == 0 ? -INFINITY
                       : static_cast<float>(static_cast<double>(row_max) +
                                            log(static_cast<double>(row_sum)));
  }
}

}  // namespace sluice::cuda::reference
