// Tokenizers from files other than tokenizer.json. tokenizer_config.json, special_tokens_map.json
// and added_tokens.json may exist beside each of them.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "base/json.h"
#include "text/tokenizer/tokenizer_parts.h"

namespace sluice {

// The special tokens that every tokenizer may name, in the order of transformers.
inline constexpr const char* kNamedTokens[] = {"bos_token", "eos_token", "unk_token", "sep_token",
                                               "pad_token", "cls_token", "mask_token"};

// The files beside the vocabulary; empty objects for missing files.
struct TokenizerSideFiles {
  Json config = Json::object();          // tokenizer_config.json
  Json special_tokens = Json::object();  // special_tokens_map.json
  Json added_tokens = Json::object();    // added_tokens.json: {content: id}
  std::string model_type;                // from config.json
  std::string padding_token;             // from `padding` of tokenizer.json
};

// A member that may be true or false; Error{kBadInput} for another type.
bool flag_of(const Json& config, const char* key, bool otherwise);
// A token is a string, or an object with `content`; empty if it is absent. `what` names the file.
std::string token_text_of(const Json& file, const std::string& key, std::string_view what);

// Registers the tokens of added_tokens_decoder, added_tokens.json and the named special tokens of
// both files. An id of the vocabulary gets the new text. All are found in the raw text, whatever
// their "normalized" says, as in the "slow" classes of transformers that read these files.
void add_side_tokens(const TokenizerSideFiles& side, std::string_view what, TokenizerParts& parts);

// Adds to the added tokens of a tokenizer.json those of the files beside it, with the ids that
// transformers gives them. For a token of both the flags of the side file count. Before
// place_added_tokens().
void add_more_tokens(const TokenizerSideFiles& side, std::string_view what, TokenizerParts& parts);

// tokenizer.model by SentencePiece's own rules. Special tokens in a text are cut out first, as in
// the classes of transformers. The dummy prefix stands only before the text or, with `legacy`,
// before each part between special tokens. `bytes` is the file, `what` its path. Error{kBadInput}:
// as parse_sentencepiece, a duplicate id or text, ids without a piece, a model_type other than
// unigram, BPE and char, byte_fallback without 256 byte pieces.
std::unique_ptr<TokenizerParts> sentencepiece_parts(std::string_view bytes, std::string_view what,
                                                    const TokenizerSideFiles& side);

// As sentencepiece_parts(), for sentencepiece.bpe.model with the ids of fairseq. These are <s>,
// <pad>, </s>, <unk>, then the pieces after the model's own three special ones, and <mask> last.
// Only XLM-RoBERTa's class is known to use them; Error{kBadInput} names any other class.
std::unique_ptr<TokenizerParts> fairseq_parts(std::string_view bytes, std::string_view what,
                                              const TokenizerSideFiles& side);

// A tiktoken file: lines of base64 and a rank. The split pattern and special tokens come from
// `settings` ({"pat_str": ..., "special_tokens": {text: id}}). If that is null, they come from a
// table of published models, by the file's name and the model_type of config.json; otherwise they
// are those of Llama 3. Error{kBadInput} names the line.
std::unique_ptr<TokenizerParts> tiktoken_parts(std::string_view text, std::string_view what,
                                               const Json& settings,
                                               const TokenizerSideFiles& side);
// Whether a tokenizer.model file is a tiktoken file.
bool looks_like_tiktoken(std::string_view text);

// Mistral's tekken.json: as tiktoken_parts(), with ids after the special tokens.
std::unique_ptr<TokenizerParts> tekken_parts(const Json& file, std::string_view what);

// The text of an equivalent tokenizer.json for vocab.json and merges.txt (byte-level BPE as
// GPT-2's, or Qwen2's by tokenizer_class), and for vocab.txt (WordPiece as BERT's).
std::string vocab_merges_json(std::string_view vocab, std::string_view merges,
                              std::string_view what, const TokenizerSideFiles& side);
std::string vocab_txt_json(std::string_view vocab, std::string_view what,
                           const TokenizerSideFiles& side);

}  // namespace sluice
