#include "base/trace.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <iterator>

#include "base/error.h"
#include "base/json.h"
#include "base/log.h"

namespace sluice {
namespace {

constexpr std::size_t kPieceBytes = 64 << 10;
constexpr std::chrono::milliseconds kPieceAge{100};

// The two groups that a viewer shows; the values are the numbers of lanes.
constexpr int kHost = 1, kRequests = 2;
constexpr int kEngineLane = 1, kDeviceLane = 2, kFirstThreadLane = 10;

std::int64_t nanoseconds(Trace::Clock::duration time) {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(time).count();
}

// Microseconds with three decimals. They are exact, so spans that nest in nanoseconds also nest in
// the file.
std::string microseconds(std::int64_t ns) {
  return fmt::format("{}.{:03}", ns / 1000, ns % 1000);
}

std::string quoted(std::string_view text) {
  return dump_json(Json(std::string(text)));
}

}  // namespace

Trace::Trace(const std::string& path) : path_(path) {
  file_ = open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOCTTY, 0644);
  require(file_ >= 0,
          "--trace {}: the file cannot be written: {}; give a path in a directory that exists and "
          "is yours",
          path, std::strerror(errno));
  std::lock_guard lock(mutex_);
  for (const auto& [process, name] : {std::pair(kHost, "sluice"), std::pair(kRequests, "requests")})
    put(fmt::format(R"({{"ph":"M","pid":{},"tid":0,"name":"process_name","args":{{"name":"{}"}}}})",
                    process, name));
  name_lane(kHost, kEngineLane, "engine");
  name_lane(kHost, kDeviceLane, "device");
  write();
}

Trace::~Trace() {
  std::lock_guard lock(mutex_);
  if (file_ < 0) return;
  buffer_ += "\n]\n";
  write();
  if (file_ >= 0) close(file_);
}

void Trace::span(TraceLane lane, std::string_view name, Time begin, Time end,
                 std::string_view args) {
  std::lock_guard lock(mutex_);
  add('X', kHost, lane_of(lane), name, begin, end, args);
}

void Trace::instant(TraceLane lane, std::string_view name, Time when, std::string_view args) {
  std::lock_guard lock(mutex_);
  add('i', kHost, lane_of(lane), name, when, when, args);
}

void Trace::request(const TracedRequest& r) {
  constexpr Time kNever{};
  const Time end = std::max(r.end, r.arrival);
  std::lock_guard lock(mutex_);
  const int lane = request_lane(r.arrival, end);
  add('X', kRequests, lane, r.id, r.arrival, end, r.args);
  // A phase begins where the previous phase ended. The last phase that began lasts to the end.
  const std::pair<std::string_view, Time> phases[] = {
      {"read", r.submitted}, {"queue", r.planned}, {"prefill", r.first_token}, {"decode", end}};
  Time begin = r.arrival;
  for (const auto& [name, until] : phases) {
    const bool cut = until == kNever;
    const Time stop = cut ? end : std::clamp(until, begin, end);
    if (stop > begin || name == "decode") add('X', kRequests, lane, name, begin, stop, {});
    begin = stop;
    if (cut) break;
  }
}

void Trace::flush() {
  std::lock_guard lock(mutex_);
  write();
}

int Trace::lane_of(TraceLane lane) {
  if (lane == TraceLane::kEngine) return kEngineLane;
  if (lane == TraceLane::kDevice) return kDeviceLane;
  const std::pair key(lane, std::this_thread::get_id());
  const auto found = std::find(threads_.begin(), threads_.end(), key);
  const int number = kFirstThreadLane + static_cast<int>(found - threads_.begin());
  if (found == threads_.end()) {
    const auto before = std::count_if(threads_.begin(), threads_.end(),
                                      [&](const auto& t) { return t.first == lane; });
    threads_.push_back(key);
    name_lane(kHost, number,
              fmt::format("{} {}", lane == TraceLane::kText ? "text" : "network", before + 1));
  }
  return number;
}

// The first lane whose last request ended before this one came.
int Trace::request_lane(Time begin, Time end) {
  const auto free = std::find_if(request_lanes_.begin(), request_lanes_.end(),
                                 [&](Time last) { return last <= begin; });
  const int number = 1 + static_cast<int>(free - request_lanes_.begin());
  if (free != request_lanes_.end()) {
    *free = end;
  } else {
    request_lanes_.push_back(end);
    name_lane(kRequests, number, fmt::format("lane {}", number));
  }
  return number;
}

void Trace::name_lane(int process, int lane, std::string_view name) {
  put(fmt::format(
      R"({{"ph":"M","pid":{0},"tid":{1},"name":"thread_name","args":{{"name":"{2}"}}}})", process,
      lane, name));
  put(fmt::format(
      R"({{"ph":"M","pid":{0},"tid":{1},"name":"thread_sort_index","args":{{"sort_index":{1}}}}})",
      process, lane));
}

void Trace::add(char phase, int process, int lane, std::string_view name, Time begin, Time end,
                std::string_view args) {
  // A span that began before the trace is cut at the trace's begin.
  const std::int64_t from = std::max<std::int64_t>(0, nanoseconds(begin - start_));
  const std::int64_t until = std::max(from, nanoseconds(end - start_));
  std::string event = fmt::format(R"({{"ph":"{}","pid":{},"tid":{},"ts":{},"name":{})", phase,
                                  process, lane, microseconds(from), quoted(name));
  if (phase == 'X') event += fmt::format(R"(,"dur":{})", microseconds(until - from));
  if (phase == 'i') event += R"(,"s":"t")";
  event += fmt::format(R"(,"args":{}}})", args.empty() ? "{}" : args);
  put(event);
  if (buffer_.size() >= kPieceBytes || Clock::now() - written_ >= kPieceAge) write();
}

void Trace::put(std::string_view event) {
  if (file_ < 0) return;
  buffer_ += first_ ? "[\n" : ",\n";
  buffer_ += event;
  first_ = false;
}

void Trace::write() {
  written_ = Clock::now();
  for (std::size_t done = 0; file_ >= 0 && done < buffer_.size();) {
    const ssize_t count = ::write(file_, buffer_.data() + done, buffer_.size() - done);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) {
      log_warning("--trace {}: writing failed ({}); the trace ends here", path_,
                  std::strerror(errno));
      close(file_);
      file_ = -1;
      break;
    }
    done += static_cast<std::size_t>(count);
  }
  buffer_.clear();
}

}  // namespace sluice
