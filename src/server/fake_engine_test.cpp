// The scripted engine of the server's tests, and a test of the script itself.
#include "server/testing/server_fixture.h"

namespace sluice {

FakeEngine::FakeEngine(std::shared_ptr<const Tokenizer> tokenizer, StopMatcherFactory stop_matchers)
    : tokenizer_(std::move(tokenizer)), stop_matchers_(std::move(stop_matchers)) {
  config.vocab_size = tokenizer_->size();
  config.architecture = "FakeForCausalLM";
  thread_ = std::thread([this] { run(); });
}

FakeEngine::~FakeEngine() {
  stop_ = true;
  changed_.notify_all();
  thread_.join();
}

Result<std::uint64_t> FakeEngine::submit(Request request, EventSink sink) {
  std::lock_guard lock(mutex_);
  if (draining_) return Fault{503, "draining", "", "The engine is draining."};
  if (static_cast<int>(sequences_.size()) >= max_queued)
    return Fault{429, "queue_full", "", "The queue is full."};
  if (static_cast<int>(request.prompt_ids.size()) + (request.max_new_tokens != 0) > context)
    return Fault{400, "context_length_exceeded", "", "Too long."};
  ++submitted_;
  const std::uint64_t id = next_id_++;
  last_request_ = request;
  for (int c = 0; c < request.num_choices; ++c) {
    Sequence& sequence = sequences_.emplace_back();
    sequence.id = id;
    sequence.request = request;
    sequence.sink = sink;
    sequence.choice = c;
    if (!request.stop.empty()) sequence.matcher = stop_matchers_(request.stop);
  }
  changed_.notify_all();
  return id;
}

bool FakeEngine::abort(std::uint64_t request) {
  std::lock_guard lock(mutex_);
  bool found = false;
  for (Sequence& sequence : sequences_) {
    if (sequence.id != request || sequence.ended) continue;
    found = sequence.ended = true;
    Event event;
    event.request = request;
    event.choice = sequence.choice;
    event.finish = FinishReason::kAbort;
    sequence.sink(std::move(event));
  }
  aborted_ += found;
  return found;
}

void FakeEngine::abort_all() {
  std::vector<std::uint64_t> ids;
  {
    std::lock_guard lock(mutex_);
    for (const Sequence& sequence : sequences_) ids.push_back(sequence.id);
  }
  for (const std::uint64_t id : ids) abort(id);
}

void FakeEngine::set_script(std::vector<std::int32_t> tokens) {
  std::lock_guard lock(mutex_);
  script_ = std::move(tokens);
}

std::vector<std::int32_t> FakeEngine::script() const {
  std::lock_guard lock(mutex_);
  return script_;
}

void FakeEngine::set_failure(int at_token, Fault fault) {
  std::lock_guard lock(mutex_);
  fail_at_ = at_token;
  fault_ = std::move(fault);
}

bool FakeEngine::flush_cache() {
  return num_open() == 0;
}

std::optional<PrefixLookup> FakeEngine::look_up_prefix(Request request) {
  std::lock_guard lock(mutex_);
  last_request_ = std::move(request);
  return lookup;
}

EngineStats FakeEngine::stats() const {
  EngineStats stats;
  stats.running = num_open();
  stats.max_total_tokens = 10000;
  stats.steps = steps_;
  stats.aborted = aborted_;
  stats.seconds_since_progress = stalled && stats.running > 0 ? 100 : 0;
  return stats;
}

int FakeEngine::num_open() const {
  std::lock_guard lock(mutex_);
  int open = 0;
  for (const Sequence& sequence : sequences_) open += !sequence.ended;
  return open;
}

Request FakeEngine::last_request() const {
  std::lock_guard lock(mutex_);
  return last_request_;
}

void FakeEngine::run() {
  std::unique_lock lock(mutex_);
  while (!stop_) {
    if (sequences_.empty() || stalled) {
      changed_.wait_for(lock, std::chrono::milliseconds(5));
      continue;
    }
    for (Sequence& sequence : sequences_)
      if (!sequence.ended) step(sequence);
    sequences_.remove_if([](const Sequence& sequence) { return sequence.ended; });
    ++steps_;
    lock.unlock();
    std::this_thread::sleep_for(std::chrono::microseconds(step_us));
    lock.lock();
  }
}

void FakeEngine::step(Sequence& sequence) {
  const Request& request = sequence.request;
  Event event;
  event.request = sequence.id;
  event.choice = sequence.choice;
  event.prompt_tokens = static_cast<int>(request.prompt_ids.size());
  const bool logprobs = request.params.num_top_logprobs >= 0;
  const auto row = [&](std::int32_t token) {
    RowLogprobs out;
    out.logprob = -0.5f;
    for (int i = 0; i < request.params.num_top_logprobs; ++i)
      out.top.push_back({i == 0 ? token : i, i == 0 ? -0.5f : -1.0f - static_cast<float>(i)});
    return out;
  };
  if (std::exchange(sequence.first, false)) {
    event.cached_tokens = 1;
    event.queue_s = 0.001;
    if (request.logprob_start >= 0 && sequence.choice == 0)
      for (std::size_t i = static_cast<std::size_t>(request.logprob_start) + 1;
           i < request.prompt_ids.size(); ++i)
        event.prompt_logprobs.push_back(row(request.prompt_ids[i]));
  }
  if (request.pooling != Pooling::kNone) {
    event.finish = FinishReason::kLength;
    event.pooled.assign(kDimension, 0.0f);
    event.pooled[0] = static_cast<float>(request.prompt_ids.size());
    for (std::size_t i = 0; i + 1 < kDimension && i < request.prompt_ids.size(); ++i)
      event.pooled[i + 1] = static_cast<float>(request.prompt_ids[i]);
  } else if (request.max_new_tokens == 0) {
    event.finish = FinishReason::kLength;
  } else if (sequence.produced == fail_at_) {
    event.finish = FinishReason::kError;
    event.error = fault_;
  } else {
    for (int i = 0; i < step_tokens && event.finish == FinishReason::kNone; ++i) {
      const bool at_end = sequence.produced >= static_cast<int>(script_.size());
      const std::int32_t eos = tokenizer_->eos_id().value_or(0);
      std::int32_t token = at_end ? eos : script_[static_cast<std::size_t>(sequence.produced)];
      if (at_end && request.ignore_eos)
        token = script_.empty()
                    ? 1
                    : script_[static_cast<std::size_t>(sequence.produced) % script_.size()];
      ++sequence.produced;
      event.tokens.push_back(token);
      if (logprobs) event.token_logprobs.push_back(row(token));
      if (at_end && !request.ignore_eos) {
        event.finish = FinishReason::kStop;
        event.matched_token = eos;
      } else if (std::ranges::count(request.params.stop_token_ids, token) > 0) {
        event.finish = FinishReason::kStop;
        event.matched_token = token;
      } else if (sequence.matcher && sequence.matcher->push(token)) {
        event.finish = FinishReason::kStop;
        event.matched_stop_string = true;
      } else if (request.max_new_tokens >= 0 && sequence.produced >= request.max_new_tokens) {
        event.finish = FinishReason::kLength;
      }
    }
  }
  sequence.ended = event.finish != FinishReason::kNone;
  sequence.sink(std::move(event));
}

TEST(FakeEngine, SpeaksItsScriptThenEnds) {
  TestServer server;
  std::mutex mutex;
  std::vector<Event> events;
  Request request;
  request.prompt_ids = {1, 2};
  ASSERT_TRUE(server.engine->submit(request, [&](Event&& event) {
    std::lock_guard lock(mutex);
    events.push_back(std::move(event));
  }));
  ASSERT_TRUE(eventually([&] { return server.engine->idle(); }));
  const std::size_t script_size = server.engine->script().size();
  std::lock_guard lock(mutex);
  ASSERT_EQ(events.size(), script_size + 1);
  EXPECT_EQ(events.back().finish, FinishReason::kStop);
}

}  // namespace sluice
