#include "attention/reference.h"

#include <algorithm>
#include <initializer_list>
#include <numeric>
#include <vector>

#include "attention/expanded.h"
#include "base/error.h"
#include "ops/attention.h"
#include "ops/elementwise.h"
#include "ops/fused.h"
#include "ops/gemm.h"
#include "ops/heads.h"
#include "ops/indexer.h"
#include "ops/kv.h"
#include "ops/mla.h"
#include "tensor/copy.h"
#include "tensor/format.h"

namespace sluice {
namespace {

// Rows [begin, begin + count) of the batch, all treated by one method.
struct Segment {
  std::int64_t begin = 0;
  std::int64_t count = 0;
  AttnForwardMethod method = AttnForwardMethod::kMla;
};

struct LayerPlanes {
  int group = -1;
  int index_group = -1;
  ops::KvPlane k, v, index_k, latent_plane;
  Tensor latent;
};

// x [T, n] seen as [T, heads, n]: every head reads the same row.
Tensor for_each_head(const Tensor& x, std::int64_t heads) {
  Tensor view = x;
  view.rank = 3;
  view.shape = {x.dim(0), heads, x.dim(1), 0};
  view.stride = {x.stride[0], 0, 1, 0};
  return view;
}

Tensor view_of(const std::vector<std::int32_t>& values) {
  return Tensor::dense(const_cast<std::int32_t*>(values.data()), DType::kI32,
                       {static_cast<std::int64_t>(values.size())});
}

class OpsBackend final : public AttentionBackend {
 public:
  OpsBackend(std::string_view name, bool plain, const AttentionOptions& options,
             const AttentionShape& shape, const KVPool& pool)
      : name_(name), plain_(plain), options_(options), shape_(shape), pool_(pool) {
    for (int i = 0; i < shape.num_layers; ++i) {
      LayerPlanes& planes = planes_.emplace_back();
      const int layer = shape.first_layer + i;
      planes.group = pool.group_of(shape.mla ? "latent" : "k", layer);
      if (planes.group < 0) continue;  // group of a recurrent layer
      if (first_attention_ < 0) first_attention_ = i;
      if (shape.mla) {
        planes.latent_plane = pool.plane(planes.group, "latent", layer);
        planes.latent = planes.latent_plane.data;
      } else {
        planes.k = pool.plane(planes.group, "k", layer);
        planes.v = pool.plane(planes.group, "v", layer);
      }
      planes.index_group = pool.group_of("index_k", layer);
      if (planes.index_group >= 0)
        planes.index_k = pool.plane(planes.index_group, "index_k", layer);
    }
  }

  std::string_view name() const override { return name_; }
  Tensor state_plane(int layer, std::string_view plane) const override {
    const std::string key(plane);
    const int group = pool_.group_of(key, shape_.first_layer + layer);
    check(group >= 0, "the KV pool keeps no state '{}' for layer {}", plane, layer);
    return pool_.plane(group, key, shape_.first_layer + layer).data;
  }
  MethodCounts method_counts() const override { return counts_; }

  void plan(Context& ctx, const ForwardBatch& fb) override {
    segments_.clear();
    passes_.clear();
    if (fb.num_tokens == 0) return;
    const std::int64_t num_extend_rows =
        fb.host_extend_start_loc[static_cast<std::size_t>(fb.num_extend_seqs)];
    add_segment(ctx, fb, 0, fb.num_extend_seqs, 0, num_extend_rows);
    add_segment(ctx, fb, fb.num_extend_seqs, fb.num_seqs, num_extend_rows, fb.num_tokens);
    if (ctx.dry_run) {
      plan_largest(fb);
      return;
    }
    for (const Segment& segment : segments_) ++counts_[static_cast<std::size_t>(segment.method)];
    const AttnForwardMethod first = segments_.front().method;
    const bool expands =
        first == AttnForwardMethod::kMhaOneShot || first == AttnForwardMethod::kMhaChunkedKv;
    // A stage of a pipeline may have no layer that attends.
    if (expands && first_attention_ >= 0) plan_expanded(fb, first);
  }

  void mha(Context& given, const ForwardBatch& fb, const MhaArgs& args) override {
    if (fb.num_tokens == 0) return;
    Context ctx = own(given);
    LayerPlanes planes = planes_at(args.layer);
    planes.k.scales = args.k_scales;
    planes.v.scales = args.v_scales;
    const GroupView& group = fb.groups.at(static_cast<std::size_t>(planes.group));
    const Tensor k = merge_heads(args.k), v = merge_heads(args.v);
    Arena::Scope scope(*ctx.arena);
    ops::PagedRows rows = rows_with_memory(ctx, fb, group, planes, args);
    if (fb.query_rows.all()) {
      const Tensor& out = args.rounded.defined() ? args.rounded : args.out;
      if (!group.branch_from.defined()) rows.runs = fb.row_runs;
      if (fb.has_draft_rows && !rows.runs.places.defined())
        ops::rotate_write_then_attend(ctx, args.q, k, v, args.rotation, group.out_cache_loc,
                                      planes.k, planes.v, args.k.dim(1), rows, args.params,
                                      args.out, out, group.branch_from, group.branch_to);
      else
        ops::rotate_write_and_attend(ctx, args.q, k, v, args.rotation, group.out_cache_loc,
                                     planes.k, planes.v, args.k.dim(1), rows, args.params, args.out,
                                     out);
      return;
    }
    const ops::HeadRotation& rotation = args.rotation;
    check(!rotation.defined() || fb.query_rows.all(),
          "layer {}: heads of queries and keys that are not of the same rows are rotated before",
          args.layer);
    if (rotation.defined())
      ops::norm_and_rotate_heads(ctx, args.q, args.k, rotation.q_weight, rotation.k_weight,
                                 rotation.eps, rotation.cos_sin, rotation.interleaved);
    ops::kv_write(ctx, k, group.out_cache_loc, planes.k);
    ops::kv_write(ctx, v, group.out_cache_loc, planes.v);
    if (group.branch_from.defined()) write_branches(ctx, group, {planes.k, planes.v});
    if (fb.query_rows.none()) return;
    ops::paged_attention(ctx, args.q, planes.k, planes.v, args.k.dim(1), rows, args.params,
                         args.out);
    if (args.rounded.defined()) ops::convert(ctx, args.out, args.rounded);
  }

  void mla(Context& given, const ForwardBatch& fb, const MlaArgs& args) override {
    if (fb.num_tokens == 0) return;
    Context ctx = own(given);
    const LayerPlanes& planes = planes_at(args.layer);
    const GroupView& group = fb.groups.at(static_cast<std::size_t>(planes.group));
    ops::write_latents(ctx, args.latent, args.k_rope, group.out_cache_loc, planes.latent);
    if (group.branch_from.defined()) write_branches(ctx, group, {planes.latent_plane});
    const ops::PagedRows rows = rows_of(fb, group);
    if (!fb.query_rows.all()) {
      if (!fb.query_rows.none())
        absorbed(ctx, args, planes, rows, {0, args.q.dim(0), absorbed_method()});
      return;
    }
    for (const Segment& segment : segments_) {
      if (segment.method == AttnForwardMethod::kMla ||
          segment.method == AttnForwardMethod::kMlaSparse)
        absorbed(ctx, args, planes, rows, segment);
      else
        expanded(ctx, args, planes, segment);
    }
    if (ctx.dry_run && !passes_.empty()) expanded(ctx, args, planes, segments_.front());
  }

  void write_index_keys(Context& ctx, const ForwardBatch& fb, int layer,
                        const Tensor& keys) override {
    if (fb.num_tokens == 0) return;
    const LayerPlanes& planes = planes_with_index(layer);
    const GroupView& group = fb.groups.at(static_cast<std::size_t>(planes.index_group));
    ops::kv_write(ctx, keys, group.out_cache_loc, planes.index_k);
    if (group.branch_from.defined()) write_branches(ctx, group, {planes.index_k});
  }

  void select_keys(Context& given, const ForwardBatch& fb, int layer, const Tensor& q,
                   const Tensor& weights, const Tensor& indices) override {
    if (fb.num_query_rows() == 0) return;
    Context ctx = own(given);
    const LayerPlanes& planes = planes_with_index(layer);
    const GroupView& group = fb.groups.at(static_cast<std::size_t>(planes.index_group));
    Arena::Scope scope(*ctx.arena);
    const ops::IndexWorkspaceShape shape = ops::index_topk_workspace(ctx, q.dim(0), fb.max_seq_len);
    const Tensor workspace = ctx.arena->take(DType::kF32, {shape.rows, shape.max_len});
    ops::index_topk(ctx, q, weights, planes.index_k, rows_of(fb, group), workspace, indices);
  }

 private:
  Context own(const Context& ctx) const {
    Context copy = ctx;
    copy.deterministic = ctx.deterministic || plain_;
    if (plain_) copy.cuda = nullptr;  // without a session the ops use only their reference kernels
    return copy;
  }
  const LayerPlanes& planes_at(int layer) const {
    const LayerPlanes& planes = planes_.at(static_cast<std::size_t>(layer));
    check(planes.group >= 0, "the KV pool keeps nothing for layer {}", layer);
    return planes;
  }
  const LayerPlanes& planes_with_index(int layer) const {
    const LayerPlanes& planes = planes_at(layer);
    check(planes.index_group >= 0, "layer {} keeps no index keys", layer);
    return planes;
  }

  // What rows of draft trees have written goes to their other branches, too.
  static void write_branches(Context& ctx, const GroupView& group,
                             std::initializer_list<ops::KvPlane> planes) {
    ops::kv_move(ctx, std::span(planes.begin(), planes.size()), group.branch_from, group.branch_to);
  }

  static ops::PagedRows rows_of(const ForwardBatch& fb, const GroupView& group) {
    const OutputRows& queries = fb.query_rows;
    if (queries.all()) return {group.page_table, fb.row_seq, fb.positions};
    return {group.page_table, queries.row_seq, queries.positions};
  }
  // The same with the sequences of several rows and memory for them, if the kernels of these planes
  // want any. The memory lives as long as the caller's scope.
  static ops::PagedRows rows_with_memory(Context& ctx, const ForwardBatch& fb,
                                         const GroupView& group, const LayerPlanes& planes,
                                         const MhaArgs& args) {
    if (fb.query_rows.none()) return {};
    ops::PagedRows rows = rows_of(fb, group);
    if (!planes.k.is_fp8() || ctx.device.kind == DeviceKind::kCpu) return rows;
    // Behind a step with drafts, decode items have several rows, too.
    for (std::size_t s = 0; s < static_cast<std::size_t>(fb.num_seqs); ++s) {
      if (fb.host_extend_start_loc[s + 1] - fb.host_extend_start_loc[s] < 2) continue;
      const std::int64_t first = args.params.first_key(fb.host_extend_prefix_lens[s]);
      rows.prefill.pages += (fb.host_seq_lens[s] + kPageSize - 1) / kPageSize - first / kPageSize;
      ++rows.prefill.seqs;
    }
    const std::int64_t bytes =
        ops::prefill_bytes(ctx, args.q, planes.k, planes.v, args.k.dim(1), rows, args.params);
    if (bytes > 0) rows.prefill.memory = ctx.arena->take(DType::kU8, {bytes});
    return rows;
  }
  AttnForwardMethod absorbed_method() const {
    return shape_.index_topk > 0 ? AttnForwardMethod::kMlaSparse : AttnForwardMethod::kMla;
  }

  // [T, heads, d] as rows [T, heads * d].
  static Tensor merge_heads(const Tensor& x) {
    check(x.rank == 3 && x.stride[2] == 1 && x.stride[1] == x.shape[2],
          "heads of {} do not lie together", x);
    Tensor rows = x;
    rows.rank = 2;
    rows.shape = {x.shape[0], x.shape[1] * x.shape[2], 0, 0};
    rows.stride = {x.stride[0], 1, 0, 0};
    return rows;
  }

  void add_segment(const Context& ctx, const ForwardBatch& fb, std::int64_t first_seq,
                   std::int64_t last_seq, std::int64_t first_row, std::int64_t last_row) {
    if (first_row == last_row) return;
    Segment segment{first_row, last_row - first_row, AttnForwardMethod::kMha};
    if (shape_.mla) {
      const auto begin = static_cast<std::size_t>(first_seq);
      const auto count = static_cast<std::size_t>(last_seq - first_seq);
      const auto seq_lens = fb.host_seq_lens.subspan(begin, count);
      const auto prefix_lens = fb.host_extend_prefix_lens.subspan(begin, count);
      MlaInputs inputs{
          .prefill = options_.mla_prefill,
          .support = {},
          .mode = fb.mode,
          .sparse_model = shape_.index_topk > 0,
          .captured = false,
          .deterministic = options_.deterministic || ctx.deterministic,
          .kv_quantized = dtype_size(shape_.kv_dtype) == 1,
          .chunked_prefix_enabled = options_.chunked_prefix,
          .sum_prefix = std::accumulate(prefix_lens.begin(), prefix_lens.end(), std::int64_t{0}),
          .sum_seq = std::accumulate(seq_lens.begin(), seq_lens.end(), std::int64_t{0}),
          .max_seq = *std::max_element(seq_lens.begin(), seq_lens.end()),
          .index_topk = shape_.index_topk,
          .chunk_capacity = options_.chunk_capacity,
          .chunked_prefix_threshold = options_.chunked_prefix_threshold};
      if (fb.mode == ForwardMode::kMixed)
        inputs.mode = first_seq < fb.num_extend_seqs ? ForwardMode::kExtend : ForwardMode::kDecode;
      segment.method = choose_attn_forward_method(inputs);
    }
    segments_.push_back(segment);
  }

  void plan_expanded(const ForwardBatch& fb, AttnForwardMethod method) {
    const auto num_seqs = static_cast<std::size_t>(fb.num_extend_seqs);
    const GroupView& group =
        fb.groups.at(static_cast<std::size_t>(planes_at(first_attention_).group));
    const Tensor& table =
        group.host_page_table.defined() ? group.host_page_table : group.page_table;
    const ExtendSegment segment{fb.host_seq_lens.first(num_seqs),
                                fb.host_extend_prefix_lens.first(num_seqs),
                                table.ptr<std::int32_t>(), table.dim(1)};
    passes_ = method == AttnForwardMethod::kMhaOneShot
                  ? plan_one_shot(segment)
                  : plan_chunked_kv(segment, options_.chunk_capacity);
  }

  // A dry run cannot know the segments and prefixes of later steps. So it plans the maximum: all
  // rows absorbed, and all rows expanded twice, once over themselves and once over the maximum
  // number of expanded keys.
  void plan_largest(const ForwardBatch& fb) {
    if (!shape_.mla) return;
    segments_ = {{0, fb.num_tokens, absorbed_method()}};
    if (options_.mla_prefill == MlaPrefill::kAbsorb || options_.deterministic) return;
    const auto num_rows = static_cast<std::size_t>(fb.num_tokens);
    for (const std::size_t num_keys :
         {num_rows, static_cast<std::size_t>(options_.chunk_capacity)}) {
      ExpandedPass& pass = passes_.emplace_back();
      pass.slots.resize(num_keys);
      pass.begin.resize(num_rows);
      pass.end.resize(num_rows);
    }
  }

  // Queries are projected into latent space; outputs are projected back.
  void absorbed(Context& ctx, const MlaArgs& args, const LayerPlanes& planes,
                const ops::PagedRows& all, const Segment& segment) {
    Arena::Scope scope(*ctx.arena);
    const MlaWeights& w = *args.weights;
    const std::int64_t heads = args.q.dim(1), nope = w.w_uk_transposed.dim(2),
                       latent = w.w_uk_transposed.dim(1);
    const Tensor q = args.q.rows(segment.begin, segment.count);
    const Tensor q_latent = ctx.arena->take(DType::kF32, {segment.count, heads, latent});
    const Tensor u = ctx.arena->take(DType::kF32, {segment.count, heads, latent});
    ops::linear_heads(ctx, as_gemm_input(ctx, q.slice(2, 0, nope)), w.w_uk_transposed, q_latent);
    const Tensor q_rope = q.slice(2, nope, q.dim(2) - nope);
    const ops::PagedRows rows = {all.page_table, all.row_seq.rows(segment.begin, segment.count),
                                 all.positions.rows(segment.begin, segment.count)};
    if (segment.method == AttnForwardMethod::kMlaSparse)
      ops::mla_sparse_attention(ctx, q_latent, q_rope, planes.latent, rows,
                                args.topk_indices.rows(segment.begin, segment.count), args.scale,
                                u);
    else
      ops::mla_attention(ctx, q_latent, q_rope, planes.latent, rows, args.scale, u);
    ops::linear_heads(ctx, as_gemm_input(ctx, u), w.w_uv,
                      args.out.rows(segment.begin, segment.count));
  }

  // Latents become keys and values of every head; the partial results of the passes are merged.
  void expanded(Context& ctx, const MlaArgs& args, const LayerPlanes& planes,
                const Segment& segment) {
    check(args.weights->w_uk.defined(), "the model was loaded for absorbed attention only");
    Arena::Scope scope(*ctx.arena);
    const std::int64_t heads = args.q.dim(1), dv = args.out.dim(2);
    const Tensor q = args.q.rows(segment.begin, segment.count);
    const Tensor out = ctx.arena->take(DType::kF32, {segment.count, heads, dv});
    const Tensor lse = ctx.arena->take(DType::kF32, {segment.count, heads});
    expanded_pass(ctx, q, args, planes, passes_.front(), out, lse);
    if (passes_.size() > 1) {
      const Tensor part = ctx.arena->take(DType::kF32, {segment.count, heads, dv});
      const Tensor part_lse = ctx.arena->take(DType::kF32, {segment.count, heads});
      for (std::size_t p = 1; p < passes_.size(); ++p) {
        expanded_pass(ctx, q, args, planes, passes_[p], part, part_lse);
        ops::merge_state(ctx, out, lse, part, part_lse, out, lse);
      }
    }
    ops::convert(ctx, out, args.out.rows(segment.begin, segment.count));
  }

  void expanded_pass(Context& ctx, const Tensor& q, const MlaArgs& args, const LayerPlanes& planes,
                     const ExpandedPass& pass, const Tensor& out, const Tensor& lse) {
    Arena::Scope scope(*ctx.arena);
    const MlaWeights& w = *args.weights;
    const auto num_keys = static_cast<std::int64_t>(pass.slots.size());
    const std::int64_t heads = q.dim(1), nope = w.w_uk.dim(1), latent = w.w_uk.dim(2),
                       rope = q.dim(2) - nope;
    const Tensor rows = ctx.arena->take(DType::kF32, {num_keys, latent + rope});
    ops::gather_latents(ctx, planes.latent, to_device(ctx, view_of(pass.slots)), latent, rows);
    const Tensor k = ctx.arena->take(DType::kF32, {num_keys, heads, nope + rope});
    const Tensor v = ctx.arena->take(DType::kF32, {num_keys, heads, args.out.dim(2)});
    const Tensor c = for_each_head(as_gemm_input(ctx, rows.slice(1, 0, latent)), heads);
    ops::linear_heads(ctx, c, w.w_uk, k.slice(2, 0, nope));
    ops::linear_heads(ctx, c, w.w_uv, v);
    ops::convert(ctx, for_each_head(rows.slice(1, latent, rope), heads), k.slice(2, nope, rope));
    ops::mha_attention(ctx, q, k, v, to_device(ctx, view_of(pass.begin)),
                       to_device(ctx, view_of(pass.end)), args.scale, out, lse);
  }

  // x rounded to the type of GEMM inputs, in ctx.arena, as long as the caller's scope.
  Tensor as_gemm_input(Context& ctx, const Tensor& x) const {
    if (shape_.gemm_dtype == x.dtype) return x;
    const Tensor rounded = x.rank == 3
                               ? ctx.arena->take(shape_.gemm_dtype, {x.dim(0), x.dim(1), x.dim(2)})
                               : ctx.arena->take(shape_.gemm_dtype, {x.dim(0), x.dim(1)});
    ops::convert(ctx, x, rounded);
    return rounded;
  }

  // Constant after construction.
  const std::string_view name_;
  const bool plain_;
  AttentionOptions options_;
  AttentionShape shape_;
  const KVPool& pool_;
  std::vector<LayerPlanes> planes_;
  int first_attention_ = -1;  // the first layer that attends
  // Written by plan().
  std::vector<Segment> segments_;
  std::vector<ExpandedPass> passes_;
  MethodCounts counts_{};
};

}  // namespace

std::unique_ptr<AttentionBackend> make_ops_backend(std::string_view name, bool plain,
                                                   const AttentionOptions& options,
                                                   const AttentionShape& shape,
                                                   const KVPool& pool) {
  require(options.chunk_capacity > 0,
          "the chunk capacity of MLA prefill must be at least 1 token, not {}",
          options.chunk_capacity);
  return std::make_unique<OpsBackend>(name, plain, options, shape, pool);
}

}  // namespace sluice
