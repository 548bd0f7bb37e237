// The vocabulary of a GGUF file that was made from a SentencePiece model (tokenizer.ggml.model is
// llama or t5), as the bytes of a `tokenizer.model`. Private to hub.
//
// Sources: sentencepiece_model.proto for the bytes; llama-vocab.cpp of llama.cpp for what a missing
// key means and for how added tokens behave: control and unknown tokens are found in a text that
// may hold special tokens, user-defined ones always, before anything is done to the text.
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
  Json tokenizer_config;  // what a tokenizer_config.json would say: ends, added tokens, the prefix
                          // before each part
};

// `tokens` and `types` (tokenizer.ggml.tokens and token_type) are of one length. Error{kBadInput}:
// there are no scores, or not one for each token; an id is no token.
GgufSentencePiece gguf_sentencepiece(const GgufFile& file, bool unigram,
                                     const std::vector<std::string_view>& tokens,
                                     const std::vector<std::int64_t>& types);

}  // namespace sluice
