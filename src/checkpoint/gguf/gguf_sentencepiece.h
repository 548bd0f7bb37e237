// The vocabulary of a GGUF file that was made from a SentencePiece model (tokenizer.ggml.model is
// llama or t5), as the bytes of a `tokenizer.model`. Private to checkpoint/gguf/.
//
// Sources: sentencepiece_model.proto for the bytes; llama-vocab.cpp of llama.cpp for the defaults
// of missing keys and for added tokens. Control and unknown tokens are found in a text that may
// hold special tokens. User-defined tokens are always found, before the text is normalised.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "checkpoint/gguf/gguf_file.h"

namespace sluice {

struct GgufSentencePiece {
  std::string model;      // a tokenizer.model
  Json tokenizer_config;  // contents of a tokenizer_config.json: ends, added tokens, the prefix
                          // before each part
};

// `tokens` and `types` (tokenizer.ggml.tokens and token_type) have the same length.
// Error{kBadInput}: there is not one score for each token, or an id is not a token.
GgufSentencePiece gguf_sentencepiece(const GgufFile& file, bool unigram,
                                     const std::vector<std::string_view>& tokens,
                                     const std::vector<std::int64_t>& types);

}  // namespace sluice
