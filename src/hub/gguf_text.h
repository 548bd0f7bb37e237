// The tokenizer and the chat template that a GGUF file carries, in the forms that text/ reads.
//
//   GgufText text = read_gguf_text("model.gguf");
//   auto tokenizer = Tokenizer::from_json(text.tokenizer_json, "model.gguf", text.bos_token, text.eos_token);
//
// Only byte-level byte-pair encoding (tokenizer.ggml.model gpt2) is supported; tokenizer.ggml.pre names how text is cut
// before it. Error{kBadInput} names the file and the key at fault.
#pragma once

#include <map>
#include <string>

namespace sluice {

struct GgufText {
  std::string tokenizer_json;
  std::string bos_token, eos_token;                     // empty when the file states none
  std::map<std::string, std::string> special_tokens;    // "bos_token", "eos_token", "unk_token", "pad_token"
  std::map<std::string, std::string> chat_templates;    // by name; "default"
};

GgufText read_gguf_text(const std::string& path);

}  // namespace sluice
