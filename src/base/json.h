// JSON values and a bounded parser.
//
// `Json` keeps the order of keys (chat templates and tool schemas need it). Look-up in an object is
// linear: use simdjson for large maps such as a tokenizer's vocabulary.
#pragma once

#include <cstddef>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "base/error.h"

namespace sluice {

using Json = nlohmann::ordered_json;

// The limits of a parser; the defaults are those of a request body (docs/rules.md, Limits).
struct JsonLimits {
  int max_depth = 64;                    // code json_too_deep
  std::size_t max_elements = 4'000'000;  // values in all; code json_too_large
  // What Python's json reads: an integer beyond 64 bits keeps its digits (is_big_integer), and a
  // number beyond the doubles is infinite. Without it, the one is a double and the other a fault.
  bool exact_numbers = false;
  bool last_key_wins = false;  // of a key that appears twice; else a fault
};

// The limits of a request's body, and of arguments that a model wrote.
inline constexpr JsonLimits kRequestJson{.exact_numbers = true};
inline constexpr JsonLimits kArgumentsJson{.exact_numbers = true, .last_key_wins = true};

// Parses strict JSON: no comments, no trailing text, no byte order mark, no NaN or Infinity. Unless
// `limits` say otherwise: no number that overflows a double, no duplicate keys. Never recurses, so
// depth cannot exhaust the stack (R10). Faults: 400 with code invalid_json, json_too_deep,
// json_too_large or duplicate_key.
Result<Json> parse_json(std::string_view text, const JsonLimits& limits = {});

// Parses a file of Sluice or of a model; a Fault becomes an Error{kBadInput} that names `what`.
Json parse_json_or_throw(std::string_view text, std::string_view what,
                         const JsonLimits& limits = {});

// An integer beyond 64 bits: `digits` with a sign. It is no number for nlohmann's functions.
Json big_integer(std::string_view digits);
bool is_big_integer(const Json& value);
std::string big_integer_digits(const Json& value);

// One line. Big integers have their digits, and infinite numbers become 1e999. UTF-8 stays as it
// is; invalid UTF-8 becomes U+FFFD and never throws.
std::string dump_json(const Json& value);

}  // namespace sluice
