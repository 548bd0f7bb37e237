// Text to token ids and back, as described by a Hugging Face `tokenizer.json` or a file of an older
// kind.
//
// Supported: every model type of such files (BPE, Unigram, WordPiece, WordLevel) with the
// normalizers, pre-tokenizers, post-processors and decoders of published models; SentencePiece and
// tiktoken files, vocab.json with merges.txt, vocab.txt and tekken.json (tokenizer_files.h). An
// unsupported part is an error that names it. The steps are:
// 1. Added tokens are cut out.
// 2. The rest is normalised and split, and each piece is tokenized.
// 3. The post-processor adds its tokens.
//
// Source: tokenizers `tokenizer/mod.rs`; reference outputs in tests/golden/tokenizers. Immutable
// after load: any number of threads may use one Tokenizer at once.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/json.h"

namespace sluice {

struct TokenizerParts;
class TokenDecoder;

struct EncodeOptions {
  // the post-processor's tokens, such as a leading <s>; off for rendered chat templates
  bool add_special_tokens = true;
  // special tokens in the text are recognised; added tokens always are
  bool parse_special = true;
};

// The file to read if a directory has several (vLLM's --tokenizer-mode).
enum class TokenizerMode {
  kAuto,     // tokenizer.json, else SentencePiece, tiktoken, tekken.json, vocab.json + merges.txt,
             // vocab.txt
  kSlow,     // tokenizer.json last, as in the "slow" classes of transformers
  kMistral,  // tekken.json, else SentencePiece
};

class Tokenizer {
 public:
  // Reads the tokenizer of a model directory and, for bos, eos and added tokens,
  // tokenizer_config.json, special_tokens_map.json, added_tokens.json, generation_config.json and
  // config.json. Error{kBadInput} names the
  // file and the field at fault, or the files that were looked for.
  static std::unique_ptr<Tokenizer> load(const std::string& directory,
                                         TokenizerMode mode = TokenizerMode::kAuto);
  // The file that load would read; empty if there is none.
  static std::string file_of(const std::string& directory,
                             TokenizerMode mode = TokenizerMode::kAuto);
  // Keys of the tokenizer's files in `directory` that change nothing: a file's name and its keys.
  static std::vector<std::pair<std::string, std::vector<std::string>>> ignored_keys(
      const std::string& directory, TokenizerMode mode = TokenizerMode::kAuto);
  // As load(), from the text of a tokenizer.json; `what` names it in errors. The texts of bos and
  // eos, if given, are tokens.
  static std::unique_ptr<Tokenizer> from_json(std::string_view text, std::string_view what,
                                              const std::string& bos_token = {},
                                              const std::string& eos_token = {});

  // As load(), from the bytes of a tokenizer.model and the contents of a tokenizer_config.json
  // beside it.
  static std::unique_ptr<Tokenizer> from_sentencepiece(std::string_view bytes,
                                                       std::string_view what, const Json& config);

  explicit Tokenizer(std::unique_ptr<TokenizerParts> parts);
  ~Tokenizer();
  Tokenizer(const Tokenizer&) = delete;
  Tokenizer& operator=(const Tokenizer&) = delete;

  // Invalid UTF-8 in `text` counts as U+FFFD. O(n log n) in the bytes of `text`, except for regular
  // expressions with a worse bound: those stop at a deadline with Error{kBadInput}
  // (pre_tokenizer_regex.h).
  std::vector<std::int32_t> encode(std::string_view text, const EncodeOptions& options = {}) const;

  // The number of steps of the model's inner loop (merges or tokens tried) in encode, for tests of
  // its growth.
  std::uint64_t encode_work(std::string_view text) const;

  // The text of `ids`, always valid UTF-8; ids without a token are skipped.
  std::string decode(std::span<const std::int32_t> ids, bool skip_special_tokens) const;

  // The bytes that a token adds to a text, possibly a part of a character; empty for an id without
  // a token.
  std::string token_bytes(std::int32_t id) const { return std::string(token_bytes_view(id)); }
  std::string_view token_bytes_view(std::int32_t id) const;
  // The token in the vocabulary's spelling ("Ġhello"); empty for an id without a token.
  std::string token_text(std::int32_t id) const;
  std::optional<std::int32_t> token_id(std::string_view token_text) const;
  bool is_added_token(std::string_view token_text) const;

  // The largest id plus one; a model's vocabulary may be padded beyond it.
  std::int32_t size() const;
  // The same without tokens that stand only in the files beside a tokenizer.json.
  std::int32_t size_in_file() const;
  bool is_token(std::int32_t id) const;
  bool is_special(std::int32_t id) const;
  // A text of n bytes has at least n / max_bytes_per_token() tokens. The maximum size_t if a token
  // may stand for any number of bytes (a run of unknown characters, dropped white space).
  std::size_t max_bytes_per_token() const;

  // Empty and nullopt if the model states none.
  const std::string& bos_token() const;
  const std::string& eos_token() const;
  std::optional<std::int32_t> bos_id() const;
  std::optional<std::int32_t> eos_id() const;
  const std::string& eos_place() const;  // "tokenizer_config.json: eos_token"

  // For Detokenizer and StopMatcher.
  const TokenDecoder& decoder() const;

 private:
  std::unique_ptr<TokenizerParts> parts_;
};

}  // namespace sluice
