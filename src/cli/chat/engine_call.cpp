#include "cli/chat/engine_call.h"

#include "base/trace.h"

namespace sluice {
namespace {

// What --trace shows of a request that came from this process.
void trace_end(Trace& trace, std::chrono::steady_clock::time_point submitted, const Completion& c,
               std::uint64_t id, double queue_s) {
  TracedRequest request;
  request.id = fmt::format("request {}", id);
  request.arrival = request.submitted = submitted;
  if (queue_s > 0)
    request.planned = submitted + std::chrono::duration_cast<Trace::Clock::duration>(
                                      std::chrono::duration<double>(queue_s));
  if (!c.arrivals.empty()) request.first_token = c.arrivals.front();
  request.end = Trace::Clock::now();
  request.args = fmt::format(R"({{"prompt_tokens":{},"cached_tokens":{},"completion_tokens":{}}})",
                             c.prompt_tokens, c.cached_tokens, c.tokens.size());
  trace.request(request);
}

}  // namespace

PendingCompletion::PendingCompletion(
    Engine& engine, Request request,
    std::function<void(const std::vector<std::int32_t>&)> on_tokens)
    : shared_(std::make_shared<Shared>()) {
  auto sink = [shared = shared_, on_tokens = std::move(on_tokens), trace = engine.trace(),
               submitted = std::chrono::steady_clock::now()](Event&& event) {
    if (on_tokens && !event.tokens.empty()) on_tokens(event.tokens);
    // Nobody waits for the tokens between the first and the last: who were woken for each would
    // take a core from the next step.
    bool awaited = event.finish != FinishReason::kNone;
    {
      std::lock_guard lock(shared->mutex);
      Completion& c = shared->completion;
      awaited = awaited || c.tokens.empty();
      c.tokens.insert(c.tokens.end(), event.tokens.begin(), event.tokens.end());
      c.token_logprobs.insert(c.token_logprobs.end(), event.token_logprobs.begin(),
                              event.token_logprobs.end());
      c.prompt_logprobs.insert(c.prompt_logprobs.end(), event.prompt_logprobs.begin(),
                               event.prompt_logprobs.end());
      if (!event.tokens.empty()) {
        c.arrivals.push_back(std::chrono::steady_clock::now());
        c.arrived.push_back(event.tokens.size());
      }
      c.cached_tokens = std::max(c.cached_tokens, event.cached_tokens);
      c.prompt_tokens = std::max(c.prompt_tokens, event.prompt_tokens);
      c.drafts = event.drafts;
      if (event.finish != FinishReason::kNone) {
        c.finish = event.finish;
        c.matched_token = event.matched_token;
        c.matched_stop_string = event.matched_stop_string;
        c.error = event.error;
        if (trace != nullptr) trace_end(*trace, submitted, c, event.request, event.queue_s);
      }
    }
    if (awaited) shared->changed.notify_all();
  };
  const Result<std::uint64_t> id = engine.submit(std::move(request), std::move(sink));
  require(id.ok(), "the request was refused: {}", id.ok() ? "" : id.fault().message);
}

void PendingCompletion::wait_for_tokens() {
  std::unique_lock lock(shared_->mutex);
  shared_->changed.wait(lock, [&] {
    return !shared_->completion.tokens.empty() || shared_->completion.finish != FinishReason::kNone;
  });
}

Completion PendingCompletion::wait() {
  std::unique_lock lock(shared_->mutex);
  shared_->changed.wait(lock, [&] { return shared_->completion.finish != FinishReason::kNone; });
  return std::move(shared_->completion);
}

}  // namespace sluice
