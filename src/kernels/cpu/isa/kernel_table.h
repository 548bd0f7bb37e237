// The arithmetic that is written once and compiled for each instruction set: raw pointers in, raw
// pointers out, one thread. The callers (norm.cpp, gemm.cpp, ...) cut the work for the pool; no cut
// changes a result.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>

#include "kernels/types/op_params.h"
#include "tensor/context.h"

namespace sluice::cpu {

// A vector of weights in the dtype that the checkpoint has; data null: none.
struct WeightVector {
  const void* data = nullptr;
  DType dtype = DType::kF32;
};

struct NormArgs {
  const float* x = nullptr;
  float* residual = nullptr;  // when set: residual += x, and the sum is normalised
  WeightVector weight = {};
  WeightVector bias = {};
  void* out = nullptr;
  DType out_dtype = DType::kF32;  // bfloat16 of rms_norm alone
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

// Where key number i of a sequence lies in the plane.
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

inline constexpr int kTileQueries = 64;  // query rows of a tile, at most

// What a chunk of keys contributes to a row: its values, weighed with exp(score - max), and the sum
// of these weights.
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

// Query rows that read the same keys: heads of a group, tokens of a sequence. Row i sees keys
// [begin[i], end[i]), and every key between the first begin and the last end is seen by some row.
struct AttendTile {
  int rows = 0;
  const float* q[kTileQueries];  // [d] each
  float* out[kTileQueries];      // [dv] each
  float* lse[kTileQueries];      // null: not wanted
  std::int64_t begin[kTileQueries];
  std::int64_t end[kTileQueries];
  std::int64_t d = 0;
  std::int64_t dv = 0;
  const void* k = nullptr;
  const void* v = nullptr;
  // elements from a slot to the next; of panels, from a page to the next
  std::int64_t k_stride = 0;
  std::int64_t v_stride = 0;
  // bfloat16 panels (kv_plane.h): k and v are the first head's own panels of page 0, keys.pages is
  // set and keys.list is not. The rows are of `kv_heads` neighbouring heads, as many of each, and a
  // page's panels are read as one stream.
  bool panels = false;
  int kv_heads = 1;
  const void* next = nullptr;  // panels: the page of keys that will be read after this tile, and
                               // how many keys of it
  std::int64_t next_keys = 0;
  KeySource keys = {};
  float scale = 1;
  bool has_sinks = false;
  float sink[kTileQueries];  // a score without a value, where has_sinks
  float softcap = 0;         // 0: none
  bool has_slopes = false;
  float slope[kTileQueries];  // times the distance to the row, where has_slopes
  // Several tiles may share the rows' keys, each with the chunks (ops::kKeyChunk) of keys
  // [chunks_from, chunks_until), and leave a ChunkPart of every row and chunk for join_chunks():
  // parts[chunk, part_row + row], chunks counted from the first that the rows see. A tile whose
  // rows all see the same keys and that has the first chunks may join its own, and leave one part
  // in the place of its last; then join_chunks() has chunks_from there.
  std::int64_t chunks_from = 0;
  std::int64_t chunks_until = std::numeric_limits<std::int64_t>::max();
  bool joins_chunks = false;
  float* parts = nullptr;  // null: this tile has all keys of its rows, and finishes them
  std::int64_t part_row = 0;
  std::int64_t part_rows = 0;

  ChunkPart part(int r, std::int64_t key) const {
    const std::int64_t chunk = key / ops::kKeyChunk - begin[r] / ops::kKeyChunk,
                       width = ChunkPart::width(dv);
    float* at = parts + (chunk * part_rows + part_row + r) * ChunkPart::floats(dv);
    return {at, at + width, at + width + 1};
  }
};

// Attention of one token's heads, which all see keys [0, length), by several threads together: each
// takes a part of the keys for the scores and a part of the columns for the values, so that no two
// turn the same keys into tiles or fetch the same rows. `length` keys are taken kKeyChunk at a
// time. A phase is done when all parts of it are; kCastQueries comes once, the others in turn for
// each chunk.
enum class SharedPhase { kCastQueries, kScores, kSoftmax, kValues };
struct SharedTile {
  int heads = 0;
  std::int64_t latent = 0;  // columns of a value, which are the first of its key
  std::int64_t rope = 0;
  float scale = 1;
  std::int64_t length = 0;
  const float* q_latent[kTileQueries];
  const float* q_rope[kTileQueries];
  float* out[kTileQueries];  // [latent] each

  std::int64_t chunk = 0;  // its first key, and the rows of its keys
  std::int64_t num_keys = 0;
  const BF16* keys[ops::kKeyChunk];
  // What the phases leave for the next.
  float max[kTileQueries], sum[kTileQueries], keep[kTileQueries], join[kTileQueries];
  alignas(64) std::uint16_t queries[kTileQueries * ops::kMaxKeyDim];
  alignas(64) std::uint16_t weights[kTileQueries * ops::kKeyChunk];
  alignas(64) float scores[kTileQueries * ops::kKeyChunk];
  alignas(64) float total[kTileQueries * ops::kMaxValueDim];
};

// Scores of keys [begin, end) for query rows of the indexer that see the same sequence.
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
  // Of panels: `num_ordered` pages instead of those of [begin, end), as places in keys.pages, in
  // the order in which they are read.
  const std::int32_t* order = nullptr;
  std::int64_t num_ordered = 0;
  float* scores = nullptr;  // [tokens], of key 0
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
  // [plane dtype: f32, bf16, int8]
  void (*attend[3])(const AttendTile&);
  void (*join_chunks)(const AttendTile&);                                // of bfloat16 keys
  void (*attend_shared)(SharedTile&, SharedPhase, int part, int parts);  // bfloat16 rows
  // [plane dtype: f32, bf16]
  void (*index_scores[2])(const IndexScoreArgs&);
};

const KernelTable& avx2_kernels();
const KernelTable& avx512_kernels();
// That of AVX-512, but for what reads bfloat16 keys.
const KernelTable& avx512bf16_kernels();
const KernelTable& amx_kernels();

// The table of ctx.cpu_isa.
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
