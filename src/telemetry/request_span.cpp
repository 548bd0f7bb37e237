#include "telemetry/request_span.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "base/build.h"
#include "base/json.h"

namespace sluice {
namespace {

using Time = RequestSpan::Time;

// SpanKind of OTLP.
constexpr int kInternal = 1, kServer = 2;
constexpr int kStatusError = 2;

// OTLP wants times of the wall clock; one difference for all keeps their order.
std::string unix_nanoseconds(Time time) {
  static const auto kBetween = std::chrono::system_clock::now().time_since_epoch() -
                               std::chrono::steady_clock::now().time_since_epoch();
  return std::to_string(std::chrono::nanoseconds(time.time_since_epoch() + kBetween).count());
}

double seconds_between(Time from, Time to) {
  return std::chrono::duration<double>(to - from).count();
}

// The document is written as text: a tree of values would cost ten times as much as the rest of a
// request's account.
void append_quoted(std::string& out, std::string_view text) {
  const bool is_plain = std::ranges::all_of(
      text, [](char c) { return c >= 0x20 && c < 0x7F && c != '"' && c != '\\'; });
  if (!is_plain) {
    out += dump_json(Json(text));
    return;
  }
  out += '"';
  out += text;
  out += '"';
}

class Attributes {
 public:
  explicit Attributes(std::string& out) : out_(out) { out_ += '['; }
  void add(std::string_view key, std::string_view text) {
    begin(key);
    out_ += R"({"stringValue":)";
    append_quoted(out_, text);
    out_ += "}}";
  }
  // In proto3's JSON an integer of 64 bits is a string.
  void add(std::string_view key, std::int64_t value) {
    begin(key);
    fmt::format_to(std::back_inserter(out_), R"({{"intValue":"{}"}}}})", value);
  }
  void add(std::string_view key, int value) { add(key, std::int64_t{value}); }
  void add(std::string_view key, double value) {
    begin(key);
    fmt::format_to(std::back_inserter(out_), R"({{"doubleValue":{}}}}})", value);
  }
  void add_list(std::string_view key, std::string_view only) {
    begin(key);
    out_ += R"({"arrayValue":{"values":[{"stringValue":)";
    append_quoted(out_, only);
    out_ += "}]}}}";
  }
  void end() { out_ += ']'; }

 private:
  void begin(std::string_view key) {
    if (!std::exchange(is_first_, false)) out_ += ',';
    out_ += R"({"key":")";
    out_ += key;  // a literal of ours
    out_ += R"(","value":)";
  }

  std::string& out_;
  bool is_first_ = true;
};

std::string_view operation_of(std::string_view path) {
  const bool is_text = path == "/v1/completions" || path.ends_with("/generate");
  return is_text ? "text_completion" : "chat";
}

void append_attributes(const RequestSpan& request, std::string& json) {
  Attributes out(json);
  out.add("gen_ai.operation.name", operation_of(request.path));
  out.add("gen_ai.provider.name", "sluice");
  out.add("gen_ai.request.id", request.request_id);
  out.add("gen_ai.request.model", request.model);
  out.add("gen_ai.response.model", request.model);
  out.add("gen_ai.request.temperature", request.temperature);
  out.add("gen_ai.request.top_p", request.top_p);
  if (request.top_k > 0) out.add("gen_ai.request.top_k", request.top_k);
  if (request.max_tokens) out.add("gen_ai.request.max_tokens", *request.max_tokens);
  out.add("gen_ai.request.n", request.num_choices);
  out.add("gen_ai.usage.num_sequences", request.num_sequences);
  out.add("gen_ai.usage.prompt_tokens", request.prompt_tokens);
  out.add("gen_ai.usage.input_tokens", request.prompt_tokens);
  out.add("gen_ai.usage.cached_tokens", request.cached_tokens);
  out.add("gen_ai.usage.completion_tokens", request.completion_tokens);
  out.add("gen_ai.usage.output_tokens", request.completion_tokens);
  out.add_list("gen_ai.response.finish_reasons", request.finish);
  out.add("url.path", request.path);
  const auto latency = [&](const char* name, Time from, Time to) {
    if (from != Time{} && to != Time{})
      out.add(std::string("gen_ai.latency.") + name, seconds_between(from, to));
  };
  latency("time_in_queue", request.submitted, request.planned);
  latency("time_to_first_token", request.arrival, request.first_token);
  latency("time_in_model_prefill", request.planned, request.first_token);
  latency("time_in_model_decode", request.first_token, request.last_token);
  latency("time_in_model_inference", request.planned, request.last_token);
  latency("e2e", request.arrival, request.end);
  out.end();
}

// A span without its closing brace.
void append_span(const RequestSpan& request, SpanId id, SpanId parent, std::string_view name,
                 int kind, Time begin, Time end, std::string& json) {
  fmt::format_to(std::back_inserter(json),
                 R"({{"traceId":"{}","spanId":"{}","name":"{}","kind":{},)"
                 R"("startTimeUnixNano":"{}","endTimeUnixNano":"{}")",
                 trace_id_text(request.context), span_id_text(id), name, kind,
                 unix_nanoseconds(begin), unix_nanoseconds(end));
  if (parent != 0)
    fmt::format_to(std::back_inserter(json), R"(,"parentSpanId":"{}")", span_id_text(parent));
  if (request.trace_state.empty()) return;
  json += R"(,"traceState":)";
  append_quoted(json, request.trace_state);
}

void append_spans(const RequestSpan& request, std::string& json) {
  append_span(request, request.id, request.context.parent, "llm_request", kServer, request.arrival,
              request.end, json);
  json += R"(,"attributes":)";
  append_attributes(request, json);
  if (request.finish == "error")
    fmt::format_to(std::back_inserter(json), R"(,"status":{{"code":{}}})", kStatusError);
  json += '}';
  const std::pair<const char*, Time> phases[] = {{"read", request.submitted},
                                                 {"queue", request.planned},
                                                 {"prefill", request.first_token},
                                                 {"decode", request.last_token}};
  Time begin = request.arrival;
  for (const auto& [name, end] : phases) {
    if (end == Time{}) break;
    json += ',';
    append_span(request, new_span_id(), request.id, name, kInternal, begin, end, json);
    json += '}';
    begin = end;
  }
}

}  // namespace

std::string otlp_json(std::span<const RequestSpan> requests, std::string_view service) {
  std::string json = R"({"resourceSpans":[{"resource":{"attributes":)";
  Attributes resource(json);
  resource.add("service.name", service);
  resource.add("service.version", kVersion);
  resource.add("telemetry.sdk.name", "sluice");
  resource.add("telemetry.sdk.language", "cpp");
  resource.add("telemetry.sdk.version", kVersion);
  resource.end();
  json += R"(},"scopeSpans":[{"scope":{"name":"sluice.server","version":")";
  json += kVersion;
  json += R"("},"spans":[)";
  for (std::size_t i = 0; i < requests.size(); ++i) {
    if (i > 0) json += ',';
    append_spans(requests[i], json);
  }
  return json + "]}]}]}";
}

}  // namespace sluice
