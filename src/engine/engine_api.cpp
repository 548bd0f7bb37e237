// The methods of EngineLoop that any thread may call.
#include <algorithm>
#include <optional>
#include <utility>

#include "base/hash.h"
#include "engine/engine_loop.h"

namespace sluice {
namespace {

constexpr std::uint64_t kDeterministicNamespace = 0x64657465726d696eULL;  // any number

Fault too_long(std::size_t prompt, int wanted, int context) {
  if (wanted == 0)
    return Fault{400, "context_length_exceeded", "",
                 fmt::format("the text has {} tokens, which is more than the context length of {}; "
                             "shorten the text",
                             prompt, context)};
  return Fault{400, "context_length_exceeded", "",
               fmt::format("the prompt has {} tokens and up to {} are to be generated, which is "
                           "more than the context "
                           "length of {}; shorten the prompt or ask for fewer tokens",
                           prompt, wanted, context)};
}

// What a request of a vector must be; 400 for what this engine has none of.
std::optional<Fault> check_pooling(const Request& request) {
  if (request.pooling == Pooling::kNone) return std::nullopt;
  check(request.num_choices == 1 && request.max_new_tokens == 0 && request.logprob_start < 0,
        "a request of a vector has {} choices of {} tokens", request.num_choices,
        request.max_new_tokens);
  if (request.pooling == Pooling::kScores)
    return Fault{400, "unsupported_parameter", "",
                 "the model has no head that classifies texts, so it gives no scores"};
  if (request.pooled_from < 0 ||
      std::cmp_greater_equal(request.pooled_from, request.prompt_ids.size()))
    return Fault{400, "empty_prompt", "prompt",
                 "no token is left to make a vector of; the text is empty"};
  return std::nullopt;
}

}  // namespace

Result<std::uint64_t> EngineLoop::submit(Request request, EventSink sink) {
  const int context = context_length();
  const int vocab = parts_->config.vocab_size;
  if (!failure().empty()) return Fault{503, "engine_failed", "", "the engine has stopped"};
  if (draining_.load())
    return Fault{503, "draining", "", "the server is shutting down and takes no new requests"};
  if (request.prompt_ids.empty())
    return Fault{400, "empty_prompt", "prompt", "the prompt has no tokens"};
  if (auto fault = check_pooling(request)) return *fault;
  // Long sums of more than two GPUs depend on the batch, but with --deterministic.
  const ServingPlan& plan = parts_->plan;
  if (computes_apart(request) && plan.runner.placement.device.kind == DeviceKind::kCuda &&
      plan.num_ranks / plan.num_stages > 2)
    return Fault{400, "not_deterministic", "deterministic",
                 fmt::format("with {} GPUs answers are deterministic only where the server was "
                             "started with --deterministic",
                             plan.num_ranks)};
  for (const std::int32_t id : request.prompt_ids)
    if (id < 0 || id >= vocab)
      return Fault{400, "invalid_token_id", "prompt",
                   fmt::format("token id {} is not in [0, {})", id, vocab)};
  for (const std::int32_t id : request.params.stop_token_ids)
    if (id < 0 || id >= vocab)
      return Fault{400, "invalid_token_id", "stop_token_ids",
                   fmt::format("token id {} is not in [0, {})", id, vocab)};
  for (const auto& [id, bias] : request.params.logit_bias)
    if (id < 0 || id >= vocab)
      return Fault{400, "invalid_token_id", "logit_bias",
                   fmt::format("token id {} is not in [0, {})", id, vocab)};

  const auto prompt = request.prompt_ids.size();
  const int left = context - static_cast<int>(std::min<std::size_t>(prompt, context));
  // Without a number of its own a request may fill what the context and the KV cache hold.
  const std::int64_t capacity =
      memory_plan().max_total_tokens + 1 - static_cast<std::int64_t>(prompt);
  const int wanted =
      request.max_new_tokens >= 0
          ? request.max_new_tokens
          : static_cast<int>(std::clamp<std::int64_t>(capacity, std::min(1, left), left));
  if (prompt > static_cast<std::size_t>(context) || wanted > left ||
      (left == 0 && request.max_new_tokens != 0))
    return too_long(prompt, request.max_new_tokens == 0 ? 0 : std::max(wanted, 1), context);
  if (waiting_.load() + counters_.queued() >= parts_->plan.scheduler.max_queued_requests)
    return Fault{429, "queue_full", "",
                 fmt::format("{} requests are waiting already; try again later",
                             parts_->plan.scheduler.max_queued_requests)};

  Submit command;
  QueuedRequest& out = command.request;
  static_cast<Request&>(out) = std::move(request);
  out.id = next_id_.fetch_add(1);
  out.max_new_tokens = wanted;
  out.eos_ids.assign(parts_->generation.eos_token_ids.begin(),
                     parts_->generation.eos_token_ids.end());
  out.deterministic = computes_apart(out);
  if (out.deterministic)
    out.cache_namespace = hash_combine(out.cache_namespace, kDeterministicNamespace);
  if (!out.stop.empty()) {
    check(parts_->stop_matchers != nullptr, "stop strings need a matcher factory");
    for (int i = 0; i < out.num_choices; ++i)
      out.stop_matchers.push_back(parts_->stop_matchers(out.stop));
  }
  // The sampler bans end tokens until min_new_tokens; it knows only params.stop_token_ids.
  if (!out.ignore_eos)
    for (const std::int32_t id : out.eos_ids)
      if (std::find(out.params.stop_token_ids.begin(), out.params.stop_token_ids.end(), id) ==
          out.params.stop_token_ids.end())
        out.params.stop_token_ids.push_back(id);
  out.arrival_s = now_s();
  if (out.timeout_s > 0) out.deadline_s = out.arrival_s + out.timeout_s;
  command.sink = std::move(sink);

  const std::uint64_t id = out.id;
  {
    std::lock_guard lock(live_mutex_);
    live_ids_.insert(id);
  }
  waiting_.fetch_add(1);
  if (inbox_.try_push(std::move(command))) return id;
  waiting_.fetch_sub(1);
  std::lock_guard lock(live_mutex_);
  live_ids_.erase(id);
  return Fault{503, "shutting_down", "", "the server is shutting down"};
}

bool EngineLoop::abort(std::uint64_t request) {
  {
    std::lock_guard lock(live_mutex_);
    if (request == 0 || !live_ids_.contains(request)) return false;
  }
  return inbox_.try_push(Abort{request});
}

void EngineLoop::abort_all() {
  (void)inbox_.try_push(Abort{0});
}

// Whether the steps of a deterministic request are others than those of every request. Then what
// other steps left in the cache need not have the bits that its own would.
bool EngineLoop::computes_apart(const Request& request) const {
  const RunnerOptions& plan = parts_->plan.runner;
  const bool always =
      plan.model.numerics.deterministic || (plan.placement.device.kind == DeviceKind::kCpu &&
                                            plan.attention.mla_prefill != MlaPrefill::kAuto);
  return request.deterministic && !always;
}

std::optional<PrefixLookup> EngineLoop::look_up_prefix(Request request) {
  if (parts_->plan.scheduler.disable_radix_cache) return std::nullopt;
  if (computes_apart(request))
    request.cache_namespace = hash_combine(request.cache_namespace, kDeterministicNamespace);
  LookUp command{.request = std::move(request), .done = {}};
  std::future<PrefixLookup> done = command.done.get_future();
  if (!inbox_.try_push(std::move(command))) return std::nullopt;
  return done.get();
}

bool EngineLoop::flush_cache() {
  Flush command;
  std::future<bool> done = command.done.get_future();
  return inbox_.try_push(std::move(command)) && done.get();
}

RunReport EngineLoop::run_report(bool reset) {
  Report command{.reset = reset, .done = {}};
  std::future<RunReport> done = command.done.get_future();
  return inbox_.try_push(std::move(command)) ? done.get() : RunReport{};
}

bool EngineLoop::idle() const {
  std::lock_guard lock(live_mutex_);
  return live_ids_.empty();
}

EngineStats EngineLoop::stats() const {
  EngineStats out = counters_.read(max_total_tokens(), waiting_.load());
  const SchedulerOptions& limits = parts_->plan.scheduler;
  out.max_running_requests = limits.max_running_requests * live_groups();
  out.prefix_cache = !parts_->plan.scheduler.disable_radix_cache;
  out.has_speculation = parts_->plan.speculation.is_on();
  if (parts_->plan.outlives_ranks) {
    out.elastic_ranks = limits.dp_size;
    out.live_ranks = live_groups();
    out.rebalance_s = executor_->rebalance_s();
  }
  return out;
}

std::string EngineLoop::failure() const {
  {
    std::lock_guard lock(live_mutex_);
    if (!failure_.empty()) return failure_;
  }
  return executor_->failure();
}

}  // namespace sluice
