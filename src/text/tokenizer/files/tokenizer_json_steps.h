// Readers of the `normalizer`, `pre_tokenizer`, `decoder` and `model` members of a tokenizer.json.
#pragma once

#include <optional>
#include <vector>

#include "text/tokenizer/detokenizer_tokens.h"
#include "text/tokenizer/files/tokenizer_field.h"
#include "text/tokenizer/normalizer.h"
#include "text/tokenizer/pre_tokenizer.h"

namespace sluice {

inline constexpr int kMaxStepDepth = 8;  // nesting depth of Sequences

// Error{kBadInput} names the field; for an unsupported type it also names the supported ones.
Normalizer read_normalizer(const JsonField& field);
PreTokenizer read_pre_tokenizer(const JsonField& field);
std::vector<DecoderStage> read_decoder(
    const std::optional<JsonField>& field);  // nullopt: spaces between tokens
struct TokenizerParts;
// Fills vocab and the model.
void read_model(const JsonField& root, std::string_view what, TokenizerParts& parts);

}  // namespace sluice
