// Readers of the `normalizer` and `pre_tokenizer` members of a tokenizer.json.
#pragma once

#include "text/normalizer.h"
#include "text/pre_tokenizer.h"
#include "text/tokenizer_field.h"

namespace sluice {

inline constexpr int kMaxStepDepth = 8;  // of nested Sequences

// Error{kBadInput} names the field; a type that is not supported is named with those that are.
Normalizer read_normalizer(const JsonField& field);
PreTokenizer read_pre_tokenizer(const JsonField& field);

}  // namespace sluice
