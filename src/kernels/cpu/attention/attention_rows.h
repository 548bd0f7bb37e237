// Rows of an attention batch on the CPU: the keys that a row sees, and how a tile (kernel_table.h)
// is filled from rows.
#pragma once

#include <algorithm>

#include "kernels/cpu/common/rows.h"
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/isa/kernel_table.h"

namespace sluice::cpu {

struct RowRange {
  std::int64_t seq, begin, end;
};

// The sequence of token t, and its visible keys [begin, end).
inline RowRange visible(const PagedRows& rows, const AttentionParams& params, std::int64_t t) {
  const std::int64_t position = rows.positions.ptr<std::int32_t>()[t];
  return {.seq = rows.row_seq.ptr<std::int32_t>()[t],
          .begin = params.first_key(position),
          .end = position + 1};
}

inline const std::int32_t* pages_of(const PagedRows& rows, std::int64_t seq) {
  return rows.page_table.ptr<std::int32_t>() + seq * rows.page_table.stride[0];
}

// Checks that the pages of all visible keys exist in a plane of `num_slots` slots. A bad page
// number would read foreign memory.
void check_pages(const PagedRows& rows, const AttentionParams& params, std::int64_t num_slots);

// Appends heads [head, head + count) of token t to the tile.
inline void add_rows(AttendTile& tile, const Tensor& out, std::int64_t t, std::int64_t head,
                     std::int64_t count, std::int64_t begin, std::int64_t end) {
  for (std::int64_t h = 0; h < count; ++h, ++tile.rows) {
    tile.out[tile.rows] = at<float>(out, t, head + h);
    tile.lse[tile.rows] = nullptr;
    tile.begin[tile.rows] = begin;
    tile.end[tile.rows] = end;
  }
}

// Sets the score mods of the `count` rows that add_rows() appended last, which are heads [head,
// head + count): sinks, slopes, and the tile's soft cap.
inline void add_edits(AttendTile& tile, const AttentionParams& params, std::int64_t head,
                      std::int64_t count) {
  tile.softcap = params.softcap;
  tile.has_sinks = params.sinks.defined();
  tile.has_slopes = params.slopes.defined();
  if (tile.has_sinks)
    std::copy_n(params.sinks.ptr<float>() + head, count, tile.sink + tile.rows - count);
  if (tile.has_slopes)
    std::copy_n(params.slopes.ptr<float>() + head, count, tile.slope + tile.rows - count);
}

// Keys and values of one KV head in a tile. Rows are addressed by slot, panels by page.
struct HeadPlanes {
  const KvPlane& k;
  const KvPlane& v;
  std::int64_t d, dv;

  static const std::byte* of(const KvPlane& plane, std::int64_t kv, std::int64_t dim) {
    const std::int64_t step =
        plane.panels() ? kPageSize * dim : ops::kv_row_elements(plane.data.dtype, 1, dim);
    return static_cast<const std::byte*>(plane.data.data) +
           kv * step * dtype_size(plane.data.dtype);
  }
  // Also the tile's scales: `scale` is that of the scores.
  void fill(AttendTile& tile, std::int64_t kv, float scale) const {
    const auto scale_of = [&](const KvPlane& plane) {
      return plane.scales.defined() ? plane.scales.ptr<float>()[kv] : 1.0f;
    };
    tile.scale = scale * scale_of(k);
    tile.value_scale = scale_of(v);
    tile.d = d;
    tile.dv = dv;
    tile.k = of(k, kv, d);
    tile.v = of(v, kv, dv);
    tile.panels = k.panels();
    tile.k_stride = k.panels() ? k.page_elements() : k.data.stride[0];
    tile.v_stride = v.panels() ? v.page_elements() : v.data.stride[0];
  }
};

}  // namespace sluice::cpu
