// The tokenizer and the chat template that a GGUF file carries, in the forms that text/ reads.
//
//   GgufText text = read_gguf_text("model.gguf");
//   auto tokenizer = text.sentencepiece.empty()
//       ? Tokenizer::from_json(text.tokenizer_json, "model.gguf", text.bos_token, text.eos_token)
//       : Tokenizer::from_sentencepiece(text.sentencepiece, "model.gguf", text.tokenizer_config);
//
// By tokenizer.ggml.model: gpt2 is byte-level byte-pair encoding, and tokenizer.ggml.pre names how
// text is cut before it; llama is SentencePiece's byte-pair encoding by scores, t5 its unigram
// model. Error{kBadInput} names the file and the key at fault.
#pragma once

#include <map>
#include <string>

#include "base/json.h"

namespace sluice {

struct GgufText {
  std::string tokenizer_json;        // of gpt2
  std::string sentencepiece;         // of llama and t5: the bytes of a tokenizer.model
  Json tokenizer_config;             // what is beside it
  std::string bos_token, eos_token;  // empty when the file states none
  // "bos_token", "eos_token", "unk_token", "pad_token"
  std::map<std::string, std::string> special_tokens;
  std::map<std::string, std::string> chat_templates;  // by name; "default"
};

GgufText read_gguf_text(const std::string& path);

}  // namespace sluice
