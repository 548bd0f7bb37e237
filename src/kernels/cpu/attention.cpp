#include <cmath>
#include <limits>

#include "base/error.h"
#include "kernels/cpu/decode_rows.h"
#include "kernels/cpu/kv_panels.h"
#include "kernels/cpu/rotate.h"
#include "kernels/cpu/rows.h"

namespace sluice::cpu {
namespace {

using ops::kMaxKeyDim;

// How query rows are packed into tiles: blocks of heads that share keys, times a few tokens.
struct Tiling {
  std::int64_t heads = 1;   // of a block
  std::int64_t blocks = 1;  // head blocks of a group
  std::int64_t tokens = 1;  // of a tile
  std::int64_t token_blocks = 1;

  // For `groups` groups of heads. Wide tiles use keys that were brought in more often, small ones give every thread
  // something to do, and fetch what lies apart with more lines in flight; results do not depend on it.
  Tiling(const Context& ctx, DType keys, std::int64_t num_tokens, std::int64_t groups, std::int64_t group,
         bool one_token) {
    const std::int64_t most = keys == DType::kBF16 ? kTileQueries : 16;
    const std::int64_t threads = ctx.pool == nullptr ? 1 : ctx.pool->size();
    const std::int64_t share = (num_tokens * groups * group + threads - 1) / threads;  // rows of a thread
    const std::int64_t rows = std::clamp<std::int64_t>(share, one_token ? 4 : 8, most);
    heads = std::min(group, rows);
    blocks = (group + heads - 1) / heads;
    tokens = one_token ? 1 : std::max<std::int64_t>(1, rows / heads);
    token_blocks = (num_tokens + tokens - 1) / tokens;
  }
};

struct RowRange {
  std::int64_t seq, begin, end;
};

// Visible keys of token t.
RowRange visible(const PagedRows& rows, const AttentionParams& params, std::int64_t t) {
  const std::int64_t position = rows.positions.ptr<std::int32_t>()[t];
  return {.seq = rows.row_seq.ptr<std::int32_t>()[t],
          .begin = params.first_key(position),
          .end = position + 1};
}

const std::int32_t* pages_of(const PagedRows& rows, std::int64_t seq) {
  return rows.page_table.ptr<std::int32_t>() + seq * rows.page_table.stride[0];
}

// The pages of every visible key exist in the plane: a stray slot would read foreign memory.
void check_pages(const PagedRows& rows, const AttentionParams& params, std::int64_t num_slots) {
  const std::int64_t pages = num_slots / ops::kPageTokens;
  std::int64_t seen_seq = -1, seen_begin = 0, seen_end = 0;
  for (std::int64_t t = 0; t < rows.positions.dim(0); ++t) {
    const RowRange r = visible(rows, params, t);
    check(r.seq >= 0 && r.seq < rows.page_table.dim(0), "row {} belongs to sequence {} of {}", t, r.seq,
          rows.page_table.dim(0));
    check(r.end >= 1 && r.end <= rows.page_table.dim(1) * ops::kPageTokens,
          "row {} is at position {}, the page table holds {} pages", t, r.end - 1, rows.page_table.dim(1));
    std::int64_t first = r.begin / ops::kPageTokens;
    const std::int64_t last = (r.end - 1) / ops::kPageTokens;
    // Rows of a sequence come together: look only at pages that the row before did not see.
    if (r.seq == seen_seq && first >= seen_begin && first <= seen_end) first = seen_end;
    for (std::int64_t p = first; p <= last; ++p) {
      const std::int32_t page = pages_of(rows, r.seq)[p];
      check(page >= 0 && page < pages, "row {} needs page {} of sequence {}, which is {} of {}", t, p, r.seq, page,
            pages);
    }
    seen_begin = r.seq == seen_seq ? std::min(seen_begin, first) : first;
    seen_end = r.seq == seen_seq ? std::max(seen_end, last) : last;
    seen_seq = r.seq;
  }
}

// Adds the heads [head, head + count) of token t to the tile.
void add_rows(AttendTile& tile, const Tensor& out, std::int64_t t, std::int64_t head, std::int64_t count,
              std::int64_t begin, std::int64_t end) {
  for (std::int64_t h = 0; h < count; ++h, ++tile.rows) {
    tile.out[tile.rows] = at<float>(out, t, head + h);
    tile.lse[tile.rows] = nullptr;
    tile.begin[tile.rows] = begin;
    tile.end[tile.rows] = end;
  }
}

// The sinks and slopes of heads [head, head + count) for the rows that add_rows added last, and the soft cap.
void add_rules(AttendTile& tile, const AttentionParams& params, std::int64_t head, std::int64_t count) {
  tile.softcap = params.softcap;
  tile.has_sinks = params.sinks.defined();
  tile.has_slopes = params.slopes.defined();
  if (tile.has_sinks) std::copy_n(params.sinks.ptr<float>() + head, count, tile.sink + tile.rows - count);
  if (tile.has_slopes) std::copy_n(params.slopes.ptr<float>() + head, count, tile.slope + tile.rows - count);
}

// Elements of work in a tile, roughly.
std::int64_t tile_work(const Tiling& tiling, std::int64_t width) {
  return tiling.heads * tiling.tokens * width * ops::kKeyChunk;
}

// [q_latent | q_rope] of the rows of a tile, in one piece.
struct JoinedQueries {
  alignas(64) float values[kTileQueries * kMaxKeyDim];

  void fill(AttendTile& tile, const Tensor& latent, const Tensor& rope, std::int64_t t, std::int64_t head,
            std::int64_t count) {
    for (std::int64_t h = 0; h < count; ++h) {
      float* to = values + (tile.rows + h) * tile.d;
      std::copy_n(at<float>(latent, t, head + h), latent.dim(2), to);
      std::copy_n(at<float>(rope, t, head + h), rope.dim(2), to + latent.dim(2));
      tile.q[tile.rows + h] = to;
    }
  }
};

}  // namespace

namespace {

// Whether no two neighbours are rows of one sequence, as when every sequence decodes one token.
bool single_rows(const PagedRows& rows) {
  const auto* seq = rows.row_seq.ptr<std::int32_t>();
  for (std::int64_t t = 1; t < rows.row_seq.dim(0); ++t)
    if (seq[t] == seq[t - 1]) return false;
  return true;
}

// The keys and values of one head in a tile: rows are read from any slot, panels page by page.
struct HeadPlanes {
  const KvPlane& k;
  const KvPlane& v;
  std::int64_t d, dv;

  static const std::byte* of(const KvPlane& plane, std::int64_t kv, std::int64_t dim) {
    const std::int64_t step = plane.panels() ? ops::kPageTokens * dim : ops::kv_row_elements(plane.data.dtype, 1, dim);
    return static_cast<const std::byte*>(plane.data.data) + kv * step * dtype_size(plane.data.dtype);
  }
  void fill(AttendTile& tile, std::int64_t kv) const {
    tile.d = d;
    tile.dv = dv;
    tile.k = of(k, kv, d);
    tile.v = of(v, kv, dv);
    tile.panels = k.panels();
    tile.k_stride = k.panels() ? k.page_elements() : k.data.stride[0];
    tile.v_stride = v.panels() ? v.page_elements() : v.data.stride[0];
  }
};

// Keys and values of the rows themselves that are yet to be rotated and written, and where results go besides.
struct NewRows {
  const Tensor& k;
  const Tensor& v;
  const std::int64_t* slots;
  const HeadRotation& rotation;
  const Tensor& rounded;

  void rotate(const Context& ctx, float* x, std::int64_t d, const Tensor& weight, std::int64_t t) const {
    norm_and_rotate_head(ctx, x, d, weight, rotation.eps, row<float>(rotation.cos_sin, t), rotation.cos_sin.dim(1) / 2,
                         rotation.interleaved);
  }
  // `heads` key heads from kv on and the `group` query heads of each: as attention reads them.
  void begin(const Context& ctx, const Tensor& q, const HeadPlanes& planes, std::int64_t t, std::int64_t kv, std::int64_t heads,
             std::int64_t group) const {
    for (std::int64_t h = kv; h < kv + heads; ++h) {
      float* key = row<float>(k, t) + h * planes.d;
      if (rotation.defined()) {
        rotate(ctx, key, planes.d, rotation.k_weight, t);
        for (std::int64_t i = h * group; i < (h + 1) * group; ++i)
          rotate(ctx, at<float>(q, t, i), planes.d, rotation.q_weight, t);
      }
      write_panel_head(planes.k, slots[t], h, key);
      write_panel_head(planes.v, slots[t], h, row<float>(v, t) + h * planes.dv);
    }
  }
  void end(const Tensor& out, std::int64_t t, std::int64_t first, std::int64_t count) const {
    if (rounded.data == out.data) return;
    for (std::int64_t h = first; h < first + count; ++h) {
      const float* from = at<float>(out, t, h);
      if (rounded.dtype == DType::kBF16)
        std::transform(from, from + out.dim(2), at<BF16>(rounded, t, h), [](float x) { return BF16(x); });
      else
        std::copy_n(from, out.dim(2), at<float>(rounded, t, h));
    }
  }
};

// How many of the kv heads of a row one thread takes together: what they have of a page lies together. As many as leave
// every thread as much to do.
std::int64_t heads_together(const Context& ctx, std::int64_t rows, std::int64_t kv_heads, std::int64_t group) {
  const std::int64_t threads = ctx.pool == nullptr ? 1 : ctx.pool->size();
  const auto even = [&](std::int64_t items) { return items % threads == 0 || items >= 4 * threads; };
  std::int64_t heads = kv_heads;
  while (heads > 1 && (heads * group > kTileQueries || kv_heads % heads != 0 || !even(rows * (kv_heads / heads)))) --heads;
  return heads;
}

// Rows that share no keys, over panels: some heads of one row after the other, as they follow one another in memory.
void decode_attention(Context& ctx, const Tensor& q, const NewRows* fresh, const HeadPlanes& planes, std::int64_t kv_heads,
                      const PagedRows& rows, const AttentionParams& params, const Tensor& out) {
  const std::int64_t group = q.dim(1) / kv_heads, heads = heads_together(ctx, q.dim(0), kv_heads, group);
  const std::int64_t blocks = kv_heads / heads, items = q.dim(0) * blocks;
  const auto attend = kernels(ctx).attend[dtype_column(planes.k.data.dtype)];
  parallel(ctx, items, heads * group * (planes.d + planes.dv) * ops::kKeyChunk, [&](std::int64_t item, std::int64_t last) {
    for (; item < last; ++item) {
      const std::int64_t t = item / blocks, kv = item % blocks * heads;
      if (fresh != nullptr) fresh->begin(ctx, q, planes, t, kv, heads, group);
      const RowRange r = visible(rows, params, t);
      AttendTile tile;
      planes.fill(tile, kv);
      tile.kv_heads = static_cast<int>(heads);
      tile.scale = params.scale;
      tile.keys = {.pages = pages_of(rows, r.seq)};
      for (std::int64_t h = 0; h < heads * group; ++h) tile.q[h] = at<float>(q, t, kv * group + h);
      add_rows(tile, out, t, kv * group, heads * group, r.begin, r.end);
      add_rules(tile, params, kv * group, heads * group);
      if (item + 1 < items) {
        const RowRange next = visible(rows, params, (item + 1) / blocks);
        const std::int64_t page = pages_of(rows, next.seq)[next.begin / ops::kPageTokens];
        tile.next_keys = next.end - next.begin / ops::kPageTokens * ops::kPageTokens;
        tile.next = HeadPlanes::of(planes.k, (item + 1) % blocks * heads, planes.d) + page * tile.k_stride * dtype_size(DType::kBF16);
      }
      attend(tile);
      if (fresh != nullptr) fresh->end(out, t, kv * group, heads * group);
    }
  });
}

}  // namespace

bool decodes_rows(const Tensor& q, const KvPlane& k_plane, std::int64_t kv_heads, const PagedRows& rows) {
  return k_plane.panels() && q.dim(1) / kv_heads <= kTileQueries && single_rows(rows);
}

void decode_rows(Context& ctx, const Tensor& q, const Tensor& k, const Tensor& v, const HeadRotation& rotation,
                 const Tensor& slots, const KvPlane& k_plane, const KvPlane& v_plane, std::int64_t kv_heads,
                 const PagedRows& rows, const AttentionParams& params, const Tensor& mixed, const Tensor& out) {
  const auto* slot = slots.ptr<std::int64_t>();
  for (std::int64_t t = 0; t < slots.dim(0); ++t)
    check(slot[t] >= 0 && slot[t] < k_plane.data.dim(0), "slot {} is {}, outside [0, {})", t, slot[t], k_plane.data.dim(0));
  check_pages(rows, params, k_plane.data.dim(0));
  const NewRows fresh = {k, v, slot, rotation, out};
  decode_attention(ctx, q, &fresh, {k_plane, v_plane, q.dim(2), mixed.dim(2)}, kv_heads, rows, params, mixed);
}

void paged_attention(Context& ctx, const Tensor& q, const KvPlane& k_plane, const KvPlane& v_plane,
                     std::int64_t kv_heads, const PagedRows& rows, const AttentionParams& params, const Tensor& out) {
  const std::int64_t tokens = q.dim(0), group = q.dim(1) / kv_heads, d = q.dim(2), dv = out.dim(2);
  const HeadPlanes planes = {k_plane, v_plane, d, dv};
  check_pages(rows, params, k_plane.data.dim(0));
  if (decodes_rows(q, k_plane, kv_heads, rows))
    return decode_attention(ctx, q, nullptr, planes, kv_heads, rows, params, out);
  const DType dtype = k_plane.data.dtype;
  const Tiling tiling(ctx, dtype, tokens, kv_heads, group, false);
  const auto attend = kernels(ctx).attend[dtype_column(dtype)];
  parallel(ctx, kv_heads * tiling.blocks * tiling.token_blocks, tile_work(tiling, d + dv),
           [&](std::int64_t item, std::int64_t last_item) {
    for (; item < last_item; ++item) {
      const std::int64_t kv = item / tiling.token_blocks / tiling.blocks;
      const std::int64_t block = item / tiling.token_blocks % tiling.blocks * tiling.heads;
      const std::int64_t head = kv * group + block, count = std::min(tiling.heads, group - block);
      AttendTile tile;
      planes.fill(tile, kv);
      tile.scale = params.scale;
      const std::int64_t first = item % tiling.token_blocks * tiling.tokens;
      const std::int64_t last = std::min(tokens, first + tiling.tokens);
      for (std::int64_t t = first; t < last;) {
        // A run of neighbours in one sequence, so that their keys overlap without a gap.
        RowRange r = visible(rows, params, t);
        tile.rows = 0;
        tile.keys = {.pages = pages_of(rows, r.seq)};
        for (RowRange next = r; t < last && next.seq == r.seq && (tile.rows == 0 || next.end == r.end + 1);) {
          r = next;
          for (std::int64_t h = 0; h < count; ++h) tile.q[tile.rows + h] = at<float>(q, t, head + h);
          add_rows(tile, out, t, head, count, r.begin, r.end);
          add_rules(tile, params, head, count);
          if (++t < last) next = visible(rows, params, t);
        }
        attend(tile);
      }
    }
  });
}

void write_and_attend(Context& ctx, const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& slots,
                      const KvPlane& k_plane, const KvPlane& v_plane, std::int64_t kv_heads, const PagedRows& rows,
                      const AttentionParams& params, const Tensor& out) {
  if (decodes_rows(q, k_plane, kv_heads, rows))
    return decode_rows(ctx, q, k, v, {}, slots, k_plane, v_plane, kv_heads, rows, params, out, out);
  kv_write(ctx, k, slots, k_plane);
  kv_write(ctx, v, slots, v_plane);
  paged_attention(ctx, q, k_plane, v_plane, kv_heads, rows, params, out);
}

namespace {

// Whether threads work together on each token, because there are too few for all of them.
bool tokens_are_shared(const Context& ctx, const Tensor& q_latent, const Tensor& latent_plane) {
  return ctx.pool != nullptr && q_latent.dim(0) < ctx.pool->size() && latent_plane.dtype == DType::kBF16;
}

// Token t over keys [0, length), with the whole pool.
void attend_together(Context& ctx, const Tensor& q_latent, const Tensor& q_rope, const Tensor& latent_plane, std::int64_t t,
                     const KeySource& keys, std::int64_t length, float scale, const Tensor& out) {
  const std::int64_t heads = q_latent.dim(1);
  SharedTile tile;
  tile.latent = q_latent.dim(2);
  tile.rope = q_rope.dim(2);
  tile.scale = scale;
  tile.length = length;
  const auto attend = kernels(ctx).attend_shared;
  const int parts = ctx.pool->size();
  const auto* plane = latent_plane.ptr<BF16>();
  const std::int64_t stride = latent_plane.stride[0];
  for (std::int64_t head = 0; head < heads; head += tile.heads) {
    tile.heads = static_cast<int>(std::min<std::int64_t>(kTileQueries, heads - head));
    for (int h = 0; h < tile.heads; ++h) {
      tile.q_latent[h] = at<float>(q_latent, t, head + h);
      tile.q_rope[h] = at<float>(q_rope, t, head + h);
      tile.out[h] = at<float>(out, t, head + h);
      if (length == 0) std::fill_n(tile.out[h], tile.latent, 0.0f);
    }
    if (length == 0) continue;
    const auto all = [&](SharedPhase phase) {
      ctx.pool->run(parts, [&](int part) { attend(tile, phase, part, parts); });
    };
    for (tile.chunk = 0; tile.chunk < length; tile.chunk += ops::kKeyChunk) {
      tile.num_keys = std::min(ops::kKeyChunk, length - tile.chunk);
      for (std::int64_t i = 0; i < tile.num_keys; ++i) tile.keys[i] = plane + keys.slot(tile.chunk + i) * stride;
      if (tile.chunk == 0) all(SharedPhase::kRound);
      for (const SharedPhase phase : {SharedPhase::kScore, SharedPhase::kSoften, SharedPhase::kWeigh}) all(phase);
    }
  }
}

}  // namespace

void mla_attention(Context& ctx, const Tensor& q_latent, const Tensor& q_rope, const Tensor& latent_plane,
                   const PagedRows& rows, float scale, const Tensor& out) {
  const std::int64_t tokens = q_latent.dim(0), heads = q_latent.dim(1), latent = q_latent.dim(2);
  const AttentionParams everything;
  check_pages(rows, everything, latent_plane.dim(0));
  if (tokens_are_shared(ctx, q_latent, latent_plane)) {
    for (std::int64_t t = 0; t < tokens; ++t) {
      const RowRange r = visible(rows, everything, t);
      attend_together(ctx, q_latent, q_rope, latent_plane, t, {.pages = pages_of(rows, r.seq)}, r.end, scale, out);
    }
    return;
  }
  const Tiling tiling(ctx, latent_plane.dtype, tokens, 1, heads, false);
  const auto attend = kernels(ctx).attend[dtype_column(latent_plane.dtype)];
  parallel(ctx, tiling.blocks * tiling.token_blocks, tile_work(tiling, 2 * latent),
           [&](std::int64_t item, std::int64_t last_item) {
    JoinedQueries queries;
    for (; item < last_item; ++item) {
      const std::int64_t head = item / tiling.token_blocks * tiling.heads;
      const std::int64_t count = std::min(tiling.heads, heads - head);
      AttendTile tile;
      tile.d = latent_plane.dim(1);
      tile.dv = latent;
      tile.k = tile.v = latent_plane.data;
      tile.k_stride = tile.v_stride = latent_plane.stride[0];
      tile.scale = scale;
      const std::int64_t first = item % tiling.token_blocks * tiling.tokens;
      const std::int64_t last = std::min(tokens, first + tiling.tokens);
      for (std::int64_t t = first; t < last;) {
        RowRange r = visible(rows, everything, t);
        tile.rows = 0;
        tile.keys = {.pages = pages_of(rows, r.seq)};
        for (RowRange next = r; t < last && next.seq == r.seq && (tile.rows == 0 || next.end == r.end + 1);) {
          r = next;
          queries.fill(tile, q_latent, q_rope, t, head, count);
          add_rows(tile, out, t, head, count, r.begin, r.end);
          if (++t < last) next = visible(rows, everything, t);
        }
        attend(tile);
      }
    }
  });
}

void mla_sparse_attention(Context& ctx, const Tensor& q_latent, const Tensor& q_rope, const Tensor& latent_plane,
                          const PagedRows& rows, const Tensor& indices, float scale, const Tensor& out) {
  const std::int64_t tokens = q_latent.dim(0), heads = q_latent.dim(1), latent = q_latent.dim(2);
  const std::int64_t pages = latent_plane.dim(0) / ops::kPageTokens;
  // The keys of token t, and how many they are.
  const auto chosen = [&](std::int64_t t, std::int64_t& length) {
    const std::int64_t seq = rows.row_seq.ptr<std::int32_t>()[t];
    check(seq >= 0 && seq < rows.page_table.dim(0), "row {} belongs to sequence {} of {}", t, seq, rows.page_table.dim(0));
    const std::int32_t* list = row<std::int32_t>(indices, t);
    const std::int32_t* table = pages_of(rows, seq);
    for (length = 0; length < indices.dim(1) && list[length] >= 0; ++length) {
      const std::int64_t column = list[length] / ops::kPageTokens;
      check(column < rows.page_table.dim(1) && table[column] >= 0 && table[column] < pages,
            "row {} chose position {}, which has no page", t, list[length]);
    }
    return KeySource{.pages = table, .list = list};
  };
  if (tokens_are_shared(ctx, q_latent, latent_plane)) {
    for (std::int64_t t = 0; t < tokens; ++t) {
      std::int64_t length = 0;
      const KeySource keys = chosen(t, length);
      attend_together(ctx, q_latent, q_rope, latent_plane, t, keys, length, scale, out);
    }
    return;
  }
  const Tiling tiling(ctx, latent_plane.dtype, tokens, tokens, heads, true);
  const auto attend = kernels(ctx).attend[dtype_column(latent_plane.dtype)];
  parallel(ctx, tiling.blocks * tokens, tile_work(tiling, 2 * latent),
           [&](std::int64_t item, std::int64_t last_item) {
    JoinedQueries queries;
    for (; item < last_item; ++item) {
      const std::int64_t head = item / tokens * tiling.heads, t = item % tokens;
      const std::int64_t count = std::min(tiling.heads, heads - head);
      std::int64_t keys_of_row = 0;
      AttendTile tile;
      tile.d = latent_plane.dim(1);
      tile.dv = latent;
      tile.k = tile.v = latent_plane.data;
      tile.k_stride = tile.v_stride = latent_plane.stride[0];
      tile.scale = scale;
      tile.keys = chosen(t, keys_of_row);
      queries.fill(tile, q_latent, q_rope, t, head, count);
      add_rows(tile, out, t, head, count, 0, keys_of_row);
      attend(tile);
    }
  });
}

void mha_attention(Context& ctx, const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& ks, const Tensor& ke,
                   float scale, const Tensor& out, const Tensor& lse) {
  const std::int64_t tokens = q.dim(0), heads = q.dim(1);
  const auto* begin = ks.ptr<std::int32_t>();
  const auto* end = ke.ptr<std::int32_t>();
  for (std::int64_t t = 0; t < tokens; ++t)
    check(begin[t] >= 0 && end[t] <= k.dim(0), "row {} sees keys [{}, {}) of {}", t, begin[t], end[t], k.dim(0));
  const Tiling tiling(ctx, k.dtype, tokens, heads, 1, false);
  parallel(ctx, heads * tiling.token_blocks, tile_work(tiling, q.dim(2) + v.dim(2)),
           [&](std::int64_t item, std::int64_t last_item) {
    for (; item < last_item; ++item) {
      const std::int64_t head = item / tiling.token_blocks;
      AttendTile tile;
      tile.d = q.dim(2);
      tile.dv = v.dim(2);
      tile.k = at<float>(k, 0, head);
      tile.v = at<float>(v, 0, head);
      tile.k_stride = k.stride[0];
      tile.v_stride = v.stride[0];
      tile.scale = scale;
      const std::int64_t first = item % tiling.token_blocks * tiling.tokens;
      const std::int64_t last = std::min(tokens, first + tiling.tokens);
      for (std::int64_t t = first; t < last;) {
        tile.rows = 0;
        tile.keys = {.base = begin[t]};
        const std::int32_t shared = begin[t];
        for (; t < last && begin[t] == shared; ++t) {
          tile.q[tile.rows] = at<float>(q, t, head);
          add_rows(tile, out, t, head, 1, 0, std::max(0, end[t] - begin[t]));
          tile.lse[tile.rows - 1] = at<float>(lse, t, head);
        }
        kernels(ctx).attend[0](tile);
      }
    }
  });
}

void merge_state(Context& ctx, const Tensor& out_a, const Tensor& lse_a, const Tensor& out_b, const Tensor& lse_b,
                 const Tensor& out, const Tensor& lse) {
  const std::int64_t heads = out.dim(1), dv = out.dim(2);
  parallel(ctx, out.dim(0) * heads, 8 * dv, [&](std::int64_t first, std::int64_t last) {
    for (std::int64_t i = first; i < last; ++i) {
      const std::int64_t t = i / heads, h = i % heads;
      const float* a = at<float>(out_a, t, h);
      const float* b = at<float>(out_b, t, h);
      float* to = at<float>(out, t, h);
      const double sa = *at<float>(lse_a, t, h), sb = *at<float>(lse_b, t, h);
      float* joined = at<float>(lse, t, h);
      constexpr double kNothing = -std::numeric_limits<double>::infinity();
      if (sa == kNothing || sb == kNothing) {
        const bool none = sa == kNothing && sb == kNothing;
        const float* from = sa == kNothing ? b : a;
        for (std::int64_t c = 0; c < dv; ++c) to[c] = none ? 0.0f : from[c];
        *joined = static_cast<float>(sa == kNothing ? sb : sa);
        continue;
      }
      const double top = std::max(sa, sb), ea = std::exp(sa - top), eb = std::exp(sb - top);
      const auto wa = static_cast<float>(ea / (ea + eb)), wb = static_cast<float>(eb / (ea + eb));
      for (std::int64_t c = 0; c < dv; ++c) to[c] = a[c] * wa + b[c] * wb;
      *joined = static_cast<float>(top + std::log(ea + eb));
    }
  });
}

}  // namespace sluice::cpu
