#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <limits>
#include <numeric>
#include <vector>

#include "base/error.h"
#include "kernels/cpu/attention/kv_scaled.h"
#include "kernels/cpu/common/rows.h"
#include "kernels/cpu/cpu.h"

namespace sluice::cpu {
namespace {

// Maps scores to unsigned integers of the same order. NaN counts as -inf, -0 as 0. Branch-free, so
// that loops over it are vectorised.
std::uint32_t order_key(float score) {
  auto bits = std::bit_cast<std::uint32_t>(score + 0.0f);
  bits = (bits & 0x7FFFFFFFu) > 0x7F800000u ? 0xFF800000u : bits;
  return bits ^ (static_cast<std::uint32_t>(static_cast<std::int32_t>(bits) >> 31) | 0x80000000u);
}

// The k-th largest of n keys, 1 <= k <= n, and how many entries equal to it are among the k
// largest.
struct Threshold {
  std::uint32_t key = 0;
  std::int64_t ties = 0;
};

// Radix selection from the top bits: linear time, no allocation, no branches that depend on the
// keys. With kPasses == 2 the last ten bits of the key are zero; at least k keys reach it.
template <int kPasses = 3, class KeyOf>
Threshold find_threshold(std::int64_t n, std::int64_t k, const KeyOf& key_of) {
  constexpr std::array<int, 3> kShift = {21, 10, 0};
  constexpr std::array<int, 3> kBits = {11, 11, 10};
  std::uint32_t prefix = 0, known = 0;
  for (int pass = 0; pass < kPasses; ++pass) {
    std::array<std::int32_t, 2048> count{};
    const std::uint32_t digits = (1u << kBits[pass]) - 1u;
    for (std::int64_t i = 0; i < n; ++i) {
      const std::uint32_t key = key_of(i);
      count[key >> kShift[pass] & digits] += (key & known) == prefix;
    }
    // Walk down from the largest digit until the k-th largest is in the bin.
    std::uint32_t digit = digits;
    while (count[digit] < k) k -= count[digit--];
    prefix |= digit << kShift[pass];
    known |= digits << kShift[pass];
  }
  return {prefix, k};
}

std::int64_t pages_for(std::int64_t tokens) {
  return (tokens + kPageSize - 1) / kPageSize;
}

// Top-k prefilter. Scores are grouped into columns of 8: column c of block b holds scores 64 b + c,
// 64 b + c + 8, ... At least k scores reach the k-th largest column maximum. So no column with a
// smaller maximum holds one of the k largest.
constexpr std::int64_t kColumns = 8;
constexpr std::int64_t kBlockScores = 64;
constexpr std::int64_t kMaxColumns = 16 * 1024;
constexpr std::int64_t kMaxCandidates = 8 * 1024;

void column_maxima(const float* scores, std::int64_t n, std::uint32_t* maxima) {
  for (std::int64_t begin = 0; begin < n; begin += kBlockScores, maxima += kColumns) {
    std::uint32_t top[kColumns] = {};
    // Whole blocks are vectorised: eight columns at once.
    if (begin + kBlockScores <= n) {
      for (std::int64_t i = 0; i < kBlockScores; i += kColumns)
        for (std::int64_t c = 0; c < kColumns; ++c)
          top[c] = std::max(top[c], order_key(scores[begin + i + c]));
    } else {
      for (std::int64_t i = begin; i < n; ++i)
        top[i % kColumns] = std::max(top[i % kColumns], order_key(scores[i]));
    }
    std::copy_n(top, kColumns, maxima);
  }
}

// Positions of the scores that are at least `least`, in no particular order. Returns their number,
// or more than kMaxCandidates if there are too many.
std::int64_t find_candidates(const float* scores, std::int64_t n, const std::uint32_t* maxima,
                             std::int64_t columns, std::uint32_t least, std::int32_t* found) {
  std::int64_t count = 0;
  for (std::int64_t column = 0; column < columns; ++column) {
    if (maxima[column] < least) continue;
    const std::int64_t begin = column / kColumns * kBlockScores + column % kColumns;
    for (std::int64_t i = begin;
         i < std::min(n, begin / kBlockScores * kBlockScores + kBlockScores); i += kColumns) {
      if (order_key(scores[i]) < least) continue;
      if (count == kMaxCandidates) return count + 1;
      found[count++] = static_cast<std::int32_t>(i);
    }
  }
  return count;
}

// Writes those of `count` ascending positions whose scores are among the k largest.
template <class PositionOf>
void write_chosen(const float* scores, std::int64_t count, Threshold threshold,
                  const PositionOf& position_of, std::int32_t* out) {
  for (std::int64_t i = 0; i < count; ++i) {
    const std::int32_t position = position_of(i);
    const std::uint32_t key = order_key(scores[position]);
    if (key > threshold.key || (key == threshold.key && threshold.ties-- > 0)) *out++ = position;
  }
}

// Top-k of n scores, positions ascending:
// 1. prefilter by column maxima,
// 2. exact threshold among the candidates,
// 3. fallback: exact threshold over all scores, if the prefilter does not pay or has too many
//    candidates.
void select(const float* scores, std::int64_t n, std::int64_t topk, std::int32_t* out) {
  const std::int64_t columns = (n + kBlockScores - 1) / kBlockScores * kColumns;
  if (columns <= kMaxColumns && 2 * topk <= columns) {
    // 1.
    std::uint32_t maxima[kMaxColumns];
    column_maxima(scores, n, maxima);
    const std::uint32_t least =
        find_threshold<2>(columns, topk, [&](std::int64_t i) { return maxima[i]; }).key;
    std::int32_t found[kMaxCandidates];
    const std::int64_t count = find_candidates(scores, n, maxima, columns, least, found);
    if (count <= kMaxCandidates) {
      // 2.
      std::uint32_t keys[kMaxCandidates];
      for (std::int64_t i = 0; i < count; ++i) keys[i] = order_key(scores[found[i]]);
      const Threshold threshold =
          find_threshold(count, topk, [&](std::int64_t i) { return keys[i]; });
      std::sort(found, found + count);
      return write_chosen(scores, count, threshold, [&](std::int64_t i) { return found[i]; }, out);
    }
  }
  // 3.
  const Threshold threshold =
      find_threshold(n, topk, [&](std::int64_t i) { return order_key(scores[i]); });
  write_chosen(
      scores, n, threshold, [](std::int64_t i) { return static_cast<std::int32_t>(i); }, out);
}

// Appends the indices of the first n page table entries, sorted by page number (radix sort). A page
// is too short to be read at stream speed unless the next page in memory is read after it. 32,768
// keys on fast memory take 149 us in this order, and 209 us in table order.
void append_in_memory_order(const std::int32_t* table, std::int64_t n,
                            std::vector<std::int32_t>& order) {
  const std::size_t before = order.size();
  std::vector<std::int32_t> places(static_cast<std::size_t>(n)), sorted(places.size());
  std::iota(places.begin(), places.end(), 0);
  const std::int32_t most = *std::max_element(table, table + n);
  // Radix sort by page number, a byte at a time, as far as the largest number has bits.
  if (!std::is_sorted(table, table + n))
    for (int shift = 0; shift < 32 && most >> shift != 0; shift += 8) {
      std::array<std::uint32_t, 257> begin{};
      const auto digit = [&](std::int32_t place) {
        return static_cast<std::size_t>(table[place] >> shift & 255);
      };
      for (const std::int32_t place : places) ++begin[digit(place) + 1];
      std::partial_sum(begin.begin(), begin.end(), begin.begin());
      for (const std::int32_t place : places) sorted[begin[digit(place)]++] = place;
      places.swap(sorted);
    }
  order.insert(order.begin() + static_cast<std::ptrdiff_t>(before), places.begin(), places.end());
}

// Scores of keys in scaled pages (FP8): widened to bfloat16 a few pages at a time, scored, then
// multiplied by their scales.
void score_scaled(void (*score)(const IndexScoreArgs&), const IndexScoreArgs& all,
                  const KvPlane& plane) {
  constexpr std::int64_t kPages = 4, kKeys = kPages * kPageSize;
  constexpr std::int32_t kInOrder[kPages] = {0, 1, 2, 3};
  check(all.order == nullptr, "scaled pages are scored in the order of their keys");
  std::vector<BF16> keys(static_cast<std::size_t>(kKeys * all.d));
  IndexScoreArgs part = all;
  part.k = keys.data();
  part.k_stride = all.d;
  part.panels = false;
  part.keys = {.pages = kInOrder};
  part.begin = 0;
  for (std::int64_t begin = all.begin; begin < all.end; begin += kKeys) {
    part.end = std::min(kKeys, all.end - begin);
    part.scores = all.scores + begin;
    const std::int32_t* pages = all.keys.pages + begin / kPageSize;
    // Scaled pages to rows of bfloat16.
    for (std::int64_t i = 0; i < part.end; i += kPageSize)
      widen_keys(plane, pages[i / kPageSize], std::min<std::int64_t>(kPageSize, part.end - i),
                 keys.data() + i * all.d);
    score(part);
    // Scales multiply whole scores, since they are per key.
    for (std::int64_t t = 0; t < all.tokens; ++t)
      for (std::int64_t i = 0; i < part.end; ++i)
        part.scores[t * all.scores_stride + i] *=
            key_scales(plane, pages[i / kPageSize])[i % kPageSize];
  }
}

}  // namespace

void hadamard(Context& ctx, const Tensor& x) {
  const std::int64_t n = x.dim(-1);
  const float factor = 1.0f / std::sqrt(static_cast<float>(n));
  parallel(ctx, num_rows(x), 8 * n, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t r = begin; r < end; ++r) {
      float* v = row<float>(x, r);
      // Fast Walsh-Hadamard transform: butterflies of doubling distance.
      for (std::int64_t half = 1; half < n; half *= 2)
        for (std::int64_t i = 0; i < n; i += 2 * half)
          for (std::int64_t j = i; j < i + half; ++j) {
            const float a = v[j], b = v[j + half];
            v[j] = a + b;
            v[j + half] = a - b;
          }
      for (std::int64_t i = 0; i < n; ++i) v[i] *= factor;
    }
  });
}

void index_topk(Context& ctx, const Tensor& q, const Tensor& weights, const KvPlane& index_k_plane,
                const PagedRows& rows, const Tensor& workspace, const Tensor& out_indices) {
  const std::int64_t tokens = q.dim(0), topk = out_indices.dim(1);
  const auto* positions = rows.positions.ptr<std::int32_t>();
  const auto* seqs = rows.row_seq.ptr<std::int32_t>();
  const std::int64_t pages = index_k_plane.data.dim(0) / kPageSize;
  const bool scaled = index_k_plane.scaled();
  const auto score = kernels(ctx).index_scores[scaled ? 1 : dtype_column(index_k_plane.data.dtype)];
  const std::int64_t block = workspace.dim(0);

  for (std::int64_t t0 = 0; t0 < tokens; t0 += block) {
    const std::int64_t count = std::min(block, tokens - t0);
    // Rows with at most topk keys need no scores.
    for (std::int64_t t = t0; t < t0 + count; ++t) {
      const std::int64_t seq = seqs[t], length = std::int64_t{positions[t]} + 1;
      check(seq >= 0 && seq < rows.page_table.dim(0) && length >= 1,
            "row {}: sequence {} of {}, position {}", t, seq, rows.page_table.dim(0), length - 1);
      if (length <= topk) continue;
      check(length <= workspace.dim(1) && length <= rows.page_table.dim(1) * kPageSize,
            "row {} at position {}: the workspace holds {} scores, the page table {} pages", t,
            length - 1, workspace.dim(1), rows.page_table.dim(1));
      const auto* table = row<std::int32_t>(rows.page_table, seq);
      for (std::int64_t p = 0; p * kPageSize < length; ++p)
        check(table[p] >= 0 && table[p] < pages, "row {} needs page {}, which is {} of {}", t, p,
              table[p], pages);
    }
    // Runs of rows of one sequence share their keys. Threads get equal numbers of pages, counted
    // over all runs.
    const auto run_end = [&](std::int64_t t, std::int64_t& length) {
      const std::int64_t first = t;
      for (length = 0; t < t0 + count && seqs[t] == seqs[first]; ++t)
        length = std::max(length, std::int64_t{positions[t]} + 1);
      if (length <= topk) length = 0;
      return t;
    };
    std::int64_t total_pages = 0, longest = 0;
    std::vector<std::int32_t> order;  // pages of all runs
    // Total work, and the memory order of panels.
    for (std::int64_t t = t0, length; t < t0 + count;) {
      const std::int64_t first = t;
      t = run_end(t, length);
      total_pages += pages_for(length);
      longest = std::max(longest, length);
      if (index_k_plane.panels() && length > 0)
        append_in_memory_order(row<std::int32_t>(rows.page_table, seqs[first]), pages_for(length),
                               order);
    }
    parallel(
        ctx, total_pages, kPageSize * q.dim(1) * q.dim(2) * count,
        [&](std::int64_t begin, std::int64_t end) {
          for (std::int64_t t = t0, first_page = 0, length; t < t0 + count && first_page < end;) {
            const std::int64_t first = t;
            t = run_end(t, length);
            const std::int64_t run_pages = pages_for(length);
            const std::int64_t from = std::max(begin, first_page),
                               to = std::min(end, first_page + run_pages);
            // This thread's pages [from, to) intersect this run.
            if (from < to) {
              const auto* table = row<std::int32_t>(rows.page_table, seqs[first]);
              const IndexScoreArgs args{
                  .tokens = t - first,
                  .q = at<float>(q, first),
                  .q_stride = q.stride[0],
                  .q_head_stride = q.stride[1],
                  .weights = at<float>(weights, first),
                  .weights_stride = weights.stride[0],
                  .heads = q.dim(1),
                  .d = q.dim(2),
                  .k = index_k_plane.data.data,
                  .k_stride = index_k_plane.panels() ? index_k_plane.page_elements()
                                                     : index_k_plane.data.stride[0],
                  .panels = index_k_plane.panels(),
                  .keys = {.pages = table},
                  .begin = (from - first_page) * kPageSize,
                  .end = order.empty() ? std::min(length, (to - first_page) * kPageSize) : length,
                  .order = order.empty() ? nullptr : order.data() + from,
                  .num_ordered = to - from,
                  .scores = at<float>(workspace, first - t0),
                  .scores_stride = workspace.stride[0]};
              scaled ? score_scaled(score, args, index_k_plane) : score(args);
            }
            first_page += run_pages;
          }
        });
    // Select the top-k of each row.
    parallel(ctx, count, std::max<std::int64_t>(topk, longest * 4),
             [&](std::int64_t begin, std::int64_t end) {
               for (std::int64_t t = t0 + begin; t < t0 + end; ++t) {
                 auto* out = row<std::int32_t>(out_indices, t);
                 const std::int64_t length = std::int64_t{positions[t]} + 1;
                 if (length > topk) {
                   select(at<float>(workspace, t - t0), length, topk, out);
                   continue;
                 }
                 for (std::int64_t i = 0; i < topk; ++i)
                   out[i] = i < length ? static_cast<std::int32_t>(i) : -1;
               }
             });
  }
}

}  // namespace sluice::cpu
