// What a trace tells of one request, and its form in OTLP: a span `llm_request`, as vLLM names it,
// with a span for each phase inside. Attributes are counts, times and parameters, never text of
// prompts or answers.
//
// Names: OpenTelemetry's semantic conventions for generative AI, and vLLM's (vllm/tracing).
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "telemetry/trace_context.h"

namespace sluice {

struct RequestSpan {
  using Time = std::chrono::steady_clock::time_point;

  TraceContext context;
  std::string trace_state;  // the header `tracestate`, which goes on unchanged
  SpanId id = 0;
  std::string request_id;
  std::string path;  // of the route
  std::string model;
  // Times that never came are Time{}.
  Time arrival{};
  Time submitted{};  // read and tokenized
  Time planned{};    // the first step that computes tokens of it
  Time first_token{};
  Time last_token{};
  Time end{};
  std::string_view finish;  // stop, length, abort, error
  int num_choices = 1, num_sequences = 1;
  int prompt_tokens = 0, cached_tokens = 0, completion_tokens = 0;
  std::optional<int> max_tokens;
  double temperature = 1, top_p = 1;
  int top_k = -1;
};

// The body of a request to a collector: OTLP's ExportTraceServiceRequest as JSON. `service`: the
// name of the program that the spans are of.
std::string otlp_json(std::span<const RequestSpan> requests, std::string_view service);

}  // namespace sluice
