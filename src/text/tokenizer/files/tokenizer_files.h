// Tokenizers from other files than tokenizer.json. All of them may be accompanied by
// tokenizer_config.json, special_tokens_map.json and added_tokens.json.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "base/json.h"
#include "text/tokenizer/tokenizer_parts.h"

namespace sluice {

// What lies beside the vocabulary; empty objects where there is no such file.
struct TokenizerSideFiles {
  Json config = Json::object();          // tokenizer_config.json
  Json special_tokens = Json::object();  // special_tokens_map.json
  Json added_tokens = Json::object();    // added_tokens.json: {content: id}
  std::string model_type;                // of config.json
};

// The members that may be true or false; Error{kBadInput} for another type.
bool flag_of(const Json& config, const char* key, bool otherwise);
// A token is a string, or an object with `content`; empty when it is absent. `what` names the file.
std::string token_text_of(const Json& file, const std::string& key, std::string_view what);

// Registers the tokens of added_tokens_decoder, added_tokens.json and the named special tokens of
// both files. An id of the vocabulary gets the new text. All are looked for in the text as it came,
// whatever their "normalized" says: so do the "slow" classes of transformers, which read these
// files.
void add_side_tokens(const TokenizerSideFiles& side, std::string_view what, TokenizerParts& parts);

// tokenizer.model by SentencePiece's own rules. Special tokens in a text are cut out first, as
// transformers' classes do; the dummy prefix is put before the text only or, with `legacy`, before
// each part between them. `bytes` is the file, `what` its path. Error{kBadInput}: as
// parse_sentencepiece, an id or text twice, ids that are no piece, a model_type other than unigram,
// BPE and char, byte_fallback without 256 byte pieces.
std::unique_ptr<TokenizerParts> sentencepiece_parts(std::string_view bytes, std::string_view what,
                                                    const TokenizerSideFiles& side);

// The same for sentencepiece.bpe.model, whose ids are those of fairseq: <s>, <pad>, </s>, <unk>,
// then the pieces behind the model's own three special ones, and <mask> last. Only XLM-RoBERTa's
// class is known to mean that; Error{kBadInput} names any other.
std::unique_ptr<TokenizerParts> fairseq_parts(std::string_view bytes, std::string_view what,
                                              const TokenizerSideFiles& side);

// A tiktoken file: lines of base64 and a rank. The split pattern and special tokens come from
// `settings`
// ({"pat_str": ..., "special_tokens": {text: id}}) or, where that is null, from what is known of
// published models by the file's name and the model_type of config.json; otherwise they are those
// of Llama 3. Error{kBadInput} names the line.
std::unique_ptr<TokenizerParts> tiktoken_parts(std::string_view text, std::string_view what,
                                               const Json& settings,
                                               const TokenizerSideFiles& side);
// Whether a file that may be either is a tiktoken file.
bool looks_like_tiktoken(std::string_view text);

// Mistral's tekken.json: the same with ids behind the special tokens.
std::unique_ptr<TokenizerParts> tekken_parts(const Json& file, std::string_view what);

// vocab.json and merges.txt (byte-level BPE as GPT-2's, or Qwen2's by tokenizer_class), and
// vocab.txt (WordPiece as BERT's): the text of an equal tokenizer.json.
std::string vocab_merges_json(std::string_view vocab, std::string_view merges,
                              std::string_view what, const TokenizerSideFiles& side);
std::string vocab_txt_json(std::string_view vocab, std::string_view what,
                           const TokenizerSideFiles& side);

}  // namespace sluice
