#include "server/embeddings/pooling_job.h"

#include <utility>

#include "base/log.h"
#include "server/access/key_account.h"

namespace sluice {
namespace {

// Of one list in the engine at a time.
constexpr std::size_t kMaxOpenTokens = 8192;
constexpr std::size_t kMaxOpenInputs = 256;

}  // namespace

PoolingJob::PoolingJob(ServerState& state, const ServedModel* model, const HttpRequest& request,
                       std::shared_ptr<Responder> responder, Plan plan)
    : state_(state),
      model_(model),
      responder_(std::move(responder)),
      request_id_(request.request_id),
      route_(request.route),
      use_(request.use),
      arrival_(request.arrival),
      plan_(std::move(plan)) {
  vectors_.rows.resize(plan_.inputs.size());
  ids_.resize(plan_.inputs.size());
  for (const Input& input : plan_.inputs) {
    sizes_.push_back(input.ids.size());
    vectors_.prompt_tokens += static_cast<std::int64_t>(input.ids.size());
  }
  if (use_) use_->prompt_tokens = vectors_.prompt_tokens;
}

void PoolingJob::start() {
  if (use_ && use_->account) use_->account->charge(vectors_.prompt_tokens);
  responder_->post([self = shared_from_this()] { self->begin(); });
}

void PoolingJob::begin() {
  if (!responder_->alive()) return;
  responder_->on_close([weak = weak_from_this()] {
    const auto self = weak.lock();
    if (!self || std::exchange(self->over_, true)) return;
    self->end();
  });
  submit_more();
}

void PoolingJob::submit_more() {
  while (!over_ && next_ < plan_.inputs.size() && open_ < kMaxOpenInputs &&
         (open_ == 0 || open_tokens_ + sizes_[next_] <= kMaxOpenTokens)) {
    Input& input = plan_.inputs[next_];
    Request request = plan_.request;
    request.prompt_ids = input.ids;
    request.token_types = input.types;
    request.pooled_from = input.pooled_from;
    request.logprob_start = input.logprob_start;
    if (input.logprob_start >= 0) request.pooling = Pooling::kNone;
    request.max_new_tokens = 0;
    Result<std::uint64_t> id = model_->engine->submit(
        std::move(request), [self = shared_from_this(), at = next_](Event&& event) {
          self->responder_->post([self, at, event = std::move(event)]() mutable {
            self->on_event(at, std::move(event));
          });
        });
    if (!id) {
      // The queue is full of others: this list goes on when one of its own has ended.
      if (id.fault().status == 429 && open_ > 0) return;
      return fail(id.fault());
    }
    ids_[next_] = *id;
    open_tokens_ += sizes_[next_];
    ++open_;
    ++next_;
    input = {};
  }
}

void PoolingJob::on_event(std::size_t input, Event&& event) {
  if (over_ || event.finish == FinishReason::kNone) return;
  ids_[input] = 0;
  --open_;
  open_tokens_ -= sizes_[input];
  if (event.finish == FinishReason::kError) return fail(event.error);
  if (event.finish == FinishReason::kAbort)
    return fail(Fault{503, "aborted", "", "The request was ended before its vectors had come."});
  vectors_.rows[input] = std::move(event.pooled);
  for (const RowLogprobs& row : event.prompt_logprobs) vectors_.rows[input] = {row.logprob};
  vectors_.cached_tokens += event.cached_tokens;
  submit_more();
  if (!over_ && open_ == 0 && next_ == plan_.inputs.size()) finish();
}

void PoolingJob::end() {
  for (const std::uint64_t id : ids_)
    if (id != 0) model_->engine->abort(id);
  plan_.inputs.clear();
  vectors_.rows.clear();
}

void PoolingJob::fail(const Fault& fault) {
  over_ = true;
  end();
  responder_->send(error_reply(fault, plan_.errors, request_id_));
}

void PoolingJob::finish() {
  over_ = true;
  vectors_.seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - arrival_).count();
  // Numbers become text on a text thread; where all of them are busy, here.
  const auto answer = [self = shared_from_this()] {
    try {
      self->responder_->send(self->plan_.finish(std::move(self->vectors_)));
    } catch (const std::exception& e) {
      self->responder_->send(internal_error_reply(self->request_id_, e.what(), self->plan_.errors));
    }
  };
  if (!state_.text_pool.submit(answer)) answer();
}

void start_pooling(ServerState& state, const ServedModel* model, const HttpRequest& request,
                   std::shared_ptr<Responder> responder, PoolingJob::Plan plan) {
  std::make_shared<PoolingJob>(state, model, request, std::move(responder), std::move(plan))
      ->start();
}

}  // namespace sluice
