#include "cli/bench/load_run.h"

#include <boost/asio/steady_timer.hpp>
#include <deque>

namespace sluice {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

class Load {
 public:
  Load(boost::asio::io_context& context, HttpClient& client, const std::vector<LoadPrompt>& prompts,
       const LoadPlan& plan, const std::function<void(std::size_t)>& progress)
      : timer_(context), client_(client), prompts_(prompts), plan_(plan), progress_(progress) {
    result_.records.resize(prompts.size());
    bodies_.reserve(prompts.size());
    // Spelt beforehand, so that the clock runs for the server alone.
    for (const LoadPrompt& prompt : prompts)
      bodies_.push_back(request_body(plan.protocol, prompt, plan.style));
  }

  LoadResult run(boost::asio::io_context& context) {
    begin_ = due_ = Clock::now();
    arrive();
    context.restart();
    context.run();
    result_.duration_s = seconds_since(begin_);
    return std::move(result_);
  }

 private:
  // One request on its way.
  struct Call {
    Call(const LoadPlan& plan, const LoadPrompt& prompt)
        : reader(plan.protocol, plan.style.stream, prompt),
          events([this](std::string_view data) { reader.event(data, seconds_since(sent)); }) {}
    AnswerReader reader;
    SseReader events;
    std::string body;  // of a refusal, or of an answer that is no stream
    int status = 0;
    Clock::time_point sent;
  };

  // Everything that is due by now, then sleeps until the next one is.
  void arrive() {
    while (next_ < prompts_.size()) {
      due_ += std::chrono::duration_cast<Clock::duration>(
          std::chrono::duration<double>(plan_.gaps_s[next_]));
      if (due_ > Clock::now()) {
        timer_.expires_at(due_);
        timer_.async_wait([this](const boost::system::error_code&) {
          waiting_.push_back(next_++);
          send_waiting();
          arrive();
        });
        return;
      }
      waiting_.push_back(next_++);
      send_waiting();
    }
  }

  void send_waiting() {
    while (!waiting_.empty() && (!plan_.max_concurrency || in_flight_ < *plan_.max_concurrency)) {
      const std::size_t index = waiting_.front();
      waiting_.pop_front();
      send(index);
    }
  }

  void send(std::size_t index) {
    ++in_flight_;
    auto call = std::make_shared<Call>(plan_, prompts_[index]);
    call->sent = Clock::now();
    call->reader.record().start_s = seconds_since(begin_);
    HttpEvents events;
    events.on_head = [call](int status) { call->status = status; };
    events.on_body = [this, call](std::string_view bytes) {
      if (call->status == 200 && plan_.style.stream)
        call->events.push(bytes);
      else
        call->body += bytes;
    };
    events.on_end = [this, call, index](const std::string& error) { ended(*call, index, error); };
    client_.start({.method = "POST",
                   .target = std::string(protocol_path(plan_.protocol)),
                   .body = bodies_[index],
                   .headers = plan_.headers},
                  std::chrono::duration<double>(plan_.timeout_s), std::move(events));
  }

  void ended(Call& call, std::size_t index, const std::string& error) {
    RequestRecord& record = call.reader.record();
    if (!error.empty()) {
      record.error = error;
    } else if (call.status != 200) {
      record.error = fmt::format("HTTP {}: {}", call.status, call.body.substr(0, 400));
    } else {
      if (!plan_.style.stream) call.reader.body(call.body, seconds_since(call.sent));
      call.reader.end(seconds_since(call.sent));
    }
    result_.records[index] = std::move(record);
    --in_flight_;
    if (progress_) progress_(++num_ended_);
    send_waiting();
  }

  boost::asio::steady_timer timer_;
  HttpClient& client_;
  const std::vector<LoadPrompt>& prompts_;
  const LoadPlan& plan_;
  const std::function<void(std::size_t)>& progress_;
  std::vector<std::string> bodies_;
  LoadResult result_;
  Clock::time_point begin_, due_;
  std::deque<std::size_t> waiting_;
  std::size_t next_ = 0, num_ended_ = 0;
  int in_flight_ = 0;
};

}  // namespace

LoadResult run_load(boost::asio::io_context& context, HttpClient& client,
                    const std::vector<LoadPrompt>& prompts, const LoadPlan& plan,
                    const std::function<void(std::size_t)>& progress) {
  return Load(context, client, prompts, plan, progress).run(context);
}

}  // namespace sluice
