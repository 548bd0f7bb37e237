#include "layers/moe.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"
#include "layers/weights/expert_blocks.h"
#include "layers/weights/expert_fragments.h"
#include "layers/weights/shared_experts.h"
#include "layers/weights/stacked_experts.h"
#include "ops/activation.h"
#include "ops/elementwise.h"
#include "ops/fused.h"
#include "ops/gemm.h"
#include "ops/moe.h"
#include "ops/ranks.h"
#include "tensor/copy.h"

namespace sluice {
namespace {

// Allocates the experts of this rank, each with this share of the width. `up` and `down` name the
// source tensors of w13 and w2.
void take_rows_or_tiles(const Weights& block, const std::vector<std::string>& up,
                        const std::vector<std::string>& down, std::int64_t experts,
                        std::int64_t hidden, AxisRange share, DType dtype, Moe& moe) {
  const std::int64_t width = share.count;
  moe.w13 = block.form(up, dtype);
  moe.w2 = block.form(down, dtype);
  // Stacks in rows are multiplied with each other's kind only.
  if (moe.w13.is_row_major() || moe.w2.is_row_major()) {
    moe.w13 = block.take(dtype, {experts, 2 * width, hidden});
    moe.w2 = block.take(dtype, {experts, hidden, width});
    moe.w13.input = moe.w2.input = block.numerics().gemm();
    return;
  }
  block.require_whole_blocks(moe.w2, down.front(), share);
  moe.w13.rows = 2 * width;
  moe.w13.columns = moe.w2.rows = hidden;
  moe.w2.columns = width;
  block.take(moe.w13, experts);
  block.take(moe.w2, experts);
}

// Loads this rank's experts one by one: experts.<e>.{gate,up,down}.weight.
void load_single_experts(const Weights& block, const ModelConfig& config, const MlpNames& names,
                         const ExpertShare& own, Moe& moe) {
  const std::int64_t experts = config.moe->num_experts, width = config.moe->moe_intermediate_size;
  const std::int64_t hidden = config.hidden_size;
  const AxisRange share = own.columns;
  const std::string gate = fmt::format("{}.weight", names.gate),
                    up = fmt::format("{}.weight", names.up),
                    down = fmt::format("{}.weight", names.down);
  if (own.lacks_some(experts))
    for (int e = 0; e < experts; ++e)
      for (const std::string& name : {gate, up, down}) block.sub("experts", e).leave(name);
  const ExpertShape shape{experts, hidden, width, own};
  const ExpertNames all{gate, up, down};
  if (ExpertFragments(block, all, shape).load(moe.w13, moe.w2) ||
      ExpertBlocks(block, all, shape).load(moe.w13, moe.w2))
    return;
  const Weights one = block.sub("experts", static_cast<int>(shape.alike(block).front()));
  take_rows_or_tiles(one, {gate, up}, {down}, static_cast<std::int64_t>(own.experts.size()), hidden,
                     share, one.matrix_dtype({gate, up, down}), moe);
  for (std::size_t i = 0; i < own.experts.size(); ++i) {
    const auto at = static_cast<std::int64_t>(i);
    const Weights expert = block.sub("experts", static_cast<int>(own.experts[i]));
    expert.fill(moe.w13, at, 0, gate, {width, hidden}, {share});
    expert.fill(moe.w13, at, share.count, up, {width, hidden}, {share});
    expert.fill(moe.w2, at, 0, down, {hidden, width}, {{}, share});
  }
}

// MXFP4 files have NAME_blocks. Its rows are the outputs, even if a plain file is transposed.
constexpr std::string_view kBlocks = "_blocks";

// The layer's experts are in two tensors. If gate and up rows alternate in the file, they alternate
// in w13.
void load_stacked_experts(const Weights& block, const ModelConfig& config, const ExpertStack& names,
                          const ExpertShare& own, Moe& moe) {
  const bool blocks = !block.has(names.gate_up, names.always);
  const bool transposed = names.transposed && !blocks;
  const std::int64_t experts = config.moe->num_experts, width = config.moe->moe_intermediate_size;
  const std::int64_t hidden = config.hidden_size;
  const AxisRange share = own.columns;
  const std::string suffix(blocks ? kBlocks : ""), up = std::string(names.gate_up) + suffix,
                                                   down = std::string(names.down) + suffix;
  moe.experts.interleaved = names.interleaved;
  if (StackedExperts(block, {up, down, names.interleaved, transposed},
                     {experts, hidden, width, own})
          .load(moe.w13, moe.w2))
    return;
  const auto num_own = static_cast<std::int64_t>(own.experts.size());
  take_rows_or_tiles(block, {up}, {down}, num_own, hidden, share, block.matrix_dtype({up, down}),
                     moe);
  // Rows [to, to + rows.count) of this rank's expert `at` from rows of its tensor, all columns or a
  // share of them.
  const auto fill = [&](const ops::Weight& w, std::int64_t at, std::int64_t to,
                        const std::string& name, std::int64_t all_rows, AxisRange rows,
                        std::int64_t all_columns, AxisRange columns) {
    const std::int64_t e = own.experts[static_cast<std::size_t>(at)];
    if (transposed)
      block.fill_transposed(w, at, to, name, {experts, all_columns, all_rows},
                            {{e, 1}, columns, rows});
    else
      block.fill(w, at, to, name, {experts, all_rows, all_columns}, {{e, 1}, rows, columns});
  };
  for (std::int64_t at = 0; at < num_own; ++at) {
    if (names.interleaved)
      fill(moe.w13, at, 0, up, 2 * width, {2 * share.begin, 2 * share.count}, hidden, {});
    else
      for (const std::int64_t half : {0, 1})
        fill(moe.w13, at, half * share.count, up, 2 * width,
             {half * width + share.begin, share.count}, hidden, {});
    fill(moe.w2, at, 0, down, hidden, {0, hidden}, width, share);
  }
}

// Biases of stacked experts, if the file has them. The ranks' results are summed, so only the first
// rank with columns of an expert adds the bias of its second GEMM.
void load_expert_biases(const Weights& block, const ModelConfig& config, const ExpertStack& names,
                        const ExpertShare& own, Moe& moe) {
  const std::int64_t experts = config.moe->num_experts, width = config.moe->moe_intermediate_size;
  const std::int64_t hidden = config.hidden_size;
  const std::string up = std::string(names.gate_up) + "_bias",
                    down = std::string(names.down) + "_bias";
  const bool by_config = config.moe->swiglu_limit > 0;
  if (!block.has(up, by_config)) return;
  const AxisRange share = own.columns;
  const auto num_own = static_cast<std::int64_t>(own.experts.size());
  const Tensor up_bias = block.take(DType::kF32, {num_own, 2 * share.count});
  moe.experts.up_bias = up_bias;
  const bool adds_down = share.begin == 0;
  if (adds_down) moe.experts.down_bias = block.take(DType::kF32, {num_own, hidden});
  for (std::int64_t i = 0; i < num_own; ++i) {
    const std::int64_t e = own.experts[static_cast<std::size_t>(i)];
    const auto fill_up = [&](std::int64_t to, std::int64_t count, AxisRange rows) {
      block.fill(up_bias.at(i).rows(to, count), up, {experts, 2 * width}, {{e, 1}, rows},
                 WeightInit::kZeros);
    };
    if (names.interleaved)
      fill_up(0, 2 * share.count, {2 * share.begin, 2 * share.count});
    else
      for (const std::int64_t half : {0, 1})
        fill_up(half * share.count, share.count, {half * width + share.begin, share.count});
    if (adds_down)
      block.fill(moe.experts.down_bias.at(i), down, {experts, hidden}, {{e, 1}},
                 WeightInit::kZeros);
  }
  if (!adds_down) block.leave(down);
}

// Where each of the layer's experts is among those of this rank.
Tensor places_of(const Weights& block, const ExpertShare& own, std::int64_t experts) {
  const Tensor places = block.take(DType::kI32, {experts});
  HostImage image(places);
  std::int32_t* const to = image.tensor().ptr<std::int32_t>();
  std::fill_n(to, experts, -1);
  for (std::size_t i = 0; i < own.experts.size(); ++i)
    to[own.experts[i]] = static_cast<std::int32_t>(i);
  image.put();
  return places;
}

// The tables of a layer whose experts have places by a map.
ExpertLayer layer_of(const Weights& block, const ExpertShare& share, std::int64_t experts) {
  const std::vector<int> counts = replica_counts(share.map, static_cast<int>(experts));
  const std::int64_t spare = static_cast<std::int64_t>(share.map.size()) - experts;
  // As many as can be, where places change.
  const std::int64_t most = share.moves ? 1 + spare : *std::ranges::max_element(counts);
  ExpertLayer layer{.groups = share.groups,
                    .own_group = share.own_group,
                    .map = {},
                    .moves = share.moves,
                    .replicas = block.take(DType::kI32, {experts, 1 + most}),
                    .choices = block.take(DType::kI64, {experts}),
                    .group_choices = block.take(DType::kI64, {share.groups}),
                    .stacks = {}};
  for (const Tensor* counter : {&layer.choices, &layer.group_choices})
    std::fill_n(counter->ptr<std::int64_t>(), counter->numel(), 0);
  layer.set_map(share.map);
  return layer;
}

// The layer's experts move, if their places do.
void register_layer(const Weights& block, ExpertLayer layer, const Moe& moe, std::int64_t hidden) {
  for (const ops::Weight* stack : {&moe.w13, &moe.w2})
    for (const Tensor* part : {&stack->data, &stack->scales})
      if (part->defined()) layer.stacks.push_back(*part);
  if (moe.experts.up_bias.defined()) layer.stacks.push_back(moe.experts.up_bias);
  layer.first_rank_bytes = layer.other_rank_bytes = layer.expert_bytes();
  if (moe.experts.up_bias.defined()) layer.first_rank_bytes += hidden * dtype_size(DType::kF32);
  if (moe.experts.down_bias.defined()) layer.stacks.push_back(moe.experts.down_bias);
  block.add(std::move(layer));
}

// From this rank's parts of the stacks to the stacks of all ranks.
void compute_any_expert(SharedExperts& experts, Moe& moe) {
  const auto widen = [&](Tensor& part) { part = experts.whole(part); };
  for (ops::Weight* stack : {&moe.w13, &moe.w2}) {
    widen(stack->data);
    widen(stack->scales);
    stack->count *= experts.num_ranks();
  }
  widen(moe.experts.up_bias);
  widen(moe.experts.down_bias);
  // By the number of the expert, as the stacks of all ranks are.
  auto* const places = moe.places.ptr<std::int32_t>();
  for (std::int64_t e = 0; e < moe.places.numel(); ++e)
    if (places[e] >= 0) places[e] = static_cast<std::int32_t>(e);
  experts.add(moe.places, moe.choices);
}

}  // namespace

ops::RouterParams router_params(const MoeConfig& moe) {
  if (moe.topk_method == TopkMethod::kSparseMixer)
    return ops::sparse_mixer(static_cast<float>(moe.mixer_eps));
  if (moe.topk_method == TopkMethod::kNoauxTc) {
    ops::RouterParams params =
        ops::deepseek_v3_router(moe.top_k, moe.n_group, moe.topk_group, moe.norm_topk_prob,
                                static_cast<float>(moe.routed_scaling_factor));
    params.scoring = moe.scoring;
    if (moe.topk_norm_min > 0)
      return ops::ernie_router(moe.top_k, static_cast<float>(moe.topk_norm_min));
    return params;
  }
  if (moe.topk_method == TopkMethod::kGroupLimitedGreedy || moe.routed_scaling_factor != 1.0)
    return ops::deepseek_v2_router(
        moe.top_k, moe.topk_method == TopkMethod::kGroupLimitedGreedy ? moe.n_group : 1,
        moe.topk_group, moe.norm_topk_prob, static_cast<float>(moe.routed_scaling_factor));
  if (moe.scoring == RouterScoring::kSigmoid) return ops::llama4_router(moe.top_k);
  return ops::softmax_router(moe.top_k, moe.norm_topk_prob);
}

Moe Moe::load(const Weights& layer, const ModelConfig& config, const MoeNames& names) {
  check(config.moe.has_value(), "a MoE layer without a MoE configuration");
  const MoeConfig& own = *config.moe;
  const Weights block = layer.sub(names.block);
  Moe moe;
  moe.params = router_params(own);
  moe.experts = gate_activation(config.hidden_act);
  moe.experts.clamp = static_cast<float>(own.swiglu_limit);
  moe.experts.alpha = static_cast<float>(own.swiglu_alpha);
  moe.experts.weigh_input = own.weigh_input;
  moe.reduce = layer.tp_size() > 1;
  moe.router = block.matrix_f32({names.router, own.num_experts}, config.hidden_size);
  const std::string router_bias = std::string(names.router) + ".bias";
  if (block.has(router_bias, own.swiglu_limit > 0))
    moe.router_bias = block.vector(router_bias, own.num_experts, WeightInit::kZeros);
  if (own.topk_method == TopkMethod::kNoauxTc) {
    moe.correction_bias = block.take(DType::kF32, {own.num_experts});
    std::vector<std::int64_t> shape{own.num_experts};
    if (names.correction_is_row) shape.insert(shape.begin(), 1);
    block.fill(moe.correction_bias, names.correction_bias, shape, {}, WeightInit::kZeros);
  }
  const ExpertShare share = block.share_experts(own.num_experts, own.moe_intermediate_size);
  moe.experts.groups = share.groups;
  std::optional<ExpertLayer> mapped;
  SharedExperts* const in_common = block.shared_experts();
  if (in_common != nullptr) {
    require(own.num_experts % share.groups == 0, "{}: {} experts of {} groups are no equal parts",
            block.path("experts"), own.num_experts, share.groups);
    moe.places = places_of(block, share, own.num_experts);
    moe.sums_pairs = true;
    // All ranks see all tokens, and the first one deals.
    moe.counts_choices = share.own_group == 0;
    if (moe.counts_choices) {
      moe.choices = block.take(DType::kI64, {own.num_experts});
      std::fill_n(moe.choices.ptr<std::int64_t>(), own.num_experts, 0);
    }
  } else if (!share.map.empty()) {
    mapped = layer_of(block, share, own.num_experts);
    moe.replicas = mapped->replicas;
    moe.choices = mapped->choices;
    moe.group_choices = mapped->group_choices;
    moe.num_places = static_cast<std::int64_t>(share.map.size());
    moe.first_place = mapped->first_place();
    moe.sums_pairs = share.moves && moe.reduce;
  } else if (share.lacks_some(own.num_experts)) {
    moe.places = places_of(block, share, own.num_experts);
  }
  block.take_shared(true);
  const std::string stack_in_blocks = std::string(names.stack.gate_up) + std::string(kBlocks);
  if (block.has(names.stack.gate_up, names.stack.always) || block.has(stack_in_blocks, false)) {
    load_stacked_experts(block, config, names.stack, share, moe);
    load_expert_biases(block, config, names.stack, share, moe);
  } else {
    load_single_experts(block, config, names.expert, share, moe);
    // A GGUF file has single experts and stacked biases, those of gate before those of up.
    ExpertStack biases = names.stack;
    biases.interleaved = false;
    load_expert_biases(block, config, biases, share, moe);
  }
  block.take_shared(false);
  if (in_common != nullptr) compute_any_expert(*in_common, moe);
  if (mapped) register_layer(block, std::move(*mapped), moe, config.hidden_size);
  if (own.shared_expert_intermediate_size > 0) {
    check(!names.shared_experts.empty(), "a family without shared experts has some");
    moe.has_whole_shared = in_common != nullptr;
    const Weights shared = block.sub(names.shared_experts);
    moe.shared = Mlp::load(moe.has_whole_shared ? shared.shared_by_group() : shared, config,
                           own.shared_expert_intermediate_size, false);
    moe.shared->down.reduce = false;  // one sum for all experts
    if (own.shared_expert_gate)
      moe.shared_gate = block.matrix_f32({names.shared_gate, 1}, config.hidden_size);
  }
  return moe;
}

void Moe::forward(Context& ctx, const ops::NormedRows& x, ops::Residual& stream) const {
  Arena::Scope scope(*ctx.arena);
  const std::int64_t tokens = x.count(), top_k = params.top_k;
  const ops::PreparedRows shape = ops::prepared_shape(ctx, w13, tokens);
  const bool are_numbers = shape.are_numbers(w13);
  const bool reads_f32 =
      shape.dtype == DType::kF32 || shared_gate.defined() || (shared && !are_numbers);
  const Tensor normed = reads_f32 ? ops::rows_of(ctx, x, DType::kF32) : Tensor{};
  const Tensor rows =
      shape.dtype == DType::kF32 ? normed : ctx.arena->take(shape.dtype, {tokens, shape.elements});
  const Tensor weights = ctx.arena->take(DType::kF32, {tokens, top_k});
  const Tensor ids = ctx.arena->take(DType::kI32, {tokens, top_k});
  ops::norm_route(ctx, reads_f32 ? ops::NormedRows(normed) : x, router, router_bias,
                  correction_bias, params, w13, rows, weights, ids);
  if (counts_choices) ops::count_choices(ctx, ids, choices);
  if (places.defined()) ops::place_experts(ctx, places, ids);
  if (replicas.defined())
    ops::place_replicas(ctx,
                        {.replicas = replicas,
                         .choices = choices,
                         .group_choices = group_choices,
                         .num_places = num_places,
                         .first_place = first_place},
                        weights, ids);
  const auto add_share = [&](const Tensor& sum) {
    ops::Residual extra{.hidden = {},
                        .branch = ctx.arena->take(DType::kF32, {tokens, router.dim(1)}),
                        .keeps_branch = true};
    shared->forward(ctx, are_numbers ? rows : normed, extra);
    if (shared_gate.defined()) {
      const Tensor gate = ctx.arena->take(DType::kF32, {tokens, 1});
      ops::linear(ctx, normed, shared_gate, {}, gate);
      ops::sigmoid_mul(ctx, extra.branch, gate, extra.branch);
    }
    if (sums_pairs) ops::sum_over_ranks(ctx, extra.branch);
    ops::add(ctx, sum, extra.branch, sum);
  };
  if (sums_pairs) {
    ops::sum_pairs(ctx, rows, w13, w2, weights, ids, experts, stream.branch);
    if (shared && !has_whole_shared) add_share(stream.branch);
    stream.pending = true;
    return;
  }
  if (!shared) return ops::experts_add(ctx, rows, w13, w2, weights, ids, experts, reduce, stream);

  ops::Residual routed{.hidden = {}, .branch = stream.branch, .keeps_branch = true};
  ops::experts_add(ctx, rows, w13, w2, weights, ids, experts, false, routed);
  add_share(stream.branch);
  stream.pending = true;
  if (reduce) ops::add_over_ranks(ctx, stream);
}

void Moe::add_shared(Context& ctx, const Tensor& x, const Tensor& sum) const {
  Arena::Scope scope(*ctx.arena);
  ops::Residual extra{.hidden = {},
                      .branch = ctx.arena->take(DType::kF32, {x.dim(0), x.dim(1)}),
                      .keeps_branch = true};
  shared->forward(ctx, x, extra);
  if (shared_gate.defined()) {
    const Tensor gate = ctx.arena->take(DType::kF32, {x.dim(0), 1});
    ops::linear(ctx, x, shared_gate, {}, gate);
    ops::sigmoid_mul(ctx, extra.branch, gate, extra.branch);
  }
  ops::add(ctx, sum, extra.branch, sum);
}

FeedForward FeedForward::load(const Weights& own_layer, const ModelConfig& config,
                              const LayerConfig& own, const MoeNames& names, std::string_view mlp,
                              const MlpNames& dense_names) {
  const Weights layer = own_layer.shared_by_all_ranks();
  FeedForward feed_forward;
  feed_forward.is_alone = layer.shared_experts() != nullptr;
  if (own.is_moe)
    feed_forward.moe = Moe::load(layer, config, names);
  else
    feed_forward.dense = Mlp::load((feed_forward.is_alone ? own_layer : layer).sub(mlp), config,
                                   config.intermediate_size, config.mlp_bias, dense_names);
  return feed_forward;
}

void FeedForward::forward(Context& ctx, const ops::NormedRows& x, ops::Residual& stream,
                          const DpGroups* dp) const {
  if (dp == nullptr || (is_alone && dense)) return of_rows(ctx, x, stream);
  Arena::Scope scope(*ctx.arena);
  const Tensor own = ops::rows_of(ctx, x, input());
  Context all = ctx;
  all.communicator = dp->all_ranks;
  all.rank = dp->all_ranks->rank();
  const Tensor rows = ctx.arena->take(own.dtype, {dp->num_rows(), own.dim(1)});
  ops::gather_groups(all, dp->rows, own, rows);
  const std::vector<RowPart> parts = dp->parts();
  ops::Residual sum{.hidden = {},
                    .branch = ctx.arena->take(DType::kF32, {dp->num_rows(), own.dim(1)}),
                    .keeps_branch = true,
                    .parts = parts};
  of_rows(all, rows, sum);
  ops::convert(ctx, sum.branch.rows(dp->first_row(), own.dim(0)), stream.branch);
  if (moe && moe->has_whole_shared) moe->add_shared(ctx, own, stream.branch);
  stream.pending = true;
}

}  // namespace sluice
