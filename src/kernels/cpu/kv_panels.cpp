#include "kernels/cpu/kv_panels.h"

#include "kernels/cpu/rows.h"

namespace sluice::cpu {
namespace {

using ops::kPageTokens;
using ops::KvPlane;
using ops::PlaneForm;

// Element i of head `head` of a slot is at[i / 2 * pair_step + i % 2 * one_step].
struct TokenPlace {
  BF16* at;
  std::int64_t pair_step, one_step;
};

TokenPlace place_of(const KvPlane& plane, std::int64_t slot, std::int64_t head) {
  const std::int64_t dim = plane.head_dim(), token = slot % kPageTokens;
  BF16* panel = plane.data.ptr<BF16>() + slot / kPageTokens * plane.page_elements() + head * kPageTokens * dim;
  if (plane.form == PlaneForm::kKeyPanels) return {panel + 2 * token, 2 * kPageTokens, 1};
  return {panel + token / 2 * 2 * dim + token % 2, 4, 2};
}

void write_head(const TokenPlace& place, std::int64_t dim, const float* from) {
  for (std::int64_t i = 0; i < dim / 2; ++i) {
    place.at[i * place.pair_step] = BF16(from[2 * i]);
    place.at[i * place.pair_step + place.one_step] = BF16(from[2 * i + 1]);
  }
}

}  // namespace

void write_panel_head(const KvPlane& plane, std::int64_t slot, std::int64_t head, const float* from) {
  const TokenPlace place = place_of(plane, slot, head);
  // Every pair lies in a line of its own, and writes would wait for one line after the other.
  for (std::int64_t i = 0; i < plane.head_dim() / 2; ++i) __builtin_prefetch(place.at + i * place.pair_step, 1);
  write_head(place, plane.head_dim(), from);
}

void kv_write_panels(Context& ctx, const Tensor& src, const std::int64_t* slots, const KvPlane& plane) {
  const std::int64_t dim = plane.head_dim();
  // Token after token of one head: neighbours share the lines that they write.
  parallel(ctx, num_rows(src), 2 * src.dim(1), [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t head = 0; head < plane.heads; ++head)
      for (std::int64_t t = begin; t < end; ++t)
        write_head(place_of(plane, slots[t], head), dim, row<float>(src, t) + head * dim);
  });
}

void kv_move_panels(Context& ctx, const KvPlane& plane, const std::int64_t* from, const std::int64_t* to,
                    std::int64_t count) {
  const std::int64_t dim = plane.head_dim();
  parallel(ctx, count, 2 * plane.data.dim(1), [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t head = 0; head < plane.heads; ++head)
      for (std::int64_t n = begin; n < end; ++n) {
        if (from[n] == to[n]) continue;
        const TokenPlace a = place_of(plane, from[n], head), b = place_of(plane, to[n], head);
        for (std::int64_t i = 0; i < dim / 2; ++i) {
          b.at[i * b.pair_step] = a.at[i * a.pair_step];
          b.at[i * b.pair_step + b.one_step] = a.at[i * a.pair_step + a.one_step];
        }
      }
  });
}

}  // namespace sluice::cpu
