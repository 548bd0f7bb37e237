// What a Tokenizer is made of; filled by tokenizer_json.cpp.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "text/added_tokens.h"
#include "text/bpe.h"
#include "text/detokenizer_tokens.h"
#include "text/normalizer.h"
#include "text/pre_tokenizer.h"

namespace sluice {

struct TokenizerParts {
  TokenTable vocab;
  std::unique_ptr<BpeModel> bpe;
  Normalizer normalizer;
  PreTokenizer pre_tokenizer;

  std::unordered_map<std::int32_t, AddedToken> added;       // by id
  std::unordered_map<std::string, std::int32_t> added_ids;  // by content
  AddedTokenMatcher raw_matcher;                            // tokens looked for in the text as it came
  AddedTokenMatcher normalized_matcher;                     // tokens looked for after normalisation

  std::vector<std::int32_t> prefix_ids;  // the post-processor's, before and after the text
  std::vector<std::int32_t> suffix_ids;

  std::unique_ptr<TokenDecoder> decoder;

  std::string bos_token, eos_token;
  std::optional<std::int32_t> bos_id, eos_id;
};

// Error{kBadInput} names `what` and the field.
std::unique_ptr<TokenizerParts> parse_tokenizer_json(std::string_view text, std::string_view what);

}  // namespace sluice
