#include "server/paced_engine.h"

#include <ctime>

namespace sluice {

namespace {

using Clock = std::chrono::steady_clock;

double thread_cpu_seconds() {
  timespec time{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

}  // namespace

PacedEngine::PacedEngine(std::vector<std::int32_t> script, int vocab_size, Pace pace)
    : script_(std::move(script)), pace_(pace) {
  config_.vocab_size = vocab_size;
  config_.architecture = "NoModel";
  thread_ = std::thread([this] { run(); });
}

PacedEngine::~PacedEngine() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

Result<std::uint64_t> PacedEngine::submit(Request request, EventSink sink) {
  const std::lock_guard lock(mutex_);
  streams_.push_back({streams_.size() + 1, request.max_new_tokens, std::move(sink)});
  changed_.notify_all();
  return streams_.size();
}

void PacedEngine::run() {
  std::vector<Stream> streams;
  {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return stop_ || std::ssize(streams_) >= pace_.num_streams; });
    if (stop_) return;
    streams.swap(streams_);
  }
  // The server begins the last answers.
  std::this_thread::sleep_for(std::chrono::milliseconds(300));
  if (on_start) on_start();
  const double cpu_at_start = thread_cpu_seconds();
  const std::chrono::duration<double> step_time(
      pace_.tokens_per_s > 0 ? pace_.num_streams / pace_.tokens_per_s : 0);
  const Clock::time_point start = Clock::now();
  for (std::size_t step = 0; !streams.empty(); ++step) {
    for (Stream& stream : streams) {
      Event event;
      event.request = stream.id;
      event.prompt_tokens = 1;
      event.tokens.push_back(script_[step % script_.size()]);
      if (--stream.num_left <= 0) event.finish = FinishReason::kLength;
      stream.sink(std::move(event));
    }
    std::erase_if(streams, [](const Stream& stream) { return stream.num_left <= 0; });
    if (pace_.tokens_per_s > 0)
      std::this_thread::sleep_until(
          start + std::chrono::duration_cast<Clock::duration>(step_time * (step + 1.0)));
  }
  thread_s_ = thread_cpu_seconds() - cpu_at_start;
}

}  // namespace sluice
