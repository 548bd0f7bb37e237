// Arithmetic that is written once and compiled for each instruction set: raw pointers in, raw
// pointers out, one thread. Callers (norm.cpp, gemm.cpp, ...) partition the work for the pool. No
// partition changes a result.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>

#include "kernels/types/latent_rows.h"
#include "kernels/types/op_params.h"
#include "tensor/context.h"

namespace sluice::cpu {

// A vector of weights in the checkpoint's dtype. data == null: absent.
struct WeightVector {
  const void* data = nullptr;
  DType dtype = DType::kF32;
};

struct NormArgs {
  const float* x = nullptr;
  float* residual = nullptr;  // if set: residual += x, and the sum is normalised
  WeightVector weight = {};
  WeightVector bias = {};
  void* out = nullptr;
  DType out_dtype = DType::kF32;  // only rms_norm can write bfloat16
  std::int64_t n = 0;
  float eps = 0;
};

// out[m, n] = x[x_rows ? x_rows[m] : m] . w[n] + bias[n]
struct GemmArgs {
  const void* x = nullptr;
  std::int64_t x_stride = 0;
  const std::int32_t* x_rows = nullptr;
  const void* w = nullptr;
  std::int64_t w_stride = 0;
  WeightVector bias = {};
  float* out = nullptr;
  std::int64_t out_stride = 0;
  std::int64_t k = 0;
};

// Locates key i of a sequence in the KV plane.
struct KeySource {
  const std::int32_t* pages = nullptr;  // page table row; null: slot = base + i
  const std::int32_t* list = nullptr;   // positions; null: position = i
  std::int64_t base = 0;

  std::int64_t slot(std::int64_t i) const {
    if (pages == nullptr) return base + i;
    const std::int64_t position = list == nullptr ? i : list[i];
    return std::int64_t{pages[position / kPageSize]} * kPageSize + position % kPageSize;
  }
};

// Rows of latents in 8 bits, by slot.
struct LatentCodes {
  const std::uint8_t* plane = nullptr;
  std::int64_t stride = 0;  // bytes from a row to the next
  ops::LatentRow row;
  bool is_e4m3 = false;  // else int8
};

inline constexpr int kTileQueries = 64;  // maximum query rows of a tile

// Partial attention result of one row over one chunk of keys: the sum of values times exp(score -
// max), the chunk's maximum score, and the sum of these exponentials.
struct ChunkPart {
  float* values;  // [width(dv)]
  float* max;
  float* sum;

  static std::int64_t width(std::int64_t dv) { return (dv + 15) / 16 * 16; }
  static std::int64_t floats(std::int64_t dv) { return width(dv) + 16; }
  void put(const float* from, std::int64_t count, float highest, float total) const {
    std::copy_n(from, count, values);
    *max = highest;
    *sum = total;
  }
};

// Query rows that read the same keys: heads of a GQA group, tokens of a sequence. Row i sees keys
// [begin[i], end[i]). Every key from the first begin to the last end is seen by some row.
struct AttendTile {
  int rows = 0;
  const float* q[kTileQueries];  // [d] each
  float* out[kTileQueries];      // [dv] each
  float* lse[kTileQueries];      // null: not requested
  std::int64_t begin[kTileQueries];
  std::int64_t end[kTileQueries];
  std::int64_t d = 0;
  std::int64_t dv = 0;
  const void* k = nullptr;
  const void* v = nullptr;
  // Elements from one slot to the next; for panels, from one page to the next.
  std::int64_t k_stride = 0;
  std::int64_t v_stride = 0;
  // bfloat16 panels (kv_plane.h): k and v point to the first head's panels of page 0. keys.pages is
  // set, keys.list is not. The rows belong to `kv_heads` neighbouring KV heads, the same number for
  // each. A page's panels are read as one stream.
  bool panels = false;
  int kv_heads = 1;
  // Panels only: the page of keys that is read after this tile, and how many of its keys. It is
  // prefetched towards the end of the tile.
  const void* next = nullptr;
  std::int64_t next_keys = 0;
  // Keys and values are these codes (MLA): each chunk of keys becomes rows of `d` bfloat16 in
  // `widened` [kKeyChunk, d] first. k and v are null.
  const LatentCodes* codes = nullptr;
  BF16* widened = nullptr;
  KeySource keys = {};
  float scale = 1;        // e4m3: times the scale of the keys
  float value_scale = 1;  // e4m3: the scale of the values
  bool has_sinks = false;
  float sink[kTileQueries];  // attention sink logit: enters the softmax without a value
  float softcap = 0;         // 0: none
  bool has_slopes = false;
  float slope[kTileQueries];  // ALiBi slope: times the distance between key and row
  // KV split: several tiles may share the keys of a row. Each processes the key chunks
  // (ops::kKeyChunk keys) within [chunks_from, chunks_until). It stores a ChunkPart per row and
  // chunk at parts[chunk, part_row + row], where chunk 0 is the first that the row sees.
  // merge_chunks() merges the parts.
  //
  // If all rows see the same keys, the tile with the first chunks may merge them itself. It then
  // stores one partial result at its last chunk, and merge_chunks() starts there (`chunks_from`).
  std::int64_t chunks_from = 0;
  std::int64_t chunks_until = std::numeric_limits<std::int64_t>::max();
  bool merges_chunks = false;
  float* parts = nullptr;  // null: the tile covers all keys of its rows and writes the final output
  std::int64_t part_row = 0;
  std::int64_t part_rows = 0;

  ChunkPart part(int r, std::int64_t key) const {
    const std::int64_t chunk = key / ops::kKeyChunk - begin[r] / ops::kKeyChunk,
                       width = ChunkPart::width(dv);
    float* at = parts + (chunk * part_rows + part_row + r) * ChunkPart::floats(dv);
    return {at, at + width, at + width + 1};
  }
};

// Attention of one token's heads, split over the whole thread pool. All heads see keys [0, length),
// taken kKeyChunk at a time. For the scores each thread takes a range of keys; for the values it
// takes a range of columns. So no two threads repack the same keys or prefetch the same lines.
//
// A phase ends when all its parts have run. kCastQueries runs once; the other phases run in this
// order for each chunk.
enum class SharedPhase { kCastQueries, kScores, kSoftmax, kValues };
struct SharedTile {
  int heads = 0;
  std::int64_t latent = 0;  // columns of a value: the first `latent` columns of its key
  std::int64_t rope = 0;
  float scale = 1;
  std::int64_t length = 0;
  const float* q_latent[kTileQueries];
  const float* q_rope[kTileQueries];
  float* out[kTileQueries];  // [latent] each

  std::int64_t chunk = 0;  // first key of the chunk; num_keys keys; a pointer to each key's row
  std::int64_t num_keys = 0;
  const BF16* keys[ops::kKeyChunk];
  // Results of a phase that later phases read. They include the online softmax factors of the old
  // output and of the new chunk's.
  float max[kTileQueries], sum[kTileQueries], keep[kTileQueries], merge[kTileQueries];
  alignas(64) std::uint16_t queries[kTileQueries * ops::kMaxKeyDim];
  alignas(64) std::uint16_t weights[kTileQueries * ops::kKeyChunk];
  alignas(64) float scores[kTileQueries * ops::kKeyChunk];
  alignas(64) float total[kTileQueries * ops::kMaxValueDim];
};

// Indexer scores of keys [begin, end) for query tokens of one sequence.
struct IndexScoreArgs {
  std::int64_t tokens = 0;
  const float* q = nullptr;   // [tokens, heads, d]
  std::int64_t q_stride = 0;  // from a token to the next
  std::int64_t q_head_stride = 0;
  const float* weights = nullptr;  // [tokens, heads]
  std::int64_t weights_stride = 0;
  std::int64_t heads = 0;
  std::int64_t d = 0;
  const void* k = nullptr;
  std::int64_t k_stride = 0;  // as in AttendTile
  bool panels = false;        // then `begin` is the first key of a page
  KeySource keys = {};
  std::int64_t begin = 0;
  std::int64_t end = 0;
  // Panels only: `num_ordered` pages, as indices into keys.pages, in the order to read them. They
  // replace the pages of [begin, end).
  const std::int32_t* order = nullptr;
  std::int64_t num_ordered = 0;
  float* scores = nullptr;  // [tokens], indexed by the key's position from 0
  std::int64_t scores_stride = 0;
};

struct KernelTable {
  void (*rms_norm)(const NormArgs&);
  void (*layer_norm)(const NormArgs&);
  // n elements: out[i] = act(gate[i]) * up[i]
  void (*act_and_mul_f32)(Activation, const float* gate, const float* up, float* out,
                          std::int64_t n);
  void (*act_and_mul_bf16)(Activation, const float* gate, const float* up, BF16* out,
                           std::int64_t n);
  // n elements: out[i] = act(x[i])
  void (*activate_f32)(Activation, const float* x, float* out, std::int64_t n);
  void (*activate_bf16)(Activation, const float* x, BF16* out, std::int64_t n);
  // n elements: out[i] = cap * tanh(x[i] / cap)
  void (*softcap)(const float* x, float cap, float* out, std::int64_t n);
  void (*sigmoid_mul)(const float* x, float gate, float* out, std::int64_t n);
  // [x dtype: f32, bf16][w dtype: f32, bf16, f16]; rows [m0, m1), columns [n0, n1)
  void (*gemm[2][3])(const GemmArgs&, std::int64_t m0, std::int64_t m1, std::int64_t n0,
                     std::int64_t n1);
  // [plane dtype: f32, bf16, int8, e4m3]
  void (*attend[4])(const AttendTile&);
  void (*merge_chunks)(const AttendTile&);                               // bfloat16 keys
  void (*attend_shared)(SharedTile&, SharedPhase, int part, int parts);  // bfloat16 rows
  // Keys [first, first + count) of `keys` as rows of latent + rope bfloat16, which is exact.
  void (*widen_latents)(const LatentCodes&, const KeySource& keys, std::int64_t first,
                        std::int64_t count, BF16* rows);
  // [plane dtype: f32, bf16]
  void (*index_scores[2])(const IndexScoreArgs&);
};

const KernelTable& avx2_kernels();
const KernelTable& avx512_kernels();
// The AVX-512 table, except for the kernels that read bfloat16 keys.
const KernelTable& avx512bf16_kernels();
const KernelTable& amx_kernels();

// The table for ctx.cpu_isa.
inline const KernelTable& kernels(const Context& ctx) {
  switch (ctx.cpu_isa) {
    case CpuIsa::kAvx2:
      return avx2_kernels();
    case CpuIsa::kAvx512:
    case CpuIsa::kAvx512Vnni:
      return avx512_kernels();
    case CpuIsa::kAvx512Bf16:
      return avx512bf16_kernels();
    case CpuIsa::kAmx:
      return amx_kernels();
  }
  return avx2_kernels();
}

}  // namespace sluice::cpu
