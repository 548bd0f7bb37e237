// Tokenizers whose texts are put in lower case first, as `do_lower_case` of sentence-transformers
// asks.
#pragma once

#include <memory>
#include <string>

#include "text/tokenizer/tokenizer.h"

namespace sluice {

// As Tokenizer::load(), with a normalizer `Lowercase` before those of the file, which must be a
// tokenizer.json. Special tokens in a text keep their case.
std::unique_ptr<Tokenizer> load_lower_case_tokenizer(const std::string& directory,
                                                     TokenizerMode mode);

}  // namespace sluice
