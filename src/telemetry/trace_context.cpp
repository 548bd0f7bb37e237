#include "telemetry/trace_context.h"

#include <fmt/format.h>
#include <sys/random.h>

#include <random>

namespace sluice {
namespace {

// A generator for each thread. Ids of spans need to differ; they are no secret.
std::uint64_t random_word() {
  thread_local std::mt19937_64 generator([] {
    std::uint64_t seed = 0;
    if (getrandom(&seed, sizeof seed, 0) != sizeof seed) seed = std::random_device()();
    return seed;
  }());
  return generator();
}

// Digits in lower case alone.
std::optional<std::uint64_t> hex_word(std::string_view digits) {
  std::uint64_t word = 0;
  for (const char c : digits) {
    const bool is_digit = c >= '0' && c <= '9', is_letter = c >= 'a' && c <= 'f';
    if (!is_digit && !is_letter) return std::nullopt;
    word = word << 4 | static_cast<std::uint64_t>(is_digit ? c - '0' : c - 'a' + 10);
  }
  return word;
}

}  // namespace

std::optional<TraceContext> parse_traceparent(std::string_view header) {
  // 00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01
  constexpr std::size_t kSize = 55;
  if (header.size() < kSize || header[2] != '-' || header[35] != '-' || header[52] != '-')
    return std::nullopt;
  const auto version = hex_word(header.substr(0, 2)), high = hex_word(header.substr(3, 16)),
             low = hex_word(header.substr(19, 16)), parent = hex_word(header.substr(36, 16)),
             flags = hex_word(header.substr(53, 2));
  if (!version || !high || !low || !parent || !flags || *version == 0xff) return std::nullopt;
  if ((*high | *low) == 0 || *parent == 0) return std::nullopt;
  if (header.size() > kSize && (*version == 0 || header[kSize] != '-')) return std::nullopt;
  return TraceContext{{*high, *low}, *parent, (*flags & 1) != 0};
}

TraceContext new_trace() {
  return TraceContext{{random_word() | 1, random_word()}, 0, true};
}

SpanId new_span_id() {
  return random_word() | 1;
}

std::string trace_id_text(const TraceContext& context) {
  return fmt::format("{:016x}{:016x}", context.trace_id[0], context.trace_id[1]);
}

std::string span_id_text(SpanId id) {
  return fmt::format("{:016x}", id);
}

}  // namespace sluice
