#include "server/core/model_text.h"

#include "base/error.h"
#include "base/log.h"
#include "checkpoint/gguf/gguf_file.h"
#include "checkpoint/gguf/gguf_text.h"

namespace sluice {

bool has_tokenizer(const std::string& model) {
  return is_gguf_path(model) || !Tokenizer::file_of(model).empty();
}

std::string local_text_directory(const Options& options) {
  const std::string& name = options.tokenizer.empty() ? options.model : options.tokenizer;
  return Tokenizer::file_of(name).empty() ? std::string() : name;
}

TokenizerMode tokenizer_mode(const Options& options) {
  if (options.tokenizer_mode == "slow") return TokenizerMode::kSlow;
  return options.tokenizer_mode == "mistral" ? TokenizerMode::kMistral : TokenizerMode::kAuto;
}

std::unique_ptr<Tokenizer> load_tokenizer(const std::string& model, TokenizerMode mode) {
  if (!is_gguf_path(model)) return Tokenizer::load(model, mode);
  const GgufText text = read_gguf_text(model);
  if (!text.sentencepiece.empty())
    return Tokenizer::from_sentencepiece(text.sentencepiece, model, text.tokenizer_config);
  return Tokenizer::from_json(text.tokenizer_json, model, text.bos_token, text.eos_token);
}

std::unique_ptr<ChatTemplate> load_chat_template(const std::string& model,
                                                 const std::string& override_) {
  if (!is_gguf_path(model)) return ChatTemplate::load(model, override_);
  const GgufText text = read_gguf_text(model);
  return ChatTemplate::load_given(text.chat_templates, text.special_tokens, override_);
}

void check_tokenizer_fits(const Options& options, const Tokenizer& tokenizer,
                          std::int64_t vocab_size, const std::string& directory) {
  if (vocab_size >= tokenizer.size()) return;
  require(!options.tokenizer.empty(),
          "vocab_size of {} is {}, but its tokenizer has token ids up to {}; it must be at least "
          "{}: the "
          "tokenizer belongs to another model",
          directory, vocab_size, tokenizer.size() - 1, tokenizer.size());
  log_warning("--tokenizer has token ids up to {}; the model knows those below {}",
              tokenizer.size() - 1, vocab_size);
}

}  // namespace sluice
