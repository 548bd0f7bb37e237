// Which trace a request belongs to: the header `traceparent` (W3C Trace Context). Pure functions,
// but for the random numbers. Any thread.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace sluice {

using SpanId = std::uint64_t;  // 0: none

struct TraceContext {
  std::array<std::uint64_t, 2> trace_id{};  // never both 0
  SpanId parent = 0;                        // the caller's span; 0: the trace begins here
  bool is_sampled = true;                   // false: the caller keeps no spans of it
};

// Null for what is no `traceparent`: the trace then begins here, as the specification says. A
// version above 00 may have more at its end.
std::optional<TraceContext> parse_traceparent(std::string_view header);
// A trace that begins here.
TraceContext new_trace();
SpanId new_span_id();

// 32 and 16 digits in lower case.
std::string trace_id_text(const TraceContext& context);
std::string span_id_text(SpanId id);

}  // namespace sluice
