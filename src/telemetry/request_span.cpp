#include "telemetry/request_span.h"

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

// In proto3's JSON an integer of 64 bits is a string.
Json text(std::string_view value) {
  return Json{{"stringValue", value}};
}
Json integer(std::int64_t value) {
  return Json{{"intValue", std::to_string(value)}};
}
Json number(double value) {
  return Json{{"doubleValue", value}};
}

class Attributes {
 public:
  void add(std::string_view key, Json value) {
    list_.push_back(Json{{"key", key}, {"value", std::move(value)}});
  }
  Json take() { return std::move(list_); }

 private:
  Json list_ = Json::array();
};

std::string_view operation_of(std::string_view path) {
  const bool is_text = path == "/v1/completions" || path.ends_with("/generate");
  return is_text ? "text_completion" : "chat";
}

Json attributes_of(const RequestSpan& request) {
  Attributes out;
  out.add("gen_ai.operation.name", text(operation_of(request.path)));
  out.add("gen_ai.provider.name", text("sluice"));
  out.add("gen_ai.request.id", text(request.request_id));
  out.add("gen_ai.request.model", text(request.model));
  out.add("gen_ai.response.model", text(request.model));
  out.add("gen_ai.request.temperature", number(request.temperature));
  out.add("gen_ai.request.top_p", number(request.top_p));
  if (request.top_k > 0) out.add("gen_ai.request.top_k", integer(request.top_k));
  if (request.max_tokens) out.add("gen_ai.request.max_tokens", integer(*request.max_tokens));
  out.add("gen_ai.request.n", integer(request.num_choices));
  out.add("gen_ai.usage.num_sequences", integer(request.num_sequences));
  out.add("gen_ai.usage.prompt_tokens", integer(request.prompt_tokens));
  out.add("gen_ai.usage.input_tokens", integer(request.prompt_tokens));
  out.add("gen_ai.usage.cached_tokens", integer(request.cached_tokens));
  out.add("gen_ai.usage.completion_tokens", integer(request.completion_tokens));
  out.add("gen_ai.usage.output_tokens", integer(request.completion_tokens));
  out.add("gen_ai.response.finish_reasons",
          Json{{"arrayValue", {{"values", Json::array({text(request.finish)})}}}});
  out.add("url.path", text(request.path));
  const auto latency = [&](const char* name, Time from, Time to) {
    if (from != Time{} && to != Time{})
      out.add(std::string("gen_ai.latency.") + name, number(seconds_between(from, to)));
  };
  latency("time_in_queue", request.submitted, request.planned);
  latency("time_to_first_token", request.arrival, request.first_token);
  latency("time_in_model_prefill", request.planned, request.first_token);
  latency("time_in_model_decode", request.first_token, request.last_token);
  latency("time_in_model_inference", request.planned, request.last_token);
  latency("e2e", request.arrival, request.end);
  return out.take();
}

Json span_of(const RequestSpan& request, SpanId id, SpanId parent, std::string_view name, int kind,
             Time begin, Time end) {
  Json span{{"traceId", trace_id_text(request.context)},
            {"spanId", span_id_text(id)},
            {"name", name},
            {"kind", kind},
            {"startTimeUnixNano", unix_nanoseconds(begin)},
            {"endTimeUnixNano", unix_nanoseconds(end)}};
  if (parent != 0) span["parentSpanId"] = span_id_text(parent);
  if (!request.trace_state.empty()) span["traceState"] = request.trace_state;
  return span;
}

void add_spans(const RequestSpan& request, Json& spans) {
  Json whole = span_of(request, request.id, request.context.parent, "llm_request", kServer,
                       request.arrival, request.end);
  whole["attributes"] = attributes_of(request);
  if (request.finish == "error") whole["status"] = Json{{"code", kStatusError}};
  spans.push_back(std::move(whole));
  const std::pair<const char*, Time> phases[] = {{"read", request.submitted},
                                                 {"queue", request.planned},
                                                 {"prefill", request.first_token},
                                                 {"decode", request.last_token}};
  Time begin = request.arrival;
  for (const auto& [name, end] : phases) {
    if (end == Time{}) break;
    spans.push_back(span_of(request, new_span_id(), request.id, name, kInternal, begin, end));
    begin = end;
  }
}

}  // namespace

std::string otlp_json(std::span<const RequestSpan> requests, std::string_view service) {
  Json spans = Json::array();
  for (const RequestSpan& request : requests) add_spans(request, spans);
  Attributes resource;
  resource.add("service.name", text(service));
  resource.add("service.version", text(kVersion));
  resource.add("telemetry.sdk.name", text("sluice"));
  resource.add("telemetry.sdk.language", text("cpp"));
  resource.add("telemetry.sdk.version", text(kVersion));
  const Json scope{{"scope", {{"name", "sluice.server"}, {"version", kVersion}}},
                   {"spans", std::move(spans)}};
  return dump_json(
      Json{{"resourceSpans", Json::array({Json{{"resource", {{"attributes", resource.take()}}},
                                               {"scopeSpans", Json::array({scope})}}})}});
}

}  // namespace sluice
