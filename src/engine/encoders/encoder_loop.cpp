#include "engine/encoders/encoder_loop.h"

#include <algorithm>
#include <exception>
#include <utility>

#include "base/log.h"
#include "scheduler/pooled_states.h"

namespace sluice {

EncoderLoop::EncoderLoop(EncoderParts parts)
    : parts_(std::move(parts)), thread_([this] { run(); }) {}

EncoderLoop::~EncoderLoop() {
  {
    std::lock_guard lock(mutex_);
    is_stopping_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

std::optional<Fault> EncoderLoop::check_request(const Request& request) const {
  if (request.pooling == Pooling::kNone)
    return Fault{400, "unsupported_task", "",
                 "the model is an encoder: it gives vectors or scores, and no text"};
  if (request.pooling == Pooling::kScores && parts_.encoder_config.head == EncoderHead::kNone)
    return Fault{400, "unsupported_task", "",
                 "the model has no head that classifies texts, so it gives no scores"};
  if (request.prompt_ids.empty())
    return Fault{400, "empty_prompt", "prompt", "the text has no tokens"};
  for (const std::int32_t id : request.prompt_ids)
    if (id < 0 || id >= parts_.config.vocab_size)
      return Fault{400, "invalid_token_id", "prompt",
                   fmt::format("token id {} is not in [0, {})", id, parts_.config.vocab_size)};
  if (std::cmp_greater(request.prompt_ids.size(), parts_.context_length))
    return Fault{400, "context_length_exceeded", "",
                 fmt::format("the text has {} tokens, which is more than the context length of "
                             "{}; shorten the text",
                             request.prompt_ids.size(), parts_.context_length)};
  if (request.pooled_from < 0 ||
      std::cmp_greater_equal(request.pooled_from, request.prompt_ids.size()))
    return Fault{400, "empty_prompt", "prompt",
                 "no token is left to make a vector of; the text is empty"};
  check(request.token_types.empty() || request.token_types.size() == request.prompt_ids.size(),
        "{} token types of {} tokens", request.token_types.size(), request.prompt_ids.size());
  return std::nullopt;
}

Result<std::uint64_t> EncoderLoop::submit(Request request, EventSink sink) {
  if (auto fault = check_request(request)) return *fault;
  std::lock_guard lock(mutex_);
  if (!failure_.empty()) return Fault{503, "engine_failed", "", "the engine has stopped"};
  if (is_draining_ || is_stopping_)
    return Fault{503, "draining", "", "the server is shutting down and takes no new requests"};
  const auto tokens = static_cast<std::int64_t>(request.prompt_ids.size());
  if (std::cmp_greater_equal(queue_.size(), parts_.max_queued_texts) ||
      (!queue_.empty() && queued_tokens_ + tokens > parts_.max_queued_tokens))
    return Fault{429, "queue_full", "",
                 fmt::format("{} texts wait already; try again later", queue_.size())};
  const std::uint64_t id = next_id_++;
  queued_tokens_ += tokens;
  queue_.push_back({id, std::move(request), std::move(sink), Clock::now(), 0});
  changed_.notify_one();
  return id;
}

bool EncoderLoop::abort(std::uint64_t request) {
  std::lock_guard lock(mutex_);
  const bool is_known =
      running_.contains(request) || std::ranges::find(queue_, request, &Text::id) != queue_.end();
  if (is_known) aborted_.insert(request);
  changed_.notify_one();
  return is_known;
}

void EncoderLoop::abort_all() {
  std::lock_guard lock(mutex_);
  for (const Text& text : queue_) aborted_.insert(text.id);
  aborted_.insert(running_.begin(), running_.end());
  changed_.notify_one();
}

void EncoderLoop::drain() {
  std::lock_guard lock(mutex_);
  is_draining_ = true;
}

bool EncoderLoop::idle() const {
  std::lock_guard lock(mutex_);
  return queue_.empty() && running_.empty();
}

EngineStats EncoderLoop::stats() const {
  std::lock_guard lock(mutex_);
  EngineStats out = stats_;
  out.running = static_cast<int>(running_.size());
  out.queued = static_cast<int>(queue_.size());
  out.max_running_requests = static_cast<int>(parts_.max_step_tokens);
  if (!running_.empty())
    out.seconds_since_progress = std::chrono::duration<double>(Clock::now() - step_begin_).count();
  return out;
}

std::string EncoderLoop::failure() const {
  std::lock_guard lock(mutex_);
  return failure_;
}

void EncoderLoop::run() {
  try {
    for (std::vector<Text> texts = next_texts(); !texts.empty(); texts = next_texts()) {
      run_step(texts);
      std::lock_guard lock(mutex_);
      running_.clear();
    }
  } catch (const std::exception& error) {
    log_error("the engine stopped: {}", error.what());
    fail_all("the engine stopped after an internal error");
  }
  std::unique_lock lock(mutex_);
  std::deque<Text> left = std::move(queue_);
  queue_.clear();
  lock.unlock();
  for (Text& text : left)
    end(text, FinishReason::kError, Fault{503, "shutting_down", "", "the server is shutting down"},
        {});
}

std::vector<EncoderLoop::Text> EncoderLoop::next_texts() {
  std::vector<Text> taken, over;
  std::unique_lock lock(mutex_);
  while (taken.empty()) {
    changed_.wait(lock, [&] { return is_stopping_ || !queue_.empty(); });
    if (is_stopping_) return {};
    const auto now = Clock::now();
    std::int64_t tokens = 0;
    while (!queue_.empty()) {
      Text& text = queue_.front();
      const auto size = static_cast<std::int64_t>(text.request.prompt_ids.size());
      text.queue_s = std::chrono::duration<double>(now - text.arrival).count();
      const bool is_late = text.request.timeout_s > 0 && text.queue_s > text.request.timeout_s;
      if (is_late || aborted_.contains(text.id)) {
        queued_tokens_ -= size;
        over.push_back(std::move(text));
        queue_.pop_front();
        continue;
      }
      if (tokens + size > parts_.max_step_tokens && tokens > 0) break;
      tokens += size;
      queued_tokens_ -= size;
      running_.insert(text.id);
      taken.push_back(std::move(text));
      queue_.pop_front();
    }
    step_begin_ = now;
    stats_.aborted += over.size();
    for (const Text& text : over) aborted_.erase(text.id);
    lock.unlock();
    for (Text& text : over) {
      const bool is_late = text.request.timeout_s > 0 && text.queue_s > text.request.timeout_s;
      end(text, is_late ? FinishReason::kError : FinishReason::kAbort,
          is_late ? Fault{504, "timeout", "", "the deadline of the request has passed"}
                  : Fault{499, "aborted", "", "the request was ended"},
          {});
    }
    over.clear();
    lock.lock();
  }
  return taken;
}

void EncoderLoop::run_step(std::vector<Text>& texts) {
  const EncoderConfig& config = parts_.encoder_config;
  std::vector<std::int32_t> ids, positions, types, starts = {0};
  bool wants_scores = false;
  for (const Text& text : texts) {
    const Request& request = text.request;
    wants_scores = wants_scores || request.pooling == Pooling::kScores;
    std::int32_t next = config.position_offset;
    for (std::size_t i = 0; i < request.prompt_ids.size(); ++i) {
      const std::int32_t id = request.prompt_ids[i];
      ids.push_back(id);
      // A padding token has its own row, and the positions behind it do not count it.
      positions.push_back(id == config.pad_id ? config.pad_id : next++);
      const int type = request.token_types.empty() ? 0 : request.token_types[i];
      types.push_back(std::min(type, std::max(0, config.num_types - 1)));
    }
    starts.push_back(static_cast<std::int32_t>(ids.size()));
  }
  const auto total = static_cast<std::int64_t>(ids.size());
  const auto width = static_cast<std::size_t>(config.hidden_size);
  const auto row = [&](std::vector<std::int32_t>& values) {
    return Tensor::dense(values.data(), DType::kI32, {total});
  };
  const Tensor states = parts_.states.tensor(DType::kF32, {total, config.hidden_size});
  const std::size_t labels = config.labels.size();
  std::vector<float> scores(wants_scores ? texts.size() * labels : 0);
  bool has_failed = false;
  try {
    Context& ctx = parts_.rank->context();
    Arena::Scope scope(*ctx.arena);
    parts_.encoder->forward(
        ctx, {.ids = row(ids), .positions = row(positions), .types = row(types), .starts = starts},
        states);
    if (wants_scores)
      parts_.encoder->score(ctx, starts, states,
                            Tensor::dense(scores.data(), DType::kF32,
                                          {static_cast<std::int64_t>(texts.size()),
                                           static_cast<std::int64_t>(labels)}));
  } catch (const std::exception& error) {
    log_error("a step failed: {}", error.what());
    has_failed = true;
  }
  {
    std::lock_guard lock(mutex_);
    ++stats_.steps;
    stats_.step_tokens.add(static_cast<int>(total));
    stats_.prompt_tokens += static_cast<std::uint64_t>(total);
    stats_.last_step_s = std::chrono::duration<double>(Clock::now() - step_begin_).count();
    stats_.step_s += stats_.last_step_s;
  }
  for (std::size_t t = 0; t < texts.size(); ++t) {
    Text& text = texts[t];
    bool is_aborted = false;
    {
      std::lock_guard lock(mutex_);
      running_.erase(text.id);
      is_aborted = aborted_.erase(text.id) > 0;
      stats_.aborted += is_aborted;
    }
    if (has_failed) {
      end(text, FinishReason::kError,
          Fault{500, "internal_error", "", "a step of the engine failed"}, {});
    } else if (is_aborted) {
      end(text, FinishReason::kAbort, Fault{499, "aborted", "", "the request was ended"}, {});
    } else if (text.request.pooling == Pooling::kScores) {
      const auto first = scores.begin() + static_cast<std::ptrdiff_t>(t * labels);
      end(text, FinishReason::kLength, {}, {first, first + static_cast<std::ptrdiff_t>(labels)});
    } else {
      const auto tokens = static_cast<int>(text.request.prompt_ids.size());
      StatePool pool = StatePool::of(text.request.pooling, text.request.pooled_from, tokens);
      const int stop = text.request.pooling == Pooling::kFirst ? pool.next() + 1 : tokens;
      while (pool.next() < stop)
        pool.take({states.ptr<float>() + (static_cast<std::size_t>(starts[t]) +
                                          static_cast<std::size_t>(pool.next())) *
                                             width,
                   width});
      end(text, FinishReason::kLength, {}, pool.vector());
    }
  }
}

void EncoderLoop::end(Text& text, FinishReason finish, const Fault& fault,
                      std::vector<float> pooled) {
  Event event;
  event.request = text.id;
  event.finish = finish;
  event.error = fault;
  event.prompt_tokens = static_cast<int>(text.request.prompt_ids.size());
  event.queue_s = text.queue_s;
  if (finish == FinishReason::kLength) set_pooled(event, std::move(pooled));
  if (event.error.code == "numerics_error") {
    std::lock_guard lock(mutex_);
    ++stats_.numerics_errors;
  }
  text.sink(std::move(event));
}

void EncoderLoop::fail_all(const std::string& why) {
  std::lock_guard lock(mutex_);
  failure_ = why;
  running_.clear();
}

}  // namespace sluice
