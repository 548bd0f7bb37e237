#include "server/model_text.h"

#include <filesystem>

#include "hub/gguf_file.h"
#include "hub/gguf_text.h"

namespace sluice {

bool has_tokenizer(const std::string& model) {
  return is_gguf_path(model) || std::filesystem::is_regular_file(model + "/tokenizer.json");
}

std::unique_ptr<Tokenizer> load_tokenizer(const std::string& model) {
  if (!is_gguf_path(model)) return Tokenizer::load(model);
  const GgufText text = read_gguf_text(model);
  return Tokenizer::from_json(text.tokenizer_json, model, text.bos_token, text.eos_token);
}

std::unique_ptr<ChatTemplate> load_chat_template(const std::string& model, const std::string& override_) {
  if (!is_gguf_path(model)) return ChatTemplate::load(model, override_);
  const GgufText text = read_gguf_text(model);
  return ChatTemplate::load_given(text.chat_templates, text.special_tokens, override_);
}

}  // namespace sluice
