#include "runtime/drafts/draft_runner.h"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <utility>

#include "base/error.h"
#include "base/log.h"
#include "ops/elementwise.h"
#include "ops/tokens.h"
#include "tensor/copy.h"

namespace sluice {
namespace {

// Slots that may be left out: one sequence's of some hundred steps, or many sequences' of a few.
constexpr std::int64_t kMaxLeftOut = 2048;

// Buffers: of each depth, and of slots that were left out before.
int num_buffers(const DraftLimits& limits, const DraftShape& shape) {
  return shape.block_size > 0 ? 3 : limits.passes() + 1;
}

BatchLimits pass_limits(const DraftLimits& limits, const DraftShape& shape, int depth) {
  BatchLimits out = limits.batch;
  const bool is_first = depth == 0 || depth + 1 == num_buffers(limits, shape);
  out.max_seqs = out.max_logit_rows = is_first ? limits.max_sequences : limits.rows();
  if (!is_first) out.max_tokens = out.max_logit_rows = out.max_seqs * limits.rows_of_draft(shape);
  out.draft_rows = out.has_states = false;  // a draft's layers attend
  out.kept_rows = 0;
  out.has_sources = limits.row_runs_of(shape) > 0;
  return out;
}

// Of the first run of decode rows.
BatchLimits row_run_limits(const DraftLimits& limits, const DraftShape& shape) {
  BatchLimits out = limits.batch;
  // Where slots hold their own tokens, there is one more than the step has added.
  if (out.run_rows > 0 && shape.target_width == 0) ++out.run_rows;
  out.max_tokens = out.max_seqs = out.max_logit_rows = limits.first_run_rows();
  out.has_states = false;
  out.tree_rows = out.kept_rows = 0;
  out.draft_rows = out.has_sources = true;
  return out;
}

}  // namespace

// Parts of one buffer, or their size.
struct DraftRunner::Layout {
  Tensor target, first_states, next_states[2], left_out_states, from_rows, last_seen, greedy,
      places, tokens, chosen, target_tokens, known, wanted_best, best_tokens, counters;
  std::int64_t bytes = 0;

  Layout(const DraftLimits& limits, const DraftShape& shape, std::size_t num_target_tokens,
         const Buffer* buffer) {
    const auto take = [&](DType dtype, std::initializer_list<std::int64_t> dims) {
      const Tensor sized = Tensor::dense(nullptr, dtype, dims);
      const std::int64_t offset = bytes;
      bytes += (sized.bytes() + 63) / 64 * 64;
      return buffer ? buffer->tensor(dtype, dims, offset) : sized;
    };
    const std::int64_t rows = limits.rows(), all = limits.batch.max_tokens,
                       in_pass = rows * limits.rows_of_draft(shape);
    first_states = take(DType::kF32, {all, shape.hidden_size});
    // Target's states of the draft's width lie where its own will.
    if (shape.target_width == shape.hidden_size)
      target = first_states;
    else if (shape.target_width > 0)
      target = take(DType::kF32, {all, shape.target_width});
    for (Tensor& states : next_states) states = take(DType::kF32, {in_pass, shape.hidden_size});
    if (shape.target_width > 0)
      left_out_states =
          take(DType::kF32, {max_kept(limits.batch.max_tokens) + 1, shape.target_width});
    from_rows = take(DType::kI32, {all});
    if (shape.block_size > 0) last_seen = take(DType::kI32, {in_pass});
    greedy = take(DType::kU8, {in_pass, sizeof(ops::SampleRow)});
    places = take(DType::kI32, {in_pass});
    tokens = take(DType::kI32, {limits.passes(), std::max(rows, limits.row_runs_of(shape))});
    if (limits.row_runs_of(shape) > 0) counters = take(DType::kI64, {limits.passes()});
    chosen = take(DType::kI32, {rows});
    if (limits.has_trees()) {
      wanted_best = take(DType::kU8, {rows, sizeof(ops::LogitEdits)});
      best_tokens = take(DType::kU8, {rows, sizeof(ops::SampledRow)});
    }
    if (num_target_tokens == 0) return;
    target_tokens = take(DType::kI32, {static_cast<std::int64_t>(num_target_tokens), 1});
    known = take(DType::kI32, {rows, 1});
  }
};

std::int64_t DraftRunner::bytes(const DraftLimits& limits, const DraftShape& shape,
                                std::size_t num_target_tokens) {
  std::int64_t bytes = Layout(limits, shape, num_target_tokens, nullptr).bytes;
  for (int depth = 0; depth < num_buffers(limits, shape); ++depth)
    bytes += BatchBuffers::bytes(pass_limits(limits, shape, depth));
  if (limits.row_runs_of(shape) > 0) bytes += BatchBuffers::bytes(row_run_limits(limits, shape));
  return bytes;
}

DraftRunner::DraftRunner(const DraftLimits& limits, DraftModel& model, AttentionBackend& attention,
                         Context& ctx, const Stream& stream, const Tensor& logits,
                         DraftPlanes planes)
    : limits_(limits),
      model_(model),
      shape_(model.draft_shape()),
      attention_(attention),
      ctx_(ctx),
      stream_(stream),
      backlog_(max_kept(limits.batch.max_tokens)),
      planes_(std::move(planes)),
      trees_(limits.topk, model.target_tokens()),
      choices_(static_cast<std::size_t>(num_buffers(limits, shape_))),
      is_on_host_(static_cast<std::size_t>(limits.passes())) {
  const std::int64_t rows = limits.rows(), in_pass = rows * limits.rows_of_draft(shape_),
                     row_runs = limits.row_runs_of(shape_);
  const std::span<const std::int32_t> target_tokens = model.target_tokens();
  // Of one sequence's block at least.
  const std::int64_t fewest = std::max<std::int64_t>(rows, limits.rows_of_draft(shape_) - 1);
  check(limits.max_drafts > 0 && logits.numel() >= fewest * shape_.vocab_size,
        "{} drafts; logits of {} elements for {} sequences and {} tokens", limits.max_drafts,
        logits.numel(), rows, shape_.vocab_size);
  require(limits.topk <= shape_.vocab_size,
          "--speculative-eagle-topk is {}, and the draft has {} tokens; give at most as many",
          limits.topk, shape_.vocab_size);
  check(limits.topk <= ops::kMaxTopLogprobs, "{} drafts behind each token", limits.topk);
  for (int depth = 0; depth < num_buffers(limits, shape_); ++depth)
    buffers_.push_back(
        std::make_unique<BatchBuffers>(pass_limits(limits, shape_, depth), ctx.device, &stream));
  if (row_runs > 0)
    first_rows_ =
        std::make_unique<BatchBuffers>(row_run_limits(limits, shape_), ctx.device, &stream);
  memory_ = Buffer(Layout(limits, shape_, target_tokens.size(), nullptr).bytes, ctx.device);
  const Layout at(limits, shape_, target_tokens.size(), &memory_);
  target_ = at.target;
  first_states_ = at.first_states;
  std::ranges::copy(at.next_states, next_states_);
  left_out_states_ = at.left_out_states;
  from_rows_ = at.from_rows;
  last_seen_ = at.last_seen;
  greedy_ = at.greedy;
  places_ = at.places;
  tokens_ = at.tokens;
  chosen_ = at.chosen;
  target_tokens_ = at.target_tokens;
  known_ = at.known;
  wanted_best_ = at.wanted_best;
  best_tokens_ = at.best_tokens;
  counters_ = at.counters;
  logits_ = logits;
  logits_.rank = 2;
  logits_.shape = {std::min(std::max(in_pass, row_runs), logits.numel() / shape_.vocab_size),
                   shape_.vocab_size, 0, 0};
  logits_.stride = {shape_.vocab_size, 1, 0, 0};
  if (ctx.device.kind != DeviceKind::kCpu)
    for (StreamEvent& event : round_done_) event = StreamEvent(ctx.device);
  if (ctx.device.kind != DeviceKind::kCpu)
    host_tokens_ = Buffer::staging(2 * tokens_.bytes(), ctx.device);
  if (limits.has_trees()) {
    if (ctx.device.kind != DeviceKind::kCpu)
      host_best_ = Buffer::staging(best_tokens_.bytes(), ctx.device);
    HostImage wanted(wanted_best_);
    std::fill_n(ops::as_logit_edits(wanted.tensor()), rows,
                ops::LogitEdits{.num_top_logprobs = limits.topk});
    wanted.put();
  }

  HostImage greedy(greedy_), places(places_);
  std::fill_n(ops::as_sample_rows(greedy.tensor()), in_pass, ops::SampleRow{.temperature = 0});
  std::iota(places.tensor().ptr<std::int32_t>(), places.tensor().ptr<std::int32_t>() + in_pass, 0);
  greedy.put();
  places.put();
  for (const Tensor& zeros : {chosen_, counters_}) {
    if (!zeros.defined()) continue;
    HostImage image(zeros);
    std::memset(image.tensor().data, 0, static_cast<std::size_t>(zeros.bytes()));
    image.put();
  }
  if (target_tokens.empty()) return;
  HostImage map(target_tokens_);
  std::ranges::copy(target_tokens, map.tensor().ptr<std::int32_t>());
  map.put();
}

void DraftRunner::run_pass(int depth, const Tensor& states, bool are_targets) {
  const auto count = static_cast<std::int64_t>(from_.size());
  const Tensor own = (are_targets ? first_states_ : next_states_[depth % 2]).rows(0, count);
  DraftIO io{.target = {}, .states = own, .logits = {}};
  if (shape_.target_width > 0 || !are_targets) {
    const Tensor rows = from_rows_.rows(0, count);
    copy(stream_, Tensor::dense(from_.data(), DType::kI32, {count}), rows);
    if (are_targets) io.target = target_.rows(0, count);
    if (shape_.hidden_size > 0) ops::gather_rows(ctx_, states, rows, are_targets ? io.target : own);
  }
  const RowInfo info{.token_of_slot = [](std::int32_t slot) { return -1 - slot; },
                     .sample_row_of = {}};
  const ForwardBatch& fb = buffers_[static_cast<std::size_t>(depth)]->fill(pass_, info);
  if (!are_targets && !limits_.has_trees())
    ops::take_slot_tokens(ctx_, known_tokens(), fb.input_ids);
  attention_.plan(ctx_, fb);
  const std::int64_t num_rows = fb.logit_rows.dim(0);
  io.logits = logits_.rows(0, num_rows);
  model_.draft(ctx_, fb, attention_, io);
  if (limits_.has_trees() || num_rows == 0)
    choices_[static_cast<std::size_t>(depth)].clear();
  else
    choose(depth, io.logits);
}

void DraftRunner::choose(int depth, const Tensor& logits) {
  const std::int64_t num_rows = logits.dim(0);
  std::vector<Choice>& choices = choices_[static_cast<std::size_t>(depth)];
  choices.clear();
  for (Row& row : rows_) {
    row.chosen = static_cast<std::int32_t>(choices.size());
    choices.push_back({.item = row.item, .row = row.chosen});
  }
  const Tensor tokens = tokens_.at(depth).rows(0, num_rows);
  ops::sample_tokens(ctx_, logits, greedy_.rows(0, num_rows), tokens);
  ops::put_slot_tokens(ctx_, tokens, places_.rows(0, num_rows), chosen_);
  if (target_tokens_.defined())
    ops::gather_rows(ctx_, target_tokens_, chosen_.rows(0, num_rows), known_.rows(0, num_rows));
}

void DraftRunner::run_block_pass() {
  const auto count = static_cast<std::int64_t>(ends_.size());
  const Tensor last_seen = last_seen_.rows(0, count);
  copy(stream_, Tensor::dense(ends_.data(), DType::kI32, {count}), last_seen);
  const ForwardBatch& fb = buffers_[1]->fill(pass_, {});
  const std::int64_t num_rows = fb.logit_rows.dim(0);
  const DraftIO io{.target = {},
                   .states = next_states_[0].rows(0, count),
                   .logits = logits_.rows(0, num_rows),
                   .last_seen = last_seen};
  attention_.plan(ctx_, fb);
  model_.draft(ctx_, fb, attention_, io);
  const auto behind = static_cast<std::int64_t>(choices_[0].size());
  ops::sample_tokens(ctx_, io.logits, greedy_.rows(0, num_rows),
                     tokens_.reshape({tokens_.numel()}).rows(behind - num_rows, num_rows));
}

void DraftRunner::run_blocks(const Batch& batch, int most) {
  const std::int64_t at_once = logits_.dim(0) / (limits_.rows_of_draft(shape_) - 1);
  choices_[0].clear();
  for (auto next = rows_.begin(); next != rows_.end();) {
    begin_pass();
    pass_.mode = ForwardMode::kTargetVerify;
    for (; next != rows_.end() && std::cmp_less(pass_.items.size(), at_once); ++next)
      add_block(batch, *next, most);
    if (!pass_.items.empty()) run_block_pass();
  }
}

void DraftRunner::lose_states(const Batch& batch) {
  for (const BatchItem& item : batch.items) backlog_.lose(item.sequence, item.first + item.count);
}

std::int64_t DraftRunner::max_kept(std::int64_t max_tokens) {
  return std::min(max_tokens, kMaxLeftOut);
}

DraftRunner::Kept DraftRunner::reserve(const Batch& batch) {
  return {.has_states = true, .first = backlog_.reserve(batch.num_tokens())};
}

DraftRunner::Kept DraftRunner::keep(const Batch& batch, const Tensor& states) {
  if (shape_.target_width > 0 && !states.defined()) return {};
  const Kept kept = reserve(batch);
  if (kept.first && shape_.target_width > 0)
    copy(stream_, states, left_out_states_.rows(*kept.first, batch.num_tokens()));
  return kept;
}

void DraftRunner::leave_out(const Batch& given, const Kept& kept, BatchResult& result) {
  const Batch& batch = behind_right_rows(given, result);
  if (!kept.has_states) {
    lose_states(batch);
  } else if (build_first(batch, result)) {
    std::size_t slot = 0;
    for (const BatchItem& item : pass_.items) {
      const auto count = static_cast<std::size_t>(item.count);
      const std::span<const std::int32_t> tokens = std::span(pass_.token_ids).subspan(slot, count);
      if (kept.first)
        backlog_.add(item.sequence, item.first, tokens, *kept.first + from_[slot]);
      else
        backlog_.lose(item.sequence);
      slot += count;
    }
  }
  backlog_.keep_only(batch.items);
  collect(0, batch.items.size(), result);
}

void DraftRunner::make_up(const Batch& batch) {
  pass_.groups.resize(batch.groups.size());
  begin_pass();
  rows_.clear();
  for (std::int32_t i = 0; i < static_cast<std::int32_t>(batch.items.size()); ++i) {
    const BatchItem& item = batch.items[static_cast<std::size_t>(i)];
    const DraftBacklog::Slots slots = backlog_.take(item.sequence, item.first);
    if (slots.tokens.empty()) continue;
    if (!can_fill(batch, i, slots.first, item.first)) {  // pages were given back
      backlog_.lose(item.sequence);
      continue;
    }
    add_item(batch, i, slots.first, static_cast<std::int32_t>(slots.tokens.size()));
    pass_.items.back().decode = false;
    pass_.token_ids.insert(pass_.token_ids.end(), slots.tokens.begin(), slots.tokens.end());
    from_.insert(from_.end(), slots.rows.begin(), slots.rows.end());
  }
  if (pass_.items.empty()) return;
  pass_.mode = ForwardMode::kExtend;
  run_pass(static_cast<int>(buffers_.size()) - 1, left_out_states_, true);
}

bool DraftRunner::wants_states(const Batch& batch) const {
  return batch.max_drafts != 0 || ctx_.device.kind != DeviceKind::kCpu ||
         std::ranges::any_of(batch.items, [&](const BatchItem& item) {
           return item.decode && !backlog_.has_holes(item.sequence);
         });
}

void DraftRunner::run(const Batch& given, const Tensor& states, BatchResult& result) {
  check(given.max_drafts != 0, "a draft runs behind a step that wants no drafts");
  const Batch& batch = behind_right_rows(given, result);
  const int most =
      batch.max_drafts < 0 ? limits_.max_drafts : std::min(batch.max_drafts, limits_.max_drafts);
  int depth = 0;
  std::ranges::fill(is_on_host_, 0);
  make_up(batch);
  if (shape_.target_width > 0 && !states.defined()) {
    lose_states(batch);
  } else if (build_first(batch, result)) {
    if (limits_.has_trees()) {
      run_pass(0, states, true);
      backlog_.keep_only(batch.items);
      return grow_trees(batch, most, result);
    } else {
      if (!replay(0)) run_pass(0, states, true);
      ++depth;
      if (shape_.block_size > 0) run_blocks(batch, most);
      Tensor last = first_states_;
      while (shape_.block_size == 0 && depth < most && build_next(batch)) {
        if (!replay(depth)) run_pass(depth, last, false);
        last = next_states_[depth++ % 2];
      }
    }
  }
  backlog_.keep_only(batch.items);
  collect(depth, batch.items.size(), result);
}

void DraftRunner::collect(int depths, std::size_t num_items, BatchResult& result) {
  const auto is_there = [&](std::int64_t depth) {
    return is_on_host_[static_cast<std::size_t>(depth)] != 0;
  };
  const bool on_cpu = ctx_.device.kind == DeviceKind::kCpu;
  if (!on_cpu && depths > 0) {
    const Tensor tokens = host_tokens_.tensor(DType::kI32, {tokens_.dim(0), tokens_.dim(1)});
    // A block's lie at one depth, over the rows of all.
    const std::int64_t rows = shape_.block_size > 0 ? tokens_.dim(0) : depths;
    for (std::int64_t first = 0, end = 0; first < rows; first = end) {
      end = first + 1;
      while (end < rows && is_there(end) == is_there(first)) ++end;
      if (!is_there(first))
        copy(stream_, tokens_.rows(first, end - first), tokens.rows(first, end - first));
    }
    stream_.synchronize();
  }
  const std::span<const std::int32_t> target_tokens = model_.target_tokens();
  std::vector<std::vector<std::int32_t>> drafts(num_items);
  for (int depth = 0; depth < depths; ++depth) {
    const auto* chosen = on_cpu            ? tokens_.at(depth).ptr<std::int32_t>()
                         : is_there(depth) ? last_box(depth)
                                           : host_box(depth, 0).ptr<std::int32_t>();
    for (const Choice& choice : choices_[static_cast<std::size_t>(depth)]) {
      std::vector<std::int32_t>& of_item = drafts[static_cast<std::size_t>(choice.item)];
      const std::int32_t token = chosen[choice.row];
      of_item.push_back(target_tokens.empty() || token < 0
                            ? token
                            : target_tokens[static_cast<std::size_t>(token)]);
    }
  }
  result.draft_offsets.assign(1, 0);
  result.drafts.clear();
  for (const std::vector<std::int32_t>& of_item : drafts) {
    // What is not finite ends the drafts.
    const auto end = std::ranges::find_if(of_item, [](std::int32_t token) { return token < 0; });
    if (end != of_item.end()) warn_not_finite();
    result.drafts.insert(result.drafts.end(), of_item.begin(), end);
    result.draft_offsets.push_back(static_cast<std::int32_t>(result.drafts.size()));
  }
}

void DraftRunner::warn_not_finite() {
  if (std::exchange(has_warned_, true) || ctx_.rank != 0) return;
  log_warning(
      "{}: its logits are not finite, so it drafts nothing there. Its weights hold NaN or "
      "infinity, "
      "or exceed what --dtype holds: --check-weights names a damaged tensor. Take another draft, "
      "or "
      "--speculative-algorithm NONE",
      limits_.name);
}

}  // namespace sluice
