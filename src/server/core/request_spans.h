// The spans of requests: where one begins. Any thread.
#pragma once

#include <memory>

#include "server/http/http.h"
#include "telemetry/request_span.h"

namespace sluice {

// In the trace of the header `traceparent`, or in a new one.
std::shared_ptr<RequestSpan> begin_span(const HttpRequest& request);

}  // namespace sluice
