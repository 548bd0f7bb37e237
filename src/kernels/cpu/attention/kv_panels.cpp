#include "kernels/cpu/attention/kv_panels.h"

#include <algorithm>
#include <cstring>

#include "kernels/cpu/common/rows.h"

namespace sluice::cpu {
namespace {

using ops::kValueColumns;
using ops::KvPlane;
using ops::PlaneForm;

// Address of elements 2 i and 2 i + 1 of one head of a slot: pair(i)[0] and pair(i)[one_step].
struct TokenPlace {
  BF16* panel;
  std::int64_t token, dim;
  bool keys;
  std::int64_t one_step;

  BF16* pair(std::int64_t i) const {
    // Key panels: line i holds columns 2 i and 2 i + 1 of all tokens. Value panels: see kv_plane.h.
    if (keys) return panel + i * 2 * kPageSize + 2 * token;
    const std::int64_t column = 2 * i, first = column / kValueColumns * kValueColumns;
    return panel + first * kPageSize + token / 2 * 2 * std::min(kValueColumns, dim - first) +
           2 * (column - first) + token % 2;
  }
};

TokenPlace place_of(const KvPlane& plane, std::int64_t slot, std::int64_t head) {
  const std::int64_t dim = plane.head_dim();
  const bool keys = plane.form == PlaneForm::kKeyPanels;
  return {
      plane.data.ptr<BF16>() + slot / kPageSize * plane.page_elements() + head * kPageSize * dim,
      slot % kPageSize, dim, keys, keys ? 1 : 2};
}

}  // namespace

// Each pair of a key lies in a cache line of its own.
void fetch_panel_head(const KvPlane& plane, std::int64_t slot, std::int64_t head) {
  const TokenPlace place = place_of(plane, slot, head);
  const std::int64_t step = place.keys ? 1 : 8;  // eight pairs of a value share a cache line
  for (std::int64_t i = 0; i < place.dim / 2; i += step) __builtin_prefetch(place.pair(i), 1);
}

void write_panel_head(const KvPlane& plane, std::int64_t slot, std::int64_t head,
                      const float* from) {
  const TokenPlace place = place_of(plane, slot, head);
  std::uint16_t row[std::max(ops::kMaxKeyDim, ops::kMaxValueDim)];
  std::transform(from, from + place.dim, row, [](float x) { return BF16(x).bits; });
  if (place.keys) {
    for (std::int64_t i = 0; i < place.dim / 2; ++i)
      std::memcpy(static_cast<void*>(place.pair(i)), row + 2 * i, 4);
    return;
  }
  // Value panels interleave two tokens, so this token's elements lie at every second place.
  for (std::int64_t first = 0; first < place.dim; first += kValueColumns) {
    BF16* to = place.pair(first / 2);
    for (std::int64_t c = 0; c < std::min(kValueColumns, place.dim - first); ++c)
      to[2 * c].bits = row[first + c];
  }
}

void kv_write_panels(Context& ctx, const Tensor& src, const std::int64_t* slots,
                     const KvPlane& plane) {
  const std::int64_t dim = plane.head_dim();
  // Head by head, all tokens of a head: neighbouring tokens write the same lines.
  parallel(ctx, num_rows(src), 2 * src.dim(1), [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t head = 0; head < plane.heads; ++head)
      for (std::int64_t t = begin; t < end; ++t)
        write_panel_head(plane, slots[t], head, row<float>(src, t) + head * dim);
  });
}

void kv_move_panels(Context& ctx, const KvPlane& plane, const std::int64_t* from,
                    const std::int64_t* to, std::int64_t count) {
  const std::int64_t dim = plane.head_dim();
  parallel(ctx, count, 2 * plane.data.dim(1), [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t head = 0; head < plane.heads; ++head)
      for (std::int64_t n = begin; n < end; ++n) {
        if (from[n] == to[n]) continue;
        const TokenPlace a = place_of(plane, from[n], head), b = place_of(plane, to[n], head);
        for (std::int64_t i = 0; i < dim / 2; ++i) {
          b.pair(i)[0] = a.pair(i)[0];
          b.pair(i)[b.one_step] = a.pair(i)[a.one_step];
        }
      }
  });
}

}  // namespace sluice::cpu
