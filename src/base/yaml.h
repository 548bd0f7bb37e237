// YAML files of an operator, as JSON values: configuration and keys.
//
//   const Json config = parse_yaml_or_throw(text, "config.yaml");
//
// JSON is YAML, so either is read. Plain scalars have the types of YAML 1.2's core schema: null,
// true, false, whole numbers (decimal, 0x, 0o), floating point; all others and quoted ones are
// text.
#pragma once

#include <string_view>

#include "base/error.h"
#include "base/json.h"

namespace sluice {

// One document of at most 1 MiB, nested at most 16 deep; no text is null. Refused, with the line:
// aliases, tags, a second document, keys that are no text, and a key that stands twice. Never
// recurses.
Result<Json> parse_yaml(std::string_view text);

// A Fault becomes an Error{kBadInput} that names `what`.
Json parse_yaml_or_throw(std::string_view text, std::string_view what);

}  // namespace sluice
