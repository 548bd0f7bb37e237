// The tokenizer and the chat template of a resolved model (hub/resolve.h), which is a directory or
// a GGUF file.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "config/generation_config.h"
#include "engine/options.h"
#include "text/chat/chat_template.h"
#include "text/tokenizer/tokenizer.h"

namespace sluice {

// Whether there is a tokenizer that load_tokenizer would read.
bool has_tokenizer(const std::string& model);

// What --tokenizer, else --model, names, where that is a directory which holds a tokenizer: it will
// do without a config.json. Else empty: the name is one that hub/obtain.h looks up.
std::string local_text_directory(const Options& options);

// Of --tokenizer-mode, checked.
TokenizerMode tokenizer_mode(const Options& options);

// Error{kBadInput}: as Tokenizer::load, or as read_gguf_text.
std::unique_ptr<Tokenizer> load_tokenizer(const std::string& model,
                                          TokenizerMode mode = TokenizerMode::kAuto);

// The tokens of a tokenizer that end a generation, for TextHooks.
std::vector<EndToken> tokenizer_ends(const Tokenizer& tokenizer);

// Keys of a model's files that change nothing.
struct IgnoredKeys {
  std::string file;  // its name without a folder
  std::vector<std::string> keys;
};
// One entry a file that has some. `override_args` is the model's (config/model_config.h).
// `directory` is the model's, `text_directory` the tokenizer's.
// `functional_only` leaves out keys that only describe a GGUF file.
std::vector<IgnoredKeys> ignored_keys(const Options& options, std::string_view override_args,
                                      const std::string& directory,
                                      const GenerationConfig& generation,
                                      const std::string& text_directory, bool functional_only);

// Error{kBadInput}: the tokenizer has ids that the model does not know, and is the model's own; a
// warning when it was named by
// --tokenizer, since ids beyond are refused by request. `directory` is the model's.
void check_tokenizer_fits(const Options& options, const Tokenizer& tokenizer,
                          std::int64_t vocab_size, const std::string& directory);

// Null when the model has none. `override_` is that of ChatTemplate::load, as are the errors.
std::unique_ptr<ChatTemplate> load_chat_template(const std::string& model,
                                                 const std::string& override_ = {});

}  // namespace sluice
