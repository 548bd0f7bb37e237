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
};

// Parses strict JSON: no comments, no trailing text, no byte order mark, no NaN or Infinity, no
// number that overflows a double, no duplicate keys. Never recurses, so depth cannot exhaust the
// stack (R10). Faults: 400 with code invalid_json, json_too_deep, json_too_large or duplicate_key.
Result<Json> parse_json(std::string_view text, const JsonLimits& limits = {});

// Parses a file of Sluice or of a model; a Fault becomes an Error{kBadInput} that names `what`.
Json parse_json_or_throw(std::string_view text, std::string_view what,
                         const JsonLimits& limits = {});

// One line. UTF-8 stays as it is; invalid UTF-8 becomes U+FFFD and never throws.
std::string dump_json(const Json& value);

}  // namespace sluice
