#include "models/embed_head.h"

#include <algorithm>

#include <fmt/format.h>

#include "base/error.h"
#include "layers/weights/fragment_weights.h"
#include "ops/elementwise.h"
#include "ops/fused.h"
#include "ops/gemm.h"
#include "ops/kv.h"
#include "ops/ranks.h"
#include "tensor/format.h"

namespace sluice {

namespace {

// Gemma multiplies by sqrt(hidden), rounded to the type of its weights.
float multiplier_in(const ModelConfig& config, DType compute) {
  const auto factor = static_cast<float>(config.embedding_multiplier);
  if (!config.embedding_multiplier_rounds) return factor;
  if (compute == DType::kBF16) return static_cast<float>(BF16(factor));
  return compute == DType::kF16 ? static_cast<float>(F16(factor)) : factor;
}

}  // namespace

EmbeddingAndHead EmbeddingAndHead::load(const Weights& root, const ModelConfig& config,
                                        const EndNames& names, const NormSpec& norm,
                                        const LayerRange& layers) {
  const Weights body = root.sub(names.body);
  EmbeddingAndHead ends;
  ends.num_layers = config.num_layers;
  ends.hidden_size = config.hidden_size;
  ends.layers = layers.of(config.num_layers);
  ends.embedding_multiplier = multiplier_in(config, root.numerics().compute);
  ends.logit_scale = static_cast<float>(config.logit_scale);
  ends.logit_softcap = static_cast<float>(config.logit_softcap);
  const bool has_head = root.has(std::string(names.head) + ".weight", !config.tie_word_embeddings);
  ends.tied = !has_head || config.tie_word_embeddings;
  ends.shares_head = root.tp_size() > 1 && config.vocab_size % root.tp_size() == 0 &&
                     (!ends.tied || root.device().kind == DeviceKind::kCpu);
  ends.shares_embedding = ends.shares_head && ends.tied;
  if (ends.shares_head) ends.first_row = root.share(config.vocab_size, "vocabulary").begin;
  ends.load_end(root, body, config, names, norm);
  ends.load_begin(body, config, names, norm);
  return ends;
}

// The head, or the embedding as a head has it.
Linear EmbeddingAndHead::load_table(const Weights& from, std::string_view name,
                                    const ModelConfig& config) const {
  return Linear::load(from, {{name, config.vocab_size}}, hidden_size,
                      shares_head ? Shard::kColumn : Shard::kReplicated, false, false);
}

ops::Weight EmbeddingAndHead::load_embedding(const Weights& from, std::string_view name,
                                             std::int64_t rows, std::int64_t columns) {
  const WeightParts parts{{name, rows}};
  const Numerics& numerics = from.numerics();
  // Blocks of a file keep their form: on a GPU in fragments, on a CPU in tiles.
  if (const std::optional<ops::Weight> blocks =
          FragmentWeights(from, parts, columns, Shard::kReplicated, false).load())
    return *blocks;
  if (numerics.keep_blocks && !numerics.int_fragments &&
      ops::is_quantised(from.form({std::string(name) + ".weight"}, numerics.compute).format))
    return from.packed(parts, columns, Shard::kReplicated, false);
  return from.matrix(parts, columns, Shard::kReplicated);
}

void EmbeddingAndHead::load_begin(const Weights& body, const ModelConfig& config,
                                  const EndNames& names, const NormSpec& norm_spec) {
  if (layers.begin > 0) {
    for (const std::string_view name : {names.embedding, names.embedding_norm, names.positions})
      if (!name.empty()) body.sub(name).leave_out();
    return;
  }
  if (!names.embedding_norm.empty())
    embedding_norm =
        Norm::load(body, names.embedding_norm, hidden_size, config.rms_norm_eps, norm_spec);
  if (!names.positions.empty())
    positions =
        body.matrix({{names.positions, config.max_position_embeddings + names.position_offset}},
                    hidden_size, Shard::kReplicated)
            .rows(names.position_offset, config.max_position_embeddings);
  if (!tied)
    embedding = load_embedding(body, names.embedding, config.vocab_size, hidden_size);
  else
    embedding = head.defined() ? head.weight : load_table(body, names.embedding, config).weight;
}

void EmbeddingAndHead::load_end(const Weights& root, const Weights& body, const ModelConfig& config,
                                const EndNames& names, const NormSpec& norm_spec) {
  if (layers.end < num_layers) {
    body.sub(names.norm).leave_out();
    if (!tied) root.sub(names.head).leave_out();
    return;
  }
  norm = Norm::load(body, names.norm, hidden_size, config.rms_norm_eps, norm_spec);
  head = tied ? load_table(body, names.embedding, config) : load_table(root, names.head, config);
  if (root.has(std::string(names.head) + ".bias", config.head_bias))
    head.bias = root.bias({{names.head, config.vocab_size}},
                          shares_head ? Shard::kColumn : Shard::kReplicated);
}

void EmbeddingAndHead::begin(Context& ctx, const ForwardBatch& fb, const StageIO& io) const {
  check(io.layer_begin >= layers.begin && io.layer_begin <= io.layer_end &&
            io.layer_end <= layers.end,
        "layers [{}, {}) of a model with {}, of which [{}, {}) are here", io.layer_begin,
        io.layer_end, num_layers, layers.begin, layers.end);
  check(io.hidden.rank == 2 && io.hidden.dim(0) == fb.num_tokens &&
            io.hidden.dim(1) == hidden_size && io.hidden.dtype == DType::kF32,
        "StageIO::hidden is {}, not float32 [{}, {}]", io.hidden, fb.num_tokens, hidden_size);
  check(io.aux_layers.size() == io.aux_hidden.size(), "{} auxiliary layers but {} places",
        io.aux_layers.size(), io.aux_hidden.size());
  if (io.layer_begin != 0) return;
  if (io.input_embeds.defined())
    ops::convert(ctx, io.input_embeds, io.hidden);
  else
    embed(ctx, fb, io.hidden);
}

void EmbeddingAndHead::embed(Context& ctx, const ForwardBatch& fb, const Tensor& hidden) const {
  look_up(ctx, fb.input_ids, hidden);
  if (embedding_multiplier != 1) ops::scale(ctx, hidden, embedding_multiplier, hidden);
  if (positions.defined()) {
    Arena::Scope scope(*ctx.arena);
    const Tensor places = ctx.arena->take(DType::kF32, {hidden.dim(0), hidden.dim(1)});
    ops::embedding(ctx, fb.positions, positions, places);
    ops::add(ctx, hidden, places, hidden);
  }
  if (embedding_norm.defined()) embedding_norm.forward(ctx, hidden, hidden);
}

void EmbeddingAndHead::look_up(Context& ctx, const Tensor& ids, const Tensor& out) const {
  if (!shares_embedding) return ops::embedding(ctx, ids, embedding, out);
  ops::embedding_of_share(ctx, ids, embedding, first_row, out);
  ops::sum_over_ranks(ctx, out);
}

void EmbeddingAndHead::score(Context& ctx, const ops::NormedRows& x, const Tensor& logits) const {
  if (!shares_head) return head.forward(ctx, x, logits);
  Arena::Scope scope(*ctx.arena);
  const Tensor part = ctx.arena->take(DType::kF32, {logits.dim(0), head.rows()});
  head.forward(ctx, x, part);
  ops::gather_columns(ctx, part, logits);
}

bool EmbeddingAndHead::wants_aux(const StageIO& io, int layer) {
  return std::find(io.aux_layers.begin(), io.aux_layers.end(), layer) != io.aux_layers.end();
}

void EmbeddingAndHead::keep_aux(Context& ctx, const StageIO& io, int layer,
                                ops::Residual& stream) const {
  if (!wants_aux(io, layer)) return;
  ops::add_branch(ctx, stream);
  for (std::size_t i = 0; i < io.aux_layers.size(); ++i)
    if (io.aux_layers[i] == layer) ops::convert(ctx, stream.hidden, io.aux_hidden[i]);
}

ops::NormedRows LastLayer::enter(Context& ctx, const ops::NormedRows& x, DType type,
                                 ops::Residual& stream) const {
  if (batch.query_rows.all()) return x;
  const Tensor rows = ops::rows_of(ctx, x, type);  // adds the branch that is pending
  if (!batch.query_rows.none()) ops::gather_rows(ctx, stream.hidden, batch.query_rows.rows, hidden);
  stream = {.hidden = hidden, .branch = stream.branch.rows(0, hidden.dim(0))};
  return rows;
}

LastLayer EmbeddingAndHead::last_layer(Context& ctx, const ForwardBatch& fb,
                                       const StageIO& io) const {
  LastLayer last{.batch = fb, .hidden = io.hidden};
  const std::int64_t num_rows = fb.logit_rows.defined() ? fb.logit_rows.dim(0) : 0;
  if (!io.only_logits || io.layer_end != num_layers || io.layer_begin == io.layer_end ||
      io.final_hidden.defined() || wants_aux(io, num_layers - 1) || num_rows >= fb.num_tokens)
    return last;
  const Tensor rows =
      num_rows > 0 ? fb.logit_rows : Tensor::dense(nullptr, DType::kI32, {0}, ctx.device);
  last.batch.query_rows = OutputRows::of_batch(ctx, fb, rows);
  last.hidden = ctx.arena->take(DType::kF32, {num_rows, io.hidden.dim(1)});
  return last;
}

void EmbeddingAndHead::end(Context& ctx, const StageIO& io, const LastLayer& last) const {
  if (io.layer_end != num_layers) return;
  const ForwardBatch& fb = last.batch;
  Arena::Scope scope(*ctx.arena);
  if (io.final_hidden.defined()) norm.forward(ctx, io.hidden, io.final_hidden);
  const std::int64_t num_rows = fb.logit_rows.defined() ? fb.logit_rows.dim(0) : 0;
  if (num_rows == 0) return;
  // A step of decode rows and drafts has a logit row for every token, in order.
  const bool in_order =
      !fb.query_rows.all() ||
      ((fb.mode == ForwardMode::kDecode || fb.mode == ForwardMode::kTargetVerify) &&
       num_rows == fb.num_tokens);
  const Tensor rows =
      in_order ? last.hidden : ctx.arena->take(DType::kF32, {num_rows, io.hidden.dim(1)});
  if (!in_order) ops::gather_rows(ctx, io.hidden, fb.logit_rows, rows);
  ops::Residual stream{.hidden = rows, .branch = {}};
  score(ctx, norm.of(ctx, stream), io.logits);
  if (logit_scale != 1) ops::scale(ctx, io.logits, logit_scale, io.logits);
  if (logit_softcap > 0) ops::softcap(ctx, io.logits, logit_softcap, io.logits);
}

std::vector<PageGroupSpec> gqa_page_groups(const ModelConfig& config, int num_ranks, DType dtype) {
  std::vector<PageGroupSpec> groups;
  for (int layer = 0; layer < config.num_layers; ++layer) {
    const LayerConfig layer_config = config.layer(layer);
    if (layer_config.recurrent) continue;
    const std::int64_t heads = std::max(1, config.kv_heads_of(layer) / num_ranks);
    const Retention retention = layer_config.window > 0  ? Retention::kWindow
                                : layer_config.chunk > 0 ? Retention::kChunk
                                                         : Retention::kFull;
    const std::int64_t span = layer_config.window > 0 ? layer_config.window : layer_config.chunk;
    // Keys are stored in panels only if values can be, too.
    const bool panels =
        ops::fits_panels(dtype, config.head_dim) && ops::fits_panels(dtype, config.value_dim());
    const auto plane = [&](const char* name, std::int64_t dim, ops::PlaneForm form) {
      return PlaneSpec{.name = name,
                       .dtype = dtype,
                       .row_elements = ops::kv_row_elements(dtype, heads, dim),
                       .layers = {},
                       .heads_as = panels ? form : ops::PlaneForm::kRows,
                       .heads = heads};
    };
    const PlaneSpec k = plane("k", config.head_dim, ops::PlaneForm::kKeyPanels);
    const PlaneSpec v = plane("v", config.value_dim(), ops::PlaneForm::kValuePanels);
    const auto same = [&](const PageGroupSpec& g) {
      return g.retention == retention && g.span == span &&
             g.planes[0].row_elements == k.row_elements;
    };
    auto group = std::find_if(groups.begin(), groups.end(), same);
    if (group == groups.end()) {
      const auto alike = std::count_if(groups.begin(), groups.end(), [&](const PageGroupSpec& g) {
        return g.retention == retention;
      });
      std::string name = retention == Retention::kFull     ? "full"
                         : retention == Retention::kWindow ? "window"
                                                           : "chunk";
      if (alike > 0) name += fmt::format("-{}", alike + 1);
      groups.push_back({{.name = std::move(name), .retention = retention, .span = span}, {k, v}});
      group = std::prev(groups.end());
    }
    for (PlaneSpec& plane : group->planes) plane.layers.push_back(layer);
  }
  return groups;
}

}  // namespace sluice
