// Compares the chat-template interpreter with recorded renderings of transformers
// (tests/golden/README.md).
#pragma once

#include <string>

#include "base/json.h"
#include "text/tokenizer/tokenizer_oracle.h"

namespace sluice {

// `cases` is a cases.json. Its templates are read from `directory` (chat_template.jinja and the
// files that it lists). A text must be equal byte for byte, and generation blocks must span the
// same code points. If the reference raised raise_exception, the message must be equal. If it
// failed otherwise, the kind of error must be equal. Error{kBadInput}: a file of another form, or a
// template that cannot be read.
OracleReport check_chat_template_oracle(const std::string& directory, const Json& cases);

// `snippets` is a snippets.json: one-line templates with their text, or the class of their error.
OracleReport check_snippets(const Json& snippets);

}  // namespace sluice
