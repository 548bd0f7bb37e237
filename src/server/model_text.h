// The tokenizer and the chat template of a resolved model (hub/resolve.h), which is a directory or a GGUF file.
#pragma once

#include <memory>
#include <string>

#include "text/chat_template.h"
#include "text/tokenizer.h"

namespace sluice {

// Whether there is a tokenizer that load_tokenizer would read.
bool has_tokenizer(const std::string& model);

// Error{kBadInput}: as Tokenizer::load, or as read_gguf_text.
std::unique_ptr<Tokenizer> load_tokenizer(const std::string& model);

// Null when the model has none. `override_` is that of ChatTemplate::load, as are the errors.
std::unique_ptr<ChatTemplate> load_chat_template(const std::string& model, const std::string& override_ = {});

}  // namespace sluice
