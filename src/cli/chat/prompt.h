// Text on the way to the engine and back, for the verbs that take a prompt.
#pragma once

#include <memory>
#include <string>

#include "cli/arguments.h"
#include "engine/options.h"
#include "text/tokenizer/tokenizer.h"

namespace sluice {

struct TextTools {
  std::string directory;                       // where the tokenizer lies
  std::string chat_template_override;          // --chat-template
  std::shared_ptr<const Tokenizer> tokenizer;  // null only where `optional` allowed it
};

// The tokenizer of --tokenizer-path, else of --model. Error{kBadInput} when there is none, unless
// `optional`.
TextTools load_text_tools(const Options& options, bool optional = false);

// Of flags that need --chat, where that is missing: UsageError for --system, a warning for a
// template.
void check_chat_flags(const Arguments& arguments);

// A conversation of one user's message, after `system` where that is not empty, through the model's
// chat template, with the opening of the answer. Error{kBadInput} when the model has no template or
// it refuses.
std::string render_chat(const TextTools& tools, const std::string& system, const std::string& user);

}  // namespace sluice
