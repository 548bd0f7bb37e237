#include <cmath>
#include <limits>
#include <vector>

#include "base/error.h"
#include "kernels/cpu/attention/attention_rows.h"
#include "kernels/cpu/attention/decode_rows.h"
#include "kernels/cpu/attention/kv_latents.h"

namespace sluice::cpu {
namespace {

using ops::kMaxKeyDim;

// How query rows are packed into tiles: blocks of heads of a GQA group, times a few tokens.
struct Tiling {
  std::int64_t heads = 1;   // heads of a block
  std::int64_t blocks = 1;  // head blocks of a GQA group
  std::int64_t tokens = 1;  // tokens of a tile
  std::int64_t token_blocks = 1;

  // `groups`: number of GQA groups of `group` heads. Wide tiles reuse loaded keys; narrow tiles
  // keep all threads busy and more scattered loads in flight. The results do not depend on it.
  Tiling(const Context& ctx, DType keys, std::int64_t num_tokens, std::int64_t groups,
         std::int64_t group, bool one_token) {
    const std::int64_t most = keys == DType::kBF16 ? kTileQueries : 16;
    const std::int64_t threads = ctx.pool == nullptr ? 1 : ctx.pool->size();
    const std::int64_t share =
        (num_tokens * groups * group + threads - 1) / threads;  // rows of a thread
    const std::int64_t rows = std::clamp<std::int64_t>(share, one_token ? 4 : 8, most);
    heads = std::min(group, rows);
    // A group wider than a tile is split into head blocks; a narrow one takes several tokens.
    blocks = (group + heads - 1) / heads;
    tokens = one_token ? 1 : std::max<std::int64_t>(1, rows / heads);
    token_blocks = (num_tokens + tokens - 1) / tokens;
  }
};

// Elements of work of a tile, roughly.
std::int64_t tile_work(const Tiling& tiling, std::int64_t width) {
  return tiling.heads * tiling.tokens * width * ops::kKeyChunk;
}

// Query rows [q_latent | q_rope] of a tile, concatenated.
struct FusedQueries {
  alignas(64) float values[kTileQueries * kMaxKeyDim];

  void fill(AttendTile& tile, const Tensor& latent, const Tensor& rope, std::int64_t t,
            std::int64_t head, std::int64_t count) {
    for (std::int64_t h = 0; h < count; ++h) {
      float* to = values + (tile.rows + h) * tile.d;
      std::copy_n(at<float>(latent, t, head + h), latent.dim(2), to);
      std::copy_n(at<float>(rope, t, head + h), rope.dim(2), to + latent.dim(2));
      tile.q[tile.rows + h] = to;
    }
  }
};

}  // namespace

void paged_attention(Context& ctx, const Tensor& q, const KvPlane& k_plane, const KvPlane& v_plane,
                     std::int64_t kv_heads, const PagedRows& rows, const AttentionParams& params,
                     const Tensor& out) {
  const std::int64_t tokens = q.dim(0), group = q.dim(1) / kv_heads, d = q.dim(2), dv = out.dim(2);
  const HeadPlanes planes = {k_plane, v_plane, d, dv};
  check_pages(rows, params, k_plane.data.dim(0));
  // Decode: rows that share no keys have a schedule of their own.
  if (decodes_rows(q, k_plane, kv_heads, rows))
    return attend_rows(ctx, q, k_plane, v_plane, kv_heads, rows, params, out);
  const DType dtype = k_plane.data.dtype;
  const Tiling tiling(ctx, dtype, tokens, kv_heads, group, false);
  // Work items are (KV head, head block, token block).
  const auto attend = kernels(ctx).attend[dtype_column(dtype)];
  parallel(ctx, kv_heads * tiling.blocks * tiling.token_blocks, tile_work(tiling, d + dv),
           [&](std::int64_t item, std::int64_t last_item) {
             for (; item < last_item; ++item) {
               const std::int64_t kv = item / tiling.token_blocks / tiling.blocks;
               const std::int64_t block = item / tiling.token_blocks % tiling.blocks * tiling.heads;
               const std::int64_t head = kv * group + block,
                                  count = std::min(tiling.heads, group - block);
               AttendTile tile;
               planes.fill(tile, kv, params.scale);
               const std::int64_t first = item % tiling.token_blocks * tiling.tokens;
               const std::int64_t last = std::min(tokens, first + tiling.tokens);
               for (std::int64_t t = first; t < last;) {
                 // A run of neighbouring tokens of one sequence, so that their key ranges overlap
                 // without a gap.
                 RowRange r = visible(rows, params, t);
                 tile.rows = 0;
                 tile.keys = {.pages = pages_of(rows, r.seq)};
                 for (RowRange next = r;
                      t < last && next.seq == r.seq && (tile.rows == 0 || next.end == r.end + 1);) {
                   r = next;
                   for (std::int64_t h = 0; h < count; ++h)
                     tile.q[tile.rows + h] = at<float>(q, t, head + h);
                   add_rows(tile, out, t, head, count, r.begin, r.end);
                   add_edits(tile, params, head, count);
                   if (++t < last) next = visible(rows, params, t);
                 }
                 attend(tile);
               }
             }
           });
}

void write_and_attend(Context& ctx, const Tensor& q, const Tensor& k, const Tensor& v,
                      const Tensor& slots, const KvPlane& k_plane, const KvPlane& v_plane,
                      std::int64_t kv_heads, const PagedRows& rows, const AttentionParams& params,
                      const Tensor& out) {
  // Decode: the same pass also writes the new keys.
  if (decodes_rows(q, k_plane, kv_heads, rows))
    return decode_rows(ctx, q, k, v, {}, slots, k_plane, v_plane, kv_heads, rows, params, out, out);
  kv_write(ctx, k, slots, k_plane);
  kv_write(ctx, v, slots, v_plane);
  paged_attention(ctx, q, k_plane, v_plane, kv_heads, rows, params, out);
}

namespace {

// A plane of latents, and memory for a chunk of keys where they are codes.
struct Latents {
  Latents(const Tensor& rows, const Tensor& q_latent, const Tensor& q_rope)
      : plane(rows), d(q_latent.dim(2) + q_rope.dim(2)) {
    if (are_codes()) codes = codes_of(rows, {q_latent.dim(2), q_rope.dim(2)});
  }
  bool are_codes() const { return dtype_size(plane.dtype) == 1; }
  DType read_as() const { return are_codes() ? DType::kBF16 : plane.dtype; }
  // Of the calling thread, until its next call.
  BF16* chunk() const {
    thread_local std::vector<BF16> memory;
    const auto size = static_cast<std::size_t>(are_codes() ? ops::kKeyChunk * d : 0);
    if (memory.size() < size) memory.resize(size);
    return memory.data();
  }
  // MLA: a value is the first `latent` columns of its key, so both read one plane.
  void fill(AttendTile& tile, BF16* chunk) const {
    tile.d = d;
    if (are_codes()) {
      tile.codes = &codes;
      tile.widened = chunk;
      return;
    }
    tile.k = tile.v = plane.data;
    tile.k_stride = tile.v_stride = plane.stride[0];
  }

  const Tensor& plane;
  std::int64_t d;
  LatentCodes codes;
};

// Whether the threads split the keys of each token, because there are fewer tokens than threads.
bool tokens_are_shared(const Context& ctx, const Tensor& q_latent, const Latents& latents) {
  return ctx.pool != nullptr && q_latent.dim(0) < ctx.pool->size() &&
         latents.read_as() == DType::kBF16;
}

// MLA of token t over keys [0, length) with the whole pool; each phase is a barrier (SharedPhase).
void attend_together(Context& ctx, const Tensor& q_latent, const Tensor& q_rope,
                     const Latents& latents, std::int64_t t, const KeySource& keys,
                     std::int64_t length, float scale, const Tensor& out) {
  const std::int64_t heads = q_latent.dim(1);
  SharedTile tile;
  tile.latent = q_latent.dim(2);
  tile.rope = q_rope.dim(2);
  tile.scale = scale;
  tile.length = length;
  const auto attend = kernels(ctx).attend_shared;
  const int parts = ctx.pool->size();
  const auto* plane = static_cast<const BF16*>(latents.plane.data);
  const std::int64_t stride = latents.plane.stride[0];
  BF16* const widened = latents.chunk();
  const auto widen = kernels(ctx).widen_latents;
  // Heads in sets of at most one tile.
  for (std::int64_t head = 0; head < heads; head += tile.heads) {
    tile.heads = static_cast<int>(std::min<std::int64_t>(kTileQueries, heads - head));
    for (int h = 0; h < tile.heads; ++h) {
      tile.q_latent[h] = at<float>(q_latent, t, head + h);
      tile.q_rope[h] = at<float>(q_rope, t, head + h);
      tile.out[h] = at<float>(out, t, head + h);
      if (length == 0) std::fill_n(tile.out[h], tile.latent, 0.0f);
    }
    if (length == 0) continue;
    // run() returns when all parts of the phase are done.
    const auto all = [&](SharedPhase phase) {
      ctx.pool->run(parts, [&](int part) { attend(tile, phase, part, parts); });
    };
    // Chunk by chunk: locate the keys, then scores, softmax and values.
    for (tile.chunk = 0; tile.chunk < length; tile.chunk += ops::kKeyChunk) {
      tile.num_keys = std::min(ops::kKeyChunk, length - tile.chunk);
      if (latents.are_codes())
        ctx.pool->run(parts, [&](int part) {
          const std::int64_t begin = tile.num_keys * part / parts,
                             end = tile.num_keys * (part + 1) / parts;
          widen(latents.codes, keys, tile.chunk + begin, end - begin, widened + begin * latents.d);
        });
      for (std::int64_t i = 0; i < tile.num_keys; ++i)
        tile.keys[i] = latents.are_codes() ? widened + i * latents.d
                                           : plane + keys.slot(tile.chunk + i) * stride;
      if (tile.chunk == 0) all(SharedPhase::kCastQueries);
      for (const SharedPhase phase :
           {SharedPhase::kScores, SharedPhase::kSoftmax, SharedPhase::kValues})
        all(phase);
    }
  }
}

}  // namespace

void mla_attention(Context& ctx, const Tensor& q_latent, const Tensor& q_rope,
                   const Tensor& latent_plane, const PagedRows& rows, float scale,
                   const Tensor& out) {
  const std::int64_t tokens = q_latent.dim(0), heads = q_latent.dim(1), latent = q_latent.dim(2);
  const AttentionParams everything;
  check_pages(rows, everything, latent_plane.dim(0));
  const Latents latents(latent_plane, q_latent, q_rope);
  // Few tokens: all threads work on one token after the other.
  if (tokens_are_shared(ctx, q_latent, latents)) {
    for (std::int64_t t = 0; t < tokens; ++t) {
      const RowRange r = visible(rows, everything, t);
      attend_together(ctx, q_latent, q_rope, latents, t, {.pages = pages_of(rows, r.seq)}, r.end,
                      scale, out);
    }
    return;
  }
  const Tiling tiling(ctx, latents.read_as(), tokens, 1, heads, false);
  const auto attend = kernels(ctx).attend[dtype_column(latents.read_as())];
  parallel(ctx, tiling.blocks * tiling.token_blocks, tile_work(tiling, 2 * latent),
           [&](std::int64_t item, std::int64_t last_item) {
             FusedQueries queries;
             BF16* const chunk = latents.chunk();
             for (; item < last_item; ++item) {
               const std::int64_t head = item / tiling.token_blocks * tiling.heads;
               const std::int64_t count = std::min(tiling.heads, heads - head);
               AttendTile tile;
               latents.fill(tile, chunk);
               tile.dv = latent;
               tile.scale = scale;
               const std::int64_t first = item % tiling.token_blocks * tiling.tokens;
               const std::int64_t last = std::min(tokens, first + tiling.tokens);
               for (std::int64_t t = first; t < last;) {
                 RowRange r = visible(rows, everything, t);
                 tile.rows = 0;
                 tile.keys = {.pages = pages_of(rows, r.seq)};
                 for (RowRange next = r;
                      t < last && next.seq == r.seq && (tile.rows == 0 || next.end == r.end + 1);) {
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

void mla_sparse_attention(Context& ctx, const Tensor& q_latent, const Tensor& q_rope,
                          const Tensor& latent_plane, const PagedRows& rows, const Tensor& indices,
                          float scale, const Tensor& out) {
  const std::int64_t tokens = q_latent.dim(0), heads = q_latent.dim(1), latent = q_latent.dim(2);
  const std::int64_t pages = latent_plane.dim(0) / kPageSize;
  // The selected keys of token t; `length` receives their number.
  const auto chosen = [&](std::int64_t t, std::int64_t& length) {
    const std::int64_t seq = rows.row_seq.ptr<std::int32_t>()[t];
    check(seq >= 0 && seq < rows.page_table.dim(0), "row {} belongs to sequence {} of {}", t, seq,
          rows.page_table.dim(0));
    const std::int32_t* list = row<std::int32_t>(indices, t);
    const std::int32_t* table = pages_of(rows, seq);
    // The list ends at the first negative position.
    for (length = 0; length < indices.dim(1) && list[length] >= 0; ++length) {
      const std::int64_t column = list[length] / kPageSize;
      check(column < rows.page_table.dim(1) && table[column] >= 0 && table[column] < pages,
            "row {} chose position {}, which has no page", t, list[length]);
    }
    return KeySource{.pages = table, .list = list};
  };
  const Latents latents(latent_plane, q_latent, q_rope);
  if (tokens_are_shared(ctx, q_latent, latents)) {
    for (std::int64_t t = 0; t < tokens; ++t) {
      std::int64_t length = 0;
      const KeySource keys = chosen(t, length);
      attend_together(ctx, q_latent, q_rope, latents, t, keys, length, scale, out);
    }
    return;
  }
  const Tiling tiling(ctx, latents.read_as(), tokens, tokens, heads, true);
  const auto attend = kernels(ctx).attend[dtype_column(latents.read_as())];
  parallel(ctx, tiling.blocks * tokens, tile_work(tiling, 2 * latent),
           [&](std::int64_t item, std::int64_t last_item) {
             FusedQueries queries;
             BF16* const chunk = latents.chunk();
             for (; item < last_item; ++item) {
               const std::int64_t head = item / tokens * tiling.heads, t = item % tokens;
               const std::int64_t count = std::min(tiling.heads, heads - head);
               std::int64_t keys_of_row = 0;
               AttendTile tile;
               latents.fill(tile, chunk);
               tile.dv = latent;
               tile.scale = scale;
               // A tile reads its own token's list of keys.
               tile.keys = chosen(t, keys_of_row);
               queries.fill(tile, q_latent, q_rope, t, head, count);
               add_rows(tile, out, t, head, count, 0, keys_of_row);
               attend(tile);
             }
           });
}

void mha_attention(Context& ctx, const Tensor& q, const Tensor& k, const Tensor& v,
                   const Tensor& ks, const Tensor& ke, float scale, const Tensor& out,
                   const Tensor& lse) {
  const std::int64_t tokens = q.dim(0), heads = q.dim(1);
  const auto* begin = ks.ptr<std::int32_t>();
  const auto* end = ke.ptr<std::int32_t>();
  for (std::int64_t t = 0; t < tokens; ++t)
    check(begin[t] >= 0 && end[t] <= k.dim(0), "row {} sees keys [{}, {}) of {}", t, begin[t],
          end[t], k.dim(0));
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
                 // Rows of one tile must count their chunks from the same first key.
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

void merge_state(Context& ctx, const Tensor& out_a, const Tensor& lse_a, const Tensor& out_b,
                 const Tensor& lse_b, const Tensor& out, const Tensor& lse) {
  const std::int64_t heads = out.dim(1), dv = out.dim(2);
  parallel(ctx, out.dim(0) * heads, 8 * dv, [&](std::int64_t first, std::int64_t last) {
    for (std::int64_t i = first; i < last; ++i) {
      const std::int64_t t = i / heads, h = i % heads;
      const float* a = at<float>(out_a, t, h);
      const float* b = at<float>(out_b, t, h);
      float* to = at<float>(out, t, h);
      const double sa = *at<float>(lse_a, t, h), sb = *at<float>(lse_b, t, h);
      float* merged = at<float>(lse, t, h);
      // Log-sum-exp merge in double; a side without keys has lse = -inf.
      constexpr double kNothing = -std::numeric_limits<double>::infinity();
      // One side has no keys: the result is the other side, or zeros.
      if (sa == kNothing || sb == kNothing) {
        const bool none = sa == kNothing && sb == kNothing;
        const float* from = sa == kNothing ? b : a;
        for (std::int64_t c = 0; c < dv; ++c) to[c] = none ? 0.0f : from[c];
        *merged = static_cast<float>(sa == kNothing ? sb : sa);
        continue;
      }
      const double top = std::max(sa, sb), ea = std::exp(sa - top), eb = std::exp(sb - top);
      const auto wa = static_cast<float>(ea / (ea + eb)), wb = static_cast<float>(eb / (ea + eb));
      for (std::int64_t c = 0; c < dv; ++c) to[c] = a[c] * wa + b[c] * wb;
      *merged = static_cast<float>(top + std::log(ea + eb));
    }
  });
}

}  // namespace sluice::cpu
