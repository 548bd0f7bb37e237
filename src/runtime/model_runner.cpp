#include "runtime/model_runner.h"

#include <algorithm>
#include <chrono>

#include "attention/slot_moves.h"
#include "base/error.h"
#include "base/log.h"
#include "layers/rope.h"
#include "ops/graph_io.h"
#include "ops/kv.h"
#include "runtime/agreement.h"
#include "tensor/copy.h"
#include "tensor/device.h"

namespace sluice {
namespace {

// Logits of one pass of the head: enough rows for a decode batch, else about 32 MiB. Prompt
// log-probabilities go through it in pieces (R12).
std::int64_t logit_rows_at_once(const RunnerOptions& options, const ModelConfig& config) {
  const std::int64_t fitting = (std::int64_t{32} << 20) / (std::int64_t{config.vocab_size} * 4);
  return std::max({std::int64_t{1}, std::int64_t{options.limits.max_running_requests},
                   options.limits.max_draft_rows, std::int64_t{options.max_drafts},
                   std::min<std::int64_t>(fitting, 256)});
}

// Before anything is taken: a checkpoint that is larger than the GPU is refused with both numbers.
void check_weights_fit(const RunnerOptions& options, const ModelConfig& config,
                       const WeightSource& source, int num_ranks) {
  if (options.placement.device.kind == DeviceKind::kCpu || source.is_dummy()) return;
  const int layers = options.model.layers.of(config.num_layers).count();
  const std::int64_t stored = static_cast<std::int64_t>(source.total_bytes()) /
                              std::max(1, config.num_layers) * std::max(1, layers) / num_ranks;
  // float32 keeps the stored type; otherwise matrices become the compute type.
  const std::int64_t wanted =
      options.model.numerics.compute == DType::kF32
          ? stored
          : stored / dtype_size(config.dtype) * dtype_size(options.model.numerics.compute);
  const std::int64_t free = device_info(options.placement.device).free_bytes;
  if (wanted > free)
    fail(ErrorKind::kNoResources,
         "the weights take {} and {} has {} free; use a smaller model or --device cpu",
         format_bytes(wanted), describe(options.placement.device), format_bytes(free));
}

class Stopwatch {
 public:
  double milliseconds() const {
    return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start_)
        .count();
  }

 private:
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

}  // namespace

std::unique_ptr<Model> load_rank_model(Rank& rank, const RunnerOptions& options,
                                       const ModelConfig& config, const WeightSource& source,
                                       const StartupReport& report) {
  const NumaPlacement& placement = rank.pool().placement();
  if (placement.several()) log_info("numa: {}", placement.describe());
  // Said before anything is read: a back end that cannot serve the model ends the start.
  const AttentionPick attention =
      pick_attention_backend(options.attention, attention_shape(config, options.model));
  log_info("{}", attention.kernels);
  log_debug("{}", attention.reason);
  const Stopwatch load;
  check_weights_fit(options, config, source, rank.context().communicator->size());
  // a model takes no activations while it is loaded
  Arena load_arena = Arena::measuring(options.placement.device);
  rank.context().arena = &load_arena;
  std::unique_ptr<Model> model = load_model(rank.context(), config, source, options.model);
  if (options.draft)
    model = add_draft(rank.context(), std::move(model), config, *options.draft, options.model);
  else
    model = add_own_draft(rank.context(), std::move(model), config, source, options.model);
  rank.context().arena = nullptr;
  report("load", load.milliseconds(),
         fmt::format("{} of weights as {}", format_bytes(model->weight_bytes()),
                     dtype_name(options.model.numerics.compute)));
  return model;
}

ModelRunner::ModelRunner(const RunnerOptions& options, const ModelConfig& config,
                         std::unique_ptr<Rank> rank, std::unique_ptr<Model> model,
                         const StartupReport& report, const RankLinks& links)
    : options_(options),
      config_(config),
      layers_(options.model.layers.of(config.num_layers)),
      links_(links),
      dp_(links.dp),
      rank_(std::move(rank)),
      ctx_(rank_->context()),
      stream_(rank_->stream()),
      model_(std::move(model)),
      groups_(model_->kv_groups()),
      layers_run_(layers_.end) {
  padding_.mode = ForwardMode::kDecode;
  limits_ = BatchLimits{
      .max_tokens = options.limits.max_step_tokens,
      .max_seqs = std::max<std::int64_t>(options.limits.max_running_requests,
                                         options.limits.max_draft_rows),
      .max_seq_pages = (options.model.context_length + kPageSize - 1) / kPageSize + 1,
      .max_logit_rows = logit_rows_at_once(options, config),
      .num_groups = static_cast<int>(num_page_groups(groups_)),
      .has_states = num_page_groups(groups_) < static_cast<std::int64_t>(groups_.size()),
      .draft_rows = options.limits.max_draft_rows > 0,
      .run_rows = options.limits.max_sequence_drafts + 1,
      .tree_rows = options.draft_topk > 1 ? options.max_drafts + 1 : 0};
  DraftModel* const draft = model_->draft_model();
  if (draft && draft->draft_shape().target_width > 0 && ctx_.device.kind != DeviceKind::kCpu)
    limits_.kept_rows = DraftRunner::max_kept(limits_.max_tokens);
  limits_.has_rounds = has_rounds();
  if (!model_->expert_layers.empty() && model_->expert_layers.front().moves)
    expert_mover_ = std::make_unique<ExpertMover>(
        model_->expert_layers,
        dp_.defined() ? *dp_.all_ranks : static_cast<Communicator&>(*ctx_.communicator));
  Stopwatch plan;
  init_memory_pool();
  init_attention_backend();
  if (draft)
    drafts_ = std::make_unique<DraftRunner>(
        draft_limits(), *draft, draft_attention_ ? *draft_attention_ : *attention_, ctx_, stream_,
        logits_, planes_behind(*kv_pool_, config_.num_layers));
  report("plan memory", plan.milliseconds(), plan_.describe());

  if (ctx_.device.kind != DeviceKind::kCpu)
    for (StreamEvent& event : passed_) event = StreamEvent(ctx_.device);
  Stopwatch warm;
  kernel_warmup();
  report("warm up", warm.milliseconds(),
         ctx_.device.kind == DeviceKind::kCpu ? std::string(cpu_isa_name(ctx_.cpu_isa))
                                              : describe(ctx_.device));
  if (ctx_.device.kind != DeviceKind::kCpu)
    record_graphs(report);
  else if (drafts_)
    drafts_->record({}, target_states_, spare_pages_, options_.model.context_length,
                    sampler_->rounds());
  is_linked_ = true;
}

void ModelRunner::init_memory_pool() {
  const SamplerLimits sampler_limits{
      .max_slots = options_.limits.max_running_requests,
      .vocab_size = config_.vocab_size,
      .max_rows = limits_.max_logit_rows,
      .steps_in_flight = options_.limits.steps_in_flight,
      .chooses_drafts =
          limits_.draft_rows && (options_.draft_topk == 1 || options_.pads_draft_rows),
      .max_drafts = limits_.has_rounds ? options_.max_drafts : 0,
      .pretended = options_.synthetic_acceptance,
      .replayed = options_.replayed_tokens,
      .device = ctx_.device};
  MemoryRequest request;
  request.weight_bytes = model_->weight_bytes();
  request.buffer_bytes = BatchBuffers::bytes(limits_) +
                         4 * limits_.max_tokens * config_.hidden_size +
                         4 * limits_.max_tokens * model_->topk_width() +
                         4 * num_logit_rows() * config_.vocab_size + Sampler::bytes(sampler_limits);
  DraftModel* const draft = model_->draft_model();
  const std::int64_t states_width = draft ? draft->draft_shape().target_width : 0;
  const std::int64_t states_bytes = 4 * limits_.max_tokens * states_width;
  if (draft != nullptr)
    request.buffer_bytes += states_bytes + DraftRunner::bytes(draft_limits(), draft->draft_shape(),
                                                              draft->target_tokens().size());
  request.context_length = options_.model.context_length;
  request.limits = options_.limits;
  request.kv = options_.kv;
  request.activation_bytes = measure_activations();
  // All weights are in place.
  if (links_.all_ranks != nullptr)
    links_.all_ranks->barrier();
  else if (ctx_.shares_model())
    ctx_.communicator->barrier();
  request.available_bytes = device_info(ctx_.device).free_bytes;
  if (ctx_.shares_model())
    request = agreed_request(*ctx_.communicator, options_.placement.num_sharers, request);
  else
    request.available_bytes /= options_.placement.num_sharers;
  plan_ = links_.all_ranks != nullptr ? agreed_plan(*links_.all_ranks, request, groups_)
                                      : plan_memory(request, groups_);

  const Device device = ctx_.device;
  buffers_ = std::make_unique<BatchBuffers>(limits_, device, &stream_);
  if (dp_.defined()) buffers_->share(dp_);
  arena_ = std::make_unique<Arena>(plan_.activation_bytes, device);
  const std::int64_t hidden_bytes = 4 * limits_.max_tokens * config_.hidden_size;
  const std::int64_t topk_bytes = 4 * limits_.max_tokens * model_->topk_width();
  const std::int64_t logits_bytes = 4 * num_logit_rows() * config_.vocab_size;
  activations_ = Buffer(states_bytes + hidden_bytes + topk_bytes + logits_bytes, device);
  if (device.kind != DeviceKind::kCpu && is_last_stage())
    host_logits_ = Buffer::staging(logits_bytes, device);
  hidden_ = activations_.tensor(DType::kF32, {limits_.max_tokens, config_.hidden_size});
  if (model_->topk_width() > 0)
    topk_indices_ =
        activations_.tensor(DType::kI32, {limits_.max_tokens, model_->topk_width()}, hidden_bytes);
  if (is_last_stage())
    logits_ = activations_.tensor(DType::kF32, {limits_.max_logit_rows, config_.vocab_size},
                                  hidden_bytes + topk_bytes);
  if (states_bytes > 0)
    target_states_ = activations_.tensor(DType::kF32, {limits_.max_tokens, states_width},
                                         hidden_bytes + topk_bytes + logits_bytes);
  std::vector<std::int64_t> pages = plan_.pages;
  if (device.kind != DeviceKind::kCpu || options_.pads_draft_rows)
    for (std::int64_t& count : pages) spare_pages_.push_back(static_cast<std::int32_t>(count++));
  kv_pool_ = std::make_unique<KVPool>(groups_, pages, device, rank_->pool().placement());
  sampler_ = std::make_unique<Sampler>(sampler_limits, stream_);
  ctx_.arena = arena_.get();
}

void ModelRunner::init_attention_backend() {
  attention_ = make_attention_backend(options_.attention, attention_shape(config_, options_.model),
                                      *kv_pool_);
  if (const SeparateDraft* draft = model_->separate_draft())
    draft_attention_ =
        make_attention_backend(draft_attention_options(), draft->attention_shape(), *kv_pool_);
}

// The peak of the arena over the largest prefill and the largest decode step, from a run in which
// no op does work.
std::int64_t ModelRunner::measure_activations() {
  KVPool one_page(groups_, std::vector<std::int64_t>(groups_.size(), 1), ctx_.device);
  BatchBuffers buffers(limits_, ctx_.device, &stream_);
  if (dp_.defined()) buffers.share(dp_);
  const auto attention = make_attention_backend(options_.attention,
                                                attention_shape(config_, options_.model), one_page);
  Arena arena = Arena::measuring(ctx_.device);
  Context ctx = ctx_;
  ctx.arena = &arena;
  ctx.dry_run = true;
  for (const bool decode : {false, true}) {
    const ForwardBatch& fb = buffers.fill_largest(decode, options_.model.context_length);
    dp_.assume_equal(fb.num_tokens);
    attention->plan(ctx, fb);
    StageIO io;
    io.layer_begin = layers_.begin;
    io.layer_end = layers_.end;
    void* nowhere = reinterpret_cast<void*>(64);
    io.hidden =
        Tensor::dense(nowhere, DType::kF32, {fb.num_tokens, config_.hidden_size}, ctx.device);
    if (model_->topk_width() > 0)
      io.topk_indices =
          Tensor::dense(nowhere, DType::kI32, {fb.num_tokens, model_->topk_width()}, ctx.device);
    io.logits =
        Tensor::dense(nowhere, DType::kF32, {fb.logit_rows.dim(0), config_.vocab_size}, ctx.device);
    DraftModel* const draft = model_->draft_model();
    const std::int64_t target_width = draft ? draft->draft_shape().target_width : 0;
    if (target_width > 0)
      keep_states(Tensor::dense(nowhere, DType::kF32, {fb.num_tokens, target_width}, ctx.device),
                  io);
    model_->forward(ctx, fb, *attention, io);
    // Fewer rows of the last layer take less than all, but they lie beside what all rows need
    // before them.
    ForwardBatch some = fb;
    some.logit_rows = fb.logit_rows.rows(0, std::min(fb.logit_rows.dim(0), fb.num_tokens - 1));
    io.logits = io.logits.rows(0, some.logit_rows.dim(0));
    io.only_logits = true;
    if (!dp_.defined()) model_->forward(ctx, some, *attention, io);
    if (draft != nullptr) measure_draft(ctx, some, one_page, *attention);
  }
  return arena.peak_bytes();
}

void ModelRunner::copy_pages(const Batch& batch) {
  for (int g = 0; g < kv_pool_->num_groups(); ++g) {
    std::vector<std::int64_t> from, to;
    const std::int64_t rows_per_page = kv_pool_->group(g).rows_per_page();
    for (const PageCopy& copy : batch.copies) {
      if (copy.group != g) continue;
      for (std::int32_t i = 0; i < copy.tokens; ++i) {
        from.push_back(std::int64_t{copy.from} * rows_per_page + i);
        to.push_back(std::int64_t{copy.to} * rows_per_page + i);
      }
    }
    // A stage may have no layer in the group, and then no planes.
    move_slots(ctx_, kv_pool_->planes(g), from, to);
  }
}

void ModelRunner::forward_rows(const ForwardBatch& fb, int layer_begin, int layer_end,
                               bool only_logits) {
  StageIO io;
  io.only_logits = only_logits;
  io.layer_begin = layer_begin;
  io.layer_end = layer_end;
  io.hidden = hidden_.rows(0, fb.num_tokens);
  if (topk_indices_.defined()) io.topk_indices = topk_indices_.rows(0, fb.num_tokens);
  if (is_last_stage()) io.logits = logits_.rows(0, fb.logit_rows.dim(0));
  if (target_states_.defined() && keeps_states_)
    keep_states(target_states_.rows(0, fb.num_tokens), io);
  model_->forward(ctx_, fb, *attention_, io);
}

bool ModelRunner::can_be_recorded() const {
  return !options_.model.rope_by_length ||
         !depends_on_length(config_.rope, config_.max_position_embeddings,
                            options_.model.context_length);
}

void ModelRunner::record_graphs(const StartupReport& report) {
  if (!options_.graphs.enabled || !can_be_recorded()) return;
  Stopwatch watch;
  graphs_ = std::make_unique<DecodeGraphs>(
      options_.graphs,
      DecodeGraphs::MaxRows{.plain = options_.limits.max_running_requests,
                            .with_drafts = options_.limits.max_draft_rows},
      stream_,
      [this](std::int64_t size, bool has_drafts) {
        Batch padding;
        padding.mode = has_drafts ? ForwardMode::kTargetVerify : ForwardMode::kDecode;
        attention_->plan(ctx_, buffers_->fill_padded(padding, {}, size, spare_pages_,
                                                     options_.model.context_length));
        if (dp_.defined()) dp_.assume_equal(size);
      },
      [this](GraphKind kind, bool recorded) {
        layers_run_ = recorded ? layers_.end : representative_layers();
        run_step(buffers_->view(), kind.has_edits, recorded, !dp_.defined());
        layers_run_ = layers_.end;
      });
  graphs_->record_all();
  if (drafts_)
    drafts_->record(options_.graphs, target_states_, spare_pages_, options_.model.context_length,
                    sampler_->rounds());
  std::string recorded = graphs_->describe();
  if (drafts_ && drafts_->num_graphs() > 0)
    recorded += fmt::format(", {} runs of the draft", drafts_->num_graphs());
  report("record graphs", watch.milliseconds(), recorded);
}

void ModelRunner::run_step(const ForwardBatch& fb, bool has_edits, bool recorded,
                           bool whole_logits) {
  if (recorded)
    ops::load_step_inputs(ctx_,
                          buffers_->step_inputs(sampler_->step_counter(), sampler_->slot_tokens()));
  else
    sampler_->resolve(ctx_, fb.input_ids);
  std::optional<StepOfRound> round;
  if (is_step_of_rounds(fb)) {
    round = {.slots = buffers_->round_slots(), .ids = fb.input_ids, .places = buffers_->places()};
    sampler_->rounds()->place(ctx_, *round);
  }
  forward_rows(fb, layers_.begin, layers_run_, whole_logits);
  // The last layer has kernels of its own, for the rows whose logits are wanted; and the head.
  if (layers_run_ < layers_.end) forward_rows(fb, layers_.end - 1, layers_.end, whole_logits);
  if (recorded && limits_.kept_rows > 0 && fb.mode == ForwardMode::kDecode)
    ops::kv_write(ctx_, target_states_.rows(0, fb.num_tokens), buffers_->kept_slots(),
                  drafts_->kept_states());
  if (is_last_stage())
    sampler_->run(ctx_, logits_.rows(0, fb.logit_rows.dim(0)), buffers_->sampling(), has_edits,
                  recorded, round ? &*round : nullptr);
  else if (recorded)
    sampler_->run_nothing(ctx_, buffers_->sampling());
}

Pending ModelRunner::launch(const Batch& batch, std::span<const Batch> groups,
                            std::span<const ExpertMove> expert_moves) {
  make_current(ctx_.device);  // the caller's thread need not be the one that made the runner
  check(expert_moves.empty() || expert_mover_,
        "a step moves experts of a model whose experts stay");
  if (expert_mover_) expert_mover_->run(expert_moves);
  StreamEvent& passed = passed_[turn_];
  if (!is_last_stage()) passed.wait();  // the step before the last one has left the buffers
  set_rows_of_groups(batch, groups);
  copy_pages(batch);
  Pending pending{.batch = &batch, .sampling = {}};
  if (is_last_stage()) pending.sampling = sampler_->begin(batch);
  RowInfo info = sampler_->row_info(pending.sampling);
  const bool has_edits = has_device_edits(pending.sampling);
  // Groups compute the rows of each other.
  const bool asks = batch.deterministic || std::ranges::any_of(groups, &Batch::deterministic);
  ctx_.deterministic = options_.model.numerics.deterministic || asks;
  keeps_states_ = !drafts_ || drafts_->wants_states(batch);
  const bool has_drafts = limits_.draft_rows && batch.mode == ForwardMode::kTargetVerify;
  const bool is_padding = pads_idle_groups() && batch.num_tokens() == 0;
  const bool branches = has_trees(batch);
  const Batch& rows = has_drafts || branches ? row_batch_.of(batch, !has_drafts)
                      : is_padding           ? padding_
                                             : batch;
  const BranchMoves* const moves = branches ? row_batch_.moves() : nullptr;
  // Graphs hold the kernels of an ordinary step.
  const bool ordinary = ctx_.deterministic == options_.model.numerics.deterministic;
  const std::int64_t size = ordinary ? graph_size(rows, groups) : 0;
  ran_graph_ = size > 0;
  if (size > 0) {
    const GraphKind kind{.has_edits = has_edits, .has_drafts = has_drafts};
    graphs_->ensure(size, kind);
    if (keeps_in_graph(batch)) {
      pending.kept = drafts_->reserve(batch);
      info.first_kept = pending.kept->first;
    }
    attention_->plan(ctx_, buffers_->fill_padded(rows, info, size, spare_pages_,
                                                 options_.model.context_length, true, moves));
    pending.filled = std::chrono::steady_clock::now();
    receive_rows(batch.num_tokens());
    graphs_->launch(size, kind);
    buffers_->replayed();
    set_replayed(pending.sampling);
    if (!is_last_stage()) sampler_->skip_replay();
  } else {
    const std::int64_t padded =
        is_padding ? 1
        : has_drafts && options_.pads_draft_rows && rows.items.size() == rows.logit_rows.size()
            ? padded_draft_rows(std::ssize(rows.items), options_.limits.max_draft_rows)
            : 0;
    const ForwardBatch& fb =
        padded > 0 ? buffers_->fill_padded(rows, info, padded, spare_pages_,
                                           options_.model.context_length, false, moves)
                   : buffers_->fill(rows, info, moves);
    // Of several ranks an idle one makes the collectives of the others.
    if (fb.num_tokens > 0 || takes_part()) {
      attention_->plan(ctx_, fb);
      pending.filled = std::chrono::steady_clock::now();
      // Else the head runs again for other rows (sample()), and needs them all. Groups know the
      // tokens of each other, and not the rows of logits.
      const bool whole_logits =
          static_cast<std::int64_t>(batch.logit_rows.size()) <= limits_.max_logit_rows &&
          batch.pooled_rows.empty() && !dp_.defined();
      receive_rows(batch.num_tokens());
      run_step(fb, has_edits, false, whole_logits);
    }
  }
  send_rows(batch.num_tokens());
  if (!is_last_stage()) {
    passed.record(stream_);
    turn_ = 1 - turn_;
  }
  return pending;
}

}  // namespace sluice
