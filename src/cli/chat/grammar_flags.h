// The flags of `run` and `generate` that bind the output to a grammar, as llama.cpp names them.
#pragma once

#include <optional>

#include "cli/arguments.h"
#include "server/api/request_fields.h"

namespace sluice {

// Reads the file where the flag names one. UsageError for two of them; Error{kBadInput} for a file
// that cannot be read. Nothing where there is none.
std::optional<GrammarField> grammar_of(const Arguments& arguments);

}  // namespace sluice
