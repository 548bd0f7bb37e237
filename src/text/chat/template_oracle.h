// Compares the chat-template interpreter with recorded renderings of transformers
// (tests/golden/README.md).
#pragma once

#include <string>

#include "base/json.h"
#include "text/tokenizer/tokenizer_oracle.h"

namespace sluice {

// `cases` is a cases.json; its templates are read from `directory` (chat_template.jinja and what
// the file lists). A text must be equal byte for byte, generation blocks must span the same code
// points; where the reference raised raise_exception the message must be equal, where it failed
// otherwise we must fail with the same kind of error. Error{kBadInput}: a file of another form, or
// a template that cannot be read.
OracleReport check_chat_template_oracle(const std::string& directory, const Json& cases);

// `snippets` is a snippets.json: one-line templates with their text, or the class of their error.
OracleReport check_snippets(const Json& snippets);

}  // namespace sluice
