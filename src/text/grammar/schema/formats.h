// The formats of JSON Schema that are asserted, as regular languages.
//
// Asserted: date-time, date, time, duration (RFC 3339), email (RFC 5321), hostname (RFC 1123),
// ipv4, ipv6 (RFC 4291), uri, uri-reference (RFC 3986), iri, iri-reference (RFC 3987), uuid,
// uri-template (RFC 6570), regex (ECMA 262, by a check at the end of the string), json-pointer,
// relative-json-pointer (RFC 6901), in every draft. Every other format is an annotation, as the
// specification allows.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "text/grammar/languages.h"

namespace sluice::grammar {

bool is_asserted_format(std::string_view format);
// The texts that have the format; nothing for a format that is not asserted.
std::optional<LanguageId> format_language(Languages& languages, std::string_view format);
// The most characters that a text of the format has beside its language; kUnbounded: no bound. It
// is apart since a counter costs less than an automaton that counts.
std::uint64_t format_max_length(std::string_view format);

}  // namespace sluice::grammar
