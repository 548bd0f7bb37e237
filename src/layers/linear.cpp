#include "layers/linear.h"

#include <algorithm>

#include "base/error.h"
#include "layers/weights/fragment_weights.h"
#include "layers/weights/int8_weights.h"
#include "ops/fused.h"
#include "ops/gemm.h"

namespace sluice {
namespace {

// A scale beside the weight means a quantised form that nothing here reads.
bool has_scale(const Weights& weights, const WeightParts& parts) {
  const std::string name(parts.begin()->name);
  return weights.has(name + ".weight_scale_inv", false) ||
         weights.has(name + ".weight_scale", false);
}

// Consecutive parts with one form each. One list where all parts are rounded, or all are plain.
// Parts of less than a tile of fragments are widened: each would be a weight of its own.
std::vector<std::vector<WeightPart>> parts_by_form(const Weights& weights, const WeightParts& parts,
                                                   std::int64_t columns, Shard shard,
                                                   bool may_round) {
  const Numerics& numerics = weights.numerics();
  const bool has_blocks = numerics.keep_blocks && !numerics.int_fragments;
  const bool has_fragments =
      !numerics.quantization && (numerics.int_fragments || numerics.fp8_fragments);
  const auto form_of = [&](const std::vector<WeightPart>& some) -> std::optional<FragmentForm> {
    if (!has_fragments) return {};
    if (may_round && Int8Weights(weights, some, columns, shard).has_form())
      return FragmentForm{.format = ops::Format::kInt8, .group = 0, .int8_rows = true};
    auto form = FragmentWeights(weights, some, columns, shard, may_round).form();
    return form && form->reason.empty() ? std::move(form) : std::nullopt;
  };
  std::vector<std::vector<WeightPart>> groups;
  ops::Format last_blocks = ops::Format::kF32;
  std::optional<FragmentForm> last;
  bool last_is_plain = false;
  std::int64_t rows = 0;  // of the last group
  const auto num_parts = std::distance(parts.begin(), parts.end());
  for (const WeightPart& part : parts) {
    const ops::Format blocks =
        has_blocks ? weights.form({std::string(part.name) + ".weight"}, numerics.compute).format
                   : ops::Format::kF32;
    const std::vector<WeightPart> alone{part};
    const std::int64_t own_rows = FragmentWeights(weights, alone, columns, shard).rows();
    std::optional<FragmentForm> own =
        own_rows < ops::kFragmentRows && num_parts > 1 ? std::nullopt : form_of(alone);
    const bool is_plain = weights.stays_plain(std::string(part.name) + ".weight");
    bool joins = !groups.empty() && last_blocks == blocks && last_is_plain == is_plain &&
                 last.has_value() == own.has_value();
    if (joins && own && (rows % ops::kFragmentRows != 0 || !own->is_as(*last))) {
      std::vector<WeightPart> both = groups.back();
      both.push_back(part);
      own = form_of(both);
      joins = own.has_value();
      if (!joins) own = form_of(alone);
    }
    if (!joins) {
      groups.emplace_back();
      rows = 0;
    }
    groups.back().push_back(part);
    rows += own_rows;
    last_blocks = blocks;
    last_is_plain = is_plain;
    last = std::move(own);
  }
  return groups;
}

}  // namespace

Linear Linear::load(const Weights& weights, const WeightParts& parts, std::int64_t columns,
                    Shard shard, bool bias, bool may_round) {
  Linear linear;
  if (const auto groups = parts_by_form(weights, parts, columns, shard, may_round);
      groups.size() > 1) {
    for (const std::vector<WeightPart>& group : groups) {
      linear.pieces.push_back(load(weights, group, columns, shard, bias, may_round));
      linear.weight.rows += linear.pieces.back().rows();
    }
    linear.weight.columns = linear.pieces.front().columns();
    linear.reduce = linear.pieces.front().reduce;
    return linear;
  }
  linear.weight = weights.packed(parts, columns, shard, may_round);
  require(ops::is_quantised(linear.weight.format) || !has_scale(weights, parts),
          "{} has a scale beside it, but neither quantization_config of config.json nor "
          "hf_quant_config.json says how it is quantised",
          weights.path(parts.begin()->name));
  if (bias) linear.bias = weights.bias(parts, shard);
  linear.reduce = shard == Shard::kRow && weights.tp_size() > 1;
  return linear;
}

void Linear::forward(Context& ctx, const ops::NormedRows& x, const Tensor& out) const {
  if (!pieces.empty()) {
    Arena::Scope scope(*ctx.arena);
    const DType type = pieces.front().input();
    const bool are_alike =
        std::ranges::all_of(pieces, [&](const Linear& piece) { return piece.input() == type; });
    const Tensor rows = ops::rows_of(ctx, x, are_alike ? type : DType::kF32);
    std::int64_t first = 0;
    for (const Linear& piece : pieces) {
      piece.forward(ctx, rows, out.slice(1, first, piece.rows()));
      first += piece.rows();
    }
    return;
  }
  ops::norm_linear(ctx, x, weight, bias, out);
  if (reduce) ops::sum_over_ranks(ctx, out);
}

void Linear::add(Context& ctx, const Tensor& x, ops::Residual& stream) const {
  Arena::Scope scope(*ctx.arena);
  if (!pieces.empty()) {
    forward(ctx, x, stream.branch);
    stream.pending = true;
    return;
  }
  ops::linear_add(ctx, ops::prepared(ctx, x, weight), weight, bias, reduce, stream);
}

QueriesAndRest split_forward(Context& ctx, const Linear& linear, const ForwardBatch& fb,
                             const ops::NormedRows& x, std::int64_t num_queries) {
  const std::int64_t num_rest = linear.rows() - num_queries;
  const bool any = num_queries > 0 && !fb.query_rows.none();
  if (fb.query_rows.all() || num_queries == 0 || !linear.pieces.empty() ||
      !linear.weight.begins_at(num_queries)) {
    const Tensor both = ctx.arena->take(DType::kF32, {x.count(), linear.rows()});
    linear.forward(ctx, x, both);
    return {.queries = any ? fb.query_rows.of(ctx, both.slice(1, 0, num_queries)) : Tensor{},
            .rest = both.slice(1, num_queries, num_rest)};
  }
  const Tensor rows = ops::rows_of(ctx, x, linear.input());
  const auto part = [&](std::int64_t begin, std::int64_t count, const Tensor& input) {
    Linear some = linear;
    some.weight = linear.weight.slice(begin, count);
    if (linear.bias.defined()) some.bias = linear.bias.rows(begin, count);
    const Tensor out = ctx.arena->take(DType::kF32, {input.dim(0), count});
    some.forward(ctx, input, out);
    return out;
  };
  return {.queries = any ? part(0, num_queries, fb.query_rows.of(ctx, rows)) : Tensor{},
          .rest = part(num_queries, num_rest, rows)};
}

}  // namespace sluice
