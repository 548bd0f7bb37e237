// Pages of e4m3 as bfloat16 for one prefill step: which KV heads at a time, and the place of
// everything in the step's memory. Pure functions, tested without a GPU.
#pragma once

#include <cstdint>

namespace sluice::cuda {

struct WideInputs {
  std::int64_t tokens = 0, seqs = 0, max_pages = 0;  // page table [seqs, max_pages]
  std::int64_t run_seqs = 0, run_pages = 0;          // as ops::PrefillRuns
  std::int64_t group = 1, kv_heads = 1, dim = 0;
  std::int64_t memory_bytes = 0;
};

// Bytes are from the start of the memory.
struct WidePlan {
  std::int64_t heads = 0;  // KV heads at a time; 0: the pages stay as they are
  std::int64_t k_at = 0;   // keys [run_pages * 64, heads * dim] bf16
  std::int64_t v_at = 0;   // values, the same
  std::int64_t bytes = 0;  // of everything; before the keys lie numbers (below)
};

// Nothing is widened if it does not pay, or if the memory does not hold one head.
WidePlan plan_wide_pages(const WideInputs& inputs);

// What a step takes at most, whatever its runs are: bytes for all heads of all pages of the table,
// up to kMaxWideBytes.
std::int64_t max_wide_bytes(const WideInputs& inputs);

// One head of 128 of a context of 512 Ki tokens, or eight heads of 64 Ki tokens. More heads at a
// time gain little: the tiles of a few heads already fill the GPU.
inline constexpr std::int64_t kMaxWideBytes = 256 << 20;

// Rows times heads of a GQA group that a run must have in the mean. To widen a key and a value of
// 128 numbers moves 768 bytes, about 220 ps on an H200. A row of one head then saves about 1.9 ps
// for each key, the difference of mma.sync and WGMMA.
inline constexpr std::int64_t kMinWideRows = 128;

// Numbers before the keys, int32: three for each sequence, the count of pages, a number for each
// page, and the page table of the widened pages [seqs, max_pages].
constexpr std::int64_t wide_index_numbers(const WideInputs& inputs) {
  return 3 * inputs.seqs + 1 + inputs.run_pages + inputs.seqs * inputs.max_pages;
}

}  // namespace sluice::cuda
