#include "server/core/generation.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "base/json.h"
#include "base/log.h"
#include "base/trace.h"
#include "server/access/key_account.h"
#include "server/core/errors.h"
#include "server/core/request_spans.h"
#include "telemetry/span_exporter.h"

namespace sluice {
namespace {

using Clock = std::chrono::steady_clock;

// Unsent text and log-probabilities that a stream may keep back while its client does not read.
constexpr std::size_t kMaxHeldBytes = 512 << 10;
// An upper guess of the JSON of one log-probability entry.
constexpr std::size_t kLogprobBytes = 128;

Clock::time_point after(Clock::time_point from, double seconds) {
  return from + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
}

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

}  // namespace

int GenerationTotals::total_prompt() const {
  return std::accumulate(prompt_tokens.begin(), prompt_tokens.end(), 0);
}
int GenerationTotals::total_cached() const {
  return std::accumulate(cached_tokens.begin(), cached_tokens.end(), 0);
}
int GenerationTotals::total_completion() const {
  return std::accumulate(completion_tokens.begin(), completion_tokens.end(), 0);
}

DraftCounts GenerationTotals::total_drafts() const {
  DraftCounts total;
  for (const DraftCounts& one : drafts) {
    total.is_on = total.is_on || one.is_on;
    total.verifications += one.verifications;
    total.drafted += one.drafted;
    total.accepted += one.accepted;
  }
  return total;
}

void append_event(std::string& events, std::string_view json) {
  events += "data: ";
  events.append(json);
  events += "\n\n";
}

std::string_view finish_reason_name(FinishReason reason) {
  switch (reason) {
    case FinishReason::kStop:
      return "stop";
    case FinishReason::kLength:
      return "length";
    case FinishReason::kAbort:
      return "abort";
    case FinishReason::kError:
      return "error";
    case FinishReason::kNone:
      break;
  }
  return "";
}

void ReplyFormat::end_stream(std::string& events) {
  append_event(events, "[DONE]");
}

void ReplyFormat::fail_stream(const Fault& fault, std::string_view, std::string& events) {
  append_event(events, error_json(fault));
}

Generation::Generation(ServerState& state, const ServedModel* model, const HttpRequest& request,
                       std::shared_ptr<Responder> responder, GenerationPlan plan)
    : state_(state),
      model_(model),
      responder_(std::move(responder)),
      key_id_(request.key_id),
      request_id_(request.request_id),
      route_(request.route),
      use_(request.use),
      span_(state.spans ? begin_span(request) : nullptr),
      plan_(std::move(plan)) {
  totals_.arrival = request.arrival;
  const std::size_t num_indices = plan_.prompts.size() * plan_.request.num_choices;
  for (const auto& prompt : plan_.prompts)
    totals_.prompt_tokens.push_back(static_cast<int>(prompt.size()));
  totals_.cached_tokens.resize(plan_.prompts.size());
  totals_.queue_times.resize(plan_.prompts.size());
  totals_.completion_tokens.resize(num_indices);
  totals_.drafts.resize(num_indices);
  for (std::size_t i = 0; i < num_indices; ++i) choices_.emplace_back(*model_->tokenizer, plan_);
  num_open_ = static_cast<int>(num_indices);
}

void Generation::start() {
  if (!responder_->alive()) return;
  const auto self = shared_from_this();
  const auto refuse = [&](Fault fault) {
    responder_->post([self, fault = std::move(fault)] {
      self->over_ = true;
      self->early_.clear();
      self->responder_->send(
          error_reply(fault, self->plan_.format->error_shape(), self->request_id_));
    });
  };
  if (std::cmp_greater(plan_.prompts.size(), state_.options.max_queued_requests))
    return refuse(Fault{400, "too_many_prompts", "prompt",
                        fmt::format("The request has {} prompts; the queue holds {} "
                                    "(--max-queued-requests). Send fewer at once.",
                                    plan_.prompts.size(), state_.options.max_queued_requests)});
  if (!state_.add(plan_.rid, key_id_, self))
    return refuse(
        invalid_value("rid", fmt::format("A request with the rid {} is running; give each its own.",
                                         shown_text(plan_.rid, 96))));
  submitted_ = Clock::now();  // before the engine counts: this thread may be held up at any moment
  for (std::size_t p = 0; p < plan_.prompts.size(); ++p) {
    Request request = plan_.request;
    request.prompt_ids = std::move(plan_.prompts[p]);
    if (!plan_.same_seed) request.params.seed += p;
    Result<std::uint64_t> id = model_->engine->submit(
        std::move(request), [self, prompt = static_cast<int>(p)](Event&& event) {
          self->responder_->post([self, prompt, event = std::move(event)]() mutable {
            self->on_event(prompt, std::move(event));
          });
        });
    if (!id) {
      abort_engine();
      state_.remove(plan_.rid, this);
      return refuse(id.fault());
    }
    ids_.push_back(*id);
    state_.recent_requests.add(*id, {request_id_, route_, totals_.arrival});
  }
  if (use_ && use_->account) use_->account->charge(totals_.total_prompt());
  responder_->post([self] { self->begin(); });
}

void Generation::begin() {
  begun_ = true;
  if (state_.trace)
    state_.trace->instant(TraceLane::kNetwork, "arrival", totals_.arrival,
                          dump_json(Json{{"request", plan_.rid}}));
  if (!responder_->alive()) return client_left();
  responder_->on_close([weak = weak_from_this()] {
    if (const auto self = weak.lock()) self->client_left();
  });
  if (plan_.stream) {
    responder_->on_drain([weak = weak_from_this()] {
      const auto self = weak.lock();
      if (!self || self->held_bytes_ == 0) return;
      for (std::size_t i = 0; i < self->choices_.size() && !self->over_; ++i)
        self->emit(static_cast<int>(i), true);
    });
    responder_->start_stream(plan_.format->framing());
    std::string events;
    plan_.format->first_events(events);
    responder_->write(events);
  }
  for (auto& [prompt, event] : std::exchange(early_, {})) on_event(prompt, std::move(event));
  if (abort_wanted_ && !over_) abort_engine();
}

void Generation::abort() {
  responder_->post([self = shared_from_this()] {
    // Before begin() the engine does not have all of it yet.
    if (!self->begun_)
      self->abort_wanted_ = true;
    else if (!self->over_)
      self->abort_engine();
  });
}

void Generation::on_event(int prompt, Event&& event) {
  if (over_) return;
  if (!begun_) {
    early_.emplace_back(prompt, std::move(event));
    return;
  }
  const int index = prompt * plan_.request.num_choices + event.choice;
  Choice& choice = choices_[static_cast<std::size_t>(index)];
  if (choice.done) return;
  if (event.finish == FinishReason::kError) return fail(event.error);

  totals_.cached_tokens[prompt] = std::max(totals_.cached_tokens[prompt], event.cached_tokens);
  choice.reused_tokens = std::max(choice.reused_tokens, event.reused_tokens);
  totals_.drafts[static_cast<std::size_t>(index)] = event.drafts;
  if (event.queue_s > 0) totals_.queue_times[prompt] = event.queue_s;
  if (prompt == 0 && event.queue_s > 0) totals_.queue_s = event.queue_s;
  if (!event.prompt_logprobs.empty())
    plan_.format->prompt_logprobs(prompt, std::move(event.prompt_logprobs));
  if (!event.tokens.empty()) {
    const Clock::time_point now = Clock::now();
    choice.last_token_s = seconds_since(totals_.arrival);
    if (first_token_s_ == 0) first_token_s_ = choice.last_token_s;
    if (choice.first_token_s == 0) {
      choice.first_token_s = choice.last_token_s;
      state_.metrics.first_token(choice.first_token_s);
    } else {
      state_.metrics.token_gap(std::chrono::duration<double>(now - choice.last_token).count(),
                               static_cast<int>(event.tokens.size()));
    }
    choice.last_token = now;
    if (use_ && use_->account) use_->account->charge(std::ssize(event.tokens));
  }

  ChoiceUpdate update;
  update.prompt = prompt;
  update.index = index;
  {
    const TraceSpan span(state_.trace.get(), TraceLane::kNetwork, "detokenize");
    decode(choice, event, update);
  }
  if (plan_.captures) {
    keep_for_captures(choice, update);
    if (update.finish != FinishReason::kNone)
      return find_captures(std::move(event), std::move(update));
  }
  apply(event.finish, update);
}

void Generation::apply(FinishReason engine_finish, const ChoiceUpdate& update) {
  const int index = update.index;
  Choice& choice = choices_[static_cast<std::size_t>(index)];
  plan_.format->add(update);
  choice.pending = true;
  if (update.finish != FinishReason::kNone) {
    choice.done = true;
    count_finished(index, finish_reason_name(update.finish));
    last_finish_ = update.finish;
    --num_open_;
    // The text showed a stop string that the engine did not see: its rest of this request is not
    // wanted.
    if (engine_finish == FinishReason::kNone && num_open_ == 0) abort_engine();
  }
  if (plan_.stream) {
    held_bytes_ +=
        update.text.size() + update.logprobs.size() * kLogprobBytes *
                                 (1 + std::max(0, plan_.request.params.num_top_logprobs));
    emit(index, choice.done);
  }
  if (num_open_ == 0 && !over_) finish();
}

// Tokens to text that may be sent, and the cut at a stop string or token.
void Generation::decode(Choice& choice, Event& event, ChoiceUpdate& update) {
  update.finish = event.finish;
  update.matched_token = event.matched_token;
  int& num_tokens = totals_.completion_tokens[static_cast<std::size_t>(update.index)];
  std::size_t used = 0;
  for (; used < event.tokens.size() && !choice.filter.stopped(); ++used) {
    ++num_tokens;
    const bool last = used + 1 == event.tokens.size();
    const bool stop_token = last && event.finish == FinishReason::kStop && event.matched_token >= 0;
    update.ends_with_stop_token = stop_token && !plan_.keep_stop;
    if (update.ends_with_stop_token) continue;
    const bool may_stop = num_tokens >= plan_.request.params.min_new_tokens;
    const std::string piece = choice.detokenizer.push(event.tokens[used]);
    update.text += choice.filter.push(piece, may_stop);
    choice.num_bytes += piece.size();
    // Text that the detokenizer held stands before the token's own.
    const std::size_t own = model_->tokenizer->token_bytes_view(event.tokens[used]).size();
    update.token_starts.push_back(choice.num_bytes - std::min(piece.size(), own));
  }
  if (!choice.filter.stopped() && update.finish != FinishReason::kNone) {
    update.text += choice.filter.push(choice.detokenizer.finish_answer());
    update.text += choice.filter.flush();
  }
  if (choice.filter.stopped()) {
    update.finish = FinishReason::kStop;
    update.matched_stop = std::string(choice.filter.matched());
    if (!plan_.keep_stop) update.unsent_stop = update.matched_stop;
  } else if (update.ends_with_stop_token && is_text_token(update.matched_token)) {
    update.unsent_stop = model_->tokenizer->token_bytes(update.matched_token);
  }
  update.is_cut = update.finish != FinishReason::kNone &&
                  (!update.ends_with_token() || is_text_token(update.matched_token));
  update.tokens = std::span(event.tokens).first(used);
  update.logprobs =
      std::span(event.token_logprobs).first(std::min(used, event.token_logprobs.size()));
}

// A token that stops this request and is text otherwise: the model does not end its answer with it.
bool Generation::is_text_token(std::int32_t token) const {
  const auto has = [token](const std::vector<std::int32_t>& list) {
    return std::ranges::find(list, token) != list.end();
  };
  const bool ends_answer =
      !plan_.request.ignore_eos && has(model_->engine->generation_config().eos_token_ids);
  return !ends_answer && (!model_->tokenizer->is_special(token) || has(plan_.kept_tokens));
}

void Generation::keep_for_captures(Choice& choice, const ChoiceUpdate& update) {
  const auto tokens =
      update.tokens.first(update.tokens.size() - (update.ends_with_token() ? 1 : 0));
  choice.tokens.insert(choice.tokens.end(), tokens.begin(), tokens.end());
  for (const char c : update.text) choice.shown += (c & 0xC0) != 0x80 ? 1 : 0;
}

// The last update of a choice waits for its captures. They may take a tenth of a second, so a text
// thread finds them.
void Generation::find_captures(Event&& event, ChoiceUpdate&& update) {
  struct Last {
    Event event;  // has the tokens and log-probabilities of `update`
    ChoiceUpdate update;
  };
  choices_[static_cast<std::size_t>(update.index)].done = true;
  auto last = std::make_shared<Last>(std::move(event), std::move(update));
  last->update.captures = nullptr;  // null in JSON
  const auto find = [self = shared_from_this(), last] {
    const Choice& choice = self->choices_[static_cast<std::size_t>(last->update.index)];
    try {
      last->update.captures = self->plan_.captures(choice.tokens, self->plan_.kept_tokens,
                                                   choice.shown, last->update.ends_with_token());
    } catch (const std::exception& error) {
      log_error("the captures of {} failed: {}", self->plan_.rid, error.what());
    }
    self->responder_->post([self, last] {
      if (!self->over_) self->apply(last->event.finish, last->update);
    });
  };
  if (!state_.text_pool.submit(find)) apply(last->event.finish, last->update);
}

// At most one event in stream_interval tokens, but the first and the last at once. A client that
// does not keep up gets its events joined.
void Generation::emit(int index, bool force) {
  Choice& choice = choices_[static_cast<std::size_t>(index)];
  if (!choice.pending) return;
  const bool due =
      force || !choice.emitted || ++choice.since_emit >= state_.options.stream_interval;
  if (!due) return;
  if (responder_->backlog() > state_.limits.stream_pause_bytes && !choice.done) {
    if (held_bytes_ > kMaxHeldBytes) responder_->cut();
    return;
  }
  choice.pending = false;
  choice.emitted = true;
  choice.since_emit = 0;
  std::string events;
  plan_.format->emit(index, totals_, events);
  held_bytes_ = 0;
  responder_->write(events);
}

void Generation::finish() {
  if (plan_.stream) {
    std::string events;
    plan_.format->last_events(totals_, events);
    plan_.format->end_stream(events);
    over(finish_reason_name(last_finish_));
    responder_->write(events);
    responder_->finish();
  } else {
    HttpReply reply;
    reply.body = plan_.format->body(totals_);
    over(finish_reason_name(last_finish_));
    responder_->send(std::move(reply));
  }
}

void Generation::fail(const Fault& fault) {
  abort_engine();
  over("error");
  if (!plan_.stream)
    return responder_->send(error_reply(fault, plan_.format->error_shape(), request_id_));
  std::string events;
  plan_.format->fail_stream(fault, request_id_, events);
  responder_->write(events);
  responder_->finish();
}

void Generation::client_left() {
  if (over_) return;
  abort_engine();
  over("abort");
}

void Generation::abort_engine() {
  for (const std::uint64_t id : ids_) model_->engine->abort(id);
}

void Generation::over(std::string_view reason) {
  over_ = true;
  state_.remove(plan_.rid, this);
  if (use_) {
    use_->prompt_tokens = totals_.total_prompt();
    use_->cached_tokens = totals_.total_cached();
    use_->completion_tokens = totals_.total_completion();
  }
  const int n = plan_.request.num_choices;
  for (std::size_t prompt = 0; prompt < totals_.prompt_tokens.size(); ++prompt) {
    int most = 0;
    for (int i = 0; i < n; ++i) {
      const int index = static_cast<int>(prompt) * n + i;
      most = std::max(most, totals_.completion_tokens[static_cast<std::size_t>(index)]);
      if (choices_[static_cast<std::size_t>(index)].done) continue;
      count_finished(index, reason);
    }
    state_.metrics.prompt_finished(n, most);
  }
  if (state_.trace) trace_end(reason);
  if (span_) export_span(reason);
}

void Generation::count_finished(int index, std::string_view reason) {
  const auto at = static_cast<std::size_t>(index);
  const std::size_t prompt = at / static_cast<std::size_t>(plan_.request.num_choices);
  const Choice& choice = choices_[at];
  const int asked = plan_.request.max_new_tokens;
  ServerMetrics::FinishedChoice finished;
  finished.reason = reason;
  finished.prompt_tokens = totals_.prompt_tokens[prompt];
  finished.reused_tokens = choice.reused_tokens;
  finished.generated_tokens = totals_.completion_tokens[at];
  finished.max_tokens =
      asked >= 0 ? asked : model_->engine->context_length() - totals_.prompt_tokens[prompt];
  finished.total_s = seconds_since(totals_.arrival);
  finished.first_token_s = choice.first_token_s;
  finished.last_token_s = choice.last_token_s;
  finished.queue_s = totals_.queue_times[prompt];
  state_.metrics.finished(finished);
}

void Generation::trace_end(std::string_view reason) const {
  TracedRequest request;
  request.id = plan_.rid;
  request.arrival = totals_.arrival;
  request.submitted = submitted_;
  if (totals_.queue_s > 0) request.planned = after(submitted_, totals_.queue_s);
  if (first_token_s_ > 0) request.first_token = after(totals_.arrival, first_token_s_);
  request.end = Clock::now();
  request.args = dump_json(Json{{"finish", reason},
                                {"prompt_tokens", totals_.total_prompt()},
                                {"cached_tokens", totals_.total_cached()},
                                {"completion_tokens", totals_.total_completion()}});
  state_.trace->request(request);
  state_.trace->flush();
}

void Generation::export_span(std::string_view reason) {
  RequestSpan& span = *span_;
  const SamplingParams& params = plan_.request.params;
  span.model = model_->names[0];
  span.submitted = submitted_;
  if (totals_.queue_s > 0) span.planned = after(submitted_, totals_.queue_s);
  if (first_token_s_ > 0) span.first_token = after(totals_.arrival, first_token_s_);
  double last_token_s = 0;
  for (const Choice& choice : choices_) last_token_s = std::max(last_token_s, choice.last_token_s);
  if (last_token_s > 0) span.last_token = after(totals_.arrival, last_token_s);
  span.end = Clock::now();
  span.finish = reason;
  span.num_choices = plan_.request.num_choices;
  span.num_sequences = static_cast<int>(choices_.size());
  span.prompt_tokens = totals_.total_prompt();
  span.cached_tokens = totals_.total_cached();
  span.completion_tokens = totals_.total_completion();
  if (plan_.request.max_new_tokens >= 0) span.max_tokens = plan_.request.max_new_tokens;
  span.temperature = params.temperature;
  span.top_p = params.top_p;
  span.top_k = params.top_k;
  state_.spans->add(std::move(span));
}

}  // namespace sluice
