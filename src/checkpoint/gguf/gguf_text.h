// The tokenizer and the chat template of a GGUF file, in the forms that text/ reads.
//
//   GgufText text = read_gguf_text("model.gguf");
//   auto tokenizer = text.sentencepiece.empty()
//       ? Tokenizer::from_json(text.tokenizer_json, "model.gguf", text.bos_token, text.eos_token)
//       : Tokenizer::from_sentencepiece(text.sentencepiece, "model.gguf", text.tokenizer_config);
//
// tokenizer.ggml.model selects the kind. gpt2 is byte-level BPE, and tokenizer.ggml.pre names its
// pre-tokenizer. llama is SentencePiece's BPE by scores, t5 its unigram model. Error{kBadInput}
// names the file and the key at fault.
#pragma once

#include <map>
#include <string>

#include "base/json.h"

namespace sluice {

struct GgufText {
  std::string tokenizer_json;        // for gpt2
  std::string sentencepiece;         // for llama and t5: the bytes of a tokenizer.model
  Json tokenizer_config;             // contents of the tokenizer_config.json beside it
  std::string bos_token, eos_token;  // empty when the file states none
  // "bos_token", "eos_token", "unk_token", "pad_token"
  std::map<std::string, std::string> special_tokens;
  std::map<std::string, std::string> chat_templates;  // by name, including "default"
};

GgufText read_gguf_text(const std::string& path);
class GgufFile;
GgufText read_gguf_text(const GgufFile& file);

}  // namespace sluice
