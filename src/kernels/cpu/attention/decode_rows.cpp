#include "kernels/cpu/attention/decode_rows.h"

#include <atomic>
#include <memory>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/spin_latch.h"
#include "kernels/cpu/attention/attention_rows.h"
#include "kernels/cpu/attention/kv_panels.h"
#include "kernels/cpu/common/rotate.h"

namespace sluice::cpu {
namespace {

// Whether no two neighbouring rows belong to one sequence, as when every sequence decodes one
// token.
bool single_rows(const PagedRows& rows) {
  const auto* seq = rows.row_seq.ptr<std::int32_t>();
  for (std::int64_t t = 1; t < rows.row_seq.dim(0); ++t)
    if (seq[t] == seq[t - 1]) return false;
  return true;
}

// New keys and values, still to be rotated and written, and the tensor `rounded` that results are
// also stored to.
struct NewRows {
  const Tensor& k;
  const Tensor& v;
  const std::int64_t* slots;
  const HeadRotation& rotation;
  const Tensor& rounded;

  void rotate(const Context& ctx, float* x, std::int64_t d, const Tensor& weight,
              std::int64_t t) const {
    norm_and_rotate_head(ctx, x, d, weight, rotation.eps, row<float>(rotation.cos_sin, t),
                         rotation.cos_sin.dim(1) / 2, rotation.interleaved);
  }
  void rotate_query(const Context& ctx, const Tensor& q, std::int64_t t, std::int64_t head) const {
    if (rotation.defined()) rotate(ctx, at<float>(q, t, head), q.dim(2), rotation.q_weight, t);
  }
  // Rotates the keys and writes keys and values of heads [kv, kv + heads). All cache lines are
  // prefetched first, since each write touches many.
  void write_keys(const Context& ctx, const HeadPlanes& planes, std::int64_t t, std::int64_t kv,
                  std::int64_t heads) const {
    for (std::int64_t h = kv; h < kv + heads; ++h) {
      fetch_panel_head(planes.k, slots[t], h);
      fetch_panel_head(planes.v, slots[t], h);
    }
    for (std::int64_t h = kv; h < kv + heads; ++h) {
      float* key = row<float>(k, t) + h * planes.d;
      if (rotation.defined()) rotate(ctx, key, planes.d, rotation.k_weight, t);
      write_panel_head(planes.k, slots[t], h, key);
      write_panel_head(planes.v, slots[t], h, row<float>(v, t) + h * planes.dv);
    }
  }
  // Stores the results of heads [first, first + count) in the type of `rounded`.
  void end(const Tensor& out, std::int64_t t, std::int64_t first, std::int64_t count) const {
    if (rounded.data == out.data) return;
    for (std::int64_t h = first; h < first + count; ++h) {
      const float* from = at<float>(out, t, h);
      if (rounded.dtype == DType::kBF16)
        std::transform(from, from + out.dim(2), at<BF16>(rounded, t, h),
                       [](float x) { return BF16(x); });
      else
        std::copy_n(from, out.dim(2), at<float>(rounded, t, h));
    }
  }
};

// Attention of rows that share no keys. Two schedules:
// - run_by_rows(): a work item is some heads of one row. For many rows.
// - run_by_keys(): threads split the keys of all rows (KV split). For few, long rows.
struct DecodeAttention {
  Context& ctx;
  const Tensor& q;
  const NewRows* fresh;  // null: all keys are written already
  const HeadPlanes& planes;
  std::int64_t kv_heads;
  const PagedRows& rows;
  const AttentionParams& params;
  const Tensor& out;
  const std::int64_t group = q.dim(1) / kv_heads;
  const int threads = ctx.pool == nullptr ? 1 : ctx.pool->size();

  void run() const {
    std::int64_t longest = 0, chunks = 0;
    for (std::int64_t t = 0; t < q.dim(0); ++t) {
      const RowRange r = visible(rows, params, t);
      longest = std::max(longest, r.end - r.begin);
      chunks += num_chunks(r);
    }
    if (threads > 1 && q.dim(0) < kRowsPerThread * threads && longest > ops::kKeyChunk &&
        chunks * chunk_floats() <= kMaxPartFloats)
      run_by_keys(chunks);
    else
      run_by_rows();
  }

 private:
  // Rows per thread from which on rows alone keep all threads busy.
  static constexpr std::int64_t kRowsPerThread = 4;
  static constexpr std::int64_t kMaxPartFloats = 1 << 20;  // not part of the memory plan

  static std::int64_t num_chunks(const RowRange& r) {
    return (r.end - 1) / ops::kKeyChunk - r.begin / ops::kKeyChunk + 1;
  }
  // Floats of the ChunkParts of one chunk, for all heads of a row.
  std::int64_t chunk_floats() const { return q.dim(1) * ChunkPart::floats(planes.dv); }

  // Tile of heads [kv, kv + heads) of row t, at most kTileQueries query heads.
  AttendTile tile_of(std::int64_t t, std::int64_t kv, std::int64_t heads) const {
    const RowRange r = visible(rows, params, t);
    AttendTile tile;
    planes.fill(tile, kv, params.scale);
    tile.kv_heads = static_cast<int>(heads);
    tile.keys = {.pages = pages_of(rows, r.seq)};
    for (std::int64_t h = 0; h < heads * group; ++h) tile.q[h] = at<float>(q, t, kv * group + h);
    add_rows(tile, out, t, kv * group, heads * group, r.begin, r.end);
    add_edits(tile, params, kv * group, heads * group);
    return tile;
  }

  // Prefetches the first keys, from key `from` on, that heads [kv, kv + heads) of row t read.
  void fetch_keys(std::int64_t t, std::int64_t kv, std::int64_t heads, std::int64_t from) const {
    constexpr std::int64_t kMax = 32 << 10, kLine = 64;
    const RowRange r = visible(rows, params, t);
    const std::int64_t page = std::max(from, r.begin) / kPageSize;
    const std::byte* panels =
        HeadPlanes::of(planes.k, kv, planes.d) + pages_of(rows, r.seq)[page] * page_bytes();
    // With few keys, the used lines of a page are scattered: do not prefetch.
    const std::int64_t bytes = r.end - page * kPageSize > kPageSize / 2
                                   ? std::min(kMax, page_bytes() / kv_heads * heads)
                                   : 0;
    for (std::int64_t i = 0; i < bytes; i += kLine) __builtin_prefetch(panels + i, 0, 2);
  }
  std::int64_t page_bytes() const { return planes.k.page_elements() * dtype_size(DType::kBF16); }

  // KV heads of a row that one thread processes together: their part of a page is contiguous. The
  // maximum for which all threads get equal work.
  std::int64_t heads_together() const {
    const auto even = [&](std::int64_t items) {
      return items % threads == 0 || items >= 4 * threads;
    };
    std::int64_t heads = kv_heads;
    while (heads > 1 && (heads * group > kTileQueries || kv_heads % heads != 0 ||
                         !even(q.dim(0) * (kv_heads / heads))))
      --heads;
    return heads;
  }

  // Work items are some heads of a row, in memory order.
  void run_by_rows() const {
    const std::int64_t heads = heads_together(), blocks = kv_heads / heads,
                       items = q.dim(0) * blocks;
    const auto attend = kernels(ctx).attend[dtype_column(planes.k.data.dtype)];
    parallel(ctx, items, heads * group * (planes.d + planes.dv) * ops::kKeyChunk,
             [&](std::int64_t item, std::int64_t last) {
               for (; item < last; ++item) {
                 const std::int64_t t = item / blocks, kv = item % blocks * heads;
                 if (fresh != nullptr) {
                   fresh->write_keys(ctx, planes, t, kv, heads);
                   for (std::int64_t h = kv * group; h < (kv + heads) * group; ++h)
                     fresh->rotate_query(ctx, q, t, h);
                 }
                 AttendTile tile = tile_of(t, kv, heads);
                 // The tile prefetches the first keys of the next work item.
                 if (item + 1 < items) {
                   const RowRange next = visible(rows, params, (item + 1) / blocks);
                   const std::int64_t page = pages_of(rows, next.seq)[next.begin / kPageSize];
                   tile.next_keys = next.end - next.begin / kPageSize * kPageSize;
                   tile.next = HeadPlanes::of(planes.k, (item + 1) % blocks * heads, planes.d) +
                               page * page_bytes();
                 }
                 attend(tile);
                 if (fresh != nullptr) fresh->end(out, t, kv * group, heads * group);
               }
             });
  }

  // KV split. The keys of all rows, in order, are divided evenly among the threads. A thread
  // processes all heads of its chunks, except in the first and the last chunk of its share. So it
  // reads whole pages, which is faster than some heads of each page. The last sixteenth of the work
  // is taken dynamically, in pieces.
  //
  // One pool call covers everything, so that threads keep memory busy while they wait for one
  // another:
  // 1. rotate this thread's share of the queries,
  // 2. prefetch the first keys, wait for all queries,
  // 3. attention over this thread's chunks (which also writes new keys),
  // 4. wait for all partial results, then merge those of this thread's heads.
  void run_by_keys(std::int64_t chunks) const {
    const auto space =
        std::make_unique_for_overwrite<float[]>(static_cast<std::size_t>(chunks * chunk_floats()));
    std::vector<RowParts> parts;
    std::int64_t keys = 0, before = 0;
    for (std::int64_t t = 0; t < q.dim(0); ++t) {
      const RowRange r = visible(rows, params, t);
      keys += r.end - r.begin;
      parts.push_back({.at = space.get() + before * chunk_floats()});
      before += num_chunks(r);
    }
    const std::int64_t work = keys * kv_heads, dealt = work - work / 16, pieces = 4 * threads;
    std::atomic<std::int64_t> next = 0;
    SpinLatch queries_ready(threads), parts_ready(threads);
    ctx.pool->run(threads, [&](int part) {
      SpinLatch::Arrival queries(queries_ready), own_parts(parts_ready);
      // Calls use(row, head) for this thread's share of all (row, head) pairs, with `heads` heads
      // per row.
      const auto for_own_heads = [&](std::int64_t heads, const auto& use) {
        const std::int64_t all = q.dim(0) * heads;
        for (std::int64_t i = all * part / threads; i < all * (part + 1) / threads; ++i)
          use(i / heads, i % heads);
      };
      const std::int64_t begin = dealt * part / threads, end = dealt * (part + 1) / threads;
      // 1. and 2.
      if (fresh != nullptr) {
        for_own_heads(q.dim(1), [&](std::int64_t t, std::int64_t head) {
          fresh->rotate_query(ctx, q, t, head);
        });
        queries.arrive();
        fetch_first_keys(begin, end);
        queries_ready.wait();
      }
      // 3. Its own share, then pieces of the last sixteenth.
      const auto attend = [&](const Share& share) {
        attend_chunks(share, parts[static_cast<std::size_t>(share.t)]);
      };
      for_each_share(begin, end, attend);
      for (std::int64_t i = next++; i < pieces; i = next++)
        for_each_share(dealt + (work - dealt) * i / pieces,
                       dealt + (work - dealt) * (i + 1) / pieces, attend);
      // 4.
      own_parts.arrive();
      parts_ready.wait();
      for_own_heads(kv_heads, [&](std::int64_t t, std::int64_t kv) {
        merge(t, kv, parts[static_cast<std::size_t>(t)]);
      });
    });
  }

  // ChunkParts of a row, for every head and chunk from key `from` on. The first part also contains
  // the chunks before it.
  struct RowParts {
    float* at = nullptr;
    std::int64_t from = 0;
  };

  void merge(std::int64_t t, std::int64_t kv, const RowParts& parts) const {
    AttendTile tile = with_parts(tile_of(t, kv, 1), kv, parts.at);
    tile.chunks_from = parts.from;
    kernels(ctx).merge_chunks(tile);
    if (fresh != nullptr) fresh->end(out, t, kv * group, group);
  }

  AttendTile with_parts(AttendTile tile, std::int64_t kv, float* parts) const {
    tile.parts = parts;
    tile.part_row = kv * group;
    tile.part_rows = q.dim(1);
    return tile;
  }

  // Heads [first, last) of row t, over the key chunks in [from, until).
  struct Share {
    std::int64_t t, first, last, from, until;
  };

  // Calls use(share) for work units [begin, end). A unit is one key of one head. Units are ordered
  // by row, then by chunk, then by head.
  template <class Use>
  void for_each_share(std::int64_t begin, std::int64_t end, const Use& use) const {
    std::int64_t at = 0;
    for (std::int64_t t = 0; t < q.dim(0) && at < end; ++t) {
      const RowRange r = visible(rows, params, t);
      if (const std::int64_t after = at + (r.end - r.begin) * kv_heads; after <= begin) {
        at = after;
        continue;
      }
      std::int64_t whole = -1;  // first chunk of a run of chunks with all heads; -1: none
      const auto flush = [&](std::int64_t until) {
        if (whole >= 0) use(Share{t, 0, kv_heads, whole, until});
        whole = -1;
      };
      for (std::int64_t c = r.begin / ops::kKeyChunk * ops::kKeyChunk; c < r.end;
           c += ops::kKeyChunk) {
        const std::int64_t keys = std::min(r.end, c + ops::kKeyChunk) - std::max(r.begin, c);
        // Shares are cut at whole heads: round the cut to the nearest head.
        const auto head_at = [&](std::int64_t unit) {
          return std::clamp<std::int64_t>((unit - at + keys / 2) / keys, 0, kv_heads);
        };
        const std::int64_t first = head_at(begin), last = head_at(end);
        at += keys * kv_heads;
        if (first == 0 && last == kv_heads) {
          if (whole < 0) whole = c;
          continue;
        }
        flush(c);
        if (first < last) use(Share{t, first, last, c, c + ops::kKeyChunk});
      }
      flush(r.end);
    }
  }

  // Writes the row's own key first: no other thread reads it for these heads.
  void attend_chunks(const Share& share, RowParts& parts) const {
    const RowRange r = visible(rows, params, share.t);
    if (fresh != nullptr && share.until >= r.end)
      fresh->write_keys(ctx, planes, share.t, share.first, share.last - share.first);
    // The thread that has a row's first keys merges its chunks as it goes, so fewer parts are
    // stored.
    const bool merges = share.from <= r.begin && share.last - share.first == kv_heads;
    if (merges) parts.from = (std::min(share.until, r.end) - 1) / ops::kKeyChunk * ops::kKeyChunk;
    const std::int64_t most = kTileQueries / group;
    for (std::int64_t kv = share.first; kv < share.last; kv += most) {
      AttendTile tile =
          with_parts(tile_of(share.t, kv, std::min(most, share.last - kv)), kv, parts.at);
      tile.chunks_from = share.from;
      tile.chunks_until = share.until;
      tile.merges_chunks = merges;
      kernels(ctx).attend[dtype_column(planes.k.data.dtype)](tile);
    }
  }

  // Prefetches the first keys of work [begin, end).
  void fetch_first_keys(std::int64_t begin, std::int64_t end) const {
    bool found = false;
    for_each_share(begin, std::min(end, begin + kv_heads * ops::kKeyChunk),
                   [&](const Share& share) {
                     if (!std::exchange(found, true))
                       fetch_keys(share.t, share.first, share.last - share.first, share.from);
                   });
  }
};

}  // namespace

bool decodes_rows(const Tensor& q, const KvPlane& k_plane, std::int64_t kv_heads,
                  const PagedRows& rows) {
  return k_plane.panels() && q.dim(1) / kv_heads <= kTileQueries && single_rows(rows);
}

void decode_rows(Context& ctx, const Tensor& q, const Tensor& k, const Tensor& v,
                 const HeadRotation& rotation, const Tensor& slots, const KvPlane& k_plane,
                 const KvPlane& v_plane, std::int64_t kv_heads, const PagedRows& rows,
                 const AttentionParams& params, const Tensor& mixed, const Tensor& out) {
  const auto* slot = slots.ptr<std::int64_t>();
  for (std::int64_t t = 0; t < slots.dim(0); ++t)
    check(slot[t] >= 0 && slot[t] < k_plane.data.dim(0), "slot {} is {}, outside [0, {})", t,
          slot[t], k_plane.data.dim(0));
  check_pages(rows, params, k_plane.data.dim(0));
  const NewRows fresh = {k, v, slot, rotation, out};
  const HeadPlanes planes = {k_plane, v_plane, q.dim(2), mixed.dim(2)};
  DecodeAttention{ctx, q, &fresh, planes, kv_heads, rows, params, mixed}.run();
}

void attend_rows(Context& ctx, const Tensor& q, const KvPlane& k_plane, const KvPlane& v_plane,
                 std::int64_t kv_heads, const PagedRows& rows, const AttentionParams& params,
                 const Tensor& out) {
  const HeadPlanes planes = {k_plane, v_plane, q.dim(2), out.dim(2)};
  DecodeAttention{ctx, q, nullptr, planes, kv_heads, rows, params, out}.run();
}

}  // namespace sluice::cpu
