// Readers of the request fields that are more than a number, a flag or a text, and the faults of
// words. Each takes the field's dotted path for its faults.
#pragma once

#include "server/api/request_fields.h"

namespace sluice {

std::optional<Fault> read_seed(const std::string& path, const Json& json, GenerationFields& out);
std::optional<Fault> read_stop(const std::string& path, const Json& json, GenerationFields& out);
std::optional<Fault> read_stop_tokens(const std::string& path, const Json& json,
                                      std::int64_t vocab_size, GenerationFields& out);
std::optional<Fault> read_logit_bias(const std::string& path, const Json& json,
                                     std::int64_t vocab_size, GenerationFields& out);
std::optional<Fault> read_stream_options(const std::string& path, const Json& json,
                                         GenerationFields& out);

// A number as a client would read it; of anything else its type.
std::string shown_value(const Json& json);

// A word that is none of `allowed`, or no word at all; the message says which.
Fault bad_word(const std::string& path, std::string_view allowed, const Json& seen);

}  // namespace sluice
