#include "runtime/model_runner.h"

#include <algorithm>
#include <chrono>

#include "base/error.h"
#include "base/log.h"
#include "ops/kv.h"

namespace sluice {
namespace {

// Logits of one pass of the head: enough rows for a decode batch, else about 32 MiB. Prompt log-probabilities go
// through it in pieces (R12).
std::int64_t logit_rows_at_once(const RunnerOptions& options, const ModelConfig& config) {
  const std::int64_t fitting = (std::int64_t{32} << 20) / (std::int64_t{config.vocab_size} * 4);
  const std::int64_t rows = std::max<std::int64_t>(options.max_running_requests, std::min<std::int64_t>(fitting, 256));
  return std::max<std::int64_t>(1, rows);
}

class Stopwatch {
 public:
  double milliseconds() const {
    return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start_).count();
  }

 private:
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

}  // namespace

ModelRunner::ModelRunner(const RunnerOptions& options, const ModelConfig& config, const WeightSource& source,
                         const StartupReport& report)
    : options_(options),
      model_options_{.compute = options.dtype,
                     .mla_expandable = options.attention.mla_prefill == MlaPrefill::kAuto,
                     .index_hadamard = false},
      config_(config),
      pool_(options.num_threads) {
  ctx_.pool = &pool_;
  ctx_.communicator = &communicator_;
  ctx_.cpu_isa = detect_cpu_isa();

  sampler_ = std::make_unique<Sampler>(options.max_running_requests, config.vocab_size);

  Stopwatch load;
  Arena load_arena;   // a model takes no activations while it is loaded
  ctx_.arena = &load_arena;
  model_ = load_model(ctx_, config, source, model_options_);
  groups_ = model_->kv_groups();
  report("load", load.milliseconds(),
         fmt::format("{} of weights as {}", format_bytes(model_->weight_bytes()), dtype_name(options.dtype)));

  limits_ = BatchLimits{.max_tokens = options.max_step_tokens,
                        .max_seqs = options.max_running_requests,
                        .max_seq_pages = (options.context_length + kPageSize - 1) / kPageSize + 1,
                        .max_logit_rows = logit_rows_at_once(options, config),
                        .num_groups = static_cast<int>(groups_.size())};
  Stopwatch plan;
  init_memory_pool();
  init_attention_backend();
  report("plan memory", plan.milliseconds(), plan_.describe());

  Stopwatch warm;
  kernel_warmup();
  report("warm up", warm.milliseconds(), std::string(cpu_isa_name(ctx_.cpu_isa)));
}

void ModelRunner::init_memory_pool() {
  MemoryRequest request;
  request.weight_bytes = model_->weight_bytes();
  request.buffer_bytes = BatchBuffers::bytes(limits_) + 4 * limits_.max_tokens * config_.hidden_size +
                         4 * limits_.max_tokens * model_->topk_width() +
                         4 * limits_.max_logit_rows * config_.vocab_size;
  request.available_bytes = available_host_bytes();
  request.mem_fraction_static = options_.mem_fraction_static;
  request.max_total_tokens = options_.max_total_tokens;
  request.max_running_requests = options_.max_running_requests;
  request.context_length = options_.context_length;
  request.activation_bytes = measure_activations();
  plan_ = plan_memory(request, groups_);

  buffers_ = std::make_unique<BatchBuffers>(limits_);
  arena_ = std::make_unique<Arena>(plan_.activation_bytes);
  const std::int64_t hidden_bytes = 4 * limits_.max_tokens * config_.hidden_size;
  const std::int64_t topk_bytes = 4 * limits_.max_tokens * model_->topk_width();
  activations_ = Buffer(hidden_bytes + topk_bytes + 4 * limits_.max_logit_rows * config_.vocab_size);
  hidden_ = activations_.tensor(DType::kF32, {limits_.max_tokens, config_.hidden_size});
  if (model_->topk_width() > 0)
    topk_indices_ = activations_.tensor(DType::kI32, {limits_.max_tokens, model_->topk_width()}, hidden_bytes);
  logits_ = activations_.tensor(DType::kF32, {limits_.max_logit_rows, config_.vocab_size}, hidden_bytes + topk_bytes);
  kv_pool_ = std::make_unique<KVPool>(groups_, plan_.pages);
  ctx_.arena = arena_.get();
}

void ModelRunner::init_attention_backend() {
  attention_ = make_attention_backend(options_.attention, attention_shape(config_, model_options_), *kv_pool_);
}

// The peak of the arena over the largest prefill and the largest decode step, from a run in which no op does work.
std::int64_t ModelRunner::measure_activations() {
  KVPool one_page(groups_, std::vector<std::int64_t>(groups_.size(), 1));
  BatchBuffers buffers(limits_);
  const auto attention = make_attention_backend(options_.attention, attention_shape(config_, model_options_), one_page);
  Arena arena;
  Context ctx = ctx_;
  ctx.arena = &arena;
  ctx.dry_run = true;
  for (const bool decode : {false, true}) {
    const ForwardBatch& fb = buffers.fill_largest(decode, options_.context_length);
    attention->plan(ctx, fb);
    StageIO io;
    io.layer_end = config_.num_layers;
    void* nowhere = reinterpret_cast<void*>(64);
    io.hidden = Tensor::dense(nowhere, DType::kF32, {fb.num_tokens, config_.hidden_size});
    if (model_->topk_width() > 0)
      io.topk_indices = Tensor::dense(nowhere, DType::kI32, {fb.num_tokens, model_->topk_width()});
    io.logits = Tensor::dense(nowhere, DType::kF32, {fb.logit_rows.dim(0), config_.vocab_size});
    model_->forward(ctx, fb, *attention, io);
  }
  return arena.peak_bytes();
}

// One token through the whole path: page faults and instruction-set choices happen here, not in a request.
void ModelRunner::kernel_warmup() {
  Batch batch;
  batch.mode = ForwardMode::kExtend;
  batch.items.push_back({.sequence = 0, .slot = 0, .first = 0, .count = 1, .decode = false});
  batch.token_ids = {0};
  batch.groups.resize(groups_.size());
  for (PageRows& rows : batch.groups) rows = {.offsets = {0, 1}, .pages = {0}};
  batch.logit_rows.push_back({.item = 0, .row = 0, .position = 1, .sample = false, .target = 0});
  Pending pending = launch(batch);
  sample(pending);
}

void ModelRunner::copy_pages(const Batch& batch) {
  for (int g = 0; g < kv_pool_->num_groups(); ++g) {
    std::vector<std::int64_t> from, to;
    for (const PageCopy& copy : batch.copies) {
      if (copy.group != g) continue;
      for (std::int32_t i = 0; i < copy.tokens; ++i) {
        from.push_back(std::int64_t{copy.from} * kPageSize + i);
        to.push_back(std::int64_t{copy.to} * kPageSize + i);
      }
    }
    if (from.empty()) continue;
    const auto rows = static_cast<std::int64_t>(from.size());
    const std::vector<Tensor> planes = kv_pool_->planes(g);
    ops::kv_move(ctx_, planes, Tensor::dense(from.data(), DType::kI64, {rows}),
                 Tensor::dense(to.data(), DType::kI64, {rows}));
  }
}

void ModelRunner::forward_rows(const ForwardBatch& fb, int layer_begin) {
  StageIO io;
  io.layer_begin = layer_begin;
  io.layer_end = config_.num_layers;
  io.hidden = hidden_.rows(0, fb.num_tokens);
  if (topk_indices_.defined()) io.topk_indices = topk_indices_.rows(0, fb.num_tokens);
  io.logits = logits_.rows(0, fb.logit_rows.dim(0));
  model_->forward(ctx_, fb, *attention_, io);
}

Pending ModelRunner::launch(const Batch& batch) {
  copy_pages(batch);
  sampler_->begin(batch);
  const ForwardBatch& fb = buffers_->fill(batch, *sampler_);
  if (fb.num_tokens > 0) {
    attention_->plan(ctx_, fb);
    forward_rows(fb, 0);
  }
  return Pending{.batch = &batch, .result = {}};
}

void ModelRunner::sample(Pending& pending) {
  const Batch& batch = *pending.batch;
  const auto total = static_cast<std::int64_t>(batch.logit_rows.size());
  for (std::int64_t first = 0; first < total; first += limits_.max_logit_rows) {
    const std::int64_t count = std::min(limits_.max_logit_rows, total - first);
    // The forward left the first rows; for the others only the head runs again.
    if (first > 0) forward_rows(buffers_->set_logit_rows(batch, first, count), config_.num_layers);
    sampler_->process(ctx_, batch, static_cast<std::int32_t>(first), logits_.rows(0, count));
  }
  pending.result = sampler_->finish(batch);
}

}  // namespace sluice
