#include "models/ends.h"

#include <algorithm>

#include "base/error.h"
#include "ops/elementwise.h"
#include "ops/embedding.h"
#include "ops/gemm.h"
#include "ops/kv.h"
#include "tensor/format.h"

namespace sluice {

DecoderEnds DecoderEnds::load(const Weights& root, const ModelConfig& config) {
  const Weights body = root.sub("model");
  DecoderEnds ends;
  ends.num_layers = config.num_layers;
  ends.norm = RmsNorm::load(body, "norm", config.hidden_size, config.rms_norm_eps);
  const bool has_head = root.has("lm_head.weight", !config.tie_word_embeddings);
  const bool tied = !has_head || config.tie_word_embeddings;
  ends.head = Linear::load(tied ? body : root, {{tied ? "embed_tokens" : "lm_head", config.vocab_size}},
                           config.hidden_size, Shard::kReplicated, false);
  ends.embedding = tied ? ends.head.weight
                        : body.matrix({{"embed_tokens", config.vocab_size}}, config.hidden_size, Shard::kReplicated);
  return ends;
}

void DecoderEnds::begin(Context& ctx, const ForwardBatch& fb, const StageIO& io) const {
  check(io.layer_begin >= 0 && io.layer_begin <= io.layer_end && io.layer_end <= num_layers,
        "layers [{}, {}) of a model with {}", io.layer_begin, io.layer_end, num_layers);
  check(io.hidden.rank == 2 && io.hidden.dim(0) == fb.num_tokens && io.hidden.dim(1) == embedding.columns &&
            io.hidden.dtype == DType::kF32,
        "StageIO::hidden is {}, not float32 [{}, {}]", io.hidden, fb.num_tokens, embedding.columns);
  check(io.aux_layers.size() == io.aux_hidden.size(), "{} auxiliary layers but {} places",
        io.aux_layers.size(), io.aux_hidden.size());
  if (io.layer_begin != 0) return;
  if (io.input_embeds.defined())
    ops::convert(ctx, io.input_embeds, io.hidden);
  else
    ops::embedding(ctx, fb.input_ids, embedding, io.hidden);
}

void DecoderEnds::keep_aux(Context& ctx, const StageIO& io, int layer) const {
  for (std::size_t i = 0; i < io.aux_layers.size(); ++i)
    if (io.aux_layers[i] == layer) ops::convert(ctx, io.hidden, io.aux_hidden[i]);
}

void DecoderEnds::end(Context& ctx, const ForwardBatch& fb, const StageIO& io) const {
  if (io.layer_end != num_layers) return;
  Arena::Scope scope(*ctx.arena);
  if (io.final_hidden.defined()) norm.forward(ctx, io.hidden, io.final_hidden);
  const std::int64_t num_rows = fb.logit_rows.defined() ? fb.logit_rows.dim(0) : 0;
  if (num_rows == 0) return;
  const Tensor rows = ctx.arena->take(DType::kF32, {num_rows, io.hidden.dim(1)});
  ops::gather_rows(ctx, io.hidden, fb.logit_rows, rows);
  norm.forward(ctx, rows, rows);
  head.forward(ctx, rows, io.logits);
}

std::vector<PageGroupSpec> gqa_page_groups(const ModelConfig& config, std::int64_t kv_heads, DType dtype) {
  std::vector<PageGroupSpec> groups;
  for (int layer = 0; layer < config.num_layers; ++layer) {
    const std::int64_t window = config.layer(layer).window;
    auto group =
        std::find_if(groups.begin(), groups.end(), [&](const PageGroupSpec& g) { return g.span == window; });
    if (group == groups.end()) {
      const PlaneSpec plane{.name = "k",
                            .dtype = dtype,
                            .row_elements = ops::kv_row_elements(dtype, kv_heads, config.head_dim),
                            .layers = {},
                            .heads_as = ops::PlaneForm::kKeyPanels,
                            .heads = kv_heads};
      groups.push_back({.name = window == 0 ? "full" : "window",
                        .retention = window == 0 ? Retention::kFull : Retention::kWindow,
                        .span = window,
                        .planes = {plane, plane}});
      group = std::prev(groups.end());
      group->planes[1].name = "v";
      group->planes[1].heads_as = ops::PlaneForm::kValuePanels;
    }
    for (PlaneSpec& plane : group->planes) plane.layers.push_back(layer);
  }
  return groups;
}

}  // namespace sluice
