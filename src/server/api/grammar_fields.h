// The fields of a request that constrain its output, as OpenAI, vLLM, SGLang and llama.cpp name
// them.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "server/api/request_fields.h"

namespace sluice {

// `name` is one of: response_format, structured_outputs, guided_json, guided_regex, guided_choice,
// guided_grammar, json_schema, regex, ebnf, grammar, structural_tag. A request has one grammar; a
// second one is a fault.
std::optional<Fault> read_grammar_field(std::string_view name, const std::string& path,
                                        const Json& json, GenerationFields& out);

}  // namespace sluice
