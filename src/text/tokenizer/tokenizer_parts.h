// The parts of a Tokenizer; filled by tokenizer_json.cpp, tokenizer_sentencepiece.cpp or
// tokenizer_tiktoken.cpp.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "text/tokenizer/added_tokens.h"
#include "text/tokenizer/bpe.h"
#include "text/tokenizer/detokenizer_tokens.h"
#include "text/tokenizer/normalizer.h"
#include "text/tokenizer/pre_tokenizer.h"
#include "text/tokenizer/unigram.h"
#include "text/tokenizer/wordpiece.h"

namespace sluice {

struct TokenizerParts {
  TokenTable vocab;
  std::unique_ptr<BpeModel> bpe;  // one of these three
  std::unique_ptr<UnigramModel> unigram;
  std::unique_ptr<WordPieceModel> wordpiece;
  Normalizer normalizer;
  PreTokenizer pre_tokenizer;

  std::unordered_map<std::int32_t, AddedToken> added;       // by id
  std::unordered_map<std::string, std::int32_t> added_ids;  // by content
  AddedTokenMatcher raw_matcher;                            // tokens found in the raw text
  AddedTokenMatcher normalized_matcher;                     // tokens found in the normalised text

  std::vector<std::int32_t> prefix_ids;  // from the post-processor, before and after the text
  std::vector<std::int32_t> suffix_ids;

  std::unique_ptr<TokenDecoder> decoder;

  std::size_t max_bytes_per_token = 0;  // see Tokenizer; filled by Tokenizer's constructor

  std::string bos_token, eos_token;
  std::optional<std::int32_t> bos_id, eos_id;
  std::string eos_place;              // "tokenizer_config.json: eos_token"
  std::int32_t size_in_file = 0;      // the largest id plus one, without tokens of side files
  bool split_special_tokens = false;  // special tokens in a text are ordinary text
};

struct TokenizerSideFiles;
// Error{kBadInput} names `what` and the field. `side`: files beside it, with more added tokens.
std::unique_ptr<TokenizerParts> parse_tokenizer_json(std::string_view text, std::string_view what,
                                                     const TokenizerSideFiles* side = nullptr);

// The names of a tokenizer.json's members, and whether each is null. Empty for a file that is no
// JSON object.
std::vector<std::pair<std::string, bool>> tokenizer_json_members(std::string_view text);

// The maximum id of a vocabulary of `tokens`. A gap costs an entry of every table, so this keeps a
// stray large id from making tables of millions.
constexpr std::int64_t largest_id(std::size_t tokens) {
  return 4 * static_cast<std::int64_t>(tokens) + (1 << 18);
}

// Builds the matchers of `added` and fills the decoder, which must exist. Both see normalised
// contents of normalised tokens. Error{kBadInput}, naming `what`: an added token's id beyond
// largest_id, or a text that normalisation lengthens too much.
void place_added_tokens(std::string_view what, TokenizerParts& parts);

}  // namespace sluice
