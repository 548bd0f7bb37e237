#include "server/core/request_spans.h"

namespace sluice {
namespace {

constexpr std::size_t kMaxTraceState = 512;  // of which the specification promises to go on

}  // namespace

std::shared_ptr<RequestSpan> begin_span(const HttpRequest& request) {
  auto span = std::make_shared<RequestSpan>();
  const std::string* const parent = request.header("traceparent");
  const std::optional<TraceContext> context =
      parent ? parse_traceparent(*parent) : std::optional<TraceContext>();
  span->context = context ? *context : new_trace();
  const std::string* const state = request.header("tracestate");
  if (context && state && state->size() <= kMaxTraceState) span->trace_state = *state;
  span->id = new_span_id();
  span->request_id = request.request_id;
  span->path = request.path;
  span->arrival = request.arrival;
  return span;
}

}  // namespace sluice
