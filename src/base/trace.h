// A timeline of the program, in Chrome's JSON array of trace events: ui.perfetto.dev and
// chrome://tracing open it (docs/tracing.md has the lanes and the fields).
//
//   if (trace) trace->span(TraceLane::kEngine, "schedule", begin, end, R"({"step":7})");
//
// Events are text in a buffer of bounded size. The buffer goes to the file when it is full or a
// tenth of a second old, and with flush(). Every piece ends with a whole event, and readers accept
// a missing closing bracket: so the file of a killed process can be opened. After a failed write (a
// full disk) the trace ends with one line in the log. Any thread. Events hold only counts, names
// and times, never text of prompts or outputs.
#pragma once

#include <chrono>
#include <cstdint>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

namespace sluice {

// The lanes of the timeline. kText and kNetwork have one lane for each thread that writes to them.
enum class TraceLane : std::uint8_t { kEngine, kDevice, kText, kNetwork };

// The life of one request. A time that never came is Clock::time_point{}.
struct TracedRequest {
  using Time = std::chrono::steady_clock::time_point;
  std::string id;  // the id that a client sees, or "request 3"
  Time arrival{};
  // read and tokenized; equal to arrival if there was nothing to read or tokenize
  Time submitted{};
  Time planned{};  // the first step that computes tokens of the request
  Time first_token{};
  Time end{};
  std::string args;  // a JSON object, or empty
};

class Trace {
 public:
  using Clock = std::chrono::steady_clock;
  using Time = Clock::time_point;

  // Creates or truncates the file. Error{kBadInput} naming the file when it cannot be written.
  explicit Trace(const std::string& path);
  ~Trace();
  Trace(const Trace&) = delete;
  Trace& operator=(const Trace&) = delete;

  // A span from `begin` to `end` on a lane. Spans of one lane nest. `args`: a JSON object, or
  // empty.
  void span(TraceLane lane, std::string_view name, Time begin, Time end,
            std::string_view args = {});
  // A point in time.
  void instant(TraceLane lane, std::string_view name, Time when, std::string_view args = {});
  // The phases of a finished request, inside a span of its own: read, queue, prefill, decode.
  // Requests that overlap have different lanes.
  void request(const TracedRequest& request);
  // Writes the contents of the buffer.
  void flush();

  const std::string& path() const { return path_; }

 private:
  int lane_of(TraceLane lane);
  int request_lane(Time begin, Time end);
  void name_lane(int process, int lane, std::string_view name);
  void add(char phase, int process, int lane, std::string_view name, Time begin, Time end,
           std::string_view args);
  void put(std::string_view event);
  void write();

  const std::string path_;
  const Time start_ = Clock::now();
  std::mutex mutex_;
  // Guarded by mutex_.
  int file_ = -1;
  bool first_ = true;
  std::string buffer_;
  Time written_ = start_;
  std::vector<std::pair<TraceLane, std::thread::id>>
      threads_;                      // threads of kText and kNetwork, in order of appearance
  std::vector<Time> request_lanes_;  // end of the last request on each lane
};

// A span from construction to destruction. No effect without a trace.
class TraceSpan {
 public:
  TraceSpan(Trace* trace, TraceLane lane, std::string_view name)
      : trace_(trace), lane_(lane), name_(name) {
    if (trace_ != nullptr) begin_ = Trace::Clock::now();
  }
  ~TraceSpan() {
    if (trace_ != nullptr) trace_->span(lane_, name_, begin_, Trace::Clock::now(), args_);
  }
  TraceSpan(const TraceSpan&) = delete;
  TraceSpan& operator=(const TraceSpan&) = delete;
  void set_args(std::string args) { args_ = std::move(args); }

 private:
  Trace* const trace_;
  const TraceLane lane_;
  const std::string_view name_;
  Trace::Time begin_;
  std::string args_;
};

}  // namespace sluice
