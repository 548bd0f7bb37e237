#include "telemetry/span_exporter.h"

#include <algorithm>
#include <cstdlib>
#include <iterator>

#include "base/error.h"
#include "base/log.h"

namespace sluice {
namespace {

constexpr std::chrono::seconds kTimeout{10}, kLastTimeout{2};
constexpr std::uint64_t kMaxAnswer = 64 << 10;
// The port where collectors listen for gRPC.
constexpr int kGrpcPort = 4317;

std::string_view trimmed(std::string_view value) {
  while (value.starts_with(' ')) value.remove_prefix(1);
  while (value.ends_with(' ')) value.remove_suffix(1);
  return value;
}

// "a=1,b=2", as the specification of OpenTelemetry has it.
std::vector<std::string> header_lines(std::string_view list) {
  std::vector<std::string> lines;
  while (!list.empty()) {
    const std::size_t comma = std::min(list.find(','), list.size());
    const std::string_view item = trimmed(list.substr(0, comma));
    list.remove_prefix(std::min(list.size(), comma + 1));
    if (item.empty()) continue;
    const std::size_t equals = item.find('=');
    require(equals != std::string_view::npos && equals > 0 &&
                item.find_first_of("\r\n") == std::string_view::npos,
            "OTEL_EXPORTER_OTLP_HEADERS has an item without a name; write name=value,name=value");
    lines.push_back(
        fmt::format("{}: {}", trimmed(item.substr(0, equals)), trimmed(item.substr(equals + 1))));
  }
  return lines;
}

}  // namespace

ExportSettings read_export_settings(const std::string& endpoint) {
  const std::optional<Url> url = parse_hub_url(endpoint);
  require(url.has_value(),
          "'{}' is no endpoint for traces; write http://HOST:4318 or https://HOST/PATH. OTLP goes "
          "over HTTP here; gRPC (port 4317 of most collectors) is not spoken",
          endpoint);
  if (url->port == kGrpcPort)
    log_warning(
        "traces go to port 4317 over HTTP; most collectors take gRPC there, and HTTP on port 4318");
  ExportSettings settings;
  settings.url = url->target == "/" ? url->origin() + "/v1/traces" : url->text();
  if (const char* const name = std::getenv("OTEL_SERVICE_NAME"); name && *name)
    settings.service = name;
  if (const char* const headers = std::getenv("OTEL_EXPORTER_OTLP_HEADERS"))
    settings.headers = header_lines(headers);
  return settings;
}

SpanExporter::SpanExporter(ExportSettings settings)
    : settings_(std::move(settings)),
      session_(open_curl_library(), HubEnvironment::of_process().settings(), &stop_transfer_),
      thread_([this] { work(); }) {}

SpanExporter::~SpanExporter() {
  {
    const std::lock_guard lock(mutex_);
    is_ending_ = true;
    stop_transfer_ = true;  // a transfer that hangs; the last one clears it
  }
  wake_.notify_one();
  thread_.join();
}

void SpanExporter::add(RequestSpan&& request) {
  if (!request.context.is_sampled) return;
  {
    const std::lock_guard lock(mutex_);
    if (waiting_.size() < settings_.max_waiting) {
      waiting_.push_back(std::move(request));
      if (waiting_.size() != 1 && waiting_.size() != settings_.max_batch) return;
    } else {
      dropped_.fetch_add(1);
      return;
    }
  }
  wake_.notify_one();
}

void SpanExporter::work() {
  for (;;) {
    std::vector<RequestSpan> batch;
    {
      std::unique_lock lock(mutex_);
      wake_.wait(lock, [&] { return is_ending_ || !waiting_.empty(); });
      wake_.wait_for(lock, settings_.batch_time,
                     [&] { return is_ending_ || waiting_.size() >= settings_.max_batch; });
      if (waiting_.empty()) return;
      const auto count = static_cast<std::ptrdiff_t>(
          is_ending_ ? waiting_.size() : std::min(waiting_.size(), settings_.max_batch));
      std::move(waiting_.begin(), waiting_.begin() + count, std::back_inserter(batch));
      waiting_.erase(waiting_.begin(), waiting_.begin() + count);
    }
    try {
      send(batch);
    } catch (const std::exception& e) {
      dropped_.fetch_add(batch.size());
      note(e.what());
    }
  }
}

void SpanExporter::send(const std::vector<RequestSpan>& batch) {
  const std::string body = otlp_json(batch, settings_.service);
  Outcome outcome = Outcome::kLater;
  std::chrono::milliseconds pause = settings_.first_pause;
  for (int tried = 0; outcome == Outcome::kLater; ++tried) {
    bool is_ending = false;
    {
      std::unique_lock lock(mutex_);
      if (tried > 0) {
        wake_.wait_for(lock, pause, [&] { return is_ending_; });
        pause *= 2;
      }
      is_ending = is_ending_;
    }
    if (is_ending) stop_transfer_ = false;
    outcome = try_to_send(body, is_ending ? kLastTimeout : kTimeout);
    if (is_ending || tried + 1 >= settings_.max_tries) break;
  }
  (outcome == Outcome::kTaken ? exported_ : dropped_).fetch_add(batch.size());
}

// What may be tried again is OTLP's list: 429, 502, 503, 504, and no answer.
SpanExporter::Outcome SpanExporter::try_to_send(const std::string& body,
                                                std::chrono::seconds timeout) {
  TransferRequest request;
  request.url = settings_.url;
  request.post = body;
  request.headers = settings_.headers;
  request.headers.push_back("Content-Type: application/json");
  request.connect_timeout = timeout;
  request.total_timeout = timeout;
  request.max_body_bytes = kMaxAnswer;
  const TransferOutcome answer = session_.perform(request, {});
  if (answer.error != TransferError::kNone) {
    if (answer.error != TransferError::kStopped) note(answer.detail);
    return Outcome::kLater;
  }
  const int status = answer.head.status();
  note(status / 100 == 2 ? "" : fmt::format("the collector answers with status {}", status));
  if (status / 100 == 2) return Outcome::kTaken;
  const bool may_try_again = status == 429 || status == 502 || status == 503 || status == 504;
  return may_try_again ? Outcome::kLater : Outcome::kRefused;
}

void SpanExporter::note(const std::string& trouble) {
  if (trouble == trouble_) return;
  if (!trouble.empty())
    log_warning("traces do not reach {}: {}; requests go on without", settings_.url, trouble);
  else
    log_info("traces reach {} again", settings_.url);
  trouble_ = trouble;
}

}  // namespace sluice
